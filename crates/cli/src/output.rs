//! How lists are printed: a table for people, one JSON document for programs. Texts from outside cannot move the cursor.

use crate::flags::Outcome;
use fleetgate_policy::text;
pub use fleetgate_policy::text::{printable, table};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Prints what can be seen; a reader that has gone away is no error (`fleetgate man | head`).
pub fn print(text: &str) -> Outcome {
    print_raw(&text::printable_lines(text))
}

/// The same for text that can be seen, with marks of ours for a terminal.
fn print_raw(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}").into()),
        _ => Ok(0),
    }
}

/// How many columns standard output has, where it is a terminal.
pub fn columns() -> Option<usize> {
    use std::os::fd::AsRawFd;
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let (columns, _) = fleetgate_sys::terminal::size(out.as_raw_fd()).ok()?;
    (columns > 0).then_some(columns.into())
}

/// Each line of `text` cut to so many columns; `…` says that there was more.
pub fn cut(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let one = |line: &str| match line.chars().count() > columns {
        true => line
            .chars()
            .take(columns.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => line.to_owned(),
    };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        out += &one(line.trim_end_matches('\n'));
        out += &line[line.trim_end_matches('\n').len()..];
    }
    out
}

/// A moment of an audit line, `2026-01-31T14:00:05.123Z`, for people: `2026-01-31 14:00:05`. Other texts stay as they are.
pub fn moment(text: &str) -> String {
    let is_moment = text.len() >= 20 && text.as_bytes()[10] == b'T' && text.ends_with('Z') && text.is_ascii();
    match is_moment {
        true => format!("{} {}", &text[..10], &text[11..19]),
        false => text.to_owned(),
    }
}

/// `1 match`, `2 matches`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A number of bytes for people: `870`, `12K`, `3.4M`.
pub fn size(bytes: u64) -> String {
    let (mut tenths, mut unit) = (u128::from(bytes) * 10, "");
    for next in ["K", "M", "G", "T"] {
        if tenths < 10_000 {
            break;
        }
        (tenths, unit) = (tenths.div_ceil(1024), next);
    }
    match (unit, tenths) {
        ("", _) => bytes.to_string(),
        (_, ..100) => format!("{}.{}{unit}", tenths / 10, tenths % 10),
        _ => format!("{}{unit}", tenths.div_ceil(10)),
    }
}

/// Prints a document.
pub fn json(document: &Value) -> Outcome {
    print(&text::printable_json(&format!("{document:#}\n")))
}

/// A document on a line of its own, for a list that grows while it is read.
pub fn json_line(document: &Value) -> String {
    text::printable_json(&format!("{document}\n"))
}

/// Prints text; a table's column `state` stands out on a terminal.
fn print_painted(text: &str) -> Outcome {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return print(text);
    }
    // no-color.org: no colours; other marks are not its matter.
    print_raw(&painted(&text::printable_lines(text), !set("NO_COLOR")))
}

/// The same text with the cells below the heading `state` in bold, and coloured by their first word.
fn painted(text: &str, colours: bool) -> String {
    let mut lines = text.lines();
    let Some(headings) = lines.next() else {
        return String::new();
    };
    let before = |at: usize| headings[..at].chars().next_back().is_none_or(|c| c == ' ');
    let Some(at) = headings
        .match_indices("state")
        .map(|(at, _)| at)
        .find(|&at| before(at) && headings[at + 5..].chars().next().is_none_or(|c| c == ' '))
    else {
        return text.to_owned();
    };
    let column = headings[..at].chars().count();
    let mut out = format!("{headings}\n");
    for line in lines {
        let (head, rest) = match line.char_indices().nth(column) {
            Some((at, _)) => line.split_at(at),
            None => (line, ""),
        };
        let (cell, tail) = rest.split_at(rest.find("  ").unwrap_or(rest.len()));
        if cell.is_empty() {
            out += &format!("{line}\n");
            continue;
        }
        let colour = match cell.split(' ').next().unwrap_or_default() {
            _ if !colours => "",
            "connected" | "active" | "approved" | "good" => ";32",
            "locked" | "refused" | "removed" | "wrong" => ";31",
            _ => ";33",
        };
        out += &format!("{head}\x1b[1{colour}m{cell}\x1b[0m{tail}\n");
    }
    out
}

/// Prints one or the other.
pub fn either(as_json: bool, document: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
    match as_json {
        true => json(&document()),
        false => print_painted(&text()),
    }
}

/// Prints a list: one JSON document, in which it is called `name`, or a table.
pub fn list<T, const N: usize>(
    as_json: bool,
    name: &str,
    items: &[T],
    document: impl Fn(&T) -> Value,
    headings: [&str; N],
    row: impl Fn(&T) -> [String; N],
) -> Outcome {
    either(
        as_json,
        || json!({ name: items.iter().map(document).collect::<Vec<_>>() }),
        || table(&headings, &items.iter().map(row).collect::<Vec<_>>()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_terminal_and_moments_are_short() {
        assert_eq!(cut("abcdef\nü\n", Some(4)), "abc…\nü\n");
        assert_eq!(cut("abcd", Some(4)), "abcd");
        assert_eq!(cut("abcdef\n", None), "abcdef\n");
        assert_eq!(moment("2026-01-31T14:00:05.123Z"), "2026-01-31 14:00:05");
        assert_eq!(moment("soon"), "soon");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = vec![
            vec!["alice".to_owned(), "ops, dba".to_owned()],
            vec!["b\x1b[2J".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["user", "roles"], &rows),
            "user   roles\nalice  ops, dba\nb\u{fffd}[2J\n"
        );
    }

    #[test]
    fn a_state_stands_out_and_nothing_else_changes() {
        let rows = [
            ("web1", "connected"),
            ("db", "seen 2 h ago"),
            ("web\u{fffd}", "locked"),
        ];
        let rows: Vec<_> = rows
            .map(|(n, s)| vec![n.to_owned(), s.to_owned(), "state=x".to_owned()])
            .to_vec();
        let plain = table(&["node", "state", "labels"], &rows);
        assert_eq!(
            painted(&plain, true),
            "node  state         labels\nweb1  \x1b[1;32mconnected\x1b[0m     state=x\n\
             db    \x1b[1;33mseen 2 h ago\x1b[0m  state=x\nweb\u{fffd}  \x1b[1;31mlocked\x1b[0m        state=x\n"
        );
        let bold = painted(&plain, false);
        assert_eq!(bold.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain);
        let none = table(&["id", "estates"], &[vec!["1".into(), "x".into()]]);
        assert_eq!(painted(&none, true), none);
        assert_eq!(painted("", true), "");
    }

    #[test]
    fn text_from_outside_turns_no_direction_and_hides_nothing() {
        let rows = vec![vec!["web\u{202e}1\u{200b}".to_owned(), "\u{2066}x".to_owned()]];
        assert_eq!(
            table(&["node", "labels"], &rows),
            "node    labels\nweb\u{fffd}1\u{fffd}  \u{fffd}x\n"
        );
    }
}
