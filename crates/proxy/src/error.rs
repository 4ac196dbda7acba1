//! Why there is no proxy.

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
