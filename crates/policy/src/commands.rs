//! Named commands: an administrator's list of programs that may be run by name, with arguments of declared forms.
//! No shell is involved: a name becomes an argument vector, and nothing that a client sends is expanded.

use crate::Invalid;
use crate::account_name::AccountName;
use crate::pattern;
use crate::rule::{Denied, Rule};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The most commands of one list.
pub const MAX_COMMANDS: usize = 4096;
/// The longest line that a client may send for one.
pub const MAX_LINE: usize = 8192;
/// The most arguments of one command, declared or sent.
pub const MAX_ARGUMENTS: usize = 64;
/// The longest argument that a client may send.
pub const MAX_ARGUMENT: usize = 1024;
/// The most bytes of all names and values of a command's environment.
pub const MAX_ENVIRONMENT: usize = 32 << 10;
/// The most variables that a client has to send for one command.
pub const MAX_SECRETS: usize = 16;
/// The longest time for which a result counts.
pub const MAX_CACHE: Duration = Duration::from_secs(3600);
/// The most output of a command whose results are kept: each client is given it in a pipe of the usual size, which the node
/// cannot take back.
pub const MAX_CACHED_OUTPUT: u64 = 64 << 10;
/// The longest name.
pub const MAX_NAME: usize = 128;

/// A list of commands by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands(BTreeMap<String, Command>);

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

/// A named command with a client's arguments filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCommand {
    /// Its name in the list.
    pub name: String,
    /// What to execute.
    pub argv: Vec<Vec<u8>>,
    /// How long, how often, and how much.
    pub limits: CommandLimits,
    /// Variables that are set for it.
    pub environment: Vec<(String, String)>,
    /// Variables that the client has to send.
    pub secrets: Vec<String>,
    /// Its result is given for so long to all who ask for the same.
    pub cache: Option<Duration>,
    /// The account that it runs as; none: the login's.
    pub user: Option<AccountName>,
}

/// An argument that a client may send, in its place on the line. In the argument vector it stands as `{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) default: Option<String>,
}

/// What an argument may look like. None but a negative number begins with a dash, so none is taken for a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Letters, digits and `._-@%+=:,`.
    Word,
    /// A whole number between two.
    Between(i64, i64),
    /// An absolute path without `..`.
    Path,
    /// One of these; `*` and `?` stand for characters of a word and slashes.
    OneOf(Vec<String>),
}

impl Commands {
    /// An empty list.
    pub fn new() -> Commands {
        Commands::default()
    }

    /// Adds one by its name.
    pub fn add(&mut self, name: &str, command: Command) -> Result<(), Invalid> {
        if !is_name(name) {
            return Err(Invalid(format!(
                "a command's name has 1 to {MAX_NAME} letters, digits and _.-, not {name:?}"
            )));
        }
        if self.0.len() == MAX_COMMANDS {
            return Err(Invalid(format!("a list of commands has room for {MAX_COMMANDS}")));
        }
        if self.0.insert(name.to_string(), command).is_some() {
            return Err(Invalid(format!("the command {name:?} stands there twice")));
        }
        Ok(())
    }

    /// Those of these names, for a key that may run them alone.
    pub fn subset(&self, names: &str) -> Result<Commands, Invalid> {
        let mut some = Commands::new();
        for name in names.split(',').map(str::trim) {
            let command = self
                .0
                .get(name)
                .ok_or_else(|| format!("there is no command {:?}", shortened(name)))?;
            some.0.insert(name.to_string(), command.clone());
        }
        Ok(some)
    }

    /// Those of these names that there are.
    pub fn those_of(&self, names: &[String]) -> Commands {
        let named = |name: &String| Some((name.clone(), self.0.get(name)?.clone()));
        Commands(names.iter().filter_map(named).collect())
    }

    /// Those of another list beside these; of a name that both have, this one's.
    #[must_use]
    pub fn or(mut self, others: &Commands) -> Commands {
        for (name, command) in &others.0 {
            self.0.entry(name.clone()).or_insert_with(|| command.clone());
        }
        self
    }

    /// Those that all of these lists have too, as the same program.
    pub fn common_with(&self, others: &[Option<&Commands>]) -> Commands {
        let is_there = |name: &str, command: &Command| {
            let there = others.iter().map(|list| list.and_then(|list| list.0.get(name)));
            let mut same = there.map(|other| other.is_some_and(|other| other.is_same_program(command)));
            same.all(|is_same| is_same)
        };
        let common = self.iter().filter(|(name, command)| is_there(name, command));
        Commands(
            common
                .map(|(name, command)| (name.to_owned(), command.clone()))
                .collect(),
        )
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Command)> {
        self.0.iter().map(|(name, command)| (name.as_str(), command))
    }

    /// The names, for messages and for `--check`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The command for a client's line: the name, then the arguments, separated by blanks; quotes and
    /// backslashes as in a shell's words, and nothing else of a shell.
    pub fn find(&self, line: &[u8], rule: &Rule) -> Result<NamedCommand, Denied> {
        let words = words(line).map_err(|why| Denied::new(format!("the command {why}")))?;
        let Some((name, given)) = words.split_first() else {
            return Err(Denied::new("the command is empty"));
        };
        self.with_arguments(name, given, rule)
    }

    /// The command of this name with these arguments.
    pub fn with_arguments(&self, name: &str, given: &[String], rule: &Rule) -> Result<NamedCommand, Denied> {
        let command = self.0.get(name).ok_or_else(|| {
            Denied::new(format!(
                "the command {:?} does not stand in {rule}",
                shortened(name)
            ))
        })?;
        let argv = command
            .fill(given)
            .map_err(|why| Denied::new(format!("the command {name:?} of {rule} {why}")))?;
        Ok(NamedCommand {
            name: name.to_owned(),
            argv,
            limits: command.limits,
            environment: command.environment.clone(),
            secrets: command.secrets.clone(),
            cache: command.cache,
            user: command.user.clone(),
        })
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
            variable(name)?;
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
            variable(name)?;
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

    fn is_same_program(&self, other: &Command) -> bool {
        let Command { limits, cache, .. } = other.clone();
        let same = Command {
            limits,
            cache,
            ..self.clone()
        };
        same == *other
    }

    fn fill(&self, given: &[String]) -> Result<Vec<Vec<u8>>, String> {
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

impl fmt::Display for Form {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Word => f.write_str("word"),
            Form::Path => f.write_str("path"),
            Form::Between(low, high) => write!(f, "{low}..{high}"),
            Form::OneOf(choices) => f.write_str(&choices.join("|")),
        }
    }
}

impl Form {
    fn parse(text: &str) -> Result<Form, String> {
        Ok(match text {
            "word" => Form::Word,
            "path" => Form::Path,
            _ => {
                if let Some((low, high)) = text.split_once("..") {
                    let bad = || format!("has no range of numbers in {text:?}");
                    let (low, high) = (low.parse().map_err(|_| bad())?, high.parse().map_err(|_| bad())?);
                    if low > high {
                        return Err(bad());
                    }
                    return Ok(Form::Between(low, high));
                }
                let words: Vec<String> = text.split('|').map(str::to_string).collect();
                if words
                    .iter()
                    .any(|w| w.is_empty() || w.starts_with('-') || w.contains(char::is_control))
                {
                    return Err(format!(
                        "has an empty choice, a dash or a control character in {text:?}"
                    ));
                }
                Form::OneOf(words)
            }
        })
    }

    /// What a value has to be, for the client whose value is not.
    fn description(&self) -> String {
        match self {
            Form::Word => format!("a word of letters, digits and {WORD_SIGNS}"),
            Form::Between(low, high) => format!("a whole number from {low} to {high}"),
            Form::Path => {
                format!("an absolute path of letters, digits, blanks and {WORD_SIGNS}/~, without ..")
            }
            Form::OneOf(choices) => format!("one of {}", shortened(&choices.join(", "))),
        }
    }

    fn fits(&self, value: &str) -> bool {
        if value.is_empty() || value.len() > MAX_ARGUMENT {
            return false;
        }
        match self {
            Form::Between(low, high) => {
                let digits = value.strip_prefix('-').unwrap_or(value);
                digits.bytes().all(|c| c.is_ascii_digit())
                    && value.parse().is_ok_and(|n: i64| (*low..=*high).contains(&n))
            }
            Form::Word => is_word(value),
            Form::Path => {
                value.starts_with('/')
                    && value.split('/').all(|part| part != "..")
                    && value.chars().all(is_path_character)
            }
            Form::OneOf(choices) => choices.iter().any(|c| {
                c == value || c.contains(['*', '?']) && word_fits(c, value) && !value.starts_with('-')
            }),
        }
    }
}

/// A pattern whose stars take characters of a word and slashes only: no blanks, nothing that means something to a
/// shell that the program may start, and never `..`, which would lead out of the directory in front of the star.
fn word_fits(choice: &str, value: &str) -> bool {
    let allowed = |c: char| is_word_character(c) || c == '/' || choice.contains(c) && !matches!(c, '*' | '?');
    value.chars().all(allowed)
        && value.split('/').all(|part| part != "..")
        && pattern::fits(choice.as_bytes(), value.as_bytes())
}

fn is_word(text: &str) -> bool {
    !text.starts_with('-') && text.chars().all(is_word_character)
}

/// The name in a client's line, if it can be read.
pub(crate) fn name(line: &[u8]) -> Option<String> {
    words(line).ok()?.into_iter().next()
}

/// Letters of any script, but nothing that means something to a shell that the program may start, and nothing that changes
/// how a line is shown.
fn is_path_character(c: char) -> bool {
    is_word_character(c) || c.is_alphanumeric() || matches!(c, '/' | ' ' | '~')
}

/// What a word may have beside letters and digits.
const WORD_SIGNS: &str = "._-@%+=:,";

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || WORD_SIGNS.contains(c)
}

pub(crate) fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c))
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

/// A line's words, as a shell would cut them: blanks, quotes, backslashes. Nothing is expanded.
fn words(line: &[u8]) -> Result<Vec<String>, String> {
    if line.len() > MAX_LINE {
        return Err(format!("is longer than {MAX_LINE} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "is no UTF-8")?;
    if text.contains('\0') {
        return Err("holds a zero byte".to_string());
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => {
                words.extend(word.take());
                if words.len() > MAX_ARGUMENTS {
                    return Err(format!("has more than {MAX_ARGUMENTS} arguments"));
                }
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let next = chars.next().ok_or("ends with a backslash")?;
                let word = word.get_or_insert_default();
                // POSIX 2.2.3: within double quotes a backslash is special before these only.
                if quote.is_some() && !matches!(next, '$' | '`' | '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("has a quote that is never closed".to_string());
    }
    words.extend(word);
    Ok(words)
}

/// Whether a command may have a variable of this name.
fn variable(name: &str) -> Result<(), Invalid> {
    let why = if name.is_empty() || name.contains(['=', '\0']) {
        "has no name of a variable"
    } else if name.starts_with("FLEETGATE_") {
        "is the node's own to set"
    } else {
        return Ok(());
    };
    Err(Invalid(format!("the variable {:?} {why}", shortened(name))))
}

/// Whether a loader, a shell or an interpreter does what a variable of this name says.
fn is_obeyed(name: &str) -> bool {
    const OBEYED: [&str; 17] = [
        "PATH",
        "IFS",
        "ENV",
        "BASH_ENV",
        "BASHOPTS",
        "SHELLOPTS",
        "PS4",
        "PERL5LIB",
        "PERL5OPT",
        "PERLLIB",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RUBYLIB",
        "RUBYOPT",
        "NODE_OPTIONS",
        "GCONV_PATH",
    ];
    ["LD_", "DYLD_", "GLIBC_", "BASH_FUNC_"]
        .iter()
        .any(|start| name.starts_with(start))
        || OBEYED.contains(&name)
}

/// For a message: no more of what a client sent than a person reads.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(64).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests;
