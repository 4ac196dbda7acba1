//! A name of something in the cluster. It is only a form: whether anybody has it is the state's business.

use crate::Invalid;
use crate::text::shortened;
use std::fmt;

/// The longest name.
pub const MAX_NAME: usize = 128;

/// The name of a user, node, role, cluster, proxy or device: lower-case letters, digits and `._-`, no dot or dash in
/// front, so that it is no flag, no hidden file, no path, and part of a DNS-like TLS name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// As somebody wrote it.
    pub fn parse(text: &str) -> Result<Name, Invalid> {
        let refuse = |why: &str| Err(Invalid(format!("the name {:?} {why}", shortened(text))));
        if text.is_empty() {
            return refuse("is empty");
        }
        if text.len() > MAX_NAME {
            return refuse(&format!("is longer than {MAX_NAME} bytes"));
        }
        if let Some(c) = text.chars().find(|c| !is_of_a_name(*c)) {
            return refuse(&format!(
                "has {c:?} in it: a name has lower-case letters, digits and . _ -"
            ));
        }
        if text.starts_with(['-', '.']) {
            return refuse("begins with a dash or a dot");
        }
        Ok(Name(text.to_string()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Name, Invalid> {
        Name::parse(text)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

pub(super) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_cluster() {
        for good in ["a", "web1", "db-1.eu_west", "7", &"a".repeat(MAX_NAME)] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", "the name \"\" is empty"),
            ("-a", "the name \"-a\" begins with a dash or a dot"),
            (".a", "the name \".a\" begins with a dash or a dot"),
            (
                "Web",
                "the name \"Web\" has 'W' in it: a name has lower-case letters, digits and . _ -",
            ),
            (
                "a/b",
                "the name \"a/b\" has '/' in it: a name has lower-case letters, digits and . _ -",
            ),
            (
                "é",
                "the name \"é\" has 'é' in it: a name has lower-case letters, digits and . _ -",
            ),
        ] {
            assert_eq!(Name::parse(bad).unwrap_err().to_string(), why);
        }
        assert!(
            Name::parse(&"a".repeat(MAX_NAME + 1))
                .unwrap_err()
                .to_string()
                .ends_with("is longer than 128 bytes")
        );
    }
}
