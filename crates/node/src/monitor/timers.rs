//! What is due when, on the boot-time clock. It never waits.

use super::wakes::Key;
use std::collections::BTreeMap;
use std::time::Duration;

/// The boot-time clock: since boot, suspension included; nobody sets it.
pub fn now() -> Duration {
    Duration::from_nanos(u64::try_from(fleetgate_sys::clock::boot().as_nanos()).unwrap_or(0))
}

/// A span in microseconds.
pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Seconds since 1970, by the calendar's clock, which may be set.
pub fn unix_seconds() -> u64 {
    u64::try_from(fleetgate_sys::clock::wall().sec).unwrap_or(0)
}

/// A timer, to be taken back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer(Duration, u64);

impl Timer {
    /// Whether its time has come.
    pub fn is_due(&self, now: Duration) -> bool {
        self.0 <= now
    }
}

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeMap<Timer, Key>,
    next: u64,
}

impl Timers {
    /// Wakes `key` at `at`, once.
    pub fn at(&mut self, at: Duration, key: Key) -> Timer {
        self.next += 1;
        let timer = Timer(at, self.next);
        self.due.insert(timer, key);
        timer
    }

    /// Wakes `key` in `span` from now, once.
    pub fn after(&mut self, span: Duration, key: Key) -> Timer {
        self.at(now().saturating_add(span), key)
    }

    /// Takes a timer back; one that was due already is no matter.
    pub fn cancel(&mut self, timer: Timer) {
        self.due.remove(&timer);
    }

    /// How long a wait may last, rounded up to milliseconds.
    pub fn wait_ms(&self, now: Duration) -> Option<u32> {
        let (Timer(at, _), _) = self.due.first_key_value()?;
        let left = at.saturating_sub(now);
        let ms = left.as_millis() + u128::from(!left.subsec_nanos().is_multiple_of(1_000_000));
        Some(u32::try_from(ms).unwrap_or(u32::MAX))
    }

    /// The next timer that is due, taken out.
    pub fn pop(&mut self, now: Duration) -> Option<Key> {
        let entry = self.due.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::wakes::Owner;

    #[test]
    fn timers_come_in_their_order_and_can_be_taken_back() {
        let mut timers = Timers::default();
        let ms = Duration::from_millis;
        let key = |id| Key::new(Owner::Logins, id);
        assert_eq!(timers.wait_ms(ms(0)), None);
        timers.at(ms(30), key(3));
        let second = timers.at(ms(20), key(2));
        timers.at(ms(10), key(1));
        timers.at(ms(10), key(4));
        assert_eq!(timers.wait_ms(ms(4)), Some(6));
        assert_eq!(timers.wait_ms(Duration::from_micros(9_100)), Some(1));
        assert_eq!(timers.wait_ms(ms(50)), Some(0));
        assert_eq!(timers.pop(ms(9)), None);
        timers.cancel(second);
        let all: Vec<u64> = std::iter::from_fn(|| timers.pop(ms(30))).map(|k| k.id).collect();
        assert_eq!(all, [1, 4, 3]);
    }
}
