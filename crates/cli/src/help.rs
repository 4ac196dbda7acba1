//! What `--help` prints, made from the table.

use crate::flags::{Command, Flag, GLOBAL, Operands, Value, shared};
use std::fmt::Write;

/// The widest line.
const WIDTH: usize = 100;
/// More flags than this are not in the line that says how a command is written.
const MANY: usize = 40;

/// Help about one command; a group's own lists what it holds.
pub fn command(commands: &[Command], command: &Command) -> String {
    let mut out = format!("{}\n\nusage: {}\n", command.summary, usage(command));
    for paragraph in command.about.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let _ = write!(out, "\n{}", wrap(paragraph, 0));
    }
    let inside = commands
        .iter()
        .filter(|c| !c.hidden && c.words.len() > command.words.len() && c.words.starts_with(command.words));
    list_commands(&mut out, inside);
    list_flags(&mut out, "flags", command.flags);
    list_flags(&mut out, "flags of every command", shared(Some(command)));
    if !command.examples.is_empty() {
        out.push_str("\nexamples:\n");
        for (what, line) in command.examples {
            let _ = write!(out, "  {what}\n      {line}\n");
        }
    }
    out
}

/// Help about all of it, or about the commands whose words begin with `group`.
pub fn overview(commands: &[Command], group: &[&str]) -> String {
    let mut out = match group {
        [] => String::from(
            "fleetgate: a way into Linux machines that is fast, costs little, and shows who did what\n\n\
             usage: fleetgate COMMAND …\n",
        ),
        words => format!("usage: fleetgate {} COMMAND …\n", words.join(" ")),
    };
    list_commands(
        &mut out,
        commands
            .iter()
            .filter(|c| !c.hidden && c.words.starts_with(group)),
    );
    list_flags(&mut out, "flags of every command", GLOBAL);
    out.push_str("\n`fleetgate COMMAND --help` says more, with examples.\n");
    out
}

/// How a command is written.
pub fn usage(command: &Command) -> String {
    let mut out = format!("fleetgate {}", command.words.join(" "));
    // Where there are too many for a line, the list below has them.
    let listed = command.flags.len() > MANY;
    if listed {
        out.push_str(" [FLAG]…");
    }
    for flag in command.flags.iter().filter(|_| !listed) {
        let dots = if flag.repeats { "…" } else { "" };
        let (open, close) = if flag.required { ("", "") } else { ("[", "]") };
        let _ = write!(out, " {open}{}{close}{dots}", spelled(flag));
    }
    match command.operands {
        Operands::None => {}
        Operands::Choice(name, _) => {
            let _ = write!(out, " {name}");
        }
        Operands::Pids => out.push_str(" PID…"),
        Operands::Program { .. } => out.push_str(" -- PROGRAM [ARGUMENT]…"),
        Operands::OptionalProgram(name) => {
            let _ = write!(out, " [-- {name} [ARGUMENT]…]");
        }
        Operands::ProgramIn(name) => {
            let _ = write!(out, " {name} [COMMAND [ARGUMENT]…]");
        }
        Operands::Anything => out.push_str(" …"),
        Operands::Ssh => out.push_str(" [USER@]NODE [COMMAND…]"),
        Operands::Words {
            name, least, most, ..
        } => {
            let dots = if most > 1 { "…" } else { "" };
            let _ = match least {
                0 => write!(out, " [{name}]{dots}"),
                _ => write!(out, " {name}{dots}"),
            };
        }
        Operands::PassedOn(name) => {
            let _ = write!(out, " {name}");
        }
    }
    out
}

/// A flag as it is typed.
pub fn spelled(flag: &Flag) -> String {
    let names = match (flag.short, flag.long) {
        (Some(letter), "") => format!("-{letter}"),
        (Some(letter), long) => format!("-{letter}, --{long}"),
        (None, long) => format!("--{long}"),
    };
    match flag.value.name() {
        "" => names,
        value => format!("{names} {value}"),
    }
}

/// What a flag is for, its words included.
pub fn explained(flag: &Flag) -> String {
    match flag.value {
        Value::Choice(name, words) => format!("{} {name} is one of {}.", flag.help, words.join(", ")),
        _ => flag.help.to_owned(),
    }
}

fn list_commands<'a>(out: &mut String, commands: impl Iterator<Item = &'a Command>) {
    let rows: Vec<(String, String)> = commands
        .map(|c| (c.words.join(" "), c.summary.to_owned()))
        .collect();
    list(out, "commands", &rows);
}

fn list_flags(out: &mut String, title: &str, flags: &[Flag]) {
    let rows: Vec<(String, String)> = flags.iter().map(|f| (spelled(f), explained(f))).collect();
    list(out, title, &rows);
}

fn list(out: &mut String, title: &str, rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(out, "\n{title}:\n");
    let column = 4 + rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    for (left, right) in rows {
        let text = wrap(right, column);
        let _ = write!(out, "  {left:<width$}{}", text.trim_start(), width = column - 2);
    }
}

/// `text` in lines that start at `column`.
fn wrap(text: &str, column: usize) -> String {
    let mut out = String::new();
    let mut line = " ".repeat(column);
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(column);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(&line);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_are_no_wider_than_a_terminal() {
        let text = wrap(&"word ".repeat(100), 10);
        assert!(text.lines().count() > 5);
        assert!(
            text.lines()
                .all(|l| l.len() <= super::WIDTH && l.starts_with("          word"))
        );
    }
}
