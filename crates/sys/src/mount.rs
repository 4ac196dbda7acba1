//! Filesystems and mounts by descriptor (fsopen and its kin, Linux 5.2). Nothing here is attached to a path unless
//! [`attach`] is called: a mount that is only a descriptor stands in no mount table and wakes nobody who watches
//! one.

use crate::{Fd, Result, syscall};
use core::ffi::CStr;

const FSCONFIG_SET_STRING: u32 = 1;
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

/// Changes a mount's attributes: sets those in `set`, clears those in `clear`. `path` must lead to a mount's root.
pub fn set_attributes(path: &CStr, set: u64, clear: u64) -> Result<()> {
    // struct mount_attr: to set, to clear, propagation, user namespace.
    let attributes = [set, clear, 0, 0];
    // SAFETY: the kernel reads one string and 32 bytes that live through the call.
    unsafe {
        syscall!(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0,
            attributes.as_ptr(),
            32
        )
    }
    .map(drop)
}

/// The old way to the same: makes a mount writable again, by mount(2). With `whole`, its filesystem too.
pub fn remount_writable(path: &CStr, whole: bool) -> Result<()> {
    let flags = libc::MS_REMOUNT | if whole { 0 } else { libc::MS_BIND };
    // SAFETY: the kernel reads one string that lives through the call; the other pointers may be null.
    unsafe { syscall!(libc::SYS_mount, 0, path.as_ptr(), 0, flags, 0) }.map(drop)
}

/// Makes what stands at `from` visible at `to` as well.
pub fn bind(from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: the kernel reads two strings that live through the call.
    unsafe { syscall!(libc::SYS_mount, from.as_ptr(), to.as_ptr(), 0, libc::MS_BIND, 0) }.map(drop)
}

/// A file's handle: what name_to_handle_at says of it.
#[repr(C)]
pub struct Handle {
    bytes: u32,
    kind: i32,
    value: [u8; 128],
}

/// The handle of the file that `path` leads to, links followed.
pub fn handle(path: &CStr) -> Result<Handle> {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        value: [0; 128],
    };
    let mut mount = 0i32;
    // SAFETY: the kernel reads the string, and writes at most the 128 bytes announced and one number.
    unsafe {
        syscall!(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_SYMLINK_FOLLOW
        )
    }?;
    Ok(handle)
}

/// Opens the file of a handle on the filesystem that `on` is open on, for writing.
pub fn open_handle_for_writing(on: &Fd, handle: &Handle) -> Result<Fd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the handle, whose announced length lies within it.
    let fd = unsafe { syscall!(libc::SYS_open_by_handle_at, on.raw(), &raw const *handle, flags) }?;
    Ok(Fd::from_raw(fd as i32))
}

/// Gives this thread a mount table of its own, from which nothing reaches the machine's.
pub fn separate() -> Result<()> {
    let all_private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: numbers, and one string for the mount point; the rest may be null.
    unsafe {
        syscall!(libc::SYS_unshare, libc::CLONE_NEWNS)?;
        syscall!(libc::SYS_mount, 0, c"/".as_ptr(), 0, all_private, 0).map(drop)
    }
}
