//! Times as people read them. The clock is read here and nowhere else in this crate.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// So many seconds: the two largest units that are not zero.
#[must_use]
pub fn span(seconds: u64) -> String {
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let from = units.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let parts: Vec<String> = units[from..]
        .iter()
        .take(2)
        .filter(|(n, _)| *n > 0 || from == 3)
        .map(|(n, unit)| format!("{n}{unit}"))
        .collect();
    parts.join(" ")
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
    // Days to a date, after the civil calendar's cycle of 400 years (146097 days), counted from 1 March of the year 0.
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z",
        day_of_year - (153 * shifted + 2) / 5 + 1,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
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
