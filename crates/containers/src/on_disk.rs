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

/// The containers in a runtime's directory that do not belong to root: they have no names here.
pub fn kept_by_users(root: &Path) -> Vec<String> {
    let is_users = |path: &Path| fs::symlink_metadata(path).is_ok_and(|kept| !is_believed(kept.uid()));
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let path = entry.path();
            let states = ["state.json", "status"].map(|file| path.join(file));
            let mut states = states.iter().filter(|state| state.is_file());
            states.any(|state| is_users(&path) || is_users(state))
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
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

/// Whether this is a socket of root's that nobody else can put another in the place of. Who may connect to it says nothing about
/// who answers, so root's group may; a link is no socket.
pub fn is_roots_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    let is_roots_own = fs::symlink_metadata(path).is_ok_and(|kept| {
        let is_for_root =
            kept.mode() & OTHERS_WRITE == 0 && (kept.mode() & GROUP_WRITES == 0 || kept.gid() == 0);
        kept.file_type().is_socket() && kept.uid() == 0 && is_for_root
    });
    is_roots_own && path.parent().is_some_and(is_roots)
}

/// A document of the disk; none: it is not there, too long, or none.
pub fn document<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&text(path)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_counts_where_nobody_else_can_replace_it() {
        if fleetgate_sys::process::effective_uid() != 0 {
            return;
        }
        let place = std::env::temp_dir().join(format!("fleetgate-sockets-{}", std::process::id()));
        fs::create_dir_all(&place).expect("made");
        let (socket, link, file) = (place.join("socket"), place.join("link"), place.join("file"));
        let _listener = UnixListener::bind(&socket).expect("bound");
        symlink(&socket, &link).expect("linked");
        fs::write(&file, "").expect("written");
        let is = |path: &Path, socket_mode: u32, place_mode: u32| {
            fs::set_permissions(&socket, Permissions::from_mode(socket_mode)).expect("set");
            fs::set_permissions(&place, Permissions::from_mode(place_mode)).expect("set");
            is_roots_socket(path)
        };
        assert!(is(&socket, 0o660, 0o755));
        assert!(!is(&socket, 0o666, 0o755), "everybody writes");
        assert!(!is(&socket, 0o660, 0o777), "everybody may put another there");
        assert!(!is(&link, 0o660, 0o755) && !is(&file, 0o660, 0o755));
        std::os::unix::fs::chown(&socket, None, Some(61_236)).expect("given");
        assert!(!is(&socket, 0o660, 0o755), "a group may write");
        std::os::unix::fs::chown(&socket, Some(61_236), None).expect("given");
        assert!(!is(&socket, 0o600, 0o755), "a user's");
        fs::remove_dir_all(&place).expect("removed");
    }
}
