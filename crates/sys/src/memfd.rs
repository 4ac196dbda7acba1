//! Anonymous files in memory, and seals on them.

use crate::{Errno, Fd, Result, syscall};
use core::ffi::CStr;

/// The mode bits in which an anonymous file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data; never executable.
    Data,
    /// A program image.
    Executable,
}

/// Seals that together make content and size final.
pub const CONTENT_SEALS: i32 =
    libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// An empty anonymous file that can be sealed. `MFD_EXEC` and `MFD_NOEXEC_SEAL` are newer than our oldest
/// kernel (6.3): one that does not know them answers EINVAL and gets the call without.
pub fn create(name: &CStr, kind: Kind) -> Result<Fd> {
    let base = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let wanted = match kind {
        Kind::Data => base | libc::MFD_NOEXEC_SEAL,
        Kind::Executable => base | libc::MFD_EXEC,
    };
    // SAFETY: the kernel reads one string that lives through the call.
    let made = unsafe { syscall!(libc::SYS_memfd_create, name.as_ptr(), wanted) };
    let made = match made {
        // SAFETY: as above.
        Err(Errno::EINVAL) => unsafe { syscall!(libc::SYS_memfd_create, name.as_ptr(), base) },
        other => other,
    };
    Ok(Fd::from_raw(made? as i32))
}

/// Adds `seals`.
pub fn add_seals(fd: &Fd, seals: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_ADD_SEALS, seals) }.map(drop)
}

/// The seals in force. The kernel adds some of its own (F_SEAL_EXEC implies more): test by mask.
pub fn seals(fd: &Fd) -> Result<i32> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_GET_SEALS) }.map(|s| s as i32)
}

/// Whether nobody can change content or size any more.
pub fn is_final(fd: &Fd) -> bool {
    seals(fd).is_ok_and(|s| s & CONTENT_SEALS == CONTENT_SEALS)
}

/// A sealed anonymous file with `content`, its offset at the start.
pub fn sealed(name: &CStr, content: &[u8]) -> Result<Fd> {
    let fd = create(name, Kind::Data)?;
    crate::file::write_all_at(&fd, content, 0)?;
    add_seals(&fd, CONTENT_SEALS)?;
    Ok(fd)
}
