//! Times as people write them on a command line: a moment, and how long something lasts. It reads no clock: it is told what
//! time it is.

use fleetgate_client::time::utc;
use fleetgate_sys::clock;

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

/// Seconds of a time as `90s`, `10m`, `8h`, `7d`; a number alone is seconds.
pub fn lifetime(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (count, unit) = word.split_at(end);
    let factor = if unit.is_empty() { 1 } else { unit_seconds(unit)? };
    count.parse::<u64>().ok()?.checked_mul(factor)
}

/// Seconds of a unit of time.
fn unit_seconds(unit: &str) -> Option<u64> {
    match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    }
}

/// Seconds of `90s`, `10m`, `8h`, `7d`.
fn ago(word: &str) -> Option<u64> {
    let (count, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    number(count)?.checked_mul(unit_seconds(unit)?)
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
