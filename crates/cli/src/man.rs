//! `fleetgate man`: the manual pages, made from the table. One for `fleetgate`, one for each command.

use crate::flags::{Command, Flag, GLOBAL, shared};
use crate::help;
use std::fmt::Write;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::{self, Stdio};

/// Every page: its file name and its text.
pub fn pages(commands: &[Command]) -> Vec<(String, String)> {
    let shown: Vec<&Command> = commands.iter().filter(|c| !c.hidden).collect();
    let mut pages = vec![("fleetgate.1".to_owned(), overview(&shown))];
    pages.extend(
        shown
            .iter()
            .map(|c| (format!("{}.1", page_name(c)), page(c, &shown))),
    );
    pages
}

/// The page of the command that `words` name; without any, of fleetgate itself.
pub fn page_of(commands: &[Command], words: &[&str]) -> Option<String> {
    let name = std::iter::once("fleetgate").chain(words.iter().copied());
    let file = format!("{}.1", name.collect::<Vec<_>>().join("-"));
    pages(commands)
        .into_iter()
        .find(|(page, _)| *page == file)
        .map(|(_, text)| text)
}

/// Shows a page by man(1). False: there is none, and the page has yet to be printed.
pub fn show(page: &str) -> std::io::Result<bool> {
    let mut child = match process::Command::new("man")
        .args(["-l", "-"])
        .stdin(Stdio::piped())
        .spawn()
    {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        child => child?,
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A pager that was left early reads no more.
        let _ = stdin.write_all(page.as_bytes());
    }
    child.wait()?;
    Ok(true)
}

/// Writes every page into `directory`.
pub fn write(commands: &[Command], directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (name, text) in pages(commands) {
        std::fs::write(directory.join(name), text)?;
    }
    Ok(())
}

fn page_name(command: &Command) -> String {
    format!("fleetgate-{}", command.words.join("-"))
}

fn overview(shown: &[&Command]) -> String {
    let mut out = head("fleetgate", "a fast, accountable way into Linux machines");
    out.push_str(".SH SYNOPSIS\n.B fleetgate\nCOMMAND ...\n.SH COMMANDS\n");
    for command in shown {
        let _ = write!(
            out,
            ".TP\n.B {}\n{}\n",
            escape(&command.words.join(" ")),
            sentence(command.summary)
        );
    }
    flags(&mut out, "OPTIONS", GLOBAL);
    out.push_str(
        ".SH EXIT STATUS\n0 when done, 1 when refused, 2 when the command line was not understood. A command that runs \
         another program returns that program's status.\n",
    );
    also(&mut out, shown.iter().map(|c| page_name(c)));
    out
}

fn page(command: &Command, shown: &[&Command]) -> String {
    let mut out = head(&page_name(command), command.summary);
    let _ = write!(
        out,
        ".SH SYNOPSIS\n{}\n.SH DESCRIPTION\n",
        escape(&help::usage(command))
    );
    for (number, paragraph) in command.about.split("\n\n").enumerate() {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let _ = writeln!(
            out,
            "{}{}",
            if number > 0 { ".PP\n" } else { "" },
            escape(&words.join(" "))
        );
    }
    flags(&mut out, "OPTIONS", command.flags);
    flags(&mut out, "OPTIONS OF EVERY COMMAND", shared(Some(command)));
    if !command.examples.is_empty() {
        out.push_str(".SH EXAMPLES\n");
        for (what, line) in command.examples {
            let _ = write!(out, ".TP\n{}\n.B {}\n", escape(what), escape(line));
        }
    }
    let relatives = shown
        .iter()
        .filter(|c| c.words != command.words && c.words[0] == command.words[0]);
    also(
        &mut out,
        std::iter::once("fleetgate".to_owned()).chain(relatives.map(|c| page_name(c))),
    );
    out
}

fn head(name: &str, summary: &str) -> String {
    format!(
        ".TH {} 1 \"\" \"fleetgate {}\"\n.SH NAME\n{} \\- {}\n",
        escape(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escape(name),
        escape(summary)
    )
}

fn flags(out: &mut String, title: &str, flags: &[Flag]) {
    if flags.is_empty() {
        return;
    }
    let _ = writeln!(out, ".SH {title}");
    for flag in flags {
        let _ = write!(
            out,
            ".TP\n.B {}\n{}\n",
            escape(&help::spelled(flag)),
            escape(&help::explained(flag))
        );
    }
}

fn also(out: &mut String, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.map(|n| format!(".BR {} (1)", escape(&n))).collect();
    if !names.is_empty() {
        let _ = write!(out, ".SH SEE ALSO\n{}\n", names.join(" ,\n"));
    }
}

fn sentence(summary: &str) -> String {
    let mut chars = summary.chars();
    let first = chars
        .next()
        .map(|c| c.to_uppercase().to_string())
        .unwrap_or_default();
    escape(&format!("{first}{}.", chars.as_str()))
}

/// Text in roff: a backslash, a hyphen that must stay one, and a line that would be taken for a request.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('…', "...");
    match text.chars().next() {
        Some('.' | '\'') => format!("\\&{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn nothing_in_a_text_is_taken_for_a_request() {
        for (text, roff) in [
            ("a-b", "a\\-b"),
            (".hidden", "\\&.hidden"),
            ("a\\b", "a\\eb"),
            ("x …", "x ..."),
        ] {
            assert_eq!(escape(text), roff);
        }
    }
}
