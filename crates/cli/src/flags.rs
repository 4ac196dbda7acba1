//! Commands and flags as data. Help, man pages and completions are made from the same table as the parser's decisions
//! (`parse`). The parser decides what a word is; what a command does with it is the command's.

mod parse;
mod times;
mod value;

pub use parse::{Invocation, parse};
pub use value::{Value, did_you_mean, session_id};

use fleetgate_base::exit;
use fleetgate_client::time;
use fleetgate_container_exec::NOT_RUN;
use fleetgate_policy::text;
use std::ffi::{OsStr, OsString};
use std::fmt;
use times::lifetime;
use value::pid;

/// What a command returns: an exit code, or the sentence that says why it could not.
pub type Outcome = Result<i32, Box<dyn std::error::Error>>;

/// A command.
#[derive(Clone, Copy)]
pub struct Command {
    /// Its words: `seal run`.
    pub words: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// What a user should know, in paragraphs.
    pub about: &'static str,
    /// Its own flags; [`GLOBAL`] are everybody's.
    pub flags: &'static [Flag],
    /// What it takes beside flags.
    pub operands: Operands,
    /// What is done, and the line that does it.
    pub examples: &'static [(&'static str, &'static str)],
    /// Left out of help, man pages and completions: for fleetgate itself.
    pub hidden: bool,
    /// Does it.
    pub run: fn(&Arguments) -> Outcome,
}

impl Command {
    /// A command that takes nothing.
    pub const fn new(
        words: &'static [&'static str],
        summary: &'static str,
        about: &'static str,
        run: fn(&Arguments) -> Outcome,
    ) -> Command {
        Command {
            words,
            summary,
            about,
            flags: &[],
            operands: Operands::None,
            examples: &[],
            hidden: false,
            run,
        }
    }

    /// The same, with flags.
    pub const fn flags(mut self, flags: &'static [Flag]) -> Command {
        self.flags = flags;
        self
    }

    /// The same, with words beside the flags.
    pub const fn operands(mut self, operands: Operands) -> Command {
        self.operands = operands;
        self
    }

    /// The same, for fleetgate itself.
    pub const fn hidden(mut self) -> Command {
        self.hidden = true;
        self
    }

    /// The same, with examples.
    pub const fn examples(mut self, examples: &'static [(&'static str, &'static str)]) -> Command {
        self.examples = examples;
        self
    }
}

/// A flag.
#[derive(Clone, Copy)]
pub struct Flag {
    /// Without its dashes; empty: it has a letter alone.
    pub long: &'static str,
    /// The letter behind one dash, for those that people know from ssh.
    pub short: Option<char>,
    /// What it takes.
    pub value: Value,
    /// Whether it may be given more than once.
    pub repeats: bool,
    /// Whether nothing is done without it.
    pub required: bool,
    /// One sentence.
    pub help: &'static str,
}

impl Flag {
    /// A flag that is given once.
    pub const fn new(long: &'static str, value: Value, help: &'static str) -> Flag {
        Flag {
            long,
            short: None,
            value,
            repeats: false,
            required: false,
            help,
        }
    }

    /// The same, as often as wanted.
    pub const fn repeated(mut self) -> Flag {
        self.repeats = true;
        self
    }

    /// The same, without which nothing is done.
    pub const fn required(mut self) -> Flag {
        self.required = true;
        self
    }

    /// The same, with a letter.
    pub const fn letter(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }
}

/// What a command takes beside flags.
#[derive(Clone, Copy, PartialEq)]
pub enum Operands {
    /// Nothing.
    None,
    /// One of these words.
    Choice(&'static str, &'static [&'static str]),
    /// So many words of this kind.
    Words {
        /// What they are called.
        name: &'static str,
        /// What each is.
        each: Value,
        /// At least.
        least: usize,
        /// At most.
        most: usize,
    },
    /// Another program's words, flags included; `--help` alone is ours.
    PassedOn(&'static str),
    /// Ids of processes, one or more.
    Pids,
    /// A program and its arguments; flags end where it begins. With the flag it names, none is needed.
    Program {
        /// The flag that does without.
        unless: &'static str,
    },
    /// What this names and its arguments, in the same way, or nothing.
    OptionalProgram(&'static str),
    /// What this names, and in it a program and its arguments, in the same way, or a shell.
    ProgramIn(&'static str),
    /// Whatever stands there, flags and `--help` included: it is not ours to read.
    Anything,
    /// The words of ssh, flags included, which are read as ssh reads them and not by the parser here.
    Ssh,
}

impl Operands {
    /// So many words of this kind.
    pub const fn words(name: &'static str, each: Value, least: usize, most: usize) -> Operands {
        Operands::Words {
            name,
            each,
            least,
            most,
        }
    }
}

/// Flags of every command.
pub const GLOBAL: &[Flag] = &[
    Flag::new(
        "log-format",
        Value::Choice("FORMAT", &["human", "json"]),
        "How log lines and errors are written on standard error (default: human).",
    ),
    Flag::new(
        "log-level",
        Value::Choice("LEVEL", &["error", "warn", "info", "debug", "trace"]),
        "The least important log line that is written (default: warn; info for a server).",
    ),
    Flag::new("help", Value::None, "Print this help.").repeated(),
];

/// The flags that a command has with all others: ssh's words are its own.
pub fn shared(command: Option<&Command>) -> &'static [Flag] {
    match command.map(|c| c.operands) {
        Some(Operands::Ssh) => &[],
        _ => GLOBAL,
    }
}

/// What a command is given: its flags and its other words, each read once by the parser.
pub struct Arguments {
    /// The table that the command is of.
    pub commands: &'static [Command],
    /// The command.
    pub command: &'static Command,
    flags: Vec<(&'static str, String)>,
    /// What stands beside the flags.
    pub operands: Vec<OsString>,
}

impl Arguments {
    /// Whether a flag stands there.
    pub fn has(&self, flag: &str) -> bool {
        self.value(flag).is_some()
    }

    /// A flag's value; empty if it takes none.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.flags
            .iter()
            .find(|(name, _)| *name == flag)
            .map(|(_, value)| value.as_str())
    }

    /// All values of a flag that may be repeated.
    pub fn values(&self, flag: &str) -> impl Iterator<Item = &str> {
        let named = self.flags.iter().filter(move |(name, _)| *name == flag);
        named.map(|(_, value)| value.as_str())
    }

    /// The first word beside the flags, as text.
    pub fn word(&self) -> Option<&str> {
        self.operands.first().and_then(|o| o.to_str())
    }

    /// What does not go together, or is missing where something else is not given: an error of the command line.
    pub fn wrong(&self, what: impl Into<String>) -> UsageError {
        UsageError {
            path: self.command.words.join(" "),
            what: what.into(),
        }
    }

    /// A lifetime, in seconds; one that is longer than requests can say is as long as they can.
    pub fn seconds(&self, flag: &str) -> Option<u32> {
        // It was read once by the parser.
        let seconds = self.value(flag).and_then(lifetime)?;
        Some(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// A moment, in Unix seconds.
    pub fn moment(&self, flag: &str) -> Option<u64> {
        self.value(flag).and_then(|word| times::moment(word, time::now()))
    }

    /// `key=value`, as often as it is given.
    pub fn pairs(&self, flag: &str) -> impl Iterator<Item = (&str, &str)> {
        self.values(flag).filter_map(|pair| pair.split_once('='))
    }

    /// The same of the flag `label`.
    pub fn labels<T: FromIterator<(String, String)>>(&self) -> T {
        self.pairs("label")
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    /// A number.
    pub fn number(&self, flag: &str) -> Option<u32> {
        self.value(flag).and_then(|n| n.parse().ok())
    }

    /// The processes that `flag` and the operands name.
    pub fn pids(&self, flag: &str) -> Vec<i32> {
        let flags = self.values(flag);
        let operands = match self.command.operands {
            Operands::Pids => self.operands.as_slice(),
            _ => &[],
        };
        // Each was read once by the parser.
        flags
            .chain(operands.iter().filter_map(|o| o.to_str()))
            .filter_map(pid)
            .collect()
    }
}

/// A command line that was not understood.
#[derive(Debug, PartialEq)]
pub struct UsageError {
    /// The words of the command so far.
    pub path: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl std::error::Error for UsageError {}

impl UsageError {
    /// The exit code. A command that gives away a program's own codes has one for all that is not the program's.
    pub fn code(&self) -> i32 {
        match self.path.as_str() {
            "container exec" => NOT_RUN,
            _ => exit::USAGE,
        }
    }

    /// Prints it; the exit code.
    pub fn print(&self) -> i32 {
        eprintln!("fleetgate: {}", text::printable_lines(&self.to_string()));
        self.code()
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.path.is_empty() { "" } else { " " };
        write!(f, "{}\ntry `fleetgate{gap}{} --help`", self.what, self.path)
    }
}

/// A word of the command line, for a message of one line.
pub fn printable_word(word: &OsStr) -> String {
    text::printable(&word.to_string_lossy())
}

#[cfg(test)]
mod tests;
