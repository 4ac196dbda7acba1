//! Shared libraries opened by name.

use alloc::ffi::CString;
use alloc::format;
use core::ffi::{CStr, c_void};

/// An open library; it stays loaded as long as the process lives.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

impl Library {
    /// Opens `name` as the loader finds it, or a path. The error is the loader's own sentence.
    ///
    /// The library's start code runs in this process: open nothing that this process should not become.
    pub fn open(name: &CStr) -> Result<Library, CString> {
        // SAFETY: one string that lives through the call; what the library's start code does is its own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(last_error(name));
        }
        Ok(Library(handle))
    }

    /// The function or variable `name` as the pointer type `T`.
    ///
    /// # Safety
    /// `T` must be a pointer-sized type that fits what the library declares under this name.
    pub(super) unsafe fn symbol<T: Copy>(self, name: &CStr) -> Result<T, CString> {
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>(), "symbols are pointers");
        // SAFETY: the handle is open for ever; one string that lives through the call.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(last_error(name));
        }
        // SAFETY: sizes are equal, and the caller vouches for the type.
        Ok(unsafe { core::mem::transmute_copy(&address) })
    }

    /// The path of the file that holds `symbol`; none if the loader cannot tell.
    pub(super) fn path_of(self, symbol: &CStr) -> Option<CString> {
        // SAFETY: all fields of Dl_info are pointers, for which zero is a value; dladdr fills it.
        unsafe {
            let address = libc::dlsym(self.0, symbol.as_ptr());
            let mut info: libc::Dl_info = core::mem::zeroed();
            if address.is_null() || libc::dladdr(address, &raw mut info) == 0 {
                return None;
            }
            Some(super::copied(info.dli_fname))
        }
    }
}

fn last_error(name: &CStr) -> CString {
    // SAFETY: dlerror gives null or a string that lives until the next call in this thread.
    let text = unsafe { super::copied(libc::dlerror()) };
    if text.is_empty() {
        CString::new(format!("{} could not be loaded", name.to_string_lossy())).unwrap_or_default()
    } else {
        text
    }
}
