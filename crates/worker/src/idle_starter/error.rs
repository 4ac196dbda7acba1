//! Why the starter waits no longer, as one sentence.

use std::fmt;

/// The monitor ended by itself, or waiting for it failed: which, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitError(String);

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WaitError {}

impl From<String> for WaitError {
    fn from(why: String) -> WaitError {
        WaitError(why)
    }
}

impl From<WaitError> for String {
    fn from(error: WaitError) -> String {
        error.0
    }
}
