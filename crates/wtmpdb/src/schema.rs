//! wtmpdb's table, written without wtmpdb: the columns and values are those that its own tool reads.

use crate::state::{Row, State};
use crate::{Came, Error};
use fleetgate_sys::glibc::wtmpdb::USER_PROCESS;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

/// How long another writer may hold the database.
pub const BUSY: Duration = Duration::from_secs(5);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS wtmp(ID INTEGER PRIMARY KEY, Type INTEGER, User TEXT NOT NULL, \
                     Login INTEGER, Logout INTEGER, TTY TEXT, RemoteHost TEXT, Service TEXT) STRICT";
const FIND: &str = "SELECT ID FROM wtmp WHERE Type = ?1 AND User = ?2 AND Login = ?3 AND TTY = ?4 AND RemoteHost IS ?5 \
                    AND Service = ?6 AND Logout IS NULL";
const INSERT: &str =
    "INSERT INTO wtmp (Type, User, Login, TTY, RemoteHost, Service) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const STILL: &str = "SELECT ID FROM wtmp WHERE ID = ?1 AND Login = ?2";
const CLOSE: &str = "UPDATE wtmp SET Logout = ?1 WHERE ID = ?2 AND Login = ?3";

/// Writes the login once. The state file is written before the row is final: a crash between leaves the number of
/// a row that is not there, which both a repeated login and the logout notice; the other way round a row would
/// stay open for ever.
pub fn login(path: &Path, came: &Came, before: Option<Row>, state: &State) -> Result<(), Error> {
    let broken = |e| database_error(path, e);
    let mut database = open(path).map_err(broken)?;
    // Immediate: the wait for other writers is here, where the busy time applies.
    let work = database
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(broken)?;
    work.execute(TABLE, []).map_err(broken)?;
    let text = |s: &std::ffi::CString| s.to_string_lossy().into_owned();
    let (user, tty, service) = (text(&came.user), text(&came.tty), text(&came.service));
    let host = (!came.host.is_empty()).then(|| text(&came.host));
    let at = came.at.cast_signed();
    if let Some(row) = before {
        let still: Option<i64> = work
            .query_row(STILL, params![row.id, row.at.cast_signed()], |r| r.get(0))
            .optional()
            .map_err(broken)?;
        if still.is_some() {
            return Ok(());
        }
    }
    let all = params![USER_PROCESS, user, at, tty, host, service];
    let found: Option<i64> = work
        .query_row(FIND, all, |r| r.get(0))
        .optional()
        .map_err(broken)?;
    let id = match found {
        Some(id) => id,
        None => {
            work.execute(INSERT, all).map_err(broken)?;
            work.last_insert_rowid()
        }
    };
    state.write(&Row { id, at: came.at })?;
    work.commit().map_err(broken)
}

/// Writes the end of the login in `row`.
pub fn logout(path: &Path, row: &Row, at: u64) -> Result<(), Error> {
    let broken = |e| database_error(path, e);
    let database = open(path).map_err(broken)?;
    let changed = database
        .execute(CLOSE, params![at.cast_signed(), row.id, row.at.cast_signed()])
        .map_err(|e| match e {
            // The whole table may have been rotated away.
            e if e.to_string().contains("no such table") => Error::NoRow(path.to_owned(), row.id),
            e => broken(e),
        })?;
    if changed == 0 {
        return Err(Error::NoRow(path.to_owned(), row.id));
    }
    Ok(())
}

/// Opens the database, made with mode 0644 when missing, as wtmpdb makes it: everybody may read who came in.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    // For good: this process does nothing else, and SQLite makes files later too.
    fleetgate_sys::net::umask(0o022);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY)?;
    Ok(database)
}

fn database_error(path: &Path, e: rusqlite::Error) -> Error {
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy(path.to_owned()),
        _ => Error::Database(path.to_owned(), e),
    }
}
