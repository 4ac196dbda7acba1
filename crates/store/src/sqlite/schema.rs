//! The tables, and how those of older versions become them. What a key means is unknown here.

use rusqlite::{Connection, TransactionBehavior};

/// Marks a file as a store of fleetgate's: "fgst".
pub const APPLICATION: i32 = 0x6667_7374;

/// Step N makes version N+1 of version N. A step that was released is never changed.
pub const STEPS: [&str; 1] = [
    // The row of `state`: the revision of the last change, and that of the last change whose log is gone.
    // `changes` is the log that watches begin from: value NULL says that the key was deleted.
    "CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        compacted INTEGER NOT NULL
    ) STRICT;
    INSERT INTO state (one, revision, compacted) VALUES (1, 0, 0);
    CREATE TABLE leases (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        seconds INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        value BLOB NOT NULL,
        revision INTEGER NOT NULL,
        lease INTEGER REFERENCES leases (id)
    ) STRICT;
    CREATE INDEX entries_of_a_lease ON entries (lease) WHERE lease IS NOT NULL;
    CREATE TABLE changes (
        revision INTEGER NOT NULL,
        step INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB,
        lease INTEGER,
        PRIMARY KEY (revision, step)
    ) STRICT, WITHOUT ROWID;",
];

/// Why a file is not used.
#[derive(Debug)]
pub enum Unfit {
    /// Another program's.
    Foreign,
    /// Of this newer version.
    Newer(u32),
    /// SQLite's answer.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Unfit {
    fn from(error: rusqlite::Error) -> Unfit {
        Unfit::Sql(error)
    }
}

/// The version of a store's tables, 0 for an empty file.
pub fn version(database: &Connection, newest: usize) -> Result<usize, Unfit> {
    let application: i32 = database.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let version: u32 = database.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let tables: u32 = database.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    match (application, version as usize) {
        (0, 0) if tables == 0 => Ok(0),
        (APPLICATION, v) if v > newest => Err(Unfit::Newer(version)),
        (APPLICATION, v) if v > 0 => Ok(v),
        _ => Err(Unfit::Foreign),
    }
}

/// Brings the tables to the version that `steps` lead to, all at once or not at all.
pub fn migrate(database: &mut Connection, steps: &[&str]) -> Result<(), Unfit> {
    if version(database, steps.len())? == steps.len() {
        return Ok(());
    }
    let work = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = version(&work, steps.len())?;
    for step in &steps[from..] {
        work.execute_batch(step)?;
    }
    work.pragma_update(None, "application_id", APPLICATION)?;
    work.pragma_update(None, "user_version", version_after(steps))?;
    work.commit()?;
    Ok(())
}

/// The version of a database that all of `steps` were done to.
pub fn version_after(steps: &[&str]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}
