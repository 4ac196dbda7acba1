//! The audit log: who came in or did not, what they ran, opened and moved, as one JSON object per line (docs/audit.md).
//! [`metrics`] are its counterpart in numbers.
//!
//! Telling never waits: events go into a bounded queue, and a thread of its own writes them. What the queue or the disk
//! has no room for is counted, and the count is written as soon as there is room again. It never decides anything, and
//! no secret is ever told.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

mod event;
pub mod metrics;
mod shipping;
mod watched;
mod writer;

pub use event::{ClusterUser, EndCommand, Event, Gap, NotRecorded, OPERATIONS, SessionKind, Usage, digits};
pub use shipping::{Batch, Deliver, MAX_BATCH, Shipping, begin_at_end};
pub use watched::{WatchReport, WatchedEvent};
pub use writer::{Audit, WriterThread};

/// How many events may wait for the disk; one more is lost and counted.
pub const QUEUE: usize = 8192;

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
