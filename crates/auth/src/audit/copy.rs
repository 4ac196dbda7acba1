//! A copy of the audit log in one file, made while the service writes it, by whoever may read it.

use super::AuditError;
use super::schema::{check, reader, said};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Copies the log at `from`, as it is at one moment, to a file that is made for it, mode 0600.
pub fn copy(from: &Path, to: &Path) -> Result<(), AuditError> {
    let io = |e: std::io::Error| AuditError::Io(to.to_owned(), e.to_string());
    let name = to
        .to_str()
        .ok_or_else(|| AuditError::Io(to.to_owned(), "the path of a backup has to be UTF-8".to_string()))?;
    check(from)?;
    // SQLite takes an empty file for none, and would make one by the umask.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(io)?;
    // A reader holds up no writer, and brings nothing into the file when it ends.
    reader(from)?
        .execute("VACUUM INTO ?1", [name])
        .map_err(|e| said(to, &e))?;
    file.sync_all().map_err(io)
}
