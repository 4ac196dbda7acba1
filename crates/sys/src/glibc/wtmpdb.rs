//! wtmpdb's own library, where the machine has it: it knows whether a daemon or a file keeps the records.

use super::{Library, copied};
use alloc::ffi::CString;
use core::ffi::{CStr, c_char, c_int};
use core::ptr;

/// libwtmpdb, opened.
pub struct Libwtmpdb {
    login: unsafe extern "C" fn(
        *const c_char,
        c_int,
        *const c_char,
        u64,
        *const c_char,
        *const c_char,
        *const c_char,
        *mut *mut c_char,
    ) -> i64,
    logout: unsafe extern "C" fn(*const c_char, i64, u64, *mut *mut c_char) -> c_int,
}

/// A login, as the library takes it.
pub struct Login<'a> {
    /// The account's name.
    pub user: &'a CStr,
    /// When, in microseconds since 1970.
    pub at: u64,
    /// The terminal, without `/dev/`.
    pub tty: &'a CStr,
    /// The peer; empty for none.
    pub host: &'a CStr,
    /// Who let the user in.
    pub service: &'a CStr,
}

/// The library's number for a user's session (its boot record is 1).
pub const USER_PROCESS: c_int = 3;

impl Libwtmpdb {
    /// Opens it; the error is the loader's sentence.
    pub fn open() -> Result<Libwtmpdb, CString> {
        let library = Library::open(c"libwtmpdb.so.0")?;
        // SAFETY: the types are those of wtmpdb.h.
        unsafe {
            Ok(Libwtmpdb {
                login: library.symbol(c"wtmpdb_login")?,
                logout: library.symbol(c"wtmpdb_logout")?,
            })
        }
    }

    /// Records a login where the library keeps them; the row's number. The error is the library's sentence.
    pub fn login(&self, login: &Login<'_>) -> Result<i64, CString> {
        let mut error = ptr::null_mut();
        let host = match login.host.is_empty() {
            true => ptr::null(),
            false => login.host.as_ptr(),
        };
        // SAFETY: strings that live through the call; a null path is the library's own; what it leaves in `error`
        // is malloc'ed and taken once.
        unsafe {
            let id = (self.login)(
                ptr::null(),
                USER_PROCESS,
                login.user.as_ptr(),
                login.at,
                login.tty.as_ptr(),
                host,
                login.service.as_ptr(),
                &raw mut error,
            );
            let why = taken(error);
            if id < 0 { Err(why) } else { Ok(id) }
        }
    }

    /// Records the end of login `id`, in microseconds since 1970.
    pub fn logout(&self, id: i64, at: u64) -> Result<(), CString> {
        let mut error = ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            let done = (self.logout)(ptr::null(), id, at, &raw mut error);
            let why = taken(error);
            if done < 0 { Err(why) } else { Ok(()) }
        }
    }
}

/// The library's sentence, freed.
///
/// # Safety
/// `error` must be null or a malloc'ed string that nobody uses afterwards.
unsafe fn taken(error: *mut c_char) -> CString {
    // SAFETY: the caller vouches for it; free takes null.
    unsafe {
        let text = copied(error);
        libc::free(error.cast());
        text
    }
}
