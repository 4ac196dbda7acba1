//! An owned descriptor for programs without the standard library.

use crate::{Result, syscall};
use core::fmt;

/// A descriptor that this value owns; dropping it closes it. Every descriptor that this crate makes is
/// close-on-exec from birth.
#[derive(PartialEq, Eq)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of `raw`. Whoever held it before must not close it.
    pub const fn from_raw(raw: i32) -> Fd {
        Fd(raw)
    }

    /// The number, for a system call. It stays valid while `self` lives.
    pub const fn raw(&self) -> i32 {
        self.0
    }

    /// Gives the number away without closing it.
    pub const fn into_raw(self) -> i32 {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Closes it, and says what the file system says: an error of an earlier write, perhaps. It is closed either way.
    pub fn close(self) -> Result<()> {
        let raw = self.into_raw();
        // SAFETY: this value owned the number and has given it away.
        unsafe { syscall!(libc::SYS_close, raw) }.map(drop)
    }

    /// A second descriptor of the same open file, close-on-exec, numbered `at_least` or higher.
    pub fn duplicate(&self, at_least: i32) -> Result<Fd> {
        // SAFETY: F_DUPFD_CLOEXEC takes and returns numbers only.
        let new = unsafe { syscall!(libc::SYS_fcntl, self.0, libc::F_DUPFD_CLOEXEC, at_least) }?;
        Ok(Fd(new as i32))
    }

    /// Makes `target` a descriptor of the same open file, replacing what stood there. The new one survives
    /// exec unless `cloexec`. When `target` is this very descriptor only its close-on-exec flag changes.
    pub fn place_at(&self, target: i32, cloexec: bool) -> Result<()> {
        if self.0 == target {
            return self.set_cloexec(cloexec);
        }
        let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
        // SAFETY: dup3 takes numbers only; the caller owns the number `target`.
        unsafe { syscall!(libc::SYS_dup3, self.0, target, flags) }.map(drop)
    }

    /// Whether the descriptor is closed by exec.
    pub fn set_cloexec(&self, on: bool) -> Result<()> {
        let flags = if on { libc::FD_CLOEXEC } else { 0 };
        // SAFETY: F_SETFD takes numbers only.
        unsafe { syscall!(libc::SYS_fcntl, self.0, libc::F_SETFD, flags) }.map(drop)
    }

    /// Whether reads and writes wait. The flag belongs to the open file, not to this descriptor: whoever shares
    /// the file sees it too.
    pub fn set_nonblocking(&self, on: bool) -> Result<()> {
        // SAFETY: F_GETFL and F_SETFL take numbers only.
        unsafe {
            let flags = syscall!(libc::SYS_fcntl, self.0, libc::F_GETFL)? as i32;
            let flags = if on {
                flags | libc::O_NONBLOCK
            } else {
                flags & !libc::O_NONBLOCK
            };
            syscall!(libc::SYS_fcntl, self.0, libc::F_SETFL, flags).map(drop)
        }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: this value owns the number. The result tells nothing of use: Linux has closed it either way.
        let _ = unsafe { syscall!(libc::SYS_close, self.0) };
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fd {}", self.0)
    }
}

/// Closes every descriptor from `first` to `last`, both included, whoever owns them.
pub fn close_range(first: i32, last: u32) -> Result<()> {
    if first as u32 > last {
        return Ok(());
    }
    // SAFETY: numbers only. The callers do this right before exec, when nothing of theirs is used any more, or as the first
    // thing in a program, when nothing is open that is its own.
    match unsafe { syscall!(libc::SYS_close_range, first, last, 0) } {
        Err(crate::Errno::ENOSYS | crate::Errno::EPERM) => close_each(first, last),
        other => other.map(drop),
    }
}

/// The way for kernels before 5.9, and for filters that do not know close_range: bounded by the soft limit,
/// above which no descriptor was opened by us.
// The constant is signed in musl's headers only.
#[allow(clippy::unnecessary_cast)]
fn close_each(first: i32, last: u32) -> Result<()> {
    let limit = crate::process::limit(libc::RLIMIT_NOFILE as u32)?
        .soft
        .min(1 << 20) as u32;
    for fd in first as u32..=last.min(limit) {
        // SAFETY: as above.
        let _ = unsafe { syscall!(libc::SYS_close, fd) };
    }
    Ok(())
}

#[cfg(feature = "std")]
mod std_conversions {
    use super::Fd;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

    impl From<OwnedFd> for Fd {
        fn from(fd: OwnedFd) -> Fd {
            Fd(fd.into_raw_fd())
        }
    }
    impl From<Fd> for OwnedFd {
        fn from(fd: Fd) -> OwnedFd {
            // SAFETY: the number was owned by `fd` and is given away by `into_raw`.
            unsafe { OwnedFd::from_raw_fd(fd.into_raw()) }
        }
    }
    impl From<std::fs::File> for Fd {
        fn from(file: std::fs::File) -> Fd {
            Fd(file.into_raw_fd())
        }
    }
    impl From<Fd> for std::fs::File {
        fn from(fd: Fd) -> std::fs::File {
            OwnedFd::from(fd).into()
        }
    }
    impl AsRawFd for Fd {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }
    impl AsFd for Fd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // SAFETY: the number stays open while `self` is borrowed.
            unsafe { BorrowedFd::borrow_raw(self.0) }
        }
    }
}
