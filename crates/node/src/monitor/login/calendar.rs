//! The wall clock as keys and certificates are held against it. It asks nobody but the C library's time zone.

use fleetgate_sys::clock;

/// Seconds since 1970, and the time zone's distance from UTC.
pub fn calendar() -> (u64, i32) {
    let now = clock::wall().sec;
    let offset = clock::local(now).map_or(0, |c| {
        let days = days_from_civil(c.year, i64::from(c.month), i64::from(c.day));
        days * 86_400 + i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second) - now
    });
    (
        u64::try_from(now).unwrap_or(0),
        i32::try_from(offset).unwrap_or(0),
    )
}

/// Days since 1970 in the Gregorian calendar: years begin in March, so the leap day is the last.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}
