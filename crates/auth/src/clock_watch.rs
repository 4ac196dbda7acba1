//! Notices that the machine's clock was set. Then proxies and nodes get a newer state, by whose time they sign, and nothing that
//! cannot be undone happens by time for an hour, in which the clock can be put right. It judges no certificate.

use crate::cache::StateCache;
use crate::validity::SKEW;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long the clock has to stand after it was set, in seconds, before authorities, locks, invites and tokens are removed
/// because their time is over.
pub const STEADY: u64 = 3600;

/// How far the state's serial may be behind the clock when a certificate is made, in seconds.
pub const NOTED: u64 = 86_400;

/// When the last of the certificates has ended that were made up to now by whatever clock, and live for `lifetime`.
pub fn all_ended(cache: &StateCache, now: u64, lifetime: u64) -> u64 {
    let latest = now.max(cache.last_serial() / 1000 + NOTED);
    // Nodes let a certificate in for a moment after its end.
    latest.saturating_add(lifetime).saturating_add(SKEW)
}

/// What was seen of the clock.
#[derive(Debug, Default)]
pub struct ClockWatch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The calendar's time less the time since boot, in milliseconds, at the last look.
    offset: Option<i64>,
    /// Until when, in milliseconds since boot, the clock is not believed.
    unsteady_until: u64,
}

/// What a look at the clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The first one.
    First,
    /// It goes on evenly.
    Same,
    /// It was set, by so many seconds.
    Set(i64),
}

impl ClockWatch {
    /// Looks at the clock.
    pub fn look(&self, millis: u64, uptime: u64) -> Look {
        let offset = millis.cast_signed() - uptime.cast_signed();
        let mut seen = self.lock();
        let Some(before) = seen.offset.replace(offset) else {
            return Look::First;
        };
        let by = (offset - before) / 1000;
        if by.unsigned_abs() <= SKEW {
            return Look::Same;
        }
        seen.unsteady_until = uptime + STEADY * 1000;
        Look::Set(by)
    }

    /// Whether what cannot be undone may be done by the clock.
    pub fn is_steady(&self, uptime: u64) -> bool {
        uptime >= self.lock().unsteady_until
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_slewed_is_not() {
        let watch = ClockWatch::default();
        let table = [
            (1_000_000, 0, Look::First, true),
            (1_001_000, 1_000, Look::Same, true),
            (1_032_000, 2_000, Look::Same, true),
            (22_632_000, 2_000, Look::Set(21_600), false),
            (22_633_000, 3_000, Look::Same, false),
            (1_034_000, 4_000, Look::Set(-21_600), false),
            (4_633_000, 3_603_000, Look::Same, false),
            (4_634_000, 3_604_000, Look::Same, true),
        ];
        for (millis, uptime, look, is_steady) in table {
            assert_eq!(watch.look(millis, uptime), look, "{uptime}");
            assert_eq!(watch.is_steady(uptime), is_steady, "{uptime}");
        }
    }
}
