//! What each step cost, when the order asks.

use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::clock;
use fleetgate_wire::reply::Timing;

/// A clock that is read after every step, or never.
pub struct StepTimer {
    last: Option<i64>,
    timings: Vec<Timing>,
}

impl StepTimer {
    /// Starts it, if `wanted`.
    pub fn new(wanted: bool) -> StepTimer {
        StepTimer {
            last: wanted.then(|| clock::monotonic().as_nanos()),
            timings: Vec::new(),
        }
    }

    /// Notes that `step` is done.
    pub fn done(&mut self, step: &CStr) {
        let Some(last) = self.last else { return };
        let now = clock::monotonic().as_nanos();
        self.timings.push(Timing {
            step: step.into(),
            nanos: u32::try_from(now - last).unwrap_or(u32::MAX),
        });
        self.last = Some(now);
    }

    /// All of them.
    pub fn into_timings(self) -> Vec<Timing> {
        self.timings
    }
}
