//! Names in the file system: what they stand for, making, changing and removing them.
//!
//! Paths are relative to a directory (a descriptor's number or [`crate::file::CWD`]). Nothing here resolves a
//! path itself or joins two; nothing retries.

use crate::file::{self, CWD};
use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;
use core::ffi::CStr;

/// The longest path the kernel takes, its final zero byte included.
pub const MAX_PATH: usize = libc::PATH_MAX as usize;

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind and permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Last access, in seconds since 1970.
    pub accessed: i64,
    /// Last change of its content, in seconds since 1970.
    pub modified: i64,
}

impl Stat {
    const fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
    /// A regular file.
    pub const fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }
    /// A directory.
    pub const fn is_directory(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }
    /// A symbolic link.
    pub const fn is_symlink(&self) -> bool {
        self.kind() == libc::S_IFLNK
    }
    /// A pipe, with or without a name.
    pub const fn is_fifo(&self) -> bool {
        self.kind() == libc::S_IFIFO
    }
    /// A socket.
    pub const fn is_socket(&self) -> bool {
        self.kind() == libc::S_IFSOCK
    }
}

fn stat_with(dir: i32, path: &CStr, flags: i32) -> Result<Stat> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut raw: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel reads one string and writes one stat; on 64-bit machines the C library's is the kernel's.
    unsafe { syscall!(libc::SYS_newfstatat, dir, path.as_ptr(), &raw mut raw, flags) }?;
    #[allow(clippy::unnecessary_cast)] // The widths differ between machines.
    Ok(Stat {
        mode: raw.st_mode,
        uid: raw.st_uid,
        gid: raw.st_gid,
        links: raw.st_nlink as u64,
        size: raw.st_size as u64,
        accessed: raw.st_atime as i64,
        modified: raw.st_mtime as i64,
    })
}

/// What `path` stands for; `follow`: what its last symbolic link leads to.
pub fn stat(dir: i32, path: &CStr, follow: bool) -> Result<Stat> {
    stat_with(dir, path, if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW })
}

/// What an open file is.
pub fn stat_open(fd: i32) -> Result<Stat> {
    stat_with(fd, c"", libc::AT_EMPTY_PATH)
}

/// Device and number of a file, links followed, as the kernel has them at hand: a file system in user space is not asked,
/// which might never answer.
pub fn at_hand(dir: i32, path: &CStr) -> Result<(u64, u64)> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut raw: libc::statx = unsafe { core::mem::zeroed() };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the kernel reads one string and writes one statx.
    unsafe {
        syscall!(
            libc::SYS_statx,
            dir,
            path.as_ptr(),
            flags,
            libc::STATX_INO,
            &raw mut raw
        )
    }?;
    let device = libc::makedev(raw.stx_dev_major, raw.stx_dev_minor);
    Ok((device, raw.stx_ino))
}

/// Sets the length of the file at `path`, which is relative to the working directory.
pub fn truncate(path: &CStr, len: u64) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_truncate, path.as_ptr(), len) }.map(drop)
}

/// Sets the length of an open file.
pub fn truncate_open(fd: i32, len: u64) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_ftruncate, fd, len) }.map(drop)
}

/// Sets permission bits, following symbolic links.
pub fn set_mode(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_fchmodat, dir, path.as_ptr(), mode) }.map(drop)
}

/// Sets permission bits of `path` itself; a symbolic link has none (EOPNOTSUPP). Kernels before 6.6 do not have
/// fchmodat2: there the file is held by an O_PATH descriptor and named through /proc.
pub fn set_mode_no_follow(path: &CStr, mode: u32) -> Result<()> {
    const SYS_FCHMODAT2: i64 = 452;
    // SAFETY: the kernel reads one string that lives through the call.
    match unsafe { syscall!(SYS_FCHMODAT2, CWD, path.as_ptr(), mode, libc::AT_SYMLINK_NOFOLLOW) } {
        Err(Errno::ENOSYS) => {}
        other => return other.map(drop),
    }
    let held = file::openat(CWD, path, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    if stat_open(held.raw())?.is_symlink() {
        return Err(Errno::EOPNOTSUPP);
    }
    let name = alloc::ffi::CString::new(alloc::format!("/proc/self/fd/{}", held.raw()))
        .map_err(|_| Errno::EINVAL)?;
    set_mode(CWD, &name, mode)
}

/// Sets permission bits of an open file.
pub fn set_mode_open(fd: i32, mode: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fchmod, fd, mode) }.map(drop)
}

/// Sets owner and group; `u32::MAX` leaves one as it is.
pub fn set_owner(path: &CStr, uid: u32, gid: u32, follow: bool) -> Result<()> {
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_fchownat, CWD, path.as_ptr(), uid, gid, flags) }.map(drop)
}

/// Sets owner and group of a file that is held, be it by an O_PATH descriptor.
pub fn set_owner_held(fd: i32, uid: u32, gid: u32) -> Result<()> {
    // SAFETY: the kernel reads one string that lives for ever.
    unsafe {
        syscall!(
            libc::SYS_fchownat,
            fd,
            c"".as_ptr(),
            uid,
            gid,
            libc::AT_EMPTY_PATH
        )
    }
    .map(drop)
}

/// Sets owner and group of an open file.
pub fn set_owner_open(fd: i32, uid: u32, gid: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fchown, fd, uid, gid) }.map(drop)
}

/// Sets the times of last access and modification, in seconds since 1970.
pub fn set_times(path: &CStr, accessed: i64, modified: i64, follow: bool) -> Result<()> {
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let times = [[accessed, 0], [modified, 0]];
    // SAFETY: the kernel reads one string and two timespecs, each a pair of 64-bit numbers.
    unsafe { syscall!(libc::SYS_utimensat, CWD, path.as_ptr(), times.as_ptr(), flags) }.map(drop)
}

/// The same of an open file.
pub fn set_times_open(fd: i32, accessed: i64, modified: i64) -> Result<()> {
    let times = [[accessed, 0], [modified, 0]];
    // SAFETY: no string, by intent: the file is the descriptor's; two timespecs as above.
    unsafe { syscall!(libc::SYS_utimensat, fd, 0, times.as_ptr(), 0) }.map(drop)
}

/// Makes a directory.
pub fn make_directory(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_mkdirat, dir, path.as_ptr(), mode) }.map(drop)
}

/// Removes a name: an empty directory's with `directory`, else any other file's.
pub fn remove(dir: i32, path: &CStr, directory: bool) -> Result<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_unlinkat, dir, path.as_ptr(), flags) }.map(drop)
}

/// Gives `from` the name `to`; what stands there is replaced, or with `keep` refused (EEXIST). File systems that
/// cannot refuse answer EINVAL to `keep`.
pub fn rename(from: &CStr, to: &CStr, keep: bool) -> Result<()> {
    let flags = if keep { libc::RENAME_NOREPLACE } else { 0 };
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe { syscall!(libc::SYS_renameat2, CWD, from.as_ptr(), CWD, to.as_ptr(), flags) }.map(drop)
}

/// Has each of two names stand for what the other stood for; no moment has either missing.
pub fn exchange(one: &CStr, other: &CStr) -> Result<()> {
    const RENAME_EXCHANGE: u32 = 2;
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe {
        syscall!(
            libc::SYS_renameat2,
            CWD,
            one.as_ptr(),
            CWD,
            other.as_ptr(),
            RENAME_EXCHANGE
        )
    }
    .map(drop)
}

/// A second name for a file; a symbolic link at `from` gets it itself.
pub fn link(from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe { syscall!(libc::SYS_linkat, CWD, from.as_ptr(), CWD, to.as_ptr(), 0) }.map(drop)
}

/// A symbolic link at `path` that says `target`.
pub fn symlink(target: &CStr, path: &CStr) -> Result<()> {
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe { syscall!(libc::SYS_symlinkat, target.as_ptr(), CWD, path.as_ptr()) }.map(drop)
}

/// What a symbolic link says.
pub fn read_link(dir: i32, path: &CStr) -> Result<Vec<u8>> {
    let mut buf = alloc::vec![0u8; MAX_PATH];
    // SAFETY: the kernel reads one string and writes at most `buf.len()` bytes.
    let n = unsafe {
        syscall!(
            libc::SYS_readlinkat,
            dir,
            path.as_ptr(),
            buf.as_mut_ptr(),
            buf.len()
        )
    }?;
    buf.truncate(n);
    Ok(buf)
}

/// What a file system tells of itself, in the words of statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The size that suits it for reading and writing.
    pub block: u64,
    /// The unit that the counts are in.
    pub fragment: u64,
    /// All its blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that are free for an ordinary user.
    pub available: u64,
    /// All its inodes.
    pub files: u64,
    /// Those that are free.
    pub files_free: u64,
    /// Its id.
    pub id: u64,
    /// Mounted read-only.
    pub read_only: bool,
    /// Set-user-id bits are ignored.
    pub no_setuid: bool,
    /// The longest name.
    pub name_max: u64,
}

/// The kernel's statfs on 64-bit machines: type, bsize, blocks, bfree, bavail, files, ffree, fsid, namelen,
/// frsize, flags, four spare.
type RawStatfs = [u64; 15];

impl From<RawStatfs> for FileSystem {
    fn from(raw: RawStatfs) -> FileSystem {
        let [
            _,
            block,
            blocks,
            free,
            available,
            files,
            files_free,
            id,
            name_max,
            fragment,
            flags,
            ..,
        ] = raw;
        FileSystem {
            block,
            fragment: if fragment == 0 { block } else { fragment },
            blocks,
            free,
            available,
            files,
            files_free,
            id,
            read_only: flags & libc::ST_RDONLY != 0,
            no_setuid: flags & libc::ST_NOSUID != 0,
            name_max,
        }
    }
}

/// The file system that `path` is on.
pub fn file_system(path: &CStr) -> Result<FileSystem> {
    let mut raw: RawStatfs = [0; 15];
    // SAFETY: the kernel reads one string and writes one statfs of 120 bytes.
    unsafe { syscall!(libc::SYS_statfs, path.as_ptr(), raw.as_mut_ptr()) }?;
    Ok(raw.into())
}

/// The file system that an open file is on.
pub fn file_system_open(fd: i32) -> Result<FileSystem> {
    let mut raw: RawStatfs = [0; 15];
    // SAFETY: the kernel writes one statfs of 120 bytes.
    unsafe { syscall!(libc::SYS_fstatfs, fd, raw.as_mut_ptr()) }?;
    Ok(raw.into())
}

/// The working directory's path.
pub fn working_directory() -> Result<Vec<u8>> {
    let mut buf = alloc::vec![0u8; MAX_PATH];
    // SAFETY: the kernel writes at most `buf.len()` bytes and returns how many, the final zero byte included.
    let n = unsafe { syscall!(libc::SYS_getcwd, buf.as_mut_ptr(), buf.len()) }?;
    buf.truncate(n.saturating_sub(1));
    // A directory outside the root of this process is told as "(unreachable)…", which is no path.
    if buf.first() == Some(&b'/') {
        Ok(buf)
    } else {
        Err(Errno::ENOENT)
    }
}

/// Makes `path` the working directory.
pub fn enter(path: &CStr) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_chdir, path.as_ptr()) }.map(drop)
}

/// Makes `path` this process's root. The working directory stays where it is: [`enter`] the new root next.
pub fn confine(path: &CStr) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_chroot, path.as_ptr()) }.map(drop)
}

/// Sets the bits that new files do not get; returns the ones before.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: numbers only; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]) as u32 }
}

/// Writes an open file's content and attributes to its device.
pub fn sync(fd: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fsync, fd.raw()) }.map(drop)
}

/// Copies up to `len` bytes between two open files inside the kernel; returns how many, 0 at the end. The files
/// keep their own offsets.
pub fn copy_range(from: &Fd, from_at: u64, to: &Fd, to_at: u64, len: usize) -> Result<usize> {
    let (mut from_at, mut to_at) = (from_at, to_at);
    // SAFETY: the kernel reads and writes the two offsets, which live through the call.
    unsafe {
        syscall!(
            libc::SYS_copy_file_range,
            from.raw(),
            &raw mut from_at,
            to.raw(),
            &raw mut to_at,
            len,
            0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn stat_reads_what_the_standard_library_reads() {
        for path in ["/", "/etc/passwd", "/dev/null", "/proc/self/exe"] {
            let name = CString::new(path).unwrap();
            let theirs = std::fs::metadata(path).unwrap();
            let ours = stat(CWD, &name, true).unwrap();
            assert_eq!(
                (
                    ours.mode,
                    ours.uid,
                    ours.gid,
                    ours.links,
                    ours.size,
                    ours.modified
                ),
                (
                    theirs.mode(),
                    theirs.uid(),
                    theirs.gid(),
                    theirs.nlink(),
                    theirs.size(),
                    theirs.mtime()
                ),
                "{path}"
            );
        }
        assert!(stat(CWD, c"/proc/self/exe", false).unwrap().is_symlink());
    }

    #[test]
    fn the_working_directory_and_links_are_told_whole() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(working_directory().unwrap(), here.as_os_str().as_bytes());
        let exe = std::env::current_exe().unwrap();
        assert_eq!(
            read_link(CWD, c"/proc/self/exe").unwrap(),
            exe.as_os_str().as_bytes()
        );
        assert_eq!(read_link(CWD, c"/").unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn file_systems_have_blocks() {
        let fs = file_system(c"/proc/..").unwrap();
        assert!(
            fs.fragment > 0 && fs.blocks >= fs.free && fs.name_max >= 14,
            "{fs:?}"
        );
    }
}
