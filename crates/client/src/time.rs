//! Times as people read them. The clock is read here and nowhere else in this crate.

pub use fleetgate_policy::text::span;
use fleetgate_sys::clock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// A moment, seen from `now`.
#[must_use]
pub fn seen_from(now: u64, moment: u64) -> String {
    match moment {
        0 => "never".to_owned(),
        m if m > now => format!("in {}", span(m - now)),
        m => format!("{} ago", span(now - m)),
    }
}

/// RFC 3339 in UTC, as audit lines have it.
#[must_use]
pub fn utc(seconds: u64) -> String {
    let sec = signed(seconds);
    clock::rfc3339(clock::Time { sec, nsec: 0 }, 0)
}

/// Seconds to reckon with: their difference has a sign.
pub(crate) fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_shortly() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3_661, "1h 1m"),
            (3_601, "1h"),
            (8 * 3600, "8h"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(seen_from(100, 160), "in 1m");
        assert_eq!(seen_from(160, 100), "1m ago");
        assert_eq!(seen_from(160, 0), "never");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
