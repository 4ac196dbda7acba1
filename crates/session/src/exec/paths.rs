//! The account's shell, and files by their directory.

use alloc::ffi::CString;
use core::ffi::CStr;
use fleetgate_wire::exec::Exec;

/// What an empty shell field stands for.
const DEFAULT_SHELL: &CStr = c"/bin/sh";

/// The account's shell.
pub fn shell(order: &Exec) -> &CStr {
    if order.account.shell.is_empty() {
        DEFAULT_SHELL
    } else {
        &order.account.shell
    }
}

/// `directory/name`.
pub fn joined(directory: &[u8], name: &[u8]) -> CString {
    CString::new([directory, b"/", name].concat()).unwrap_or_default()
}
