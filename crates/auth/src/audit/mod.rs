//! The audit log of the cluster: what auth itself did, and what nodes and proxies hand in, in a database of its own so
//! that neither its size nor its writers hold up the state. Nothing in it is ever changed; the oldest is cut off when it
//! is larger than it may be (`cut`). No secret is put into an event.

mod copy;
mod cut;
pub mod event;
mod exports;
mod log;
mod reader;
mod schema;

pub use copy::copy;
pub use event::Event;
pub use exports::{Exported, Lost};
pub use log::{Batch, Line, Log, Settings, Teller, lines};
pub use reader::{Found, Mark, Query};
pub use schema::check;

use std::fmt;
use std::path::PathBuf;

/// The longest line that is kept as it is; of a longer one the beginning, as a text.
pub const MAX_LINE: usize = 64 * 1024;
/// The most bytes of lines in one batch of a node or proxy.
pub const MAX_BATCH: usize = 512 * 1024;
/// The most logs of one source whose position is known; the oldest is forgotten.
pub const MAX_LOGS: u32 = 64;
/// The most requests that wait for the writer.
pub const MAX_UNWRITTEN_REQUESTS: usize = 1024;
/// The most queries at once.
pub const MAX_READERS: usize = 4;
/// The most reads at once for those who get every event; no query waits for them, nor they for queries.
pub const MAX_EXPORT_READERS: usize = 2;
/// How large the log may be, unless told otherwise.
pub const DEFAULT_SIZE: u64 = 4 << 30;

/// Why the audit log did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditError {
    /// The disk is full.
    Full(PathBuf),
    /// It may not be written.
    ReadOnly(PathBuf),
    /// Somebody else's file, or a newer fleetgate's, or damaged.
    Unfit(PathBuf, String),
    /// The machine said no.
    Io(PathBuf, String),
    /// Too many wait.
    Busy,
    /// It is closed.
    Closed,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Full(path) => write!(
                f,
                "the disk that holds the audit log {} is full: make room; what is not in the log yet is kept and sent again",
                path.display()
            ),
            AuditError::ReadOnly(path) => write!(
                f,
                "the audit log {} may not be written: make the file and its file system writable",
                path.display()
            ),
            AuditError::Unfit(path, why) => write!(
                f,
                "the audit log {} cannot be used: {why}; move it away, a new one is begun",
                path.display()
            ),
            AuditError::Io(path, why) => write!(f, "the audit log {}: {why}", path.display()),
            AuditError::Busy => {
                f.write_str("too many requests wait for the audit log; try again in a moment")
            }
            AuditError::Closed => f.write_str("the audit log is closed; the service is stopping"),
        }
    }
}

impl std::error::Error for AuditError {}
