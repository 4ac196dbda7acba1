//! One named command: how it is declared, what may be set beside its program, and how a client's arguments take their
//! places in it. It never looks at a client's line: it is given the arguments.

use super::argument::{Argument, Form};
use super::environment::{check_variable, is_obeyed};
use super::{MAX_ARGUMENTS, MAX_CACHE, MAX_CACHED_OUTPUT, MAX_ENVIRONMENT, MAX_SECRETS, is_name};
use crate::Invalid;
use crate::account_name::AccountName;
use crate::text::shortened;
use std::time::Duration;

/// A program with its arguments, and what a client may fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) limits: CommandLimits,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) secrets: Vec<String>,
    pub(crate) cache: Option<Duration>,
    pub(crate) user: Option<AccountName>,
}

/// How long a named command may run, how often at a time on one machine, and how much it may say. None: as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// The longest time.
    pub timeout: Option<Duration>,
    /// So many at a time.
    pub concurrency: Option<u32>,
    /// So many bytes of its output are passed on.
    pub output: Option<u64>,
}

impl CommandLimits {
    /// Both: the stricter of each.
    #[must_use]
    pub fn and(self, other: CommandLimits) -> CommandLimits {
        fn stricter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        CommandLimits {
            timeout: stricter(self.timeout, other.timeout),
            concurrency: stricter(self.concurrency, other.concurrency),
            output: stricter(self.output, other.output),
        }
    }
}

impl Command {
    /// `argv` names an absolute program first. `arguments`: name, form, default.
    ///
    /// Forms: `word`, `path`, `1..100`, or `one|of|these*`.
    pub fn define(argv: &[&str], arguments: &[(&str, &str, Option<&str>)]) -> Result<Command, Invalid> {
        let program = argv.first().ok_or("a command needs a program")?;
        if !program.starts_with('/') || program.contains(['{', '\0']) {
            return Err(Invalid(format!(
                "the program {program:?} has to be an absolute path without arguments in it"
            )));
        }
        if argv.len() > MAX_ARGUMENTS || arguments.len() > MAX_ARGUMENTS {
            return Err(Invalid(format!(
                "a command has at most {MAX_ARGUMENTS} arguments"
            )));
        }
        let mut declared: Vec<Argument> = Vec::new();
        for &(name, form, default) in arguments {
            if !is_name(name) || declared.iter().any(|a| a.name == name) {
                return Err(Invalid(format!(
                    "the argument name {name:?} is no name or stands there twice"
                )));
            }
            if default.is_none() && declared.iter().any(|a| a.default.is_some()) {
                return Err(Invalid(format!(
                    "the argument {name:?} stands behind one with a default and has none itself"
                )));
            }
            let form = Form::parse(form).map_err(|why| format!("the argument {name:?} {why}"))?;
            if default.is_some_and(|d| !form.fits(d)) {
                return Err(Invalid(format!(
                    "the default of the argument {name:?} has not the form that it declares"
                )));
            }
            declared.push(Argument {
                name: name.to_string(),
                form,
                default: default.map(str::to_string),
            });
        }
        let mut used = vec![false; declared.len()];
        for word in &argv[1..] {
            if word.contains('\0') {
                return Err("an argument holds a zero byte".into());
            }
            for (piece, placeholder) in pieces(word) {
                if placeholder {
                    let at = declared.iter().position(|a| a.name == piece);
                    used[at.ok_or_else(|| format!("{{{piece}}} is not declared as an argument"))?] = true;
                }
            }
        }
        if let Some(at) = used.iter().position(|u| !u) {
            return Err(Invalid(format!(
                "the argument {:?} is declared and stands nowhere",
                declared[at].name
            )));
        }
        Ok(Command {
            argv: argv.iter().map(|w| w.to_string()).collect(),
            arguments: declared,
            limits: CommandLimits::default(),
            environment: Vec::new(),
            secrets: Vec::new(),
            cache: None,
            user: None,
        })
    }

    /// The same with variables that are set for it.
    pub fn with_environment(self, environment: Vec<(String, String)>) -> Result<Command, Invalid> {
        for (name, value) in &environment {
            check_variable(name)?;
            if value.contains('\0') {
                let name = shortened(name);
                return Err(Invalid(format!(
                    "the variable {name:?} has a zero byte in its value"
                )));
            }
        }
        let bytes: usize = environment
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > MAX_ENVIRONMENT {
            return Err(Invalid(format!(
                "`environment` has {bytes} bytes: at most {MAX_ENVIRONMENT} of names and values together"
            )));
        }
        Ok(Command { environment, ..self })
    }

    /// The same with variables that the client has to send, for what stands on no command line.
    pub fn with_secrets(self, secrets: Vec<String>) -> Result<Command, Invalid> {
        if secrets.len() > MAX_SECRETS {
            return Err(Invalid(format!("`secrets` has room for {MAX_SECRETS} variables")));
        }
        for (at, name) in secrets.iter().enumerate() {
            check_variable(name)?;
            if is_obeyed(name) {
                return Err(Invalid(format!(
                    "the variable {:?} says what programs run, and `secrets` are for values that the client sends",
                    shortened(name)
                )));
            }
            if secrets[..at].contains(name) || self.environment.iter().any(|(other, _)| other == name) {
                return Err(Invalid(format!(
                    "the variable {name:?} stands twice in `secrets` and `environment`"
                )));
            }
        }
        Ok(Command { secrets, ..self })
    }

    /// The same with a time for which a result counts for all who ask for the same. It is the last thing to be said of a
    /// command: what is kept has a bound, and a secret is one client's.
    pub fn with_cache(self, cache: Duration) -> Result<Command, Invalid> {
        if cache > MAX_CACHE {
            return Err("`cache` is an hour at most".into());
        }
        if !self.secrets.is_empty() {
            return Err(
                "`cache` gives one client's result to others, and `secrets` are one client's: keep one"
                    .into(),
            );
        }
        if self.limits.output.is_none_or(|most| most > MAX_CACHED_OUTPUT) {
            return Err("with `cache`, `output` is 64K at most".into());
        }
        let cache = Some(cache);
        Ok(Command { cache, ..self })
    }

    /// The same as another account than the login's.
    #[must_use]
    pub fn run_as(self, user: AccountName) -> Command {
        let user = Some(user);
        Command { user, ..self }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// The account that it runs as, where it is not the login's.
    #[must_use]
    pub fn user(&self) -> Option<&AccountName> {
        self.user.as_ref()
    }

    /// The same with limits.
    #[must_use]
    pub fn limited(self, limits: CommandLimits) -> Command {
        Command { limits, ..self }
    }

    /// Whether both run the same, be it with other limits.
    pub(super) fn is_same_program(&self, other: &Command) -> bool {
        let Command { limits, cache, .. } = other.clone();
        let same = Command {
            limits,
            cache,
            ..self.clone()
        };
        same == *other
    }

    /// The argument vector, with these values in their places; the reason, if one has not its form.
    pub(super) fn fill(&self, given: &[String]) -> Result<Vec<Vec<u8>>, String> {
        if given.len() > self.arguments.len() {
            return Err(format!(
                "takes {} arguments, not {}",
                self.arguments.len(),
                given.len()
            ));
        }
        let mut values = Vec::with_capacity(self.arguments.len());
        for (i, argument) in self.arguments.iter().enumerate() {
            let value = match (given.get(i), &argument.default) {
                (Some(value), _) if argument.form.fits(value) => value,
                (Some(value), _) => {
                    return Err(format!(
                        "does not take {:?} as its argument {}, which is {}",
                        shortened(value),
                        argument.name,
                        argument.form.description()
                    ));
                }
                (None, Some(default)) => default,
                (None, None) => {
                    return Err(format!(
                        "needs its argument {}, which is {}",
                        argument.name,
                        argument.form.description()
                    ));
                }
            };
            values.push((&argument.name, value));
        }
        let word = |word: &String| {
            let mut filled = Vec::new();
            for (piece, placeholder) in pieces(word) {
                let text = match placeholder {
                    true => values.iter().find(|(n, _)| *n == piece).map_or("", |(_, v)| v),
                    false => piece,
                };
                filled.extend_from_slice(text.as_bytes());
            }
            filled
        };
        Ok(self.argv.iter().map(word).collect())
    }
}

/// A word of an argument vector, cut at its `{name}`s: text, and whether it is one of them.
fn pieces(word: &str) -> Vec<(&str, bool)> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        let Some(close) = rest[open..].find('}').map(|n| open + n) else {
            break;
        };
        let name = &rest[open + 1..close];
        if is_name(name) {
            pieces.push((&rest[..open], false));
            pieces.push((name, true));
        } else {
            pieces.push((&rest[..=close], false));
        }
        rest = &rest[close + 1..];
    }
    pieces.push((rest, false));
    pieces
}
