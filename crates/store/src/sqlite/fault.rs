//! What SQLite says, as what the store's users are told. No SQL is in it.

use super::schema::{STEPS, Unfit, version_after};
use crate::Error;
use fleetgate_sys::{Fd, exe, file};
use rusqlite::ErrorCode;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// With less room than this an unnamed failure to write is taken for a full disk; SQLite's index of the WAL alone takes
/// 32 KB.
const ROOM: u64 = 256 << 10;

/// What `error` means for the database at `path`.
pub fn told(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.to_owned();
    let why = || match error {
        rusqlite::Error::SqliteFailure(code, Some(text)) => format!("{text} ({code})"),
        other => other.to_string(),
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull(path),
        Some(ErrorCode::ReadOnly) => Error::ReadOnly(path),
        Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt(path, why()),
        Some(ErrorCode::NotADatabase) => Error::Foreign(path),
        Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => Error::Locked(path),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_read_only(&path) => {
            Error::ReadOnly(path)
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_full(&path) => Error::DiskFull(path),
        Some(ErrorCode::SystemIoFailure) => Error::Io(
            path,
            format!(
                "could not be read or written: {}; look for faults of the disk, a quota, a limit on file sizes",
                why()
            ),
        ),
        Some(ErrorCode::CannotOpen) => Error::Io(path, format!("could not be opened: {}", why())),
        // A row of another shape than the tables promise.
        None => Error::Corrupt(path, why()),
        _ => Error::Io(path, why()),
    }
}

/// Why the file at `path` is not used.
pub fn unfit(path: &Path, unfit: Unfit) -> Error {
    match unfit {
        Unfit::Foreign => Error::Foreign(path.to_owned()),
        Unfit::Newer(version) => Error::Newer {
            path: path.to_owned(),
            version,
            known: version_after(&STEPS),
        },
        Unfit::Sql(error) => told(path, &error),
    }
}

/// Whether the file system forbids writing: SQLite tells of one that became so (errors=remount-ro) as of any failure.
fn is_read_only(path: &Path) -> bool {
    directory(path).is_some_and(|fd| exe::is_read_only(&fd).unwrap_or(false))
}

/// Whether there is no room for the files beside the database, which SQLite tells as of any failure.
fn is_full(path: &Path) -> bool {
    let room = directory(path).and_then(|fd| exe::room(&fd).ok().flatten());
    room.is_some_and(|bytes| bytes < ROOM)
}

fn directory(path: &Path) -> Option<Fd> {
    let directory = path.parent()?;
    let directory = CString::new(directory.as_os_str().as_bytes()).ok()?;
    exe::open_place(file::CWD, &directory).ok()
}
