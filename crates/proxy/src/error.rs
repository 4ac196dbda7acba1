//! Why there is no proxy, or why it does not keep what it is made of.

use std::fmt;

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError(pub(crate) String);

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerError {}

impl From<String> for ServerError {
    fn from(why: String) -> ServerError {
        ServerError(why)
    }
}

impl From<ServerError> for String {
    fn from(error: ServerError) -> String {
        error.0
    }
}
