//! The SELinux context of a login, by the machine's own library.

use super::{Library, copied};
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use core::ffi::{CStr, c_char, c_int};

/// libselinux, opened.
pub struct Libselinux {
    is_enabled: unsafe extern "C" fn() -> c_int,
    seuser_by_name: unsafe extern "C" fn(*const c_char, *mut *mut c_char, *mut *mut c_char) -> c_int,
    default_context:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *mut *mut c_char) -> c_int,
    own_context: unsafe extern "C" fn(*mut *mut c_char) -> c_int,
    check_context: unsafe extern "C" fn(*const c_char) -> c_int,
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
                own_context: library.symbol(c"getcon")?,
                check_context: library.symbol(c"security_check_context")?,
                free_context: library.symbol(c"freecon")?,
            })
        }
    }

    /// Whether the kernel enforces or at least logs a policy.
    pub fn is_enabled(&self) -> bool {
        // SAFETY: no arguments.
        unsafe { (self.is_enabled)() > 0 }
    }

    /// The context in which the shell of `user` runs: his SELinux user and level, and the first role and type that the
    /// policy has for a login by sshd. Of this process's own context policies know nothing: libselinux would answer with
    /// its failsafe, an administrator's role. The error is a sentence.
    pub fn login_context(&self, user: &CStr) -> Result<CString, CString> {
        let name = user.to_string_lossy();
        let from = self.of_sshd();
        let from = from.as_ref().map_or(core::ptr::null(), |from| from.as_ptr());
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
            let made = (self.default_context)(seuser, level, from, &raw mut context);
            libc::free(seuser.cast());
            libc::free(level.cast());
            if made != 0 || context.is_null() {
                return Err(sentence(format!(
                    "SELinux has no context for a login of {name} by SSH: see semanage login -l and the policy's default_contexts"
                )));
            }
            let copy = copied(context);
            (self.free_context)(context);
            Ok(copy)
        }
    }

    /// The context of the machine's sshd; none where the policy has no such domain, and its answer is for this process.
    fn of_sshd(&self) -> Option<CString> {
        let mut own = core::ptr::null_mut();
        // SAFETY: what is returned is malloc'ed and freed here, once; the other string lives through the call.
        unsafe {
            if (self.own_context)(&raw mut own) != 0 || own.is_null() {
                return None;
            }
            let context = sshd_beside(&copied(own));
            (self.free_context)(own);
            context.filter(|context| (self.check_context)(context.as_ptr()) == 0)
        }
    }
}

/// The name that both families of policies give sshd's context, with the level of `own`, where there are levels.
fn sshd_beside(own: &CStr) -> Option<CString> {
    let own = own.to_str().ok()?;
    let level = own.splitn(4, ':').nth(3);
    let level = level.map_or_else(String::new, |level| format!(":{level}"));
    CString::new(format!("system_u:system_r:sshd_t{level}")).ok()
}

fn sentence(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_asked_about_as_one_by_sshd() {
        for (own, expected) in [
            (c"system_u:system_r:initrc_t:s0", c"system_u:system_r:sshd_t:s0"),
            (
                c"unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023",
                c"system_u:system_r:sshd_t:s0-s0:c0.c1023",
            ),
            (
                c"system_u:system_r:unconfined_service_t",
                c"system_u:system_r:sshd_t",
            ),
        ] {
            assert_eq!(sshd_beside(own).as_deref(), Some(expected));
        }
    }
}
