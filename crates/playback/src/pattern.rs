//! What a search looks for: a fixed text, or a regular expression; and which groups of bytes a line has to have for it, so
//! that the index can be asked.

use crate::index::{Group, fold, groups};
use regex_lite::{Regex, RegexBuilder};
use std::collections::BTreeSet;

/// The longest pattern.
pub const MAX: usize = 4096;
/// The most memory of a regular expression's program.
const MAX_PROGRAM: usize = 1 << 20;

/// A pattern.
pub struct Pattern {
    how: How,
    groups: BTreeSet<Group>,
}

enum How {
    Fixed(String),
    /// Folded.
    Folded(String),
    /// With a text that every match has, as it stands there: it is found faster.
    Regex(Regex, String),
}

impl Pattern {
    /// Reads it. An error says what is wrong with it.
    pub fn new(text: &str, ignores_case: bool, is_regex: bool) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("the pattern is empty: every line has that".to_owned());
        }
        if text.len() > MAX {
            return Err(format!(
                "the pattern has {} bytes, and may have {MAX}",
                text.len()
            ));
        }
        let mut folded = String::new();
        let literal = match is_regex {
            true => literal(text),
            false => text.to_owned(),
        };
        fold(&literal, &mut folded);
        let groups = groups(&folded);
        let how = match (is_regex, ignores_case) {
            (false, false) => How::Fixed(literal),
            (false, true) => How::Folded(folded),
            (true, _) => {
                let regex = RegexBuilder::new(text)
                    .case_insensitive(ignores_case)
                    .size_limit(MAX_PROGRAM)
                    .build();
                let literal = if ignores_case { String::new() } else { literal };
                How::Regex(regex.map_err(|e| e.to_string())?, literal)
            }
        };
        Ok(Pattern { how, groups })
    }

    /// Whether a line has it. `room` is for a folded line, and is used again and again.
    pub fn is_in(&self, line: &str, room: &mut String) -> bool {
        match &self.how {
            How::Fixed(text) => line.contains(text.as_str()),
            How::Folded(text) => {
                fold(line, room);
                room.contains(text.as_str())
            }
            How::Regex(regex, literal) => line.contains(literal.as_str()) && regex.is_match(line),
        }
    }

    /// The groups of a line that has it; none: the index says nothing about it.
    pub fn groups(&self) -> &BTreeSet<Group> {
        &self.groups
    }
}

/// The longest text that every match of a regular expression has. Empty where there is none, and where the expression is
/// one that is not understood here: then the index is not asked.
fn literal(regex: &str) -> String {
    let mut best = String::new();
    let mut run = String::new();
    let keep = |run: &mut String, best: &mut String| {
        if run.len() > best.len() {
            best.clone_from(run);
        }
        run.clear();
    };
    let mut chars = regex.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // One side alone is enough for a match.
            '|' => return String::new(),
            // What may be missing is not part of it; what is repeated ends it.
            '?' | '*' | '{' => {
                run.pop();
                keep(&mut run, &mut best);
                if c == '{' {
                    chars.by_ref().find(|c| *c == '}');
                }
            }
            '+' | '.' | '^' | '$' => keep(&mut run, &mut best),
            '[' => {
                keep(&mut run, &mut best);
                if !skip_class(&mut chars) {
                    return String::new();
                }
            }
            '(' => {
                keep(&mut run, &mut best);
                if !skip_group(&mut chars) {
                    return String::new();
                }
            }
            '\\' => match chars.next() {
                Some(c) if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => run.push(c),
                // Classes, and places between characters.
                Some('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'b' | 'B' | 'A' | 'z') => keep(&mut run, &mut best),
                // Characters by their numbers, and what there may be one day.
                _ => return String::new(),
            },
            c => run.push(c),
        }
    }
    keep(&mut run, &mut best);
    best
}

/// Passes over `[…]`; false: it is one with another inside.
fn skip_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    chars.next_if_eq(&'^');
    // The first one is no end.
    chars.next_if_eq(&']');
    while let Some(c) = chars.next() {
        match c {
            ']' => return true,
            '[' => return false,
            '\\' => drop(chars.next()),
            _ => {}
        }
    }
    false
}

/// Passes over `(…)`; false: it changes what stands behind it, or is not understood.
fn skip_group(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    if chars.next_if_eq(&'?').is_some() {
        match chars.next() {
            Some(':' | 'P' | '<') => {}
            _ => return false,
        }
    }
    let mut depth = 1;
    while let Some(c) = chars.next() {
        match c {
            ')' => depth -= 1,
            '(' => depth += 1,
            '[' if !skip_class(chars) => return false,
            '\\' => drop(chars.next()),
            _ => {}
        }
        if depth == 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_literal_is_one_that_every_match_has() {
        for (regex, want) in [
            ("error", "error"),
            ("err.r code", "r code"),
            ("colou?r", "colo"),
            ("ab*cde", "cde"),
            ("ab+cde", "cde"),
            ("a{2,3}bcd", "bcd"),
            ("x(abc|def)yz", "yz"),
            ("a|bcd", ""),
            ("[0-9]+ files?", " file"),
            (r"a\.b\d\d", "a.b"),
            (r"\x41bcd", ""),
            (r"\u{41}bcd", ""),
            (r"\pLbcd", ""),
            ("(?i)abc", ""),
            ("(?x) a b", ""),
            ("(?:ab)?cd", "cd"),
            ("(?P<n>a[)]b)cd", "cd"),
            ("[]x]abc", "abc"),
            ("[a[b]]cde", ""),
            ("größe.", "größe"),
            ("^$", ""),
        ] {
            assert_eq!(literal(regex), want, "{regex}");
        }
    }

    #[test]
    fn patterns_find_what_they_say() {
        let mut room = String::new();
        let mut found = |pattern: &str, folds, regex, line: &str| {
            let pattern = Pattern::new(pattern, folds, regex).unwrap();
            pattern.is_in(line, &mut room)
        };
        assert!(found("a.c", false, false, "xa.c") && !found("a.c", false, false, "abc"));
        assert!(found("GRÖẞE", true, false, "große Größe") && !found("A", false, false, "a"));
        assert!(found("a.c$", false, true, "xabc") && found("ABC", true, true, "abc"));
        for (wrong, is_regex) in [("", false), ("(", true), (&"x".repeat(MAX + 1)[..], false)] {
            assert!(Pattern::new(wrong, false, is_regex).is_err());
        }
        assert!(Pattern::new("(((a{1000}){1000}){1000})", false, true).is_err());
    }
}
