//! Executable files: making them, knowing them again, and becoming them.

use crate::spawn::Strings;
use crate::{Errno, Fd, Result, file, syscall};
use core::ffi::CStr;

/// What tells one file, and one state of it, from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The filesystem.
    pub device: u64,
    /// The file on it.
    pub inode: u64,
    /// Its length.
    pub size: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
    /// When content or attributes last changed: nanoseconds since 1970.
    pub changed_ns: i64,
}

impl Identity {
    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
    /// Whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// The set-user-ID bit of [`Identity::mode`].
pub const SET_USER_ID: u32 = libc::S_ISUID;
/// The set-group-ID bit.
pub const SET_GROUP_ID: u32 = libc::S_ISGID;

/// Whether this process may execute the open file, by its effective ids.
pub fn may_execute(fd: &Fd) -> Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the kernel reads one string that lives through the call.
    let asked = unsafe { syscall!(libc::SYS_faccessat2, fd.raw(), c"".as_ptr(), libc::X_OK, flags) };
    match asked {
        // A filter that does not know the call (5.8): the exec itself will say.
        Err(Errno::ENOSYS | Errno::EPERM) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether the file has an extended attribute of this name.
pub fn has_attribute(fd: &Fd, name: &CStr) -> bool {
    // SAFETY: the kernel reads one string; with no room for the value it answers its length.
    unsafe { syscall!(libc::SYS_fgetxattr, fd.raw(), name.as_ptr(), 0, 0) }.is_ok()
}

/// The identity of an open file.
pub fn identity(fd: &Fd) -> Result<Identity> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one stat; glibc's and musl's layout on 64-bit machines is the kernel's.
    unsafe { syscall!(libc::SYS_fstat, fd.raw(), &raw mut stat) }?;
    Ok(Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: stat.st_nlink as u64,
        changed_ns: stat.st_ctime * 1_000_000_000 + stat.st_ctime_nsec,
    })
}

/// The filesystem a file is on: its type's magic number, and whether it forbids execution.
pub fn filesystem(fd: &Fd) -> Result<(u64, bool)> {
    const ST_NOEXEC: u64 = 8;
    let stat = statfs(fd)?;
    Ok((stat[MAGIC], stat[FLAGS] & ST_NOEXEC != 0))
}

/// Whether nothing can be written where the file is: a read-only mount or filesystem.
pub fn is_read_only(fd: &Fd) -> Result<bool> {
    const ST_RDONLY: u64 = 1;
    Ok(statfs(fd)?[FLAGS] & ST_RDONLY != 0)
}

/// How many bytes an ordinary user may still write to the filesystem a file is on; `None` when it does not count them.
pub fn room(fd: &Fd) -> Result<Option<u64>> {
    let stat = statfs(fd)?;
    Ok((stat[BLOCKS] > 0).then(|| stat[AVAILABLE].saturating_mul(stat[BLOCK_SIZE])))
}

// The kernel's struct statfs on 64-bit machines, in words.
const MAGIC: usize = 0;
const BLOCK_SIZE: usize = 1;
const BLOCKS: usize = 2;
const AVAILABLE: usize = 4;
const FLAGS: usize = 10;

fn statfs(fd: &Fd) -> Result<[u64; 15]> {
    let mut stat = [0u64; 15];
    // SAFETY: the kernel writes one statfs of 120 bytes.
    unsafe { syscall!(libc::SYS_fstatfs, fd.raw(), stat.as_mut_ptr()) }?;
    Ok(stat)
}

/// `f_type` of an overlay.
pub const OVERLAY_MAGIC: u64 = 0x794c_7630;
/// `f_type` of a tmpfs, and of a memfd.
pub const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Opens a file for reading, relative to `dir` (a descriptor's number or [`file::CWD`]).
pub fn open_read(dir: i32, path: &CStr) -> Result<Fd> {
    file::openat(dir, path, libc::O_RDONLY | libc::O_NOCTTY, 0)
}

/// Opens a file for writing only, which neither makes it nor cuts it.
pub fn open_write(dir: i32, path: &CStr) -> Result<Fd> {
    file::openat(dir, path, libc::O_WRONLY | libc::O_NOCTTY, 0)
}

/// Opens a directory as a place only: no permission to list it is needed.
pub fn open_place(dir: i32, path: &CStr) -> Result<Fd> {
    file::openat(dir, path, libc::O_PATH | libc::O_DIRECTORY, 0)
}

/// A file in directory `dir` that has no name and can be given none; owner's alone, open for reading and writing.
pub fn nameless(dir: &CStr) -> Result<Fd> {
    file::openat(file::CWD, dir, NAMELESS_FLAGS, 0o600)
}

/// A new file `name` in `dir`, owner's alone; `EEXIST` when anything stands there, a dangling link included.
pub fn create_new(dir: i32, name: &CStr) -> Result<Fd> {
    file::openat(dir, name, CREATE_NEW_FLAGS, 0o600)
}

/// Removes a file's name.
pub fn unlink(dir: i32, name: &CStr) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_unlinkat, dir, name.as_ptr(), 0) }.map(drop)
}

/// The flags with which [`nameless`] opens, as the kernel gets them: a filter that forbids it has to name them.
pub const NAMELESS_FLAGS: i32 = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL | libc::O_CLOEXEC;
/// The same of [`create_new`].
pub const CREATE_NEW_FLAGS: i32 =
    libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// Changes permission bits.
pub fn change_mode(fd: &Fd, mode: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fchmod, fd.raw(), mode) }.map(drop)
}

/// A second, read-only open file of the same inode. Executing a file that anybody holds open for writing is
/// ETXTBSY, so an image that was written is opened again this way and the first descriptor closed.
pub fn reopen_read(fd: &Fd) -> Result<Fd> {
    let mut path = [0u8; 32];
    let text = proc_path(&mut path, fd.raw());
    open_read(file::CWD, text)
}

/// `/proc/self/fd/N` without allocation.
pub fn proc_path(buffer: &mut [u8; 32], fd: i32) -> &CStr {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    buffer[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut digits = [0u8; 10];
    let (mut n, mut used) = (fd.max(0) as u32, 0);
    loop {
        digits[used] = b'0' + (n % 10) as u8;
        n /= 10;
        used += 1;
        if n == 0 {
            break;
        }
    }
    for i in 0..used {
        buffer[PREFIX.len() + i] = digits[used - 1 - i];
    }
    buffer[PREFIX.len() + used] = 0;
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"/")
}

/// Whether nobody holds the file open for writing, asked of the kernel by trying for a read lease. Where leases
/// are not to be had (another owner, a filesystem without), the answer is yes.
pub fn has_no_writer(fd: &Fd) -> bool {
    // SAFETY: numbers only.
    let taken = unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_SETLEASE, libc::F_RDLCK) };
    match taken {
        Err(Errno::EAGAIN) => false,
        Err(_) => true,
        Ok(_) => {
            // SAFETY: as above.
            let _ = unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_SETLEASE, libc::F_UNLCK) };
            true
        }
    }
}

/// Copies up to `len` bytes from the start of `from` to the start of `to`, inside the kernel where it can. Returns
/// how many there were.
pub fn copy(from: &Fd, to: &Fd, len: u64) -> Result<u64> {
    let mut at: u64 = 0;
    while at < len {
        let mut offset = at as i64;
        let want = (len - at).min(1 << 30) as usize;
        // SAFETY: the kernel reads and writes one offset.
        let sent = unsafe { syscall!(libc::SYS_sendfile, to.raw(), from.raw(), &raw mut offset, want) };
        match sent {
            Ok(0) => return Ok(at),
            Ok(n) => at += n as u64,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(at)
}

/// Gives the page cache of a file back, as far as no process has it mapped. Where it cannot be (a file in memory, pages that
/// are not on the disk yet) it stays.
pub fn forget_cached(fd: &Fd) {
    // SAFETY: numbers only.
    let _ = unsafe { syscall!(libc::SYS_fadvise64, fd.raw(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// 128 random bits of the kernel's.
pub fn random() -> [u64; 2] {
    let mut bits = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes. So few are never interrupted or cut short; before the pool is seeded,
    // early in boot, it waits.
    let _ = unsafe { syscall!(libc::SYS_getrandom, bits.as_mut_ptr(), 16, 0) };
    bits
}

/// Becomes the program in `fd`; comes back only with an error.
pub fn execute(fd: &Fd, argv: &Strings<'_>, envp: &Strings<'_>) -> Errno {
    // SAFETY: Strings ends its arrays with null and keeps the strings alive.
    let ret = unsafe {
        syscall!(
            libc::SYS_execveat,
            fd.raw(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH
        )
    };
    match ret {
        Err(e) => e,
        Ok(_) => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_paths() {
        let mut buffer = [0; 32];
        assert_eq!(proc_path(&mut buffer, 0), c"/proc/self/fd/0");
        assert_eq!(proc_path(&mut buffer, 70), c"/proc/self/fd/70");
        assert_eq!(proc_path(&mut buffer, i32::MAX), c"/proc/self/fd/2147483647");
    }

    #[test]
    fn a_writer_is_noticed() {
        let writer = nameless(c"/tmp").expect("O_TMPFILE in /tmp");
        let reader = reopen_read(&writer).expect("reopen");
        assert!(!has_no_writer(&reader));
        drop(writer);
        // A child that another test begins at this moment has a copy of `writer` until it becomes its program.
        let unwritten = (0..1000).any(|_| {
            let unwritten = has_no_writer(&reader);
            if !unwritten {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            unwritten
        });
        assert!(unwritten);
    }
}
