//! What may go wrong with a lab, as one sentence.

use std::fmt;

/// What the lab's calls answer.
pub type Result<T> = std::result::Result<T, Error>;

/// What was tried, and why it failed.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(what: impl fmt::Display, why: impl fmt::Display) -> Error {
        Error(format!("the lab: {what}: {why}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<Error> for String {
    fn from(error: Error) -> String {
        error.0
    }
}
