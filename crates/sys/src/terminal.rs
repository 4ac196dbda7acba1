//! Pseudo terminals, for whoever opens them: the launching side.

use crate::{Fd, Result, file, syscall};
use alloc::ffi::CString;
use core::ffi::CStr;

/// A fresh pseudo terminal: our side, the user's side, and the path of the user's side. Neither becomes anybody's
/// controlling terminal.
pub fn open() -> Result<(Fd, Fd, CString)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let ours = file::openat(file::CWD, c"/dev/ptmx", flags, 0)?;
    let (unlock, mut number) = (0i32, 0u32);
    // SAFETY: each call reads or writes one number; TIOCGPTPEER takes flags and returns a descriptor.
    let user = unsafe {
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCSPTLCK as u32,
            &raw const unlock
        )?;
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCGPTN as u32,
            &raw mut number
        )?;
        syscall!(
            libc::SYS_ioctl,
            ours.raw(),
            libc::TIOCGPTPEER as u32,
            flags | libc::O_CLOEXEC
        )?
    };
    let path = CString::new(alloc::format!("/dev/pts/{number}")).expect("digits hold no zero byte");
    Ok((ours, Fd::from_raw(user as i32), path))
}

/// Sets the size of `terminal` in characters.
pub fn set_size(terminal: &Fd, columns: u16, rows: u16) -> Result<()> {
    let size = [rows, columns, 0, 0];
    // SAFETY: the kernel reads one winsize of four numbers.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            terminal.raw(),
            libc::TIOCSWINSZ as u32,
            size.as_ptr()
        )
    }
    .map(drop)
}

/// The path of the terminal behind `fd`, as the kernel names it.
pub fn path(fd: &Fd) -> Result<CString> {
    let mut buffer = [0u8; 32];
    let link: &CStr = crate::exe::proc_path(&mut buffer, fd.raw());
    CString::new(file::read_link(link)?).map_err(|_| crate::Errno::EINVAL)
}
