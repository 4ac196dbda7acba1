//! Mistakes in TOML files as a person can mend them: the line, the key, what is expected there, and an example. The parser knows
//! types ("invalid type: string, expected a sequence"); whoever wrote the file knows keys.

use crate::text;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

/// A key, and a line that would be right for it. A key that means something else in other tables is `TABLE.KEY`.
pub type Example = (&'static str, &'static str);

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    /// What is wrong, with the key, in one line.
    pub why: String,
}

impl Mistake {
    /// What `error` means in `text`. `examples` are lines for keys whose type does not say what they hold.
    #[must_use]
    pub fn new(text: &str, error: &Error, examples: &[Example]) -> Mistake {
        let span = error.span();
        let (line, column) = position(text, span.as_ref().map_or(0, |span| span.start));
        let place = span.map_or_else(Place::default, |span| Place::find(text, span.start, line));
        let why = place.sentence(error.message().trim_end(), examples);
        Mistake {
            line,
            column,
            why: text::printable(&why.replace('\n', ", "))
                .chars()
                .take(MAX_SENTENCE)
                .collect(),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// What is wrong with a value of the right type: where it stands, and why. Its section makes a [`Mistake`] of it.
#[derive(Clone, Debug)]
pub struct Fault {
    at: Range<usize>,
    why: String,
}

impl Fault {
    /// About this value.
    pub fn new<T>(value: &Spanned<T>, why: impl fmt::Display) -> Fault {
        Fault::at(value.span(), why)
    }

    /// About what stands there.
    pub fn at(at: Range<usize>, why: impl fmt::Display) -> Fault {
        Fault {
            at,
            why: why.to_string(),
        }
    }

    /// As a mistake in this section (`[auth.recordings]`) of a text.
    #[must_use]
    pub fn in_section(self, text: &str, section: &str) -> Mistake {
        let (line, column) = position(text, self.at.start);
        Mistake {
            line,
            column,
            why: format!("{section}: {}", self.why),
        }
    }
}

/// The line in which the value of a key begins, the key with those of the tables around it.
#[must_use]
pub fn line_of(text: &str, keys: &[&str]) -> Option<usize> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut table = document.get_ref();
    let (last, outer) = keys.split_last()?;
    for key in outer {
        table = entry(table, key)?.get_ref().as_table()?;
    }
    Some(position(text, entry(table, last)?.span().start).0)
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    let mut entries = table.iter();
    entries
        .find(|(name, _)| *name.get_ref() == key)
        .map(|(_, value)| value)
}

/// A word without quotes.
fn word_at(text: &str, at: usize) -> String {
    let line = text
        .get(at..)
        .and_then(|rest| rest.lines().next())
        .unwrap_or_default();
    let word = line
        .split([',', ']', '}', '#', ' ', '\t', '"'])
        .next()
        .unwrap_or_default();
    text::shortened(word).to_owned()
}

/// Line and column, counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Where something stands, by keys.
#[derive(Default)]
struct Place {
    /// The key with those of the tables around it; empty: the file as a whole.
    keys: Vec<String>,
    /// It is the key itself that is wrong, not its value.
    is_key: bool,
    /// It is one entry of the key's list.
    in_list: bool,
    /// How the value is written.
    written: String,
    /// The word that stands there, where it is no value.
    behind: String,
    /// How long that is. What is shorter is nearer.
    length: usize,
}

impl Place {
    /// The innermost thing that stands at `at`, in a file that may be broken behind it.
    fn find(text: &str, at: usize, line: usize) -> Place {
        let mut best = Place {
            length: usize::MAX,
            ..Place::default()
        };
        let (document, _) = DeTable::parse_recoverable(text);
        best.look_at_table(text, at, document.get_ref(), &[]);
        if best.keys.is_empty() {
            // What was thrown away as broken has no place in the table that is left.
            let line = text.lines().nth(line - 1).unwrap_or_default();
            let key = line.split_once('=').map(|(key, _)| key.trim());
            best.keys = key
                .filter(|key| is_bare(key))
                .map(str::to_owned)
                .into_iter()
                .collect();
        }
        best
    }

    fn look_at_table(&mut self, text: &str, at: usize, table: &DeTable<'_>, outer: &[String]) {
        for (key, value) in table {
            let keys = [outer, &[key.get_ref().to_string()]].concat();
            self.take(text, at, key.span(), &keys, true, false);
            self.look_at_value(text, at, value, &keys, false);
        }
    }

    fn look_at_value(
        &mut self,
        text: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
        keys: &[String],
        in_list: bool,
    ) {
        self.take(text, at, value.span(), keys, false, in_list);
        match value.get_ref() {
            // The place of a table with a line of its own is that line, not what stands below.
            DeValue::Table(table) => self.look_at_table(text, at, table, keys),
            DeValue::Array(values) => {
                for value in values {
                    self.look_at_value(text, at, value, keys, true);
                }
            }
            _ => {}
        }
    }

    fn take(
        &mut self,
        text: &str,
        at: usize,
        span: Range<usize>,
        keys: &[String],
        is_key: bool,
        in_list: bool,
    ) {
        let reaches = span.contains(&at) || span.start == at;
        if reaches && span.len() <= self.length {
            *self = Place {
                keys: keys.to_vec(),
                is_key,
                in_list,
                written: text.get(span.clone()).unwrap_or_default().to_owned(),
                behind: word_at(text, at),
                length: span.len(),
            };
        }
    }

    /// What the parser says, in the words of the file.
    fn sentence(&self, said: &str, examples: &[Example]) -> String {
        if let Some(missing) = said
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'))
        {
            let place = match self.keys.is_empty() {
                true => String::new(),
                false => format!(" in [{}]", self.name()),
            };
            let example = example_of(missing, examples).map(str::to_owned);
            return format!("missing field `{missing}`{place}{}", write_line(example));
        }
        if let Some(meant) = other_number(said) {
            return meant;
        }
        let Some(key) = self.keys.last() else {
            return said.to_owned();
        };
        let name = self.name();
        let subject = match self.in_list {
            true => format!("an entry of `{name}`"),
            false => format!("`{name}`"),
        };
        if let Some((word, expected)) = said
            .strip_prefix("unknown variant `")
            .and_then(|rest| rest.split_once("`, expected "))
        {
            return format!("{subject} is {expected}, not `{}`", text::shortened(word));
        }
        match said {
            "duplicate key" => return format!("`{name}` stands there twice: keep one of the two"),
            ENUM if !self.is_key => return self.mismatch(&subject, "", &Expectation::Text, examples),
            _ => {}
        }
        if said == NO_ADDRESS {
            let given = format!("string {}", self.written.trim());
            return self.mismatch(&subject, &given, &Expectation::Said(ADDRESS.to_owned()), examples);
        }
        let mismatch = ["invalid type: ", "invalid value: ", "invalid length "]
            .into_iter()
            .find_map(|begin| said.strip_prefix(begin)?.rsplit_once(", expected "));
        if let Some((given, expected)) = mismatch
            && !self.is_key
        {
            if self.in_list && given == "map" && self.written.starts_with("[[") {
                return format!("`{name}` is a table, and [[{name}]] makes a list of tables: write [{name}]");
            }
            return self.mismatch(&subject, given, &expectation(expected), examples);
        }
        // A word that begins as `nan` and `true` do is a number or a truth to the parser, and a broken one.
        let is_word = self.behind.starts_with(|c: char| c.is_alphabetic()) && !self.is_key;
        if said.starts_with(NO_QUOTES) || is_word && BROKEN.iter().any(|begin| said.starts_with(begin)) {
            return match self.behind.as_str() {
                word if !word.is_empty() && self.is_secret() => {
                    format!(
                        "`{name}`: a text stands in quotes: write {} = \"TEXT\"",
                        quoted(key)
                    )
                }
                "" if !self.in_list => format!("`{name}` has no value: leave the line out for the default"),
                "yes" | "on" | "Yes" | "True" => format!("`{name}`: {} is no value: write true", self.behind),
                "no" | "off" | "No" | "False" => {
                    format!("`{name}`: {} is no value: write false", self.behind)
                }
                word => format!(
                    "`{name}`: {word} is no value: a text stands in quotes, as \"{word}\"{}",
                    write_line(self.example(examples).map(str::to_owned))
                ),
            };
        }
        let said = match said {
            BEHIND => "something stands behind the value: a text with spaces stands in quotes",
            other => other.trim_end_matches(", expected nothing"),
        };
        match has_word(said, key) {
            true => said.to_owned(),
            false => format!("`{name}`: {said}"),
        }
    }

    /// Something of another kind stands where `expected` belongs.
    fn mismatch(&self, subject: &str, given: &str, expected: &Expectation, examples: &[Example]) -> String {
        let key = self.keys.last().map_or("", String::as_str);
        let example = match expected.has_example() {
            true => None,
            false => self
                .example(examples)
                .map(str::to_owned)
                .or_else(|| self.rewritten(key, expected)),
        };
        let not = match given {
            given if self.is_secret() && !["map", "sequence"].contains(&given) => String::new(),
            "" => format!(", not {}", text::shortened(self.written.trim())),
            "map" if self.written.starts_with(|c: char| c.is_ascii_digit()) => ", not a date".to_owned(),
            given => format!(", not {}", kind_of(given)),
        };
        format!("{subject} is {}{not}{}", expected.words(), write_line(example))
    }

    /// Whether what stands there may be nobody's to read but the file's owner's: a message goes into logs.
    fn is_secret(&self) -> bool {
        self.keys.iter().any(|key| {
            let key = key.to_ascii_lowercase();
            SECRETS.iter().any(|part| key.contains(part))
        })
    }

    /// The line that is right for the key in its table (`table.key`), else for the key wherever it stands.
    fn example(&self, examples: &[Example]) -> Option<&'static str> {
        let (key, outer) = self.keys.split_last()?;
        let in_table = outer.last().map(|table| format!("{table}.{key}"));
        in_table
            .and_then(|name| example_of(&name, examples))
            .or_else(|| example_of(key, examples))
    }

    /// As it would be written in one line.
    fn name(&self) -> String {
        let keys: Vec<String> = self.keys.iter().map(|key| quoted(key)).collect();
        keys.join(".")
    }

    /// The line with the value that was meant, where it can be told from what stands there.
    fn rewritten(&self, key: &str, expected: &Expectation) -> Option<String> {
        let written = self.written.trim();
        let text = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let is_short = written.len() <= MAX_WRITTEN && !written.contains('\n') && !self.is_secret();
        let value = match expected {
            Expectation::List if text.is_some() && is_short => format!("[{written}]"),
            Expectation::List => "[\"TEXT\"]".to_owned(),
            Expectation::Text if self.in_list => return None,
            Expectation::Text if is_short && !written.contains(['"', '\'', '{', '[']) => {
                format!("\"{written}\"")
            }
            Expectation::Text => "\"TEXT\"".to_owned(),
            Expectation::YesOrNo => match text {
                Some("no" | "off" | "false" | "0") => "false".to_owned(),
                _ => "true".to_owned(),
            },
            Expectation::Number(_) => match text.filter(|text| is_short && text.parse::<u32>().is_ok()) {
                Some(number) => number.to_owned(),
                None => "10".to_owned(),
            },
            Expectation::Table => return Some(format!("[{}] and its keys in the lines below", self.name())),
            Expectation::Said(_) => return None,
        };
        Some(format!("{} = {value}", quoted(key)))
    }
}

/// How it begins the one about a broken number, and a broken truth.
const BROKEN: [&str; 2] = ["invalid float", "invalid boolean"];
/// What the parser says of a value that is no word of a list of words.
const ENUM: &str = "wanted string or table";
/// What it says of a value that has an end, and does not end there.
const BEHIND: &str = "unexpected key or value, expected newline, `#`";
/// How the parser begins its complaint about a text without quotes.
const NO_QUOTES: &str = "string values must be quoted";
/// Parts of the names of keys whose values no message repeats: what programs are given as variables, and what is called so.
const SECRETS: [&str; 8] = [
    "environment",
    "env",
    "secret",
    "pass",
    "token",
    "key",
    "credential",
    "cookie",
];
/// The longest sentence, in characters: it may list all keys that there are, and whoever wrote the file chose names of any length.
const MAX_SENTENCE: usize = 4000;
/// The longest value that an example repeats.
const MAX_WRITTEN: usize = 64;

/// What belongs there.
enum Expectation {
    List,
    Text,
    YesOrNo,
    Number(&'static str),
    Table,
    /// In words of our own.
    Said(String),
}

impl Expectation {
    fn words(&self) -> &str {
        match self {
            Expectation::List => "a list",
            Expectation::Text => "a text in quotes",
            Expectation::YesOrNo => "true or false",
            Expectation::Number(words) => words,
            Expectation::Table => "a table",
            Expectation::Said(words) => words,
        }
    }

    fn has_example(&self) -> bool {
        matches!(self, Expectation::Said(words) if words.contains('"'))
    }
}

/// By what the parser calls it.
fn expectation(expected: &str) -> Expectation {
    match expected {
        "a sequence" => Expectation::List,
        "a string" | "path string" => Expectation::Text,
        "a boolean" => Expectation::YesOrNo,
        "u16" => Expectation::Number("a number from 0 to 65535"),
        "u32" => Expectation::Number("a number from 0 to 4294967295"),
        "u64" | "usize" => Expectation::Number("a number, 0 or more"),
        "i64" | "i32" => Expectation::Number("a whole number"),
        "socket address" => Expectation::Said(ADDRESS.to_owned()),
        "a map" => Expectation::Table,
        words if words.starts_with("struct ") => Expectation::Table,
        words => Expectation::Said(words.to_owned()),
    }
}

/// What the standard library says of a text that is none.
const NO_ADDRESS: &str = "invalid socket address syntax";
/// What an address to listen on is.
const ADDRESS: &str = "an address with its port, as \"127.0.0.1:22\" or \"[::]:22\"";

/// What stands there, by what the parser calls it.
fn kind_of(given: &str) -> String {
    let behind = |word: &str| given.strip_prefix(word).map(str::trim).map(text::shortened);
    match given {
        "map" => return "a table".to_owned(),
        "sequence" => return "a list".to_owned(),
        // Tables are read from lists, too, which have some length.
        _ if given.bytes().all(|b| b.is_ascii_digit()) => return "a list".to_owned(),
        _ => {}
    }
    if let Some(value) = behind("string ") {
        return format!("the text {value}");
    }
    for number in ["integer ", "floating point "] {
        if let Some(value) = behind(number) {
            return format!("the number {}", value.trim_matches('`'));
        }
    }
    match behind("boolean ") {
        Some(value) => value.trim_matches('`').to_owned(),
        None => text::shortened(given).to_owned(),
    }
}

fn example_of(key: &str, examples: &[Example]) -> Option<&'static str> {
    examples
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, line)| *line)
}

/// A key that is not known, where the same word in the plural is, or in the singular.
fn other_number(said: &str) -> Option<String> {
    let (word, expected) = said.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let mut known = expected.split('`').skip(1).step_by(2);
    let meant =
        known.find(|known| known.strip_suffix('s') == Some(word) || word.strip_suffix('s') == Some(known))?;
    Some(format!("unknown field `{word}`, did you mean `{meant}`?"))
}

/// A key as TOML has it.
fn quoted(key: &str) -> String {
    match is_bare(key) {
        true => key.to_owned(),
        false => format!("{key:?}"),
    }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Whether a message names this key itself.
fn has_word(said: &str, key: &str) -> bool {
    let between = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
    said.split(between).any(|word| word == key)
}

/// The remedy at a message's end.
fn write_line(line: Option<String>) -> String {
    line.map(|line| format!(": write {line}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
