//! The SELinux context of a login, by the machine's own library.

use super::{Library, copied};
use alloc::ffi::CString;
use alloc::format;
use core::ffi::{CStr, c_char, c_int};

/// libselinux, opened.
pub struct Libselinux {
    is_enabled: unsafe extern "C" fn() -> c_int,
    seuser_by_name: unsafe extern "C" fn(*const c_char, *mut *mut c_char, *mut *mut c_char) -> c_int,
    default_context:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *mut *mut c_char) -> c_int,
    free_context: unsafe extern "C" fn(*mut c_char),
}

impl Libselinux {
    /// Opens it; the error is the loader's sentence.
    pub fn open() -> Result<Libselinux, CString> {
        let library = Library::open(c"libselinux.so.1")?;
        // SAFETY: the types are those of selinux/selinux.h.
        unsafe {
            Ok(Libselinux {
                is_enabled: library.symbol(c"is_selinux_enabled")?,
                seuser_by_name: library.symbol(c"getseuserbyname")?,
                default_context: library.symbol(c"get_default_context_with_level")?,
                free_context: library.symbol(c"freecon")?,
            })
        }
    }

    /// Whether the kernel enforces or at least logs a policy.
    pub fn is_enabled(&self) -> bool {
        // SAFETY: no arguments.
        unsafe { (self.is_enabled)() > 0 }
    }

    /// The context in which the shell of `user` runs: his SELinux user and level, and the first role and type
    /// that the policy allows from this process's own context. The error is a sentence.
    pub fn login_context(&self, user: &CStr) -> Result<CString, CString> {
        let name = user.to_string_lossy();
        let (mut seuser, mut level, mut context) = (
            core::ptr::null_mut(),
            core::ptr::null_mut(),
            core::ptr::null_mut(),
        );
        // SAFETY: strings that live through the calls; what they return is malloc'ed and freed here, once.
        unsafe {
            if (self.seuser_by_name)(user.as_ptr(), &raw mut seuser, &raw mut level) != 0 {
                return Err(sentence(format!(
                    "SELinux has no user for {name}: see semanage login -l"
                )));
            }
            let made = (self.default_context)(seuser, level, core::ptr::null(), &raw mut context);
            libc::free(seuser.cast());
            libc::free(level.cast());
            if made != 0 || context.is_null() {
                return Err(sentence(format!(
                    "SELinux allows no login context for {name} from here: see sestatus and default_contexts"
                )));
            }
            let copy = copied(context);
            (self.free_context)(context);
            Ok(copy)
        }
    }
}

fn sentence(text: alloc::string::String) -> CString {
    CString::new(text).unwrap_or_default()
}
