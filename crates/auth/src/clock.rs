//! The calendar's time, brought by the caller so that a test can turn it. It waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn millis(&self) -> u64;

    /// Seconds since 1970.
    fn seconds(&self) -> u64 {
        self.millis() / 1000
    }
}

/// The machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn millis(&self) -> u64 {
        let time = fleetgate_sys::clock::wall();
        time.sec.unsigned_abs() * 1000 + u64::from(time.nsec / 1_000_000)
    }
}

/// One that stands until it is turned.
#[derive(Clone, Debug)]
pub struct SetClock(Arc<AtomicU64>);

impl SetClock {
    /// Standing at this second.
    pub fn at(seconds: u64) -> SetClock {
        SetClock(Arc::new(AtomicU64::new(seconds * 1000)))
    }

    /// Turns it forward.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1000, Ordering::AcqRel);
    }
}

impl Clock for SetClock {
    fn millis(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A second as RFC 3339 has it, in UTC.
pub fn rfc3339(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    // Days since 1970 to a date of the Gregorian calendar, whose years begin in March here: then the leap day is last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in table {
            assert_eq!(rfc3339(millis), text);
        }
    }
}
