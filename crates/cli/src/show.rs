//! How lists are printed: a table for people, one JSON document for programs. Texts from outside cannot move the cursor.

use crate::flags::Outcome;
use crate::print;
use serde_json::Value;

/// Rows under headings, in columns as wide as their widest word; the last one ends where it ends.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let clean: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|c| printable(c)).collect())
        .collect();
    let width = |column: usize| {
        let cells = clean
            .iter()
            .filter_map(|row| row.get(column))
            .map(|c| c.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = String::new();
    let heading = headings.iter().map(|h| (*h).to_owned()).collect();
    for row in std::iter::once(&heading).chain(&clean) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:<width$}  ");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Without what a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Prints a document.
pub fn json(document: &Value) -> Outcome {
    print(&format!("{document:#}\n"))
}

/// Prints one or the other.
pub fn either(as_json: bool, document: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Outcome {
    match as_json {
        true => json(&document()),
        false => print(&text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
