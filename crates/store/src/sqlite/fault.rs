//! What SQLite says, as what the store's users are told. No SQL is in it.

use super::schema::{STEPS, Unfit};
use crate::Error;
use rusqlite::ErrorCode;
use std::path::Path;

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
            known: STEPS.len() as u32,
        },
        Unfit::Sql(error) => told(path, &error),
    }
}
