//! Named commands: an administrator's list of programs that may be run by name, with arguments of declared forms.
//! No shell is involved: a name becomes an argument vector, and nothing that a client sends is expanded.

mod argument;
mod command;
mod environment;
mod line;

use crate::Invalid;
use crate::account_name::AccountName;
use crate::rule::{Denied, Rule};
use crate::text::shortened;
pub use argument::Argument;
pub use command::{Command, CommandLimits};
pub(crate) use line::name;
use std::collections::BTreeMap;
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
        let words = line::words(line).map_err(|why| Denied::new(format!("the command {why}")))?;
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

pub(crate) fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c))
}

#[cfg(test)]
mod tests;
