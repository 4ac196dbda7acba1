//! Rules, as a person would point at one, and refusals that name theirs.

use std::fmt;
use std::sync::Arc;

/// Where a rule stands, as a person would point at it: `the certificate "alice"`, `authorized_keys line 3 (restrict)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(Arc<str>);

impl Rule {
    /// In these words.
    pub fn new(words: impl Into<Arc<str>>) -> Rule {
        Rule(words.into())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why something is refused: a sentence that names the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(String);

impl Denied {
    /// A sentence without its full stop.
    pub fn new(sentence: impl Into<String>) -> Denied {
        Denied(sentence.into())
    }

    /// This rule does not allow it.
    pub(crate) fn by(what: impl fmt::Display, rule: &Rule) -> Denied {
        Denied(format!("{what} is not allowed by {rule}"))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Denied {}
