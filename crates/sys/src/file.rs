//! Reading and writing descriptors.

use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;
use core::ffi::CStr;

/// The directory that relative paths start from.
pub const CWD: i32 = libc::AT_FDCWD;

/// The kernel's numbers for [`openat`].
pub mod flags {
    pub use libc::{
        O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR,
        O_TMPFILE, O_TRUNC, O_WRONLY,
    };

    /// A file that is opened with any of these may be changed.
    pub const FOR_WRITING: i32 = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
}

/// Opens `path` relative to directory `dir` (a descriptor's number or [`CWD`]); O_CLOEXEC is added.
pub fn openat(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<Fd> {
    // SAFETY: the kernel reads one string that lives through the call.
    let fd = unsafe {
        syscall!(
            libc::SYS_openat,
            dir,
            path.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode
        )
    }?;
    Ok(Fd::from_raw(fd as i32))
}

/// How [`open_safely`] may find a path; several in one number.
pub mod resolve {
    /// It does not leave the mount that it begins in.
    pub const SAME_MOUNT: u64 = 0x01;
    /// It does not follow the kernel's own links, such as /proc/PID/fd/N.
    pub const NO_MAGIC_LINKS: u64 = 0x02;
    /// It does not follow any link.
    pub const NO_LINKS: u64 = 0x04;
    /// It does not leave the directory that it begins in.
    pub const BENEATH: u64 = 0x08;
    /// The directory that it begins in is its root.
    pub const IN_ROOT: u64 = 0x10;
}

/// As [`openat`], of a file that is there, with bounds on how the path is found (`resolve`). Linux 5.6.
pub fn open_safely(dir: i32, path: &CStr, flags: i32, resolve: u64) -> Result<Fd> {
    // The kernel's open_how: flags, mode, resolve.
    let how = [(flags | libc::O_CLOEXEC) as u64, 0, resolve];
    // SAFETY: the kernel reads one string and three numbers that live through the call.
    let fd = unsafe {
        syscall!(
            libc::SYS_openat2,
            dir,
            path.as_ptr(),
            how.as_ptr(),
            size_of_val(&how)
        )
    }?;
    Ok(Fd::from_raw(fd as i32))
}

/// A pipe: the reading end, the writing end.
pub fn pipe() -> Result<(Fd, Fd)> {
    let mut fds = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe { syscall!(libc::SYS_pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) }?;
    Ok((Fd::from_raw(fds[0]), Fd::from_raw(fds[1])))
}

/// Reads once; 0 at the end. EINTR is tried again.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        match unsafe { syscall!(libc::SYS_read, fd, buf.as_mut_ptr(), buf.len()) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// The most parts that one call fills.
pub const MAX_PARTS: usize = 8;

/// Reads once into these parts, one after the other; those beyond [`MAX_PARTS`] are left alone.
pub fn read_parts(fd: i32, parts: &mut [&mut [u8]]) -> Result<usize> {
    let (vectors, count) = vectors(parts);
    loop {
        // SAFETY: `vectors` holds `count` pairs, each the place and length of a part that is borrowed for us to write
        // to; the kernel writes no further.
        match unsafe { syscall!(libc::SYS_readv, fd, vectors.as_ptr(), count) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Writes once from these parts, one after the other; those beyond [`MAX_PARTS`] are left alone.
pub fn write_parts(fd: i32, parts: &[&[u8]]) -> Result<usize> {
    let mut vectors = [NO_PART; MAX_PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        vector.iov_base = part.as_ptr().cast_mut().cast();
        vector.iov_len = part.len();
    }
    let count = parts.len().min(MAX_PARTS);
    loop {
        // SAFETY: `vectors` holds `count` pairs, each the place and length of a part that is borrowed; the kernel only
        // reads there.
        match unsafe { syscall!(libc::SYS_writev, fd, vectors.as_ptr(), count) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

const NO_PART: libc::iovec = libc::iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
};

/// The same as the kernel wants them, and how many.
pub(crate) fn vectors(parts: &mut [&mut [u8]]) -> ([libc::iovec; MAX_PARTS], usize) {
    let mut vectors = [NO_PART; MAX_PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts.iter_mut()) {
        vector.iov_base = part.as_mut_ptr().cast();
        vector.iov_len = part.len();
    }
    (vectors, parts.len().min(MAX_PARTS))
}

/// Reads once at `offset`, leaving the file's own offset alone.
pub fn read_at(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    loop {
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        match unsafe { syscall!(libc::SYS_pread64, fd, buf.as_mut_ptr(), buf.len(), offset) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Writes once. EINTR is tried again.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    loop {
        // SAFETY: the kernel reads at most `buf.len()` bytes from `buf`.
        match unsafe { syscall!(libc::SYS_write, fd, buf.as_ptr(), buf.len()) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Writes once at `offset`.
pub fn write_at(fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
    loop {
        // SAFETY: the kernel reads at most `buf.len()` bytes from `buf`.
        match unsafe { syscall!(libc::SYS_pwrite64, fd, buf.as_ptr(), buf.len(), offset) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Writes all of `buf`.
pub fn write_all(fd: i32, mut buf: &[u8]) -> Result<()> {
    while !buf.is_empty() {
        match write(fd, buf)? {
            0 => return Err(Errno::EIO),
            n => buf = &buf[n..],
        }
    }
    Ok(())
}

/// Writes all of `buf` at `offset`.
pub fn write_all_at(fd: &Fd, mut buf: &[u8], mut offset: u64) -> Result<()> {
    while !buf.is_empty() {
        match write_at(fd.raw(), buf, offset)? {
            0 => return Err(Errno::EIO),
            n => {
                buf = &buf[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}

/// Waits until the disk has what was written to a file, and what it takes to read it again.
pub fn sync_data(fd: &Fd) -> Result<()> {
    // SAFETY: a number only.
    unsafe { syscall!(libc::SYS_fdatasync, fd.raw()) }.map(drop)
}

/// Reads from the start to the end, but no more than `max` bytes: a longer file is `EFBIG`.
pub fn read_to_end(fd: &Fd, max: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match read_at(fd.raw(), &mut chunk, out.len() as u64)? {
            0 => return Ok(out),
            n if out.len() + n > max => return Err(Errno::EFBIG),
            n => out.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Extended attribute `name`; one that is longer than `max` bytes is `ERANGE`.
pub fn attribute(fd: &Fd, name: &CStr, max: usize) -> Result<Vec<u8>> {
    let mut out = alloc::vec![0u8; max];
    // SAFETY: the kernel reads one string and writes at most `max` bytes.
    let len = unsafe {
        syscall!(
            libc::SYS_fgetxattr,
            fd.raw(),
            name.as_ptr(),
            out.as_mut_ptr(),
            out.len()
        )
    }?;
    out.truncate(len);
    Ok(out)
}

/// Sets extended attribute `name`.
pub fn set_attribute(fd: &Fd, name: &CStr, value: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads one string and `value.len()` bytes.
    unsafe {
        syscall!(
            libc::SYS_fsetxattr,
            fd.raw(),
            name.as_ptr(),
            value.as_ptr(),
            value.len(),
            0
        )
    }
    .map(drop)
}

/// What a file system has, and what of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that others than root may still write.
    pub bytes_left: u64,
    /// Files in all; 0 where the file system does not count them.
    pub files: u64,
    /// Files that can still be made.
    pub files_left: u64,
}

/// The room of the file system that `path` lies on.
pub fn room(path: &CStr) -> Result<Room> {
    let mut found: StatFs = [0; 15];
    // SAFETY: the kernel reads one string and writes one struct statfs, which is what StatFs is.
    unsafe { syscall!(libc::SYS_statfs, path.as_ptr(), &raw mut found) }?;
    let [
        _kind,
        block,
        blocks,
        _free,
        available,
        files,
        files_left,
        _id,
        _name,
        fragment,
        ..,
    ] = found;
    let unit = if fragment > 0 { fragment } else { block };
    Ok(Room {
        bytes: blocks.saturating_mul(unit),
        bytes_left: available.saturating_mul(unit),
        files,
        files_left,
    })
}

/// The kernel's struct statfs of a machine with 64 bits: fifteen words.
type StatFs = [u64; 15];

/// Cuts or extends the file to `len` bytes.
pub fn truncate(fd: &Fd, len: u64) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_ftruncate, fd.raw(), len) }.map(drop)
}

/// What the symbolic link `path` says; longer than 4096 bytes is cut, as the kernel's own paths are.
pub fn read_link(path: &CStr) -> Result<Vec<u8>> {
    read_link_at(CWD, path)
}

/// The same, relative to directory `dir`.
pub fn read_link_at(dir: i32, path: &CStr) -> Result<Vec<u8>> {
    let mut out = alloc::vec![0u8; 4096];
    // SAFETY: the kernel reads one string and writes at most 4096 bytes.
    let len = unsafe {
        syscall!(
            libc::SYS_readlinkat,
            dir,
            path.as_ptr(),
            out.as_mut_ptr(),
            out.len()
        )
    }?;
    out.truncate(len);
    Ok(out)
}

/// Reads from the start to the end, or the first `max` bytes of a longer file.
pub fn read_up_to(fd: &Fd, max: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunk = [0u8; 4096];
    while out.len() < max {
        let room = chunk.len().min(max - out.len());
        match read_at(fd.raw(), &mut chunk[..room], out.len() as u64)? {
            0 => break,
            n => out.extend_from_slice(&chunk[..n]),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_file_system_is_read() {
        let room = room(c"/").expect("there is one");
        assert!(room.bytes > 0 && room.bytes_left <= room.bytes, "{room:?}");
        assert!(room.files_left <= room.files, "{room:?}");
        assert_eq!(super::room(c"/nonexistent/place"), Err(Errno::ENOENT));
    }
}
