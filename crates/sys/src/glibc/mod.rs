//! What only a dynamic glibc process can do: name services, PAM, SELinux's library, and the fork that PAM needs.
//!
//! The one place of the workspace that calls into libraries of the machine's own: they are opened at run time, so
//! a machine without them runs everything else. Never linked into the static programs.

pub mod fork;
mod library;
pub mod nss;
pub mod pam;
pub mod selinux;
pub mod wtmpdb;

pub use library::Library;

use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use core::ffi::{CStr, c_char};

/// A copy of the string at `text`; empty where there is none.
///
/// # Safety
/// `text` must be null or a string that lives through the call.
unsafe fn copied(text: *const c_char) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_owned()
}
