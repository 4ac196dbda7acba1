//! The audit log's tables and what SQLite says about them. All SQL of the log's shape is here.

use super::AuditError;
use super::exports;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;

/// "fgau", so that another program's database is not taken for ours.
const APPLICATION: i64 = 0x6667_6175;
const VERSION: i64 = 1;

const TABLES: &str = "
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time INTEGER NOT NULL,
        event TEXT NOT NULL,
        user TEXT,
        node TEXT,
        origin TEXT,
        line TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX by_origin ON events (origin) WHERE origin IS NOT NULL;
    CREATE TABLE positions (
        source TEXT NOT NULL,
        log TEXT NOT NULL,
        kept INTEGER NOT NULL,
        touched INTEGER NOT NULL,
        PRIMARY KEY (source, log)
    ) STRICT, WITHOUT ROWID;";

/// What is asked for comes in order of time, by whatever it is asked. A log of before has its indexes changed once.
const INDEXES: &str = "
    DROP INDEX IF EXISTS by_event;
    DROP INDEX IF EXISTS by_user;
    DROP INDEX IF EXISTS by_node;
    CREATE INDEX IF NOT EXISTS by_time ON events (time);
    CREATE INDEX IF NOT EXISTS by_event_time ON events (event, time);
    CREATE INDEX IF NOT EXISTS by_user_time ON events (user, time) WHERE user IS NOT NULL;
    CREATE INDEX IF NOT EXISTS by_node_time ON events (node, time) WHERE node IS NOT NULL;
    CREATE INDEX IF NOT EXISTS by_login ON events (node, json_extract(line, '$.connection')) WHERE event = 'login_accepted';
    CREATE INDEX IF NOT EXISTS by_state ON events (node) WHERE event IN ('cluster_state', 'node_started');
    CREATE INDEX IF NOT EXISTS by_session ON events (json_extract(line, '$.session'), event);";

/// What the connection that writes keeps of the file in its own memory, in KB. The rest is in the page cache, which the kernel
/// takes back where it needs to. By SQLite's own bound auth grew with each session until it had 2 MB of it.
const CACHE_KB: i64 = 512;

/// The connection that writes; the tables are made where there are none.
pub(super) fn writer(path: &Path) -> Result<Connection, AuditError> {
    let told = |e: rusqlite::Error| said(path, &e);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut db = Connection::open_with_flags(path, flags).map_err(told)?;
    db.busy_timeout(std::time::Duration::from_secs(5)).map_err(told)?;
    let number = |db: &Connection, name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let unfit = |why: &str| Err(AuditError::Unfit(path.to_owned(), why.to_string()));
    match (
        number(&db, "application_id").map_err(told)?,
        number(&db, "user_version").map_err(told)?,
    ) {
        (APPLICATION, VERSION) => {}
        (APPLICATION, _) => return unfit("a newer fleetgate wrote it"),
        (0, 0) if number(&db, "page_count").map_err(told)? == 0 => {
            let making = db.transaction().map_err(told)?;
            making.execute_batch(TABLES).map_err(told)?;
            making
                .pragma_update(None, "application_id", APPLICATION)
                .map_err(told)?;
            making
                .pragma_update(None, "user_version", VERSION)
                .map_err(told)?;
            making.commit().map_err(told)?;
        }
        _ => return unfit("it is another program's database"),
    }
    alone(&db).map_err(told)?;
    db.execute_batch(INDEXES).map_err(told)?;
    // A fleetgate that does not know it leaves it alone.
    db.execute_batch(exports::TABLE).map_err(told)?;
    db.pragma_update(None, "journal_mode", "WAL").map_err(told)?;
    db.pragma_update(None, "cache_size", -CACHE_KB).map_err(told)?;
    // What was acknowledged survives a power cut: the journal is flushed at each commit.
    db.pragma_update(None, "synchronous", "FULL").map_err(told)?;
    Ok(db)
}

/// Whether the file at `path` is an audit log that this program can read.
pub fn check(path: &Path) -> Result<(), AuditError> {
    let db = reader(path)?;
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (number("application_id"), number("user_version")) {
        (Ok(APPLICATION), Ok(VERSION)) => Ok(()),
        (Err(e), _) | (_, Err(e)) => Err(said(path, &e)),
        _ => Err(AuditError::Unfit(
            path.to_owned(),
            "it is no audit log of this fleetgate's".to_string(),
        )),
    }
}

/// A connection that reads.
pub(super) fn reader(path: &Path) -> Result<Connection, AuditError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags).map_err(|e| said(path, &e))?;
    db.busy_timeout(std::time::Duration::from_secs(5))
        .map_err(|e| said(path, &e))?;
    Ok(db)
}

/// The service may open no files but its own: what is sorted is sorted in memory.
pub(super) fn alone(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "temp_store", "MEMORY")
}

/// What `error` means.
pub(super) fn said(path: &Path, error: &rusqlite::Error) -> AuditError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => AuditError::Full(path),
        Some(ErrorCode::ReadOnly) => AuditError::ReadOnly(path),
        Some(ErrorCode::DatabaseCorrupt) => AuditError::Unfit(path, "it is damaged".to_string()),
        Some(ErrorCode::NotADatabase) => AuditError::Unfit(path, "it is no database".to_string()),
        _ => AuditError::Io(path, error.to_string()),
    }
}
