//! Filesystems and mounts by descriptor (fsopen and its kin, Linux 5.2). Nothing here is attached to a path unless
//! [`attach`] is called: a mount that is only a descriptor stands in no mount table and wakes nobody who watches
//! one.

use crate::{Fd, Result, syscall};
use core::ffi::CStr;

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_SET_FD: u32 = 5;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

/// Not writable through this mount.
pub const ATTR_RDONLY: u64 = 0x1;
/// No set-user-id, no file capabilities.
pub const ATTR_NOSUID: u64 = 0x2;
/// No devices.
pub const ATTR_NODEV: u64 = 0x4;
/// No execution.
pub const ATTR_NOEXEC: u64 = 0x8;

/// A filesystem of type `kind` about to be configured.
pub fn fsopen(kind: &CStr) -> Result<Fd> {
    // SAFETY: the kernel reads one string that lives through the call.
    let fd = unsafe { syscall!(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) }?;
    Ok(Fd::from_raw(fd as i32))
}

/// Sets option `key` to a string.
pub fn set_string(fs: &Fd, key: &CStr, value: &CStr) -> Result<()> {
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe {
        syscall!(
            libc::SYS_fsconfig,
            fs.raw(),
            FSCONFIG_SET_STRING,
            key.as_ptr(),
            value.as_ptr(),
            0
        )
    }
    .map(drop)
}

/// Sets option `key` to an open file.
pub fn set_fd(fs: &Fd, key: &CStr, fd: &Fd) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call; the rest is numbers.
    unsafe {
        syscall!(
            libc::SYS_fsconfig,
            fs.raw(),
            FSCONFIG_SET_FD,
            key.as_ptr(),
            0,
            fd.raw()
        )
    }
    .map(drop)
}

/// Sets option `key`, which takes no value.
pub fn set_flag(fs: &Fd, key: &CStr) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe {
        syscall!(
            libc::SYS_fsconfig,
            fs.raw(),
            FSCONFIG_SET_FLAG,
            key.as_ptr(),
            0,
            0
        )
    }
    .map(drop)
}

/// Makes the filesystem with the options set so far.
pub fn create(fs: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fsconfig, fs.raw(), FSCONFIG_CMD_CREATE, 0, 0, 0) }.map(drop)
}

/// A mount of the filesystem, attached nowhere; the descriptor stands for its root directory. Closing the last
/// descriptor dissolves the mount, but files opened inside it stay open.
pub fn fsmount(fs: &Fd, attributes: u64) -> Result<Fd> {
    // SAFETY: numbers only.
    let fd = unsafe { syscall!(libc::SYS_fsmount, fs.raw(), FSMOUNT_CLOEXEC, attributes) }?;
    Ok(Fd::from_raw(fd as i32))
}

/// Attaches a mount at `path`.
pub fn attach(mount: &Fd, path: &CStr) -> Result<()> {
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe {
        syscall!(
            libc::SYS_move_mount,
            mount.raw(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH
        )
    }
    .map(drop)
}
