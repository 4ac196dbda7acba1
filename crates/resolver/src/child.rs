//! What every process that the resolver forks does first.

use fleetgate_sys::glibc::fork;
use fleetgate_sys::{Errno, Fd, close_range};
use std::ffi::CStr;

/// Keeps `ours`, as descriptor `at`, and nothing else that is open, so that the
/// other ends of all sockets are closed when their one owner closes them.
pub fn become_child(ours: Fd, at: i32, name: &CStr) -> Result<Fd, Errno> {
    ours.place_at(at, true)?;
    // The number it had is closed with all the others.
    ours.into_raw();
    close_range(at + 1, u32::MAX)?;
    fork::reap_children(false);
    fork::set_name(name);
    Ok(Fd::from_raw(at))
}
