//! Waiting for descriptors.

use crate::{Errno, Result, syscall};

/// One descriptor to wait for; `events` in, `revents` out, with poll(2)'s flags.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Watch(libc::pollfd);

/// There is something to read.
pub const READ: i16 = libc::POLLIN;
/// There is room to write.
pub const WRITE: i16 = libc::POLLOUT;
/// The other side closed or shut down its sending half. Asked for alone it does not wake for arriving data,
/// which is how a launch costs one wake-up instead of one per frame.
pub const PEER_CLOSED: i16 = libc::POLLRDHUP;
/// Reported, never asked for: the other side is closed altogether.
pub const CLOSED: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
/// Exceptional: a mount table changed, for instance.
pub const PRIORITY: i16 = libc::POLLPRI;

/// A time as [`poll`] takes it, in whole milliseconds; one that is too long is the longest.
pub fn milliseconds(time: core::time::Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl Watch {
    /// Waits for `events` on descriptor `fd`; a negative `fd` is skipped.
    pub const fn new(fd: i32, events: i16) -> Watch {
        Watch(libc::pollfd {
            fd,
            events,
            revents: 0,
        })
    }
    /// What happened, POLLERR, POLLHUP and POLLNVAL included, which nobody needs to ask for.
    pub const fn happened(&self) -> i16 {
        self.0.revents
    }
    /// The descriptor.
    pub const fn fd(&self) -> i32 {
        self.0.fd
    }
}

/// Waits until something happened or `timeout_ms` passed (`None`: for ever). Returns how many descriptors have
/// news. A signal that interrupts the wait starts it anew with what is left of the time: the kernel writes that
/// back into the timespec, so no clock is read.
pub fn poll(watches: &mut [Watch], timeout_ms: Option<u32>) -> Result<usize> {
    wait(watches, timeout_ms.map(|ms| i64::from(ms) * 1_000_000))
}

/// As [`poll`], with the time in nanoseconds; what is below 0 counts as 0.
pub fn wait(watches: &mut [Watch], timeout_nanos: Option<i64>) -> Result<usize> {
    let mut left = timeout_nanos.map(|ns| libc::timespec {
        tv_sec: ns.max(0) / 1_000_000_000,
        tv_nsec: ns.max(0) % 1_000_000_000,
    });
    let left_ptr = left.as_mut().map_or(core::ptr::null_mut(), |s| s as *mut _);
    loop {
        // SAFETY: Watch is a transparent pollfd; the slice and the timespec live through the call.
        match unsafe {
            syscall!(
                libc::SYS_ppoll,
                watches.as_mut_ptr(),
                watches.len(),
                left_ptr,
                0,
                0
            )
        } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}
