//! The guardian of watched sessions, which is any tracer's (`fleetgate_calls::guardian`), in a worker's sandbox.

use crate::start::{Ended, Start};

/// Keeps the watcher's listeners, and answers watched calls when the watcher is gone.
pub(crate) fn run(start: &Start) -> Ended {
    if let Err(ended) = start.confine(&[]) {
        return ended;
    }
    match fleetgate_calls::guardian::main(&[]) {
        0 => Ended::Quietly,
        code => Ended::Because(format!("it ended with code {code}")),
    }
}
