//! Whether files are still what they were: by device, inode, size and times, as one stat gives them.
//!
//! Asked for at every question instead of watching with inotify: 1 µs a file, and it sees bind mounts, renamed
//! directories and files that did not exist before, which inotify does not.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What one stat said; none: no such file.
type Stamp = Option<[i64; 7]>;

/// Files and what they were when last looked at.
pub struct Stamps(Vec<(PathBuf, Stamp)>);

impl Stamps {
    /// The files as they are now.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Stamps {
        Stamps(
            paths
                .into_iter()
                .map(|path| {
                    let stamp = stamp(&path);
                    (path, stamp)
                })
                .collect(),
        )
    }

    /// Whether any of them has changed since the last call.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, was) in &mut self.0 {
            let is = stamp(path);
            changed |= is != *was;
            *was = is;
        }
        changed
    }
}

fn stamp(path: &PathBuf) -> Stamp {
    let m = std::fs::metadata(path).ok()?;
    Some([
        m.dev().cast_signed(),
        m.ino().cast_signed(),
        m.size().cast_signed(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_a_replaced_and_a_removed_file_are_changes() {
        let dir = std::env::temp_dir().join(format!("fleetgate-stamp-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a fresh directory");
        let path = dir.join("f");
        let mut stamps = Stamps::of([path.clone()]);
        assert!(!stamps.changed());
        std::fs::write(&path, "one").expect("write");
        assert!(stamps.changed() && !stamps.changed());
        std::fs::write(dir.join("g"), "two").expect("write");
        std::fs::rename(dir.join("g"), &path).expect("rename");
        assert!(stamps.changed() && !stamps.changed());
        std::fs::remove_dir_all(&dir).expect("clean");
        assert!(stamps.changed());
    }
}
