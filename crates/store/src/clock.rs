//! The time that leases live by, brought by the caller so that a test can make it pass. It is no calendar: it only
//! says how much time went by.

use std::time::Duration;

/// A clock that is never set back.
pub trait Clock: Send + Sync + 'static {
    /// The time since some start that does not change while the store is open.
    fn now(&self) -> Duration;
}

/// The machine's time since boot, suspension included: what slept past its lease has lost it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        let time = fleetgate_sys::clock::boot();
        Duration::new(time.sec.unsigned_abs(), time.nsec)
    }
}
