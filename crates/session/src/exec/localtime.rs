//! A moment in the machine's own time zone, as `ctime` writes it. Reads /etc/localtime (RFC 8536) by itself: a
//! static program has no time zones. A file that makes no sense is UTC.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fleetgate_sys::file::{self, flags};

const DAY: i64 = 86_400;
/// The largest zone file that is read; the largest real one has 4 KB.
const MAX_ZONE: usize = 64 << 10;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sat Nov 21 03:03:00 2026`.
pub fn text(sec: i64) -> String {
    let zone = file::openat(
        file::CWD,
        c"/etc/localtime",
        flags::O_RDONLY | flags::O_NONBLOCK,
        0,
    )
    .and_then(|fd| file::read_to_end(&fd, MAX_ZONE))
    .unwrap_or_default();
    written(sec.saturating_add(offset(&zone, sec).unwrap_or(0)))
}

/// The calendar's names for `sec`, already shifted into its zone.
fn written(sec: i64) -> String {
    let (day, second) = (sec.div_euclid(DAY), sec.rem_euclid(DAY));
    let (year, month, of_month) = date(day);
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        DAYS[day.rem_euclid(7) as usize],
        MONTHS[month as usize - 1],
        of_month,
        second / 3600,
        second / 60 % 60,
        second % 60,
        year
    )
}

/// Year, month (1 to 12) and day of the day `day` since 1970. The year begins in March here, so that the day
/// that is only sometimes there comes last.
fn date(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_400 = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_400 + of_400 / 4 - of_400 / 100);
    let march = (5 * of_year + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + of_400 + i64::from(month <= 2);
    (year, month, of_year - (153 * march + 2) / 5 + 1)
}

/// The day since 1970 of a date.
fn day(year: i64, month: i64, of_month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_400) = (year.div_euclid(400), year.rem_euclid(400));
    let march = (month + 9) % 12;
    let of_year = (153 * march + 2) / 5 + of_month - 1;
    era * 146_097 + of_400 * 365 + of_400 / 4 - of_400 / 100 + of_year - 719_468
}

/// Takes from the front, never beyond the end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn count(&mut self) -> Option<usize> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize)
    }
}

struct Header {
    version: u8,
    /// Entries: indicators of UTC and of standard time, leap seconds, transitions, types, characters of names.
    counts: [usize; 6],
}

impl Header {
    fn read(from: &mut Bytes<'_>) -> Option<Header> {
        let start = from.take(20)?;
        if !start.starts_with(b"TZif") {
            return None;
        }
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = from.count()?.min(MAX_ZONE);
        }
        Some(Header {
            version: start[4],
            counts,
        })
    }

    /// The length of what follows transitions and types.
    fn rest(&self, width: usize) -> usize {
        let [utc, standard, leaps, _, _, names] = self.counts;
        names + leaps * (width + 4) + standard + utc
    }
}

/// How many seconds local time is ahead of UTC at `sec`; none when the zone makes no sense.
fn offset(zone: &[u8], sec: i64) -> Option<i64> {
    let mut from = Bytes(zone);
    let mut header = Header::read(&mut from)?;
    let mut width = 4;
    if header.version >= b'2' {
        from.take(header.counts[3] * 5 + header.counts[4] * 6 + header.rest(4))?;
        header = Header::read(&mut from)?;
        width = 8;
    }
    let times: Vec<i64> = from
        .take(header.counts[3] * width)?
        .chunks_exact(width)
        .filter_map(|b| {
            if width == 8 {
                b.try_into().ok().map(i64::from_be_bytes)
            } else {
                b.try_into().ok().map(|b| i32::from_be_bytes(b).into())
            }
        })
        .collect();
    let kinds = from.take(header.counts[3])?;
    let types = from.take(header.counts[4] * 6)?;
    from.take(header.rest(width))?;
    let of_type = |kind: usize| {
        let bytes = types.get(kind * 6..kind * 6 + 4)?;
        Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?)))
    };
    let after = times.partition_point(|t| *t <= sec);
    if after == times.len() {
        let footer = from.0.strip_prefix(b"\n").and_then(|f| f.strip_suffix(b"\n"));
        if let Some(offset) = footer.and_then(|rule| by_rule(rule, sec)) {
            return Some(offset);
        }
    }
    match after {
        0 => of_type(0),
        n => of_type(usize::from(kinds[n - 1])),
    }
}

/// The offset by a POSIX rule such as `CET-1CEST,M3.5.0,M10.5.0/3`, which tells of all time after the table.
fn by_rule(rule: &[u8], sec: i64) -> Option<i64> {
    let mut from = Bytes(rule);
    name(&mut from)?;
    let standard = -time(&mut from)?;
    if from.0.is_empty() {
        return Some(standard);
    }
    name(&mut from)?;
    let summer = match from.0.first() {
        Some(b',') => standard + 3600,
        _ => -time(&mut from)?,
    };
    let year = date((sec + standard).div_euclid(DAY)).0;
    let (start, end) = (change(&mut from, year)?, change(&mut from, year)?);
    // Each change is told in the time that holds before it.
    let (start, end) = (start - standard, end - summer);
    let in_summer = if start < end {
        (start..end).contains(&sec)
    } else {
        !(end..start).contains(&sec)
    };
    Some(if in_summer { summer } else { standard })
}

/// Skips `CEST` or `<+03>`.
fn name(from: &mut Bytes<'_>) -> Option<()> {
    let len = match from.0.first()? {
        b'<' => from.0.iter().position(|b| *b == b'>')? + 1,
        _ => from
            .0
            .iter()
            .position(|b| !b.is_ascii_alphabetic())
            .unwrap_or(from.0.len()),
    };
    from.take(len).filter(|n| n.len() >= 3).map(drop)
}

fn number(from: &mut Bytes<'_>) -> Option<i64> {
    let len = from
        .0
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(from.0.len());
    let digits = from.take(len).filter(|d| (1..=4).contains(&d.len()))?;
    Some(digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
}

fn skip(from: &mut Bytes<'_>, byte: u8) -> bool {
    let is = from.0.first() == Some(&byte);
    if is {
        from.0 = &from.0[1..];
    }
    is
}

/// `[+-]h[:m[:s]]` in seconds.
fn time(from: &mut Bytes<'_>) -> Option<i64> {
    let minus = skip(from, b'-');
    if !minus {
        skip(from, b'+');
    }
    let mut seconds = number(from)? * 3600;
    for unit in [60, 1] {
        if skip(from, b':') {
            seconds += number(from)? * unit;
        }
    }
    Some(if minus { -seconds } else { seconds })
}

/// `,Mm.w.d[/time]`, `,Jn` or `,n`: the moment in `year`, as if local time were UTC.
fn change(from: &mut Bytes<'_>, year: i64) -> Option<i64> {
    if !skip(from, b',') {
        return None;
    }
    let first = day(year, 1, 1);
    let at = if skip(from, b'M') {
        let month = number(from).filter(|m| (1..=12).contains(m))?;
        let (_, week) = (skip(from, b'.').then_some(())?, number(from)?);
        let (_, weekday) = (skip(from, b'.').then_some(())?, number(from)?);
        let start = day(year, month, 1);
        let (next_year, next_month) = if month == 12 {
            (year + 1, 1)
        } else {
            (year, month + 1)
        };
        let end = day(next_year, next_month, 1);
        // 1970-01-01 was a Thursday, which is day 4.
        let ahead = (weekday - (start + 4)).rem_euclid(7);
        let wanted = start + ahead + 7 * (week.clamp(1, 5) - 1);
        if wanted < end { wanted } else { wanted - 7 }
    } else if skip(from, b'J') {
        let n = number(from).filter(|n| (1..=365).contains(n))?;
        // Day 60 is the first of March in every year.
        let leap = day(year, 3, 1) - first == 60;
        first + n - 1 + i64::from(leap && n >= 60)
    } else {
        first + number(from)?
    };
    let seconds = if skip(from, b'/') { time(from)? } else { 2 * 3600 };
    Some(at * DAY + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar() {
        assert_eq!(written(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(written(1_795_230_180), "Sat Nov 21 03:03:00 2026");
        assert_eq!(written(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(written(-1), "Wed Dec 31 23:59:59 1969");
        for d in (-800_000..800_000).step_by(977) {
            let (y, m, n) = date(d);
            assert_eq!(day(y, m, n), d);
        }
    }

    #[test]
    fn rules() {
        let berlin = b"CET-1CEST,M3.5.0,M10.5.0/3";
        // 2040-03-25 01:00 UTC and 2040-10-28 01:00 UTC.
        let (start, end) = (day(2040, 3, 25) * DAY + 3600, day(2040, 10, 28) * DAY + 3600);
        for (sec, wanted) in [(start - 1, 3600), (start, 7200), (end - 1, 7200), (end, 3600)] {
            assert_eq!(by_rule(berlin, sec), Some(wanted));
        }
        // The southern half of the year.
        let sydney = b"AEST-10AEDT,M10.1.0,M4.1.0/3";
        assert_eq!(by_rule(sydney, day(2040, 1, 1) * DAY), Some(11 * 3600));
        assert_eq!(by_rule(sydney, day(2040, 7, 1) * DAY), Some(10 * 3600));
        assert_eq!(by_rule(b"<+0330>-3:30", 0), Some(12_600));
        assert_eq!(by_rule(b"EST5", 0), Some(-18_000));
        for bad in [
            &b""[..],
            b"X",
            b"CET-1CEST",
            b"CET-1CEST,M13.1.1,M1.1.1",
            b"CET-99999",
        ] {
            assert_eq!(by_rule(bad, 0), None);
        }
    }

    /// The C library's own answer, from the same files.
    #[test]
    fn agrees_with_date() {
        for zone in [
            "Europe/Berlin",
            "America/New_York",
            "Asia/Kathmandu",
            "UTC",
            "Australia/Lord_Howe",
        ] {
            let Ok(bytes) = std::fs::read(std::format!("/usr/share/zoneinfo/{zone}")) else {
                continue;
            };
            for sec in [
                -2_000_000_000i64,
                0,
                1_000_000_000,
                1_795_230_180,
                1_800_000_000,
                2_500_000_000,
            ] {
                let date = std::process::Command::new("date")
                    .env("TZ", zone)
                    .env("LC_ALL", "C")
                    .args(["-d", &std::format!("@{sec}"), "+%a %b %e %H:%M:%S %Y"])
                    .output()
                    .expect("date");
                let ours = written(sec + offset(&bytes, sec).expect("a zone"));
                assert_eq!(
                    ours,
                    std::string::String::from_utf8_lossy(&date.stdout).trim_end(),
                    "{zone} {sec}"
                );
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(offset(b"", 0), None);
        assert_eq!(offset(b"TZif2", 0), None);
        let mut liar = b"TZif2".to_vec();
        liar.resize(20, 0);
        liar.extend_from_slice(&[0xff; 24]);
        assert_eq!(offset(&liar, 0), None);
    }
}
