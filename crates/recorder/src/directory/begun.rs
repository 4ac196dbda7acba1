//! Which recordings this machine began and has not finished: an empty file for each, in a directory of root's beside the one of
//! recordings. What a killed monitor left is finished and signed by the next one only where it stands there: to be able to
//! write to the directory of recordings is not enough for a signature.

use super::{DIRECTORY_MODE, FILE_MODE, TAIL, name, session};
use fleetgate_sys::file::flags::{O_CREAT, O_NOFOLLOW, O_WRONLY};
use fleetgate_sys::{Errno, clock, file};
use fleetgate_wire::common::SessionId;
use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Older ones have their files, unless they are finished; seconds.
const OLD: i64 = 3600;

/// The list; its place is below the node's state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun(PathBuf);

impl Begun {
    /// The list of a node with this state directory.
    pub fn of(state_directory: &Path) -> Begun {
        Begun(state_directory.join("recordings-begun"))
    }

    /// This one begins.
    pub fn note(&self, session: &SessionId) -> Result<(), String> {
        let path = self.0.join(name(session));
        let make = || {
            let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
            file::openat(file::CWD, &name, O_WRONLY | O_CREAT | O_NOFOLLOW, FILE_MODE).map(drop)
        };
        let made = match make() {
            Err(Errno::ENOENT) => {
                let mut builder = DirBuilder::new();
                let made = builder.recursive(true).mode(DIRECTORY_MODE).create(&self.0);
                made.map_err(|e| format!("{}: {e}", self.0.display()))?;
                make()
            }
            other => other,
        };
        made.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Whether it was begun and is not finished.
    pub fn has(&self, session: &SessionId) -> bool {
        self.0.join(name(session)).symlink_metadata().is_ok()
    }

    /// It is finished, or did not begin.
    pub fn forget(&self, session: &SessionId) {
        let _ = fs::remove_file(self.0.join(name(session)));
    }

    /// Forgets those whose recording is whole or gone: a monitor may have been killed between the two.
    pub fn tidy(&self, root: &Path) {
        // One that begins has its files in a moment.
        let is_old = |facts: fs::Metadata| facts.mtime() < clock::wall().sec - OLD;
        let left = super::children(&self.0).into_iter();
        let left = left.filter(|path| path.symlink_metadata().is_ok_and(is_old));
        let days = super::children(root);
        for path in left {
            let Some(session) = path.file_name().and_then(|name| session(name.to_str()?)) else {
                continue;
            };
            let file = Path::new(&name(&session)).with_extension(TAIL);
            if !days.iter().any(|day| day.join(&file).exists()) {
                self.forget(&session);
            }
        }
    }
}
