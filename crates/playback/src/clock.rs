//! Times of a recording: as a clock has them (`1:02:03`), and as the calendar has them (RFC 3339). It reads no clock.

use fleetgate_sys::clock;

/// A second.
pub const SECOND: u64 = 1_000_000;

/// Microseconds as `1:02:03`, or `2:03` below an hour.
pub fn short(at: u64) -> String {
    let seconds = at / SECOND;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// Microseconds since 1970 of `2026-11-29T10:00:00.123Z`; nothing for what is no such text.
pub fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let is = |at: usize, want: u8| bytes.get(at) == Some(&want);
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?.strip_suffix('Z')?;
    let mut micros = 0;
    if let Some(part) = rest.strip_prefix('.') {
        if !(1..=9).contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let nine = format!("{part:0<9}");
        micros = nine.parse::<u64>().ok()? / 1000;
    } else if !rest.is_empty() {
        return None;
    }
    let days = clock::days(
        year.cast_signed(),
        u8::try_from(month).ok()?,
        u8::try_from(day).ok()?,
    );
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds * SECOND + micros)
}

/// Microseconds since 1970 as RFC 3339, in whole seconds.
pub fn utc(micros: u64) -> String {
    let sec = i64::try_from(micros / SECOND).unwrap_or(i64::MAX);
    clock::rfc3339(clock::Time { sec, nsec: 0 }, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T00:00:01.5Z", Some(1_500_000)),
            ("2026-11-29T10:00:00.123456789Z", Some(1_795_946_400_123_456)),
            ("2026-11-29 10:00:00Z", None),
            ("2026-13-29T10:00:00Z", None),
            ("2026-11-29T10:00:00", None),
            ("2026-11-29T10:00:00.Z", None),
            ("2026-11-29T10:00:0ßZ", None),
            ("", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
        assert_eq!(utc(1_795_946_400_123_456), "2026-11-29T10:00:00Z");
        assert_eq!(
            (short(0), short(3_723_900_000)),
            ("0:00".into(), "1:02:03".into())
        );
        assert!(!utc(u64::MAX).is_empty() && !short(u64::MAX).is_empty());
    }
}
