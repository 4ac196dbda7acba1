//! Holds docs/trace-expressions.md to the tables: every class, argument and name that an expression knows stands there, and
//! nothing else.

use super::classes::CLASSES;
use super::{constants, signatures};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/trace-expressions.md");
/// How wide a line of a list is.
const WIDTH: usize = 120;

/// The lines under a heading.
fn section(heading: &str) -> Vec<&'static str> {
    let lines = PAGE.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).collect()
}

/// The words of a section's list, which stands between fences.
fn list(heading: &str) -> String {
    let lines = section(heading)
        .into_iter()
        .skip_while(|line| *line != "```")
        .skip(1);
    lines
        .take_while(|line| *line != "```")
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// Words, as many in a line as it holds.
fn filled(words: impl Iterator<Item = String>) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && line.len() + 2 + word.len() > WIDTH {
            lines += &(std::mem::take(&mut line) + "\n");
        }
        if !line.is_empty() {
            line += "  ";
        }
        line += &word;
    }
    lines + &line + "\n"
}

#[test]
fn the_page_has_every_class() {
    let rows = section("## Classes")
        .into_iter()
        .filter(|line| line.starts_with("| `"));
    let expected = CLASSES.iter().map(|class| {
        let names = [class.name, class.second]
            .into_iter()
            .filter(|name| !name.is_empty());
        let mut names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        if class.bare {
            names.push(format!("`{}`", class.name.trim_start_matches('%')));
        }
        format!("| {} | {} |", names.join(", "), class.about)
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn the_page_has_every_argument() {
    let calls = crate::decode::rows().filter(|row| row.is_tested());
    let calls: BTreeSet<&str> = calls.map(|row| row.name).collect();
    let signature = |call| format!("{call}({})", signatures::names(call).join(","));
    let expected = filled(calls.into_iter().map(signature));
    assert_eq!(list("## Arguments"), expected, "\n{expected}");
}

#[test]
fn the_page_has_every_name_of_a_number() {
    let expected = filled(
        constants::names()
            .filter(|name| !name.starts_with("SIGRT_"))
            .map(str::to_owned),
    );
    assert_eq!(list("## Names"), expected, "\n{expected}");
}
