//! An argument that a client may send, and the form that its value must have. The program may start a shell, so what a client
//! chooses freely has no character that means something to one; a choice that is written out is the administrator's.

use super::MAX_ARGUMENT;
use crate::pattern;
use crate::text::shortened;
use std::fmt;

/// An argument that a client may send, in its place on the line. In the argument vector it stands as `{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) default: Option<String>,
}

/// What an argument may look like. None but a negative number begins with a dash, so none is taken for a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Letters, digits and `._-@%+=:,`.
    Word,
    /// A whole number between two.
    Between(i64, i64),
    /// An absolute path without `..`.
    Path,
    /// One of these; `*` and `?` stand for characters of a word and slashes.
    OneOf(Vec<String>),
}

impl fmt::Display for Form {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Word => f.write_str("word"),
            Form::Path => f.write_str("path"),
            Form::Between(low, high) => write!(f, "{low}..{high}"),
            Form::OneOf(choices) => f.write_str(&choices.join("|")),
        }
    }
}

impl Form {
    pub(super) fn parse(text: &str) -> Result<Form, String> {
        Ok(match text {
            "word" => Form::Word,
            "path" => Form::Path,
            _ => {
                if let Some((low, high)) = text.split_once("..") {
                    let bad = || format!("has no range of numbers in {text:?}");
                    let (low, high) = (low.parse().map_err(|_| bad())?, high.parse().map_err(|_| bad())?);
                    if low > high {
                        return Err(bad());
                    }
                    return Ok(Form::Between(low, high));
                }
                let words: Vec<String> = text.split('|').map(str::to_string).collect();
                if words
                    .iter()
                    .any(|w| w.is_empty() || w.starts_with('-') || w.contains(char::is_control))
                {
                    return Err(format!(
                        "has an empty choice, a dash or a control character in {text:?}"
                    ));
                }
                Form::OneOf(words)
            }
        })
    }

    /// What a value has to be, for the client whose value is not.
    pub(super) fn description(&self) -> String {
        match self {
            Form::Word => format!("a word of letters, digits and {WORD_SIGNS}"),
            Form::Between(low, high) => format!("a whole number from {low} to {high}"),
            Form::Path => {
                format!("an absolute path of letters, digits, blanks and {WORD_SIGNS}/~, without ..")
            }
            Form::OneOf(choices) => format!("one of {}", shortened(&choices.join(", "))),
        }
    }

    pub(super) fn fits(&self, value: &str) -> bool {
        if value.is_empty() || value.len() > MAX_ARGUMENT {
            return false;
        }
        match self {
            Form::Between(low, high) => {
                let digits = value.strip_prefix('-').unwrap_or(value);
                digits.bytes().all(|c| c.is_ascii_digit())
                    && value.parse().is_ok_and(|n: i64| (*low..=*high).contains(&n))
            }
            Form::Word => is_word(value),
            Form::Path => {
                value.starts_with('/')
                    && value.split('/').all(|part| part != "..")
                    && value.chars().all(is_path_character)
            }
            Form::OneOf(choices) => choices.iter().any(|c| {
                c == value || c.contains(['*', '?']) && word_fits(c, value) && !value.starts_with('-')
            }),
        }
    }
}

/// A pattern whose stars take characters of a word and slashes only: no blanks, nothing that means something to a
/// shell that the program may start, and never `..`, which would lead out of the directory in front of the star.
fn word_fits(choice: &str, value: &str) -> bool {
    let allowed = |c: char| is_word_character(c) || c == '/' || choice.contains(c) && !matches!(c, '*' | '?');
    value.chars().all(allowed)
        && value.split('/').all(|part| part != "..")
        && pattern::fits(choice.as_bytes(), value.as_bytes())
}

fn is_word(text: &str) -> bool {
    !text.starts_with('-') && text.chars().all(is_word_character)
}

/// Letters of any script, but nothing that means something to a shell that the program may start, and nothing that changes
/// how a line is shown.
fn is_path_character(c: char) -> bool {
    is_word_character(c) || c.is_alphanumeric() || matches!(c, '/' | ' ' | '~')
}

/// What a word may have beside letters and digits.
const WORD_SIGNS: &str = "._-@%+=:,";

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || WORD_SIGNS.contains(c)
}
