//! Record locks as glibc's login functions take them: fcntl, whole file, held by the process.

use crate::{Errno, Fd, Result, syscall};

/// The kernel's `struct flock` of 64-bit machines.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

/// Takes the write lock on all of `fd`, or says `EAGAIN` when another process holds a lock.
pub fn try_write(fd: &Fd) -> Result<()> {
    match set(fd, libc::F_WRLCK as i16) {
        // POSIX allows either number for "held by another".
        Err(Errno::EACCES) => Err(Errno::EAGAIN),
        other => other,
    }
}

/// Gives the lock back. Closing any descriptor of the file does so too.
pub fn release(fd: &Fd) -> Result<()> {
    set(fd, libc::F_UNLCK as i16)
}

fn set(fd: &Fd, kind: i16) -> Result<()> {
    let lock = Flock {
        kind,
        whence: libc::SEEK_SET as i16,
        start: 0,
        len: 0,
        pid: 0,
    };
    // SAFETY: the kernel reads one struct flock.
    unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_SETLK, &raw const lock) }.map(drop)
}
