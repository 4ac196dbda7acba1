//! Locks on files: record locks as glibc's login functions take them (fcntl, whole file, held by the process), and
//! flock, held by the open file. It never waits.

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

/// Takes the flock of the open file, or says `EAGAIN` when another open file of it holds one, in this process too.
pub fn try_hold(fd: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_flock, fd.raw(), libc::LOCK_EX | libc::LOCK_NB) }.map(drop)
}

/// Gives it back, whatever duplicates of the descriptor there are; closing alone waits for the last of them, and a child
/// that has not executed yet has one.
pub fn let_go(fd: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_flock, fd.raw(), libc::LOCK_UN) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{CWD, flags, openat};

    #[test]
    fn a_held_file_is_held_against_the_same_process_until_it_is_let_go() {
        let name = std::format!("/tmp/fleetgate-flock-{}\0", crate::process::id());
        let path = core::ffi::CStr::from_bytes_with_nul(name.as_bytes()).unwrap();
        let open = || openat(CWD, path, flags::O_RDWR | flags::O_CREAT, 0o600).unwrap();
        let (first, second) = (open(), open());
        let copy = first.duplicate(0).unwrap();
        assert_eq!(try_hold(&first), Ok(()));
        assert_eq!(try_hold(&second), Err(Errno::EAGAIN));
        assert_eq!(let_go(&first), Ok(()));
        assert_eq!(try_hold(&second), Ok(()), "though a duplicate is open");
        drop(copy);
        std::fs::remove_file(path.to_str().unwrap()).unwrap();
    }
}
