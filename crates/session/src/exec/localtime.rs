//! A moment as `ctime` writes it, which is how every login program tells of the last login.

use alloc::format;
use alloc::string::String;
use fleetgate_sys::clock::{self, Civil};

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sat Nov 21 03:03:00 2026`, in the machine's time zone.
pub fn text(sec: i64) -> String {
    clock::local(sec).map_or_else(String::new, |at| written(&at))
}

fn written(at: &Civil) -> String {
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        DAYS[usize::from(at.weekday) % 7],
        MONTHS[usize::from(at.month + 11) % 12],
        at.day,
        at.hour,
        at.minute,
        at.second,
        at.year
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_ctime_writes_it() {
        let at = Civil {
            year: 2026,
            month: 12,
            day: 1,
            hour: 3,
            minute: 4,
            second: 5,
            weekday: 2,
        };
        assert_eq!(written(&at), "Tue Dec  1 03:04:05 2026");
    }
}
