//! Directories and files that count: who may write them says which process somebody enters, and as whom, so they are root's, and
//! are read within bounds.

use crate::sources::MAX_CONTAINERS;
use fleetgate_sys::file::flags;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most of one file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The directories in one that are root's.
pub fn directories(root: &Path) -> Vec<PathBuf> {
    directories_called(root, "")
}

/// Those of them whose names begin so. Which entries are directories the directory itself knows.
pub fn directories_called(root: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(beginning.as_bytes()))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|kept| kept.is_dir() && is_believed(kept.uid())))
        .take(MAX_CONTAINERS)
        .collect()
}

/// What a file says; none: it is not there, too long, or not root's.
pub fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // A fifo must hold nobody up, and a link leads wherever its owner likes; what is no regular file is not read.
    let how = flags::O_NONBLOCK | flags::O_NOCTTY | flags::O_NOFOLLOW;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(how)
        .open(path)
        .ok()?;
    let kept = file.metadata().ok()?;
    if !kept.is_file() || !is_believed(kept.uid()) {
        return None;
    }
    // In one read: a length of 0 is that of a file of the kernel's.
    let length = usize::try_from(kept.len().min(MAX_FILE)).ok()?;
    let mut out = String::with_capacity(length.max(1000) + 40);
    file.take(MAX_FILE + 1).read_to_string(&mut out).ok()?;
    (out.len() as u64 <= MAX_FILE).then_some(out)
}

/// Whether files of this user's are believed: who may write them says which process somebody enters, and as whom.
fn is_believed(uid: u32) -> bool {
    uid == 0 || cfg!(test) && uid == fleetgate_sys::process::effective_uid()
}

/// The same of a path; tests keep theirs where others may write.
pub fn is_believed_at(path: &Path) -> bool {
    cfg!(test) || is_roots(path)
}

/// Whether nobody but root can change the file, or put another in its place: each directory and each link on the way to it is
/// root's.
pub fn is_roots(path: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| {
        let parts = path.components().rev().map(|part| part.as_os_str().to_owned());
        parts.collect::<Vec<OsString>>()
    };
    // What is still to be walked, the next part last.
    let (mut left, mut at, mut links) = (parts(path), PathBuf::new(), 0);
    if !path.is_absolute() {
        return false;
    }
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let Ok(kept) = fs::symlink_metadata(&next) else {
            return false;
        };
        if kept.uid() != 0 {
            return false;
        }
        if kept.is_symlink() {
            links += 1;
            let Ok(target) = fs::read_link(&next) else {
                return false;
            };
            if links > MAX_LINKS {
                return false;
            }
            // An absolute one begins with the root, which replaces what was walked.
            left.extend(parts(&target));
            continue;
        }
        let open_to_others = kept.mode() & OTHERS_WRITE != 0;
        if open_to_others && !(kept.is_dir() && kept.mode() & STICKY != 0) {
            return false;
        }
        at = next;
    }
    true
}

/// A document of the disk; none: it is not there, too long, or none.
pub fn document<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&text(path)?).ok()
}
