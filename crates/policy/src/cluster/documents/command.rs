//! A named command as a table, in node.toml and in role files.

use super::forms::{Size, Span, variables};
use crate::Invalid;
use crate::account_name::AccountName;
use crate::commands::{Argument, Command, CommandLimits, MAX_CACHED_OUTPUT};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a command has, unless its table says otherwise.
const USUAL_TIMEOUT: Span = Span(Duration::from_secs(60));
/// How much of its output is passed on, unless its table says otherwise.
const USUAL_OUTPUT: Size = Size(1 << 20);

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandEntry {
    /// The program and its arguments; `{}` stands for one argument of the client's, `{name}` for one that has a name.
    pub argv: Vec<String>,
    /// A pattern (`*`, `?`) for each `{}`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The arguments that have names, in the order in which clients send them. Instead of `args`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<CommandArgument>,
    /// It has so long; 0: as long as it likes.
    #[serde(default = "usual_timeout", skip_serializing_if = "is_usual_timeout")]
    pub timeout: Span,
    /// So many run at a time; 0: any number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub concurrency: u32,
    /// Variables that are set for it.
    #[serde(
        default,
        deserialize_with = "variables",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub environment: BTreeMap<String, String>,
    /// Variables that the client has to send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Its result counts for so long for all who ask for the same; 0: it runs for each.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub cache: Span,
    /// The account that it runs as, in a node's own file; none: the login's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// So much of its output is passed on; 0: all. None: the usual, less where results are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Size>,
}

/// An argument that has a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandArgument {
    /// Its name.
    pub name: String,
    /// What it may be, as in `args`.
    pub form: String,
    /// What it is when a client sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

fn usual_timeout() -> Span {
    USUAL_TIMEOUT
}

fn is_usual_timeout(timeout: &Span) -> bool {
    *timeout == USUAL_TIMEOUT
}

fn is_no_time(span: &Span) -> bool {
    span.0.is_zero()
}

fn usual_output(cache: Span) -> Size {
    match is_no_time(&cache) {
        true => USUAL_OUTPUT,
        false => Size(MAX_CACHED_OUTPUT),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl CommandEntry {
    /// The command. Each `{}` becomes a named argument, `{a1}` and so on.
    pub fn define(&self) -> Result<Command, Invalid> {
        let limits = CommandLimits {
            timeout: Some(self.timeout.0).filter(|timeout| !timeout.is_zero()),
            concurrency: Some(self.concurrency).filter(|most| *most > 0),
            output: Some(self.output.unwrap_or(usual_output(self.cache)).0).filter(|most| *most > 0),
        };
        let environment = self.environment.clone().into_iter().collect();
        let command = self
            .program()?
            .limited(limits)
            .with_environment(environment)?
            .with_secrets(self.secrets.clone())?;
        let command = match &self.user {
            None => command,
            Some(user) => command.run_as(AccountName::parse(user.as_bytes())?),
        };
        match self.cache.0.is_zero() {
            true => Ok(command),
            false => command.with_cache(self.cache.0),
        }
    }

    fn program(&self) -> Result<Command, Invalid> {
        if !self.arguments.is_empty() {
            if !self.args.is_empty() {
                return Err("`args` and `arguments` are two ways to say the same: keep one".into());
            }
            let argument = |a: &CommandArgument| (a.name.clone(), a.form.clone(), a.default.clone());
            let arguments: Vec<_> = self.arguments.iter().map(argument).collect();
            return defined(&self.argv, &arguments);
        }
        let mut count = 0;
        let number = |word: &String| {
            let mut parts = word.split("{}");
            let mut out = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                count += 1;
                out += &format!("{{a{count}}}{part}");
            }
            out
        };
        let argv: Vec<String> = self.argv.iter().map(number).collect();
        if count != self.args.len() {
            return Err(Invalid(format!(
                "`argv` has {count} times {{}}, and `args` {} patterns",
                self.args.len()
            )));
        }
        let numbered = |(n, form): (usize, &String)| (format!("a{}", n + 1), form.clone(), None);
        let arguments: Vec<_> = self.args.iter().enumerate().map(numbered).collect();
        defined(&argv, &arguments)
    }
}

/// Arguments are name, form and default.
fn defined(argv: &[String], arguments: &[(String, String, Option<String>)]) -> Result<Command, Invalid> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let arguments: Vec<(&str, &str, Option<&str>)> = arguments
        .iter()
        .map(|(name, form, default)| (name.as_str(), form.as_str(), default.as_deref()))
        .collect();
    Command::define(&argv, &arguments)
}

impl From<&Command> for CommandEntry {
    fn from(command: &Command) -> CommandEntry {
        let argument = |argument: &Argument| CommandArgument {
            name: argument.name.clone(),
            form: argument.form.to_string(),
            default: argument.default.clone(),
        };
        let limits = command.limits;
        let cache = Span(command.cache.unwrap_or_default());
        let output = Size(limits.output.unwrap_or(0));
        CommandEntry {
            argv: command.argv.clone(),
            args: Vec::new(),
            arguments: command.arguments.iter().map(argument).collect(),
            timeout: Span(limits.timeout.unwrap_or_default()),
            concurrency: limits.concurrency.unwrap_or(0),
            environment: command.environment.iter().cloned().collect(),
            secrets: command.secrets.clone(),
            cache,
            user: command.user.as_ref().map(ToString::to_string),
            output: Some(output).filter(|output| *output != usual_output(cache)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_as_it_is_read() {
        for text in [
            "argv = [\"/bin/true\"]",
            "argv = [\"/bin/x\", \"-w\", \"{}\", \"{}%\"]\nargs = [\"word\", \"1..99\"]\ntimeout = \"1500ms\"",
            "argv = [\"/bin/x\", \"{p}\"]\narguments = [{ name = \"p\", form = \"path\", default = \"/\" }]\n\
             timeout = 0\noutput = 0\nconcurrency = 3\nsecrets = [\"B\"]\nenvironment = { A = \"1\" }",
            "argv = [\"/bin/x\", \"{}\"]\nargs = [\"a|b*|/*\"]\noutput = \"64K\"",
            "argv = [\"/bin/x\"]\ncache = \"30s\"",
            "argv = [\"/bin/x\"]\nuser = \"backup\"",
        ] {
            let read: CommandEntry = toml::from_str(text).expect(text);
            let command = read.define().expect(text);
            let written = CommandEntry::from(&command);
            assert_eq!(written.define().as_ref(), Ok(&command), "{text}");
            let json = serde_json::to_string(&written).expect("text");
            let again: CommandEntry = serde_json::from_str(&json).expect(&json);
            assert_eq!(again, written, "{json}");
        }
        let usual = CommandEntry::from(&Command::define(&["/bin/true"], &[]).expect("a command"));
        assert_eq!(
            (usual.timeout.0, usual.output),
            (Duration::ZERO, Some(Size(0))),
            "no limits at all"
        );
    }

    #[test]
    fn a_table_that_means_nothing_is_refused() {
        for (text, why) in [
            ("argv = [\"/bin/x\", \"{}\"]", "1 times {}, and `args` 0 patterns"),
            (
                "argv = [\"/bin/x\", \"{a}\"]\nargs = [\"word\"]\narguments = [{ name = \"a\", form = \"word\" }]",
                "keep one",
            ),
            ("argv = [\"x\"]", "absolute path"),
            ("argv = [\"/x\"]\ncache = \"2h\"", "an hour at most"),
            ("argv = [\"/x\"]\nuser = \"\"", "the user name is empty"),
            ("argv = [\"/x\"]\ncache = \"1s\"\nsecrets = [\"A\"]", "keep one"),
            ("argv = [\"/x\"]\ncache = \"1s\"\noutput = 0", "64K at most"),
            ("argv = [\"/x\"]\ncache = \"1s\"\noutput = \"65K\"", "64K at most"),
        ] {
            let read: CommandEntry = toml::from_str(text).expect(text);
            let error = read.define().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
