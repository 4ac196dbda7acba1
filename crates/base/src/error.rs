//! Why a service does not start, as one sentence.

use std::fmt;

/// Why a service does not start: a file that others may change or read, or a `fleetgate up` that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(pub(crate) String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(why: String) -> StartError {
        StartError(why)
    }
}

impl From<StartError> for String {
    fn from(error: StartError) -> String {
        error.0
    }
}
