//! The guardian of watched sessions, which is any tracer's (`fleetgate_calls::guardian`), in a worker's sandbox.

use crate::start::{Start, WorkerEnd};

/// Keeps the watcher's listeners, and answers watched calls when the watcher is gone.
pub(crate) fn run(start: &Start) -> WorkerEnd {
    if let Err(ended) = start.confine(&[]) {
        return ended;
    }
    match fleetgate_calls::guardian::main(&[]) {
        0 => WorkerEnd::Quietly,
        code => WorkerEnd::Because(format!("it ended with code {code}")),
    }
}
