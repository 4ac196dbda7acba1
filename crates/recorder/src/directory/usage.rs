//! How much a directory of recordings holds, for whoever looks at it from outside.

use super::delivered::{self, Delivery};
use super::{RECORDING, TAIL, Waiting, children, session};
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
    /// Of those that have ended, the ones that the cluster has not got, where the node is in one.
    pub waiting: Waiting,
    /// Those that it did not take.
    pub refused: u64,
}

/// Looks; what cannot be read counts as not there.
pub fn usage(root: &Path) -> Usage {
    let mut usage = Usage::default();
    for day in children(root) {
        let delivered = delivered::of(&day);
        for path in children(&day) {
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            usage.bytes += facts.size();
            if path.extension().is_none_or(|ending| ending != RECORDING) {
                continue;
            }
            usage.recordings += 1;
            if path.with_extension(TAIL).exists() {
                match is_made(&path) {
                    true => usage.running += 1,
                    false => usage.left += 1,
                }
                continue;
            }
            let named = path.file_stem().and_then(|name| session(name.to_str()?));
            match named.and_then(|session| delivered.get(&session)) {
                None => usage.waiting.add(facts.size(), facts.mtime()),
                Some(Delivery::Refused) => usage.refused += 1,
                Some(Delivery::Kept) => {}
            }
        }
    }
    usage
}

/// Whether a monitor has it locked.
pub(super) fn is_made(path: &Path) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let file = file::openat(file::CWD, &name, O_RDONLY | O_NOFOLLOW, 0);
    file.is_ok_and(|file| lock::try_hold(&file).is_err())
}
