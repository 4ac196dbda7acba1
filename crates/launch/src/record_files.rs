//! The directory in which the reaper notes sessions down: made, written, read, cleared.

use crate::SessionReaperError;
use crate::session_record::{MAX_FILE, SessionRecord};
use fleetgate_sys::file::flags::O_NOFOLLOW;
use fleetgate_sys::process;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The state directory: ours, and nobody else's business.
pub(crate) fn own_directory(path: &Path) -> Result<(), SessionReaperError> {
    let failed = |e| SessionReaperError::Directory(path.to_owned(), e);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)?;
    let meta = std::fs::symlink_metadata(path).map_err(failed)?;
    if meta.uid() != process::effective_uid() || !meta.is_dir() {
        return Err(SessionReaperError::NotOurs(path.to_owned(), meta.uid()));
    }
    if meta.permissions().mode() & 0o777 != 0o700 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Reads a note back; the error is a sentence.
pub(crate) fn read_record(path: &Path) -> Result<SessionRecord, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .map_err(|e| e.to_string())?;
    let mut text = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut text)
        .map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err("it is too long".to_owned());
    }
    SessionRecord::from_text(&text)
}

/// Everything of its session is closed.
pub(crate) fn remove_record(note: &Path) {
    if let Err(e) = std::fs::remove_file(note)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("{}: {e}", note.display());
    }
}
