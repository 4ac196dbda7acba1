//! Connections to the database: how they are made, and what one is where nothing can be written beside the file. It
//! never writes to the tables.

use super::fault;
use crate::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another program (a shell's sqlite3) may hold the database.
const BUSY: Duration = Duration::from_secs(5);
/// How far the WAL file may stay grown after a large transaction.
const WAL_BYTES: i64 = 16 << 20;
/// What a connection keeps of the file in its own memory, in KB. The rest is in the page cache, which the kernel takes back where
/// it needs to. SQLite's own bound is 2 MB. The bounds of all connections of the process count as one, because a connection
/// that needs a page takes the oldest of any: with 2 MB for each of these three, the audit log filled 6 MB, 13 KB in a
/// thousand sessions.
const CACHE_KB: i64 = 128;

/// A connection.
#[derive(Debug)]
pub struct Connected {
    /// It.
    pub database: Connection,
    /// Why the file was opened as one that never changes, if it was. SQLite needs two files beside a database in WAL mode,
    /// which cannot be made on a read-only or full file system; where there is no WAL, the file alone has everything.
    pub frozen: Option<Error>,
}

/// Opens the database at `path`, which exists, for what can be done with it.
pub fn open(path: &Path) -> Result<Connected> {
    let usual = as_usual(path).and_then(|database| {
        // Only a first read makes the files beside it.
        database.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(Connected {
            database,
            frozen: None,
        })
    });
    match usual {
        Err(e) if nothing_beside(&e) && !has_wal(path) => Ok(Connected {
            database: as_it_is(path)?,
            frozen: Some(fault::told(path, &e)),
        }),
        other => other,
    }
}

/// Opens the database at `path` for reading only.
pub fn open_to_read(path: &Path) -> Result<Connected> {
    let connected = open(path)?;
    connected.database.pragma_update(None, "query_only", true)?;
    Ok(connected)
}

/// The same for a copy. The file may be another's when the copy is done: nothing is brought into it or removed beside it
/// by this connection's end, even where it is the last.
pub fn open_to_copy(path: &Path) -> Result<Connected> {
    let connected = open_to_read(path)?;
    let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connected.database.set_db_config(config, true)?;
    Ok(connected)
}

/// Why it cannot be written, as far as is known before it is tried.
pub fn unwritable(path: &Path, connected: &Connected) -> Option<Error> {
    match (&connected.frozen, connected.database.is_readonly("main")) {
        (Some(why), _) => Some(why.clone()),
        (None, Ok(true)) => Some(Error::ReadOnly(path.to_owned())),
        (None, _) => None,
    }
}

/// What makes a commit durable.
pub fn durable(database: &Connection) -> Result<()> {
    database.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES, |_| Ok(()))
}

/// Refuses a file whose pages do not fit together. `whole`: compares every index with its table too.
pub fn sound(path: &Path, database: &Connection, whole: bool) -> std::result::Result<(), Error> {
    let ask = if whole {
        "PRAGMA integrity_check(1)"
    } else {
        "PRAGMA quick_check(1)"
    };
    let found: Result<String> = database.query_row(ask, [], |row| row.get(0));
    match found {
        Ok(ok) if ok == "ok" => Ok(()),
        Ok(what) => Err(Error::Corrupt(path.to_owned(), what)),
        Err(e) => Err(fault::told(path, &e)),
    }
}

/// The name of a file that SQLite keeps beside the database.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

fn as_usual(path: &Path) -> Result<Connection> {
    // One thread at a time uses a connection. What may not be written SQLite opens for reading, without a word.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    set(Connection::open_with_flags(path, flags)?)
}

fn as_it_is(path: &Path) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
            b if b.is_ascii_alphanumeric() => name.push(char::from(*b)),
            b => name.push_str(&format!("%{b:02X}")),
        }
    }
    name.push_str("?immutable=1");
    set(Connection::open_with_flags(name, flags)?)
}

fn set(database: Connection) -> Result<Connection> {
    database.busy_timeout(BUSY)?;
    database.pragma_update(None, "foreign_keys", true)?;
    database.pragma_update(None, "trusted_schema", false)?;
    // Whoever opened it may open no other files, those for what is sorted included.
    database.pragma_update(None, "temp_store", "MEMORY")?;
    database.pragma_update(None, "cache_size", -CACHE_KB)?;
    Ok(database)
}

fn nothing_beside(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::DiskFull | ErrorCode::SystemIoFailure)
    )
}

fn has_wal(path: &Path) -> bool {
    let wal = std::fs::symlink_metadata(beside(path, "-wal"));
    wal.is_ok_and(|found| found.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_keeps_a_bounded_part_of_the_file_in_memory() {
        let path = std::env::temp_dir().join(format!("fleetgate-store-cache-{}", std::process::id()));
        std::fs::write(&path, []).expect("written");
        for connect in [as_usual, as_it_is] {
            let database = connect(&path).expect("an empty database");
            let size: i64 = database
                .query_row("PRAGMA cache_size", [], |row| row.get(0))
                .expect("told");
            assert_eq!(size, -CACHE_KB);
        }
        std::fs::remove_file(&path).expect("removed");
    }
}
