//! The file server's order, and the events it tells.

use crate::common::Ids;
use crate::{choice, record};
use alloc::ffi::CString;

record! {
    /// The order. Descriptors: Stdin and Stdout (they may be one socket twice), Events and Resolver if wanted.
    pub struct Sftp {
        /// Whom to be.
        pub ids: Ids,
        /// The home directory: where relative paths start.
        pub home: CString,
        /// Confine to this directory; it becomes `/`.
        pub chroot: Option<CString>,
        /// Start here instead of `home`.
        pub start: Option<CString>,
        /// Refuse whatever changes anything.
        pub read_only: bool,
        /// The umask.
        pub umask: Option<u32>,
        /// The SELinux context to take with the user's ids.
        pub selinux: Option<CString>,
    }
}

choice! {
    /// One operation, told on the Events descriptor (a SOCK_SEQPACKET socket: one event, one message) once its
    /// answer is decided. `errno` is 0 or says what the client was told: ENOENT, EACCES, EINVAL, ENOSYS, or EIO
    /// for a plain failure. Paths are absolute as seen by the user, but not resolved; `flags` are SSH_FXF_….
    ///
    /// The server never waits for a reader: what does not fit is counted and told by the next event that does.
    /// When the reader is gone the transfer goes on untold; the last message on the control socket counts the rest.
    pub enum Event("file event") {
        /// A file was closed; sums of what was done to it.
        0 => Closed { path: CString, read: u64, written: u64, flags: u32 },
        /// A file was opened, or not.
        1 => Opened { path: CString, flags: u32, errno: i32 },
        /// A directory was listed.
        2 => Listed { path: CString, errno: i32 },
        /// A name was removed.
        3 => Removed { path: CString, directory: bool, errno: i32 },
        /// A name was changed.
        4 => Renamed { from: CString, to: CString, errno: i32 },
        /// A directory was made.
        5 => DirectoryMade { path: CString, mode: u32, errno: i32 },
        /// Attributes were set, those that are there.
        6 => AttributesSet {
            path: CString, size: Option<u64>, uid: Option<u32>, gid: Option<u32>, mode: Option<u32>, times: bool,
            errno: i32,
        },
        /// A symbolic or hard link was made.
        7 => Linked { target: CString, path: CString, symbolic: bool, errno: i32 },
        /// So many events before this one were lost, because nobody took them in time.
        8 => Lost { count: u64 },
    }
}
