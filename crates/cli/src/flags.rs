//! Commands and flags as data, and the one parser that reads a command line by them.
//!
//! Help, man pages and completions are made from the same table. The parser decides what a word is; what a
//! command does with it is the command's. Every mistake is named, with the nearest thing that would have been
//! right.

mod value;

pub use value::{Value, lifetime, nearest};

use fleetgate_base::exit;
use fleetgate_client::time;
use fleetgate_policy::text;
use std::ffi::{OsStr, OsString};
use std::fmt;
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
    pub run: fn(&Given) -> Outcome,
}

impl Command {
    /// A command that takes nothing.
    pub const fn new(
        words: &'static [&'static str],
        summary: &'static str,
        about: &'static str,
        run: fn(&Given) -> Outcome,
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
    /// The same, or nothing.
    OptionalProgram,
    /// Whatever stands there, flags and `--help` included: it is not ours to read.
    Anything,
    /// The words of ssh, flags included, which are read as ssh reads them and not by the parser here.
    Ssh,
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

/// A command line that was understood.
pub struct Given {
    /// The command.
    pub command: &'static Command,
    flags: Vec<(&'static str, String)>,
    /// What stands beside the flags.
    pub operands: Vec<OsString>,
}

impl Given {
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
    pub fn wrong(&self, what: impl Into<String>) -> Usage {
        Usage {
            path: self.command.words.join(" "),
            what: what.into(),
        }
    }

    /// A lifetime, in seconds.
    pub fn seconds(&self, flag: &str) -> Option<u64> {
        // It was read once by the parser.
        self.value(flag).and_then(lifetime)
    }

    /// A moment, in Unix seconds.
    pub fn moment(&self, flag: &str) -> Option<u64> {
        self.value(flag).and_then(|word| time::moment(word, time::now()))
    }

    /// `key=value`, as often as it is given.
    pub fn pairs(&self, flag: &str) -> impl Iterator<Item = (&str, &str)> {
        self.values(flag).filter_map(|pair| pair.split_once('='))
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

/// What the command line asks for.
pub enum Asked {
    /// A command.
    Run(Given),
    /// Its help.
    Help(&'static Command),
    /// No command, or the name of a group: help about all of them, or those whose words begin so.
    Overview {
        /// The group's words.
        group: Vec<&'static str>,
        /// Whether help was asked for.
        help: bool,
    },
}

/// A command line that was not understood.
#[derive(Debug, PartialEq)]
pub struct Usage {
    /// The words of the command so far.
    pub path: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl std::error::Error for Usage {}

impl Usage {
    /// Says it; the exit code.
    pub fn say(&self) -> i32 {
        eprintln!("fleetgate: {}", text::printable_lines(&self.to_string()));
        exit::USAGE
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.path.is_empty() { "" } else { " " };
        write!(f, "{}\ntry `fleetgate{gap}{} --help`", self.what, self.path)
    }
}

/// Reads `args`, the program's name left out.
pub fn parse(commands: &'static [Command], args: &[OsString]) -> Result<Asked, Usage> {
    let mut line = Line {
        args,
        path: Vec::new(),
        flags: Vec::new(),
        help: false,
    };
    let candidates = line.command(commands)?;
    let Some(command) = candidates else {
        return Ok(Asked::Overview {
            group: line.path,
            help: line.help,
        });
    };
    let passed_on = matches!(command.operands, Operands::PassedOn(_));
    if passed_on && matches!(line.args, [only] if only == "--help") {
        return Ok(Asked::Help(command));
    }
    if passed_on || matches!(command.operands, Operands::Anything | Operands::Ssh) {
        let operands = line.args.to_vec();
        return Ok(Asked::Run(Given {
            command,
            flags: line.flags,
            operands,
        }));
    }
    let operands = line.rest(command)?;
    if line.help {
        return Ok(Asked::Help(command));
    }
    line.check_flags(command)?;
    line.check(command, &operands)?;
    Ok(Asked::Run(Given {
        command,
        flags: line.flags,
        operands,
    }))
}

/// A command line being read.
struct Line<'a> {
    args: &'a [OsString],
    path: Vec<&'static str>,
    flags: Vec<(&'static str, String)>,
    help: bool,
}

impl<'a> Line<'a> {
    fn wrong(&self, what: String) -> Usage {
        Usage {
            path: self.path.join(" "),
            what,
        }
    }

    fn next(&mut self) -> Option<&'a OsString> {
        let (first, rest) = self.args.split_first()?;
        self.args = rest;
        Some(first)
    }

    /// The command that the first words name; none where there is no word.
    fn command(&mut self, commands: &'static [Command]) -> Result<Option<&'static Command>, Usage> {
        loop {
            let depth = self.path.len();
            let here: Vec<&'static Command> = commands
                .iter()
                .filter(|c| c.words.starts_with(&self.path))
                .collect();
            if let Some(command) = here.iter().find(|c| c.words.len() == depth) {
                let is_group = here.len() > 1;
                let more = self.args.first().and_then(|a| a.to_str());
                if !is_group || more.is_none_or(|m| m.starts_with('-')) {
                    return Ok(Some(command));
                }
            }
            let Some(arg) = self.next() else {
                return Ok(None);
            };
            let word = shown(arg);
            if word == "-h" || word == "--help" {
                self.help = true;
                return Ok(None);
            }
            if word.starts_with('-') {
                self.flag(&word, &[])?;
                continue;
            }
            let next = here.iter().filter_map(|c| c.words.get(depth));
            match next.clone().find(|w| **w == word) {
                Some(found) => self.path.push(found),
                None => {
                    let shown = here
                        .iter()
                        .filter(|c| !c.hidden)
                        .filter_map(|c| c.words.get(depth).copied());
                    let hint = match word.as_str() {
                        // Not a near spelling but the opposite, which is spelled nearly the same.
                        "unlock" => "; `fleetgate lock rm ID` takes a lock back".to_owned(),
                        _ => nearest(&word, shown)
                            .map(|n| format!("; did you mean `{n}`?"))
                            .unwrap_or_default(),
                    };
                    return Err(self.wrong(format!("there is no command `{word}`{hint}")));
                }
            }
        }
    }

    /// Flags and operands of `command`.
    fn rest(&mut self, command: &'static Command) -> Result<Vec<OsString>, Usage> {
        let mut operands = Vec::new();
        while let Some(arg) = self.next() {
            let is_flag = arg.as_encoded_bytes().starts_with(b"-") && arg.len() > 1;
            let Some(word) = arg.to_str().or((!is_flag).then_some("")) else {
                return Err(self.wrong(format!("there is no flag `{}`", shown(arg))));
            };
            if word == "--" {
                operands.extend(self.args.iter().cloned());
                self.args = &[];
            } else if is_flag {
                let letters = word.strip_prefix('-').filter(|l| !l.starts_with('-'));
                match letters.filter(|_| command.flags.iter().any(|f| f.short.is_some())) {
                    Some(letters) => self.letters(letters, command.flags)?,
                    None => self.flag(word, command.flags)?,
                }
            } else {
                operands.push(arg.clone());
                let a_program = matches!(
                    command.operands,
                    Operands::Program { .. } | Operands::OptionalProgram
                );
                if a_program {
                    operands.extend(self.args.iter().cloned());
                    self.args = &[];
                }
            }
        }
        Ok(operands)
    }

    /// Letters behind one dash, as getopt(3) reads them: `-NL 8080:localhost:80`, `-p22`.
    fn letters(&mut self, letters: &str, own: &'static [Flag]) -> Result<(), Usage> {
        for (at, letter) in letters.char_indices() {
            if letter == 'h' && letters == "h" {
                self.help = true;
                return Ok(());
            }
            let Some(flag) = own.iter().find(|f| f.short == Some(letter)) else {
                let letter = text::printable(&letter.to_string());
                return Err(self.wrong(format!("there is no flag `-{letter}`")));
            };
            let behind = &letters[at + letter.len_utf8()..];
            let takes_a_value = flag.value != Value::None;
            self.one(
                flag,
                &format!("-{letter}"),
                (takes_a_value && !behind.is_empty()).then(|| behind.to_owned()),
            )?;
            if takes_a_value {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One flag, its value taken from behind `=` or from the next word.
    fn flag(&mut self, word: &str, own: &'static [Flag]) -> Result<(), Usage> {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let name = if name == "-h" { "--help" } else { name };
        let flag = own
            .iter()
            .chain(GLOBAL)
            .find(|f| name.strip_prefix("--") == Some(f.long));
        let Some(flag) = flag else {
            let known = own.iter().chain(GLOBAL).map(|f| f.long);
            let bare = name.trim_start_matches('-');
            let hint = nearest(bare, known)
                .map(|n| format!("; did you mean `--{n}`?"))
                .unwrap_or_default();
            let name = text::printable(name);
            return Err(self.wrong(format!("there is no flag `{name}`{hint}")));
        };
        if flag.long == "help" {
            self.help = true;
            return Ok(());
        }
        self.one(flag, name, inline)
    }

    /// A flag of the table, spelled as `name`; its value is `inline` or the next word.
    fn one(&mut self, flag: &'static Flag, name: &str, inline: Option<String>) -> Result<(), Usage> {
        if !flag.repeats && self.flags.iter().any(|(long, _)| *long == flag.long) {
            return Err(self.wrong(format!("`{name}` is given twice")));
        }
        let value = match (flag.value, inline) {
            (Value::None, None) => String::new(),
            (Value::None, Some(_)) => return Err(self.wrong(format!("`{name}` takes no value"))),
            (_, Some(value)) => value,
            (_, None) => match self.next() {
                Some(value) => value.to_str().map(str::to_owned).ok_or_else(|| {
                    let value = shown(value);
                    self.wrong(format!("`{name}` wants text in UTF-8, not `{value}`"))
                })?,
                None => {
                    let wants = flag.value.wants();
                    return Err(self.wrong(format!("`{name}` wants a value: {wants}")));
                }
            },
        };
        flag.value
            .check(&format!("`{name}`"), &value)
            .map_err(|what| self.wrong(what))?;
        self.flags.push((flag.long, value));
        Ok(())
    }

    /// Whether all flags are there that have to be, and none contradicts itself.
    fn check_flags(&self, command: &Command) -> Result<(), Usage> {
        for flag in command.flags {
            let mut values = self.flags.iter().filter(|(long, _)| *long == flag.long);
            if flag.required && values.clone().next().is_none() {
                let wants = flag.value.wants();
                return Err(self.wrong(format!("`--{}` is missing: {wants}", flag.long)));
            }
            if let Value::Pair(_) = flag.value {
                let mut keys = std::collections::BTreeSet::new();
                let again = values.find_map(|(_, pair)| {
                    let (key, _) = pair.split_once('=')?;
                    (!keys.insert(key)).then_some(key)
                });
                if let Some(key) = again {
                    return Err(self.wrong(format!("`--{}` gives `{key}` twice", flag.long)));
                }
            }
        }
        Ok(())
    }

    /// Whether there are as many operands as the command takes, and such as it takes.
    fn check(&self, command: &Command, operands: &[OsString]) -> Result<(), Usage> {
        let surplus = |most: usize| match operands.get(most) {
            Some(extra) => Err(self.wrong(format!("`{}` is one word too many", shown(extra)))),
            None => Ok(()),
        };
        let each = |name: &str, value: Value| {
            let wrong = operands.iter().find_map(|o| value.check_operand(name, o).err());
            wrong.map_or(Ok(()), |what| Err(self.wrong(what)))
        };
        match command.operands {
            Operands::None => surplus(0),
            Operands::Choice(name, words) => {
                let value = Value::Choice(name, words);
                if operands.is_empty() {
                    return Err(self.wrong(format!("{name} is missing: {}", value.wants())));
                }
                surplus(1)?;
                each(name, value)
            }
            Operands::Pids => {
                if operands.is_empty() {
                    return Err(self.wrong("PID is missing: the id of a process".to_owned()));
                }
                let is_none = |word: &&OsString| word.to_str().and_then(pid).is_none();
                match operands.iter().find(is_none) {
                    Some(word) => Err(self.wrong(format!("`{}` is not the id of a process", shown(word)))),
                    None => Ok(()),
                }
            }
            Operands::OptionalProgram => Ok(()),
            Operands::Program { unless } => {
                let instead = self.flags.iter().any(|(name, _)| *name == unless);
                match (operands.is_empty(), instead) {
                    (true, false) => Err(self.wrong("PROGRAM is missing: what is to be run".to_owned())),
                    (false, true) => Err(self.wrong(format!(
                        "`--{unless}` runs nothing: `{}` is too much",
                        shown(&operands[0])
                    ))),
                    _ => Ok(()),
                }
            }
            Operands::Words {
                name,
                each: value,
                least,
                most,
            } => {
                if operands.len() < least {
                    return Err(self.wrong(format!("{name} is missing")));
                }
                surplus(most)?;
                each(name, value)
            }
            Operands::PassedOn(_) | Operands::Anything | Operands::Ssh => Ok(()),
        }
    }
}

/// A word of the command line, for a message of one line.
fn shown(word: &OsStr) -> String {
    text::printable(&word.to_string_lossy())
}

#[cfg(test)]
mod sweep;
#[cfg(test)]
mod tests;
