//! The audit log: who came in or did not, what they ran, opened and moved, as one JSON object per line (docs/audit.md).
//!
//! Telling never waits: events go into a bounded queue, and a thread of its own writes them. What the queue or the disk
//! has no room for is counted, and the count is written as soon as there is room again. It never decides anything, and
//! no secret is ever told.

mod event;
mod shipping;
mod watched;
mod writer;

pub(super) use event::digits;
pub use event::{AsAudited, EndOrder, Event, Gap, OPERATIONS, SessionKind};
pub use shipping::{Batch, Deliver, MAX_BATCH, Shipping, begin_at_end};
pub use watched::{Watched, What};
pub use writer::{Audit, Writing};

/// How many events may wait for the disk; one more is lost and counted.
pub const QUEUE: usize = 8192;

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
