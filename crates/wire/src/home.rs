//! Looking at a home directory as its owner.

use crate::common::Ids;
use crate::record;
use alloc::ffi::CString;
use alloc::vec::Vec;

record! {
    /// Check `home`, and read key files by the StrictModes rules, with the user's privileges.
    pub struct CheckHome {
        /// Whose it is.
        pub ids: Ids,
        /// The directory.
        pub home: CString,
        /// Files to read (absolute, or relative to `home`): `authorized_keys` and its like.
        pub files: Vec<CString>,
        /// Refuse files and directories that others may write (sshd's StrictModes).
        pub strict_modes: bool,
    }
}

/// The most bytes read of one key file.
pub const MAX_KEY_FILE: usize = 1 << 20;
