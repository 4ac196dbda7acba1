//! Clocks. The only place that asks the kernel for the time.

use crate::{Result, syscall};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// A moment or a span: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub sec: i64,
    /// The rest, below 1,000,000,000.
    pub nsec: u32,
}

impl Time {
    /// All of it in nanoseconds; holds for spans below 292 years.
    pub const fn as_nanos(self) -> i64 {
        self.sec * 1_000_000_000 + self.nsec as i64
    }
}

fn read(clock: i32) -> Time {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The C library asks the page that the kernel maps into every process, and not the kernel: 20 ns instead of 150. The
    // session helper has no room for the way there, and asks three times in a session.
    #[cfg(feature = "std")]
    // SAFETY: it writes one timespec. These clocks exist on every Linux, so the call cannot fail.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut t) };
    #[cfg(not(feature = "std"))]
    // SAFETY: as above, and it is the kernel who writes.
    let _ = unsafe { syscall!(libc::SYS_clock_gettime, clock, &raw mut t) };
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec as u32,
    }
}

/// The calendar's time.
pub fn wall() -> Time {
    read(libc::CLOCK_REALTIME)
}

/// Time since some start, never set back; stands still while the machine is suspended.
pub fn monotonic() -> Time {
    read(libc::CLOCK_MONOTONIC)
}

/// Time since boot, suspension included.
pub fn boot() -> Time {
    read(libc::CLOCK_BOOTTIME)
}

/// The processor's time that the calling thread has used.
pub fn thread() -> Time {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Stands still for `nanos` (below a second), less when a signal comes.
pub fn pause(nanos: u32) {
    let span = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanos.min(999_999_999) as _,
    };
    // SAFETY: the kernel reads one timespec; an early end is allowed.
    let _ = unsafe { syscall!(libc::SYS_nanosleep, &raw const span, 0) };
}

/// Has the calling thread woken when a time is over, and not up to 50 us later together with others (the timer slack).
pub fn wake_on_time() -> Result<()> {
    // SAFETY: numbers only; 1 ns is the least, as 0 means the default.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, 1) }.map(drop)
}

/// Whether the calendar's clock is kept right by somebody (NTP), as the kernel was told.
pub fn is_synchronised() -> Result<bool> {
    // SAFETY: zeroes are a question without change; libc's struct is the kernel's.
    let mut timex: libc::timex = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel reads and writes one timex.
    let state = unsafe { syscall!(libc::SYS_adjtimex, &raw mut timex) }?;
    Ok(state as i32 != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0)
}

/// A moment as people write it, in UTC or in this machine's time zone. Its text is RFC 3339's without the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year, such as 2026.
    pub year: i64,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 60.
    pub second: u8,
    /// The day of the week, 0 (Sunday) to 6.
    pub weekday: u8,
}

/// `sec` since 1970 in the local time zone (`TZ`, else /etc/localtime, which is read at the first call: call it
/// once before a chroot). The C library's rules, because a time zone is a format of its own; `None` for a moment
/// that its year cannot hold.
pub fn local(sec: i64) -> Option<Civil> {
    // SAFETY: all fields are numbers and a pointer, for which zero is a value.
    let mut tm: libc::tm = unsafe { core::mem::zeroed() };
    // SAFETY: reads one number (time_t has 64 bits on our machines) and writes one tm. Both C libraries lock their
    // time zone state themselves.
    if unsafe { libc::localtime_r((&raw const sec).cast(), &raw mut tm) }.is_null() {
        return None;
    }
    Some(Civil {
        year: tm.tm_year as i64 + 1900,
        month: (tm.tm_mon + 1) as u8,
        day: tm.tm_mday as u8,
        hour: tm.tm_hour as u8,
        minute: tm.tm_min as u8,
        second: tm.tm_sec as u8,
        weekday: tm.tm_wday as u8,
    })
}

/// Days since 1970 at the beginning of an era.
const ERA: i64 = -719_468;
/// Days of an era.
const ERA_DAYS: i64 = 146_097;

/// `sec` since 1970 in UTC, for every moment. An era is 400 years of the Gregorian calendar, which have the same days always.
/// Its years begin in March, so that the leap day is the last of its year.
pub fn utc(sec: i64) -> Civil {
    let (day, second) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    let (era, of_era) = ((day - ERA).div_euclid(ERA_DAYS), (day - ERA).rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    Civil {
        year: era * 400 + year_of_era + i64::from(month <= 2),
        month: month as u8,
        day: (of_year - (153 * from_march + 2) / 5 + 1) as u8,
        hour: (second / 3600) as u8,
        minute: (second / 60 % 60) as u8,
        second: (second % 60) as u8,
        weekday: (day + 4).rem_euclid(7) as u8,
    }
}

/// RFC 3339 in UTC, with so many digits (at most 9) of the second's fraction.
pub fn rfc3339(at: Time, digits: usize) -> String {
    let mut text = format!("{}.{:09}", utc(at.sec), at.nsec);
    let cut = if digits == 0 { 10 } else { 9 - digits.min(9) };
    text.truncate(text.len() - cut);
    text.push('Z');
    text
}

/// A moment as [`rfc3339`] writes it, with any digits of the second's fraction or none. Nothing else is read: no other zone, and
/// no year before 1970.
pub fn read_rfc3339(text: &str) -> Option<Time> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, part) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range || !(1..=9).contains(&part.len()) {
        return None;
    }
    let [part_number] = numbers::<1>(part, '.')?;
    let nsec = part_number * 10_i64.pow(9 - part.len() as u32);
    let days = days(year, month as u8, day as u8);
    Some(Time {
        sec: days * 86_400 + hour * 3600 + minute * 60 + second,
        nsec: nsec as u32,
    })
}

/// So many numbers of digits alone, at most nine of each.
fn numbers<const N: usize>(text: &str, by: char) -> Option<[i64; N]> {
    let mut out = [0; N];
    let mut parts = text.split(by);
    for number in &mut out {
        let part = parts.next()?;
        let is_number = (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(out)
}

/// Days from 1970 to a date. A day that its month does not have is one of the next month.
pub fn days(year: i64, month: u8, day: u8) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year + ERA
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn moments_are_dates_and_dates_are_days() {
        for (sec, text, weekday) in [
            (0, "1970-01-01T00:00:00", 4),
            (-1, "1969-12-31T23:59:59", 3),
            (951_782_399, "2000-02-28T23:59:59", 1),
            (951_782_400, "2000-02-29T00:00:00", 2),
            (1_709_251_199, "2024-02-29T23:59:59", 4),
            (1_767_225_599, "2025-12-31T23:59:59", 3),
            (4_107_542_399, "2100-02-28T23:59:59", 0),
            (4_107_542_400, "2100-03-01T00:00:00", 1),
            (-62_162_121_600, "0000-02-29T00:00:00", 2),
            (253_402_300_800, "10000-01-01T00:00:00", 6),
        ] {
            let civil = utc(sec);
            assert_eq!((civil.to_string().as_str(), civil.weekday), (text, weekday));
            let day = days(civil.year, civil.month, civil.day);
            assert_eq!(day, sec.div_euclid(86_400), "{text}");
        }
        let at = Time {
            sec: 951_782_400,
            nsec: 1_234_567,
        };
        for (digits, text) in [
            (0, "00Z"),
            (3, "00.001Z"),
            (6, "00.001234Z"),
            (9, "00.001234567Z"),
        ] {
            assert_eq!(rfc3339(at, digits), format!("2000-02-29T00:00:{text}"));
        }
        assert_eq!(days(2026, 11, 21), 20_778);
        assert_eq!(days(2025, 2, 29), days(2025, 3, 1));
        // Whatever a file or a certificate says is a moment.
        assert!(utc(i64::MIN).year < 0 && utc(i64::MAX).year > 0);
    }
}
