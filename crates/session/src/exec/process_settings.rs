//! What the process is: its audit login uid, limits, priority, keyring, SELinux context.

use super::{Stop, refused};
use alloc::format;
use core::ffi::CStr;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::process::{self, Limit};
use fleetgate_sys::{Errno, exec, net};
use fleetgate_wire::exec::Resources;

const LOGIN_UID: &CStr = c"/proc/self/loginuid";

/// Writes a whole small file of /proc.
fn tell(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let fd = file::openat(file::CWD, path, flags::O_WRONLY, 0)?;
    file::write_all(fd.raw(), text)
}

/// Sets the audit login uid. A kernel without audit has none. Where it may not be set, it must already be right,
/// except in a user namespace, where nobody may set it (pam_loginuid's rules).
pub fn set_login_uid(uid: u32) -> Result<(), Stop> {
    match tell(LOGIN_UID, format!("{uid}").as_bytes()) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::EPERM | Errno::EACCES) if login_uid_is(uid) || in_user_namespace() => Ok(()),
        Err(e) => Err(refused("setting the login uid")(e)),
    }
}

fn login_uid_is(uid: u32) -> bool {
    read(LOGIN_UID).is_some_and(|text| text == format!("{uid}").as_bytes())
}

/// The first namespace maps every id to itself.
fn in_user_namespace() -> bool {
    let whole: [&[u8]; 3] = [b"0", b"0", b"4294967295"];
    read(c"/proc/self/uid_map").is_some_and(|text| {
        !text
            .split(|b| b.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .eq(whole)
    })
}

fn read(path: &CStr) -> Option<alloc::vec::Vec<u8>> {
    let fd = file::openat(file::CWD, path, flags::O_RDONLY, 0).ok()?;
    file::read_up_to(&fd, 4096).ok()
}

/// Priority, score, umask, and last the limits, which could stand in the way of the others.
pub fn apply(resources: &Resources) -> Result<(), Stop> {
    if let Some(nice) = resources.nice {
        exec::set_nice(nice).map_err(refused("setting the nice value"))?;
    }
    if let Some(score) = resources.oom_score_adj {
        tell(c"/proc/self/oom_score_adj", format!("{score}").as_bytes())
            .map_err(refused("setting the out-of-memory score"))?;
    }
    if let Some(mask) = resources.umask {
        net::umask(mask);
    }
    for limit in &resources.limits {
        let new = Limit {
            soft: limit.soft,
            hard: limit.hard,
        };
        process::set_limit(limit.resource, new).map_err(refused("setting a resource limit"))?;
    }
    Ok(())
}

/// A session keyring of the user's own (made as the user, so that it is his). A kernel without keyrings, and a
/// filter that lets nobody use them, leave none to protect.
pub fn new_keyring() -> Result<(), Stop> {
    match exec::new_session_keyring() {
        Ok(()) | Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => Ok(()),
        Err(e) => Err(refused("making a session keyring")(e)),
    }
}

/// The SELinux context of what is executed next.
pub fn set_exec_context(context: &CStr) -> Result<(), Stop> {
    tell(c"/proc/self/attr/exec", context.to_bytes_with_nul()).map_err(refused("setting the SELinux context"))
}
