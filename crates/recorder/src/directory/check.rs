//! Whether recordings can be made in a directory, tried before a session has to find out. What is tried is gone afterwards.

use fleetgate_sys::file::flags::{O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR};
use fleetgate_sys::{Errno, Fd, file, lock, process};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// With less room than this the first busy session fills the disk.
const LEAST: u64 = 64 << 20;

/// Why sessions cannot be recorded there; an error says what to do. A directory that is not there is made with the first
/// recording, so the place where it will be is tried.
pub fn check(root: &Path) -> Result<(), String> {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    let place = root.ancestors().find(is_there).unwrap_or(root);
    if !place.is_dir() {
        return Err(format!(
            "{} is no directory: remove it, or name another `recording.directory`",
            place.display()
        ));
    }
    let path = place.join(format!(".fleetgate-try-{}", process::id()));
    let failed = |does: &str, e: Errno, remedy: &str| format!("{}: {does}: {e}: {remedy}", place.display());
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("{:?} is no path", path.as_os_str()))?;
    let made = match file::openat(file::CWD, &name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600) {
        Ok(made) => made,
        // Somebody else than the node asks, who may not: nothing follows from that.
        Err(Errno::EACCES) if process::effective_uid() != 0 => return Ok(()),
        Err(e) => {
            return Err(failed(
                "a file cannot be made in it",
                e,
                "recordings need a directory that can be written to",
            ));
        }
    };
    let tried = try_file(&made, &failed);
    let _ = std::fs::remove_file(&path);
    tried?;
    let name = CString::new(place.as_os_str().as_bytes()).unwrap_or_default();
    let Ok(room) = file::room(&name) else {
        return Ok(());
    };
    if room.bytes_left < LEAST {
        return Err(format!(
            "{}: {} MB are left on its file system, and recordings need {}: make room, or name another `recording.directory`",
            place.display(),
            room.bytes_left >> 20,
            LEAST >> 20
        ));
    }
    match room.files > 0 && room.files_left == 0 {
        true => Err(format!(
            "{}: no file can be made any more on its file system: remove some, or name another `recording.directory`",
            place.display()
        )),
        false => Ok(()),
    }
}

fn try_file(made: &Fd, failed: &dyn Fn(&str, Errno, &str) -> String) -> Result<(), String> {
    file::write_all(made.raw(), b"fleetgate")
        .map_err(|e| failed("nothing can be written to it", e, "make room"))?;
    lock::try_hold(made).map_err(|e| {
        failed(
            "its files cannot be locked (flock)",
            e,
            "recordings need a file system that has locks",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_tried_and_left_as_it_was() {
        let root = std::env::temp_dir().join(format!("fleetgate-try-{}", process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).expect("a directory");
        let below = root.join("not/made/yet");
        assert_eq!((check(&root), check(&below)), (Ok(()), Ok(())));
        let left = std::fs::read_dir(&root).expect("it is there").count();
        assert_eq!(left, 0);
        std::fs::write(root.join("file"), "").expect("a file");
        for path in ["file", "file/recordings"] {
            let why = check(&root.join(path)).expect_err("no directory");
            assert!(why.contains("/file is no directory: "), "{why}");
        }
        let why = check(Path::new("/proc/recordings")).expect_err("nothing can be made there");
        assert!(why.starts_with("/proc: "), "{why}");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
