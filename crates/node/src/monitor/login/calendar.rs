//! The wall clock as keys and certificates are held against it. It asks nobody but the C library's time zone.

use fleetgate_sys::clock;

/// Seconds since 1970, and the time zone's distance from UTC.
pub fn calendar() -> (u64, i32) {
    let now = clock::wall().sec;
    let offset = clock::local(now).map_or(0, |c| {
        let days = clock::days(c.year, c.month, c.day);
        days * 86_400 + i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second) - now
    });
    (
        u64::try_from(now).unwrap_or(0),
        i32::try_from(offset).unwrap_or(0),
    )
}
