//! The one parser of the program's command line: it reads words by the table of commands, and names every mistake, with the
//! nearest thing that would have been right.

use super::value::{did_you_mean, pid};
use super::{Arguments, Command, Flag, GLOBAL, Operands, UsageError, Value, printable_word};
use fleetgate_policy::text;
use std::ffi::OsString;

/// A command line that was understood.
pub enum Invocation {
    /// A command.
    Run(Arguments),
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

/// Reads `args`, the program's name left out.
pub fn parse(commands: &'static [Command], args: &[OsString]) -> Result<Invocation, UsageError> {
    let mut line = Line {
        args,
        path: Vec::new(),
        flags: Vec::new(),
        help: false,
    };
    let Some(command) = line.command(commands)? else {
        return Ok(Invocation::Overview {
            group: line.path,
            help: line.help,
        });
    };
    let run = |flags, operands| {
        Ok(Invocation::Run(Arguments {
            commands,
            command,
            flags,
            operands,
        }))
    };
    let passed_on = matches!(command.operands, Operands::PassedOn(_));
    if passed_on && matches!(line.args, [only] if only == "--help") {
        return Ok(Invocation::Help(command));
    }
    if passed_on || matches!(command.operands, Operands::Anything | Operands::Ssh) {
        let operands = line.args.to_vec();
        return run(line.flags, operands);
    }
    let operands = line.rest(command)?;
    if line.help {
        return Ok(Invocation::Help(command));
    }
    line.check_flags(command)?;
    line.check(command, &operands)?;
    run(line.flags, operands)
}

/// A command line being read.
struct Line<'a> {
    args: &'a [OsString],
    path: Vec<&'static str>,
    flags: Vec<(&'static str, String)>,
    help: bool,
}

impl<'a> Line<'a> {
    fn wrong(&self, what: String) -> UsageError {
        UsageError {
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
    fn command(&mut self, commands: &'static [Command]) -> Result<Option<&'static Command>, UsageError> {
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
            let word = printable_word(arg);
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
                    let visible = here
                        .iter()
                        .filter(|c| !c.hidden)
                        .filter_map(|c| c.words.get(depth).copied());
                    let hint = match (self.path.as_slice(), word.as_str()) {
                        // Not a near spelling but the opposite, which is spelled nearly the same.
                        (_, "unlock") => "; `fleetgate lock rm ID` takes a lock back".to_owned(),
                        ([], "exec") => {
                            "; `fleetgate container exec` runs a program in a container of this machine, \
                                         `fleetgate ssh NODE COMMAND` one on a node"
                                .to_owned()
                        }
                        (["container"], "ps" | "list") => "; did you mean `ls`?".to_owned(),
                        _ => did_you_mean(&word, "", visible),
                    };
                    return Err(self.wrong(format!("there is no command `{word}`{hint}")));
                }
            }
        }
    }

    /// Flags and operands of `command`.
    fn rest(&mut self, command: &'static Command) -> Result<Vec<OsString>, UsageError> {
        let mut operands = Vec::new();
        while let Some(arg) = self.next() {
            let is_flag = arg.as_encoded_bytes().starts_with(b"-") && arg.len() > 1;
            let Some(word) = arg.to_str().or((!is_flag).then_some("")) else {
                return Err(self.wrong(format!("there is no flag `{}`", printable_word(arg))));
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
                    Operands::Program { .. } | Operands::OptionalProgram(_) | Operands::ProgramIn(_)
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
    fn letters(&mut self, letters: &str, own: &'static [Flag]) -> Result<(), UsageError> {
        for (at, letter) in letters.char_indices() {
            if letter == 'h' && letters == "h" {
                self.help = true;
                return Ok(());
            }
            let Some(flag) = own.iter().find(|f| f.short == Some(letter)) else {
                let hint = self.instead(&letter.to_string());
                let letter = text::printable(&letter.to_string());
                return Err(self.wrong(format!("there is no flag `-{letter}`{hint}")));
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

    /// What stands for a flag that people know from another program's command of the same name.
    fn instead(&self, flag: &str) -> &'static str {
        match (self.path.as_slice(), flag) {
            (["container", "exec"], "d" | "detach") => {
                "; a command that goes on by itself is `fleetgate container exec NAME COMMAND &`"
            }
            (["container", "exec"], "privileged") => {
                "; `--user root` has what the container's configuration may give at most"
            }
            (["run"], "container") => "; the login names it: `-l ACCOUNT+CONTAINER`",
            (["container", "exec"], "env-file") => "; each variable is an `--env NAME=VALUE`",
            _ => "",
        }
    }

    /// The remedy where a container is named with the nodes.
    fn container_of(&self, flag: &Flag, value: &str) -> String {
        match (self.path.as_slice(), flag.long, value.split_once('+')) {
            (["run"], "on", Some((nodes, container))) => {
                let words = text::printable(&format!("--on {nodes} -l ACCOUNT+{container}"));
                format!("; the login names a container: `{words}`")
            }
            _ => String::new(),
        }
    }

    /// One flag, its value taken from behind `=` or from the next word.
    fn flag(&mut self, word: &str, own: &'static [Flag]) -> Result<(), UsageError> {
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
            let hint = match self.instead(bare) {
                "" => did_you_mean(bare, "--", known),
                instead => instead.to_owned(),
            };
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
    fn one(&mut self, flag: &'static Flag, name: &str, inline: Option<String>) -> Result<(), UsageError> {
        if !flag.repeats && self.flags.iter().any(|(long, _)| *long == flag.long) {
            return Err(self.wrong(format!("`{name}` is given twice")));
        }
        let value = match (flag.value, inline) {
            (Value::None, None) => String::new(),
            (Value::None, Some(_)) => return Err(self.wrong(format!("`{name}` takes no value"))),
            (_, Some(value)) => value,
            (_, None) => match self.next() {
                Some(value) => value.to_str().map(str::to_owned).ok_or_else(|| {
                    let value = printable_word(value);
                    self.wrong(format!("`{name}` wants text in UTF-8, not `{value}`"))
                })?,
                None => {
                    let wants = flag.value.wants();
                    return Err(self.wrong(format!("`{name}` wants a value: {wants}")));
                }
            },
        };
        flag.value.check(&format!("`{name}`"), &value).map_err(|what| {
            let hint = self.container_of(flag, &value);
            self.wrong(what + &hint)
        })?;
        self.flags.push((flag.long, value));
        Ok(())
    }

    /// Whether all flags are there that have to be, and none contradicts itself.
    fn check_flags(&self, command: &Command) -> Result<(), UsageError> {
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
    fn check(&self, command: &Command, operands: &[OsString]) -> Result<(), UsageError> {
        let surplus = |most: usize| match operands.get(most) {
            Some(extra) => Err(self.wrong(format!("`{}` is one word too many", printable_word(extra)))),
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
                    Some(word) => {
                        Err(self.wrong(format!("`{}` is not the id of a process", printable_word(word))))
                    }
                    None => Ok(()),
                }
            }
            Operands::OptionalProgram(_) | Operands::ProgramIn(_) => Ok(()),
            Operands::Program { unless } => {
                let instead = self.flags.iter().any(|(name, _)| *name == unless);
                match (operands.is_empty(), instead) {
                    (true, false) => Err(self.wrong("PROGRAM is missing: what is to be run".to_owned())),
                    (false, true) => Err(self.wrong(format!(
                        "`--{unless}` runs nothing: `{}` is too much",
                        printable_word(&operands[0])
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
