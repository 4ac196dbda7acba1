//! What is wrong with an expression, and where. It prints the expression with a mark under the place.

use std::fmt;
use std::ops::Range;

/// How much of a long expression is shown on either side of the place.
const SHOWN: usize = 32;
/// How long a mark may be.
const LONGEST_MARK: usize = 40;
/// How many names are offered.
const OFFERED: usize = 3;
/// Words that are longer are like no name.
const LONGEST_NAME: usize = 32;

/// An expression that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// The whole of it.
    pub text: String,
    /// The byte where that begins which is wrong.
    pub at: usize,
    /// How many bytes of it are wrong; 0: something is missing there.
    pub length: usize,
    /// Why, and what would be right.
    pub reason: String,
    /// Names that may have been meant.
    pub near: Vec<&'static str>,
}

impl ExpressionError {
    pub(super) fn new(text: &str, place: Range<usize>, reason: impl Into<String>) -> ExpressionError {
        ExpressionError {
            text: text.to_owned(),
            at: place.start,
            length: place.len(),
            reason: reason.into(),
            near: Vec::new(),
        }
    }

    /// The same, with those of the names that are like what is wrong.
    pub(super) fn or(mut self, names: impl Iterator<Item = &'static str>) -> ExpressionError {
        let wrong = self.text.get(self.at..self.at + self.length).unwrap_or_default();
        self.near = near(wrong, names);
        self
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |range: Range<usize>| self.text.get(range).unwrap_or_default();
        let end = self.at.saturating_add(self.length).min(self.text.len());
        let (before, wrong, after) = (part(0..self.at), part(self.at..end), part(end..self.text.len()));
        let skipped = before.chars().count().saturating_sub(SHOWN);
        let before: String = before.chars().skip(skipped).collect();
        let mark = wrong.chars().count().clamp(1, LONGEST_MARK);
        let wrong: String = wrong.chars().take(LONGEST_MARK).collect();
        let rest: String = after.chars().take(SHOWN).collect();
        let start = if skipped > 0 { "…" } else { "" };
        let more = if rest.len() < after.len() || end - self.at > wrong.len() {
            "…"
        } else {
            ""
        };
        writeln!(f, "{}", self.reason)?;
        writeln!(f, "  {start}{}{more}", plain(&format!("{before}{wrong}{rest}")))?;
        let indent = start.chars().count() + before.chars().count();
        write!(f, "  {}{}", " ".repeat(indent), "^".repeat(mark))?;
        match self.near.as_slice() {
            [] => Ok(()),
            [one] => write!(f, "\ndid you mean {one}?"),
            [most @ .., last] => write!(f, "\ndid you mean {} or {last}?", most.join(", ")),
        }
    }
}

impl std::error::Error for ExpressionError {}

/// What a terminal would obey is shown as a sign of the same width.
fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.collect()
}

/// The names that are most like a wrong one, the best first.
pub(super) fn near(wrong: &str, names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let wrong = wrong.as_bytes();
    if !(2..=LONGEST_NAME).contains(&wrong.len()) {
        return Vec::new();
    }
    let allowed = 1 + wrong.len() / 5;
    let mut found: Vec<(usize, bool, usize, &'static str)> = names
        .filter_map(|name| {
            let inside = holds(name.as_bytes(), wrong) || holds(wrong, name.as_bytes());
            if !inside && wrong.len().abs_diff(name.len()) > allowed {
                return None;
            }
            let steps = distance(wrong, name.as_bytes());
            let rank = if inside { steps.min(allowed) } else { steps };
            // Beginnings are seldom wrong.
            let begins = name.as_bytes().get(..2) == wrong.get(..2);
            (rank <= allowed).then_some((rank, !begins, steps, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(OFFERED).map(|(.., name)| name).collect()
}

/// Whether a word of some letters is part of another, in any case.
fn holds(long: &[u8], short: &[u8]) -> bool {
    short.len() >= 4
        && long
            .windows(short.len())
            .any(|part| part.eq_ignore_ascii_case(short))
}

/// How many letters are added, left out, replaced or exchanged with their neighbour between two words, in any case. Of a
/// name that is longer than any the beginning counts.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let cut = |word: &[u8]| word.len().min(LONGEST_NAME);
    let (a, b) = (&a[..cut(a)], &b[..cut(b)]);
    let mut before_last = [0; LONGEST_NAME + 1];
    let mut last: [usize; LONGEST_NAME + 1] = std::array::from_fn(|j| j);
    for (i, x) in a.iter().enumerate() {
        let mut row = [i + 1; LONGEST_NAME + 1];
        for (j, y) in b.iter().enumerate() {
            let differs = usize::from(!x.eq_ignore_ascii_case(y));
            let mut steps = (last[j] + differs).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x.eq_ignore_ascii_case(&b[j - 1]) && a[i - 1].eq_ignore_ascii_case(y) {
                steps = steps.min(before_last[j - 1] + 1);
            }
            row[j + 1] = steps;
        }
        before_last = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_under_what_is_wrong() {
        let long = format!("{},opneat,{}", "read,".repeat(20), "write,".repeat(20));
        let at = long.find("opneat").expect("it is there");
        for (text, place, shown) in [
            ("opneat,close", 0..6, "why\n  opneat,close\n  ^^^^^^"),
            ("é,opneat", 3..9, "why\n  é,opneat\n    ^^^^^^"),
            ("open(", 5..5, "why\n  open(\n       ^"),
            ("a\x1b[1m,b", 0..5, "why\n  a\u{fffd}[1m,b\n  ^^^^^"),
            ("", 0..0, "why\n  \n  ^"),
            (
                long.as_str(),
                at..at + 6,
                "why\n  …,read,read,read,read,read,read,,opneat,write,write,write,write,write,w…\n                                   ^^^^^^",
            ),
        ] {
            assert_eq!(ExpressionError::new(text, place, "why").to_string(), shown);
        }
    }

    #[test]
    fn names_are_offered() {
        let names = [
            "open",
            "openat",
            "openat2",
            "umount2",
            "newfstatat",
            "read",
            "pread64",
        ];
        for (wrong, offered) in [
            ("opneat", &["openat", "openat2"][..]),
            ("umount", &["umount2"]),
            ("fstatat", &["newfstatat"]),
            ("pread", &["read", "pread64"]),
            ("OPEN", &["open", "openat", "openat2"]),
            ("bogus", &[]),
            ("x", &[]),
        ] {
            assert_eq!(near(wrong, names.into_iter()), offered, "{wrong}");
        }
        let wrong = ExpressionError::new("opneat", 0..6, "why").or(names.into_iter());
        assert!(
            wrong.to_string().ends_with("\ndid you mean openat or openat2?"),
            "{wrong}"
        );
    }
}
