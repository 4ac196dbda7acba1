//! Why there is no monitor, as one sentence.

use std::fmt;

/// Why there is no monitor, or none of its processes. A sentence with its remedy.
#[derive(Debug)]
pub struct MonitorError(pub(super) String);

impl fmt::Display for MonitorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MonitorError {}

impl From<String> for MonitorError {
    fn from(why: String) -> MonitorError {
        MonitorError(why)
    }
}

impl From<MonitorError> for String {
    fn from(error: MonitorError) -> String {
        error.0
    }
}
