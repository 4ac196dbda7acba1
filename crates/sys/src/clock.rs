//! Clocks. The only place that asks the kernel for the time.

use crate::syscall;

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
    // SAFETY: the kernel writes one timespec. These clocks exist on every Linux, so the call cannot fail.
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
