//! Error numbers as the kernel gives them, with the names and sentences people know.

use core::fmt;

/// What a system call answers.
pub type Result<T> = core::result::Result<T, Errno>;

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $text:literal,)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno(libc::$name);)*

            /// The symbol, such as `ENOENT`; `None` for a number this table does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $(libc::$name => Some(stringify!($name)),)* _ => None }
            }

            /// The sentence that `strerror` gives.
            pub const fn text(self) -> &'static str {
                match self.0 { $(libc::$name => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM "Operation not permitted",
    ENOENT "No such file or directory",
    ESRCH "No such process",
    EINTR "Interrupted system call",
    EIO "Input/output error",
    ENXIO "No such device or address",
    E2BIG "Argument list too long",
    ENOEXEC "Exec format error",
    EBADF "Bad file descriptor",
    ECHILD "No child processes",
    EAGAIN "Resource temporarily unavailable",
    ENOMEM "Cannot allocate memory",
    EACCES "Permission denied",
    EFAULT "Bad address",
    EBUSY "Device or resource busy",
    EEXIST "File exists",
    EXDEV "Invalid cross-device link",
    ENODEV "No such device",
    ENOTDIR "Not a directory",
    EISDIR "Is a directory",
    EINVAL "Invalid argument",
    ENFILE "Too many open files in system",
    EMFILE "Too many open files",
    ENOTTY "Inappropriate ioctl for device",
    ETXTBSY "Text file busy",
    EFBIG "File too large",
    ENOSPC "No space left on device",
    ESPIPE "Illegal seek",
    EROFS "Read-only file system",
    EMLINK "Too many links",
    EPIPE "Broken pipe",
    EDOM "Numerical argument out of domain",
    ERANGE "Numerical result out of range",
    EDEADLK "Resource deadlock avoided",
    ENAMETOOLONG "File name too long",
    ENOLCK "No locks available",
    ENOSYS "Function not implemented",
    ENOTEMPTY "Directory not empty",
    ELOOP "Too many levels of symbolic links",
    ENODATA "No data available",
    ETIME "Timer expired",
    EPROTO "Protocol error",
    EBADMSG "Bad message",
    EOVERFLOW "Value too large for defined data type",
    ENOTSOCK "Socket operation on non-socket",
    EDESTADDRREQ "Destination address required",
    EMSGSIZE "Message too long",
    EPROTONOSUPPORT "Protocol not supported",
    EOPNOTSUPP "Operation not supported",
    EAFNOSUPPORT "Address family not supported by protocol",
    EADDRINUSE "Address already in use",
    EADDRNOTAVAIL "Cannot assign requested address",
    ENETDOWN "Network is down",
    ENETUNREACH "Network is unreachable",
    ECONNABORTED "Software caused connection abort",
    ECONNRESET "Connection reset by peer",
    ENOBUFS "No buffer space available",
    EISCONN "Transport endpoint is already connected",
    ENOTCONN "Transport endpoint is not connected",
    ETOOMANYREFS "Too many references: cannot splice",
    ETIMEDOUT "Connection timed out",
    ECONNREFUSED "Connection refused",
    EHOSTUNREACH "No route to host",
    EALREADY "Operation already in progress",
    EINPROGRESS "Operation now in progress",
    ESTALE "Stale file handle",
    EDQUOT "Disk quota exceeded",
    EKEYEXPIRED "Key has expired",
    ELIBBAD "Accessing a corrupted shared library",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.text()),
            None => write!(f, "error number {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl core::error::Error for Errno {}

#[cfg(feature = "std")]
impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> Self {
        std::io::Error::from_raw_os_error(e.0)
    }
}

#[cfg(feature = "std")]
impl From<std::io::Error> for Errno {
    /// An error without a number (a short read, say) becomes `EIO`.
    fn from(e: std::io::Error) -> Self {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
}
