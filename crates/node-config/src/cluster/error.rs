//! Why something of the cluster is not believed or kept, as one sentence.

use fleetgate_policy::Invalid;
use std::fmt;

/// A state, a certificate or a label that is not valid, or a file that cannot be read or written: which, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterError(pub(super) String);

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClusterError {}

impl From<String> for ClusterError {
    fn from(why: String) -> ClusterError {
        ClusterError(why)
    }
}

impl From<Invalid> for ClusterError {
    fn from(invalid: Invalid) -> ClusterError {
        ClusterError(invalid.into())
    }
}

impl From<ClusterError> for String {
    fn from(error: ClusterError) -> String {
        error.0
    }
}
