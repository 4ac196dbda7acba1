//! How much a directory of recordings holds, for whoever looks at it from outside.

use super::{RECORDING, TAIL, children};
use fleetgate_sys::file::flags::{O_NOFOLLOW, O_RDONLY};
use fleetgate_sys::{file, lock};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All recordings.
    pub recordings: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Of the recordings, those that a node makes now.
    pub running: u64,
    /// Those that are not finished, and that nobody makes: a node that starts finishes them.
    pub left: u64,
}

/// Looks; what cannot be read counts as not there.
pub fn usage(root: &Path) -> Usage {
    let mut usage = Usage::default();
    for path in children(root).iter().flat_map(|day| children(day)) {
        usage.bytes += fs::symlink_metadata(&path).map_or(0, |facts| facts.size());
        if path.extension().is_none_or(|ending| ending != RECORDING) {
            continue;
        }
        usage.recordings += 1;
        if path.with_extension(TAIL).exists() {
            match is_made(&path) {
                true => usage.running += 1,
                false => usage.left += 1,
            }
        }
    }
    usage
}

/// Whether a monitor has it locked.
fn is_made(path: &Path) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let file = file::openat(file::CWD, &name, O_RDONLY | O_NOFOLLOW, 0);
    file.is_ok_and(|file| lock::try_hold(&file).is_err())
}
