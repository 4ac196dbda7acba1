//! Folders of a test's own, which go with it.

use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh one; it is its path.
pub struct Folder(PathBuf);

impl Folder {
    /// Below the place for temporary files.
    pub fn new() -> Folder {
        Folder::below(&std::env::temp_dir())
    }

    /// Below this folder, entered by everybody.
    pub fn below(parent: &Path) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!(
            "fleetgate-test-folder-{}-{number:04}",
            std::process::id()
        ));
        std::fs::create_dir(&path).expect("a fresh folder");
        Folder(path.canonicalize().expect("its path"))
    }

    /// Of this owner, with this mode.
    pub fn owned(mode: u32, owner: u32) -> Folder {
        let folder = Folder::new();
        chown(&folder.0, Some(owner), Some(owner)).expect("chown");
        folder.with_mode(mode)
    }

    /// With this mode.
    pub fn with_mode(self, mode: u32) -> Folder {
        std::fs::set_permissions(&self.0, PermissionsExt::from_mode(mode)).expect("chmod");
        self
    }

    /// A path in it, as a word of a command.
    pub fn word(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }

    /// What a file in it holds.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.join(name)).expect("it was written")
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
