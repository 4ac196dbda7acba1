//! Why something is not traced, as one sentence.

use std::fmt;

/// What a trace was asked for and cannot do: which program, process, file or word, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError(pub(crate) String);

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TraceError {}

impl From<String> for TraceError {
    fn from(why: String) -> TraceError {
        TraceError(why)
    }
}

impl From<TraceError> for String {
    fn from(error: TraceError) -> String {
        error.0
    }
}
