//! Clocks. The only place that asks the kernel for the time.

use crate::{Result, syscall};

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

/// A moment as people of this machine's time zone write it.
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
