//! The SELinux context of a helper that goes on as the user and executes nothing: the file server, the networking helper.
//! A session that executes the user's program leaves it to that exec (`exec::identity`).
//!
//! The context is taken after the user's ids, because no user's domain may change them, and by a descriptor that was opened
//! before: behind a chroot there is no /proc, and that of a process which nobody may trace is root's.

use crate::privileges::{self, StepFailure};
use alloc::ffi::CString;
use fleetgate_sys::Fd;
use fleetgate_sys::file::{self, flags};
use fleetgate_wire::common::Ids;

/// Where a context is written; none: no context is ordered, or the kernel has none, which `become_user` refuses.
pub fn attribute(context: &Option<CString>) -> Option<Fd> {
    context.as_ref()?;
    file::openat(file::CWD, c"/proc/thread-self/attr/current", flags::O_WRONLY, 0).ok()
}

/// Becomes the user, in the context that is ordered: nobody goes on without it.
#[inline(never)]
pub fn become_user(ids: &Ids, context: &Option<CString>, attribute: Option<Fd>) -> Result<(), StepFailure> {
    privileges::become_user(ids)?;
    let Some(context) = context else { return Ok(()) };
    // Without an attribute the number is nobody's, and the write says so.
    let raw = attribute.as_ref().map_or(-1, Fd::raw);
    file::write_all(raw, context.to_bytes_with_nul()).map_err(|errno| StepFailure {
        step: "setting the SELinux context",
        errno,
    })
}
