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

/// A moment as people write it, seen from `now`; Unix seconds. How long ago (`90s`, `10m`, `8h`, `7d`), a day
/// (`2026-01-31`, `today`, `yesterday`: its first second), a time of today (`14:00`), or both (`2026-01-31 14:00:05`, with
/// `T` between them and `Z` or `+02:00` behind them as in RFC 3339). In UTC, as audit lines are.
#[must_use]
pub fn moment(word: &str, now: u64) -> Option<u64> {
    let today = now - now % 86_400;
    match word {
        "now" => return Some(now),
        "today" => return Some(today),
        "yesterday" => return today.checked_sub(86_400),
        _ => {}
    }
    if let Some(ago) = ago(word) {
        return Some(now.saturating_sub(ago));
    }
    if let Some(seconds) = time_of_day(word) {
        return Some(today + seconds);
    }
    let (date, rest) = match word.find(['T', ' ']) {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    };
    let day = day(date)?;
    let Some(rest) = rest else {
        return Some(day);
    };
    let (time, east) = match rest.strip_suffix('Z') {
        Some(time) => (time, 0),
        None => match rest.rfind(['+', '-']) {
            Some(at) => {
                let shift = i64::try_from(time_of_day(&rest[at + 1..])?).ok()?;
                (
                    &rest[..at],
                    if rest.as_bytes()[at] == b'-' {
                        -shift
                    } else {
                        shift
                    },
                )
            }
            None => (rest, 0),
        },
    };
    (day + time_of_day(time)?).checked_add_signed(-east)
}

/// Seconds of `90s`, `10m`, `8h`, `7d`.
fn ago(word: &str) -> Option<u64> {
    let unit = match word.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    number(&word[..word.len() - 1])?.checked_mul(unit)
}

/// Seconds of `14:00`, `14:00:05`, `14:00:05.123`.
fn time_of_day(word: &str) -> Option<u64> {
    let (word, part) = word.split_once('.').unwrap_or((word, "0"));
    number(part)?;
    let parts: Vec<u64> = word.split(':').map(number).collect::<Option<_>>()?;
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

/// The first second of `2026-01-31`.
fn day(word: &str) -> Option<u64> {
    let [year, month, day] = word.splitn(3, '-').map(number).collect::<Option<Vec<_>>>()?[..] else {
        return None;
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = clock::days(
        year.cast_signed(),
        u8::try_from(month).ok()?,
        u8::try_from(day).ok()?,
    );
    let seconds = u64::try_from(days).ok()? * 86_400;
    // The 31st of a month that has 30 days is another day's date.
    let date = format!("{year:04}-{month:02}-{day:02}T");
    utc(seconds).starts_with(&date).then_some(seconds)
}

fn number(word: &str) -> Option<u64> {
    let is_number = (1..=18).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| word.parse().ok())?
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

    #[test]
    fn moments_are_understood_as_people_write_them() {
        // 2026-01-31T12:00:00Z, a Saturday.
        let now = 1_769_860_800;
        for (word, want) in [
            ("now", Some("2026-01-31T12:00:00Z")),
            ("90s", Some("2026-01-31T11:58:30Z")),
            ("2h", Some("2026-01-31T10:00:00Z")),
            ("7d", Some("2026-01-24T12:00:00Z")),
            ("today", Some("2026-01-31T00:00:00Z")),
            ("yesterday", Some("2026-01-30T00:00:00Z")),
            ("08:30", Some("2026-01-31T08:30:00Z")),
            ("2024-02-29", Some("2024-02-29T00:00:00Z")),
            ("2025-12-01 14:00", Some("2025-12-01T14:00:00Z")),
            ("2025-12-01T14:00:05", Some("2025-12-01T14:00:05Z")),
            ("2025-12-01T14:00:05.123Z", Some("2025-12-01T14:00:05Z")),
            ("2025-12-01T14:00:05+02:00", Some("2025-12-01T12:00:05Z")),
            ("2025-12-01T23:00:00-02:00", Some("2025-12-02T01:00:00Z")),
            ("", None),
            ("tomorrow", None),
            ("2025-02-29", None),
            ("2025-11-31", None),
            ("2025-13-01", None),
            ("25:00", None),
            ("2025-12-01 14", None),
            ("14:00:61", None),
            ("-5m", None),
            ("5 m", None),
            ("ü", None),
        ] {
            assert_eq!(moment(word, now).map(utc).as_deref(), want, "{word}");
        }
    }
}
