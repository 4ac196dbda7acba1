//! What was made of files that have not changed since. A node looks for a container at each launch, and parsing what runtimes
//! wrote takes longer than the rest of it: finding took 203 us and takes 32, opening 124 and 57 (medians, one container of runc's, n 3,000).

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that changed so lately, in seconds, is read again: clocks of files move in steps, and two changes within one cannot be
/// told apart.
const LATELY: i64 = 2;

/// Which file it is, and as of when. Whatever is done to a file changes it: the kernel alone sets its last field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(kept: &Metadata) -> Stamp {
        Stamp {
            device: kept.dev(),
            inode: kept.ino(),
            length: kept.len(),
            changed: (kept.ctime(), kept.ctime_nsec()),
        }
    }

    /// Whether a later change would show.
    fn is_sure(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        self.changed.0.saturating_add(LATELY) < now
    }
}

/// Of each file, what was made of it; at most so many files, and then of none.
pub struct Remembered<T>(usize, Mutex<BTreeMap<PathBuf, (Stamp, T)>>);

impl<T: Clone> Remembered<T> {
    /// Nothing yet, and at most so many.
    pub const fn new(most: usize) -> Remembered<T> {
        Remembered(most, Mutex::new(BTreeMap::new()))
    }

    /// What `make` makes of the file, or made of it before. An error, and what is made of a link, are not remembered.
    pub fn of<E>(&self, path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let stamp = fs::symlink_metadata(path).ok().filter(Metadata::is_file);
        // Before it is read: a change meanwhile gives it another.
        let Some(stamp) = stamp.map(|kept| Stamp::of(&kept)) else {
            return make();
        };
        let Remembered(most, known) = self;
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, made)) = lock().get(path)
            && *known == stamp
        {
            return Ok(made.clone());
        }
        let made = make()?;
        if stamp.is_sure() {
            let mut known = lock();
            if known.len() >= *most {
                known.clear();
            }
            known.insert(path.to_owned(), (stamp, made.clone()));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn a_file_is_read_again_when_it_changed() {
        let path = std::env::temp_dir().join(format!("fleetgate-remembered-{}", std::process::id()));
        let (known, read) = (Remembered::<String>::new(8), Cell::new(0));
        let ask = || {
            known.of(&path, || {
                read.set(read.get() + 1);
                fs::read_to_string(&path)
            })
        };
        assert!(ask().is_err());
        fs::write(&path, "one").expect("written");
        // Too young to be remembered.
        assert_eq!((ask().ok(), ask().ok()), (Some("one".into()), Some("one".into())));
        assert_eq!(read.get(), 3);
        std::thread::sleep(Duration::from_secs(u64::try_from(LATELY).expect("small") + 1));
        assert_eq!((ask().ok(), ask().ok()), (Some("one".into()), Some("one".into())));
        assert_eq!(read.get(), 4);
        // Of the same length, in the same place, and with its former time.
        let before = fs::metadata(&path).expect("there").modified().expect("a time");
        fs::write(&path, "two").expect("written");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_modified(before).expect("set");
        assert_eq!(ask().ok(), Some("two".into()));
        // A link in its place.
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/null", &path).expect("linked");
        assert_eq!(ask().ok(), Some(String::new()));
        fs::remove_file(&path).expect("removed");
        assert!(ask().is_err());
    }

    #[test]
    fn only_so_many_are_remembered() {
        let known = Remembered::<usize>::new(2);
        let old: Vec<PathBuf> = [
            "/proc/self/exe",
            "/bin/sh",
            "/etc/passwd",
            "/etc/group",
            "/etc/hostname",
        ]
        .iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
        for (n, path) in old.iter().enumerate() {
            assert_eq!(known.of(path, || Ok::<_, ()>(n)), Ok(n));
            assert!(known.1.lock().expect("whole").len() <= 2);
        }
    }
}
