//! The catalogue: what each recording is and how much of it is kept, in SQLite. The files are what counts: without a
//! catalogue it is made anew from them (`keeper`). One thread writes; readers have connections of their own.

use crate::checker::Point;
use crate::entry::{DIGITS, Entry, Key, Mark, PAGE, Place, Query, name, session_of};
use crate::error::{Error, NAMED};
use crate::retention::{Removal, Retention};
use rusqlite::types::Value;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row as SqlRow, params, params_from_iter,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its file's name in the directory.
pub const FILE: &str = "recordings.db";
/// What a damaged one is called afterwards.
const DAMAGED: &str = "recordings.db.damaged";
/// Marks the file as ours (`PRAGMA application_id`): "fgrc".
const APPLICATION: i64 = 0x6667_7263;
const VERSION: i64 = 2;
/// A session had one recording, and the last column was not there.
const BEFORE: i64 = 1;
/// How much of it the writer keeps in memory, KB.
const CACHE_KB: i64 = 2048;

const TABLES: &str = "
    CREATE TABLE recordings (
        session TEXT NOT NULL,
        source TEXT NOT NULL,
        day TEXT NOT NULL,
        started INTEGER NOT NULL,
        arrived INTEGER NOT NULL,
        user TEXT NOT NULL,
        login TEXT NOT NULL,
        node TEXT NOT NULL,
        begin_json TEXT NOT NULL,
        end_json TEXT NOT NULL,
        encrypted INTEGER NOT NULL,
        keep_days INTEGER NOT NULL,
        length INTEGER NOT NULL,
        covered INTEGER NOT NULL,
        blocks INTEGER NOT NULL,
        chain BLOB NOT NULL,
        last INTEGER NOT NULL,
        whole INTEGER NOT NULL,
        place INTEGER NOT NULL,
        removed INTEGER NOT NULL DEFAULT 0,
        aside INTEGER NOT NULL,
        PRIMARY KEY (session, source)
    ) WITHOUT ROWID;
    CREATE INDEX by_start ON recordings (started, session, source) WHERE removed = 0;
    CREATE INDEX by_arrival ON recordings (arrived, session) WHERE removed = 0;
    CREATE INDEX to_move ON recordings (arrived, session) WHERE removed = 0 AND whole = 1 AND place = 0;
    CREATE INDEX by_removal ON recordings (place, removed) WHERE removed > 0;
";

const OF_BEFORE: &str = "
    ALTER TABLE recordings RENAME TO before;
    DROP INDEX by_start;
    DROP INDEX by_arrival;
    DROP INDEX to_move;
    DROP INDEX by_removal;
";

const COLUMNS: &str = "session, source, day, started, arrived, user, login, node, begin_json, end_json, encrypted, keep_days, \
                       length, covered, blocks, chain, last, whole, place, removed, aside";

/// Bytes that are in neither place any more: of a recording that was removed.
const NOWHERE: i64 = 2;

/// What is kept of a recording.
#[derive(Clone, Debug)]
pub struct Row {
    /// As users see it.
    pub entry: Entry,
    /// Days that its role wants it kept; 0: it says nothing.
    pub keep_days: u64,
    /// What is proven.
    pub covered: Point,
    /// When it was removed; 0: it was not.
    pub removed: u64,
    /// It was removed, and so were its bytes.
    pub is_gone: bool,
}

/// The sums of all recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many.
    pub recordings: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of which not all is here.
    pub unfinished: u64,
    /// Whole ones in the directory.
    pub in_directory: u64,
    /// Their bytes.
    pub in_directory_bytes: u64,
}

/// A connection.
pub struct Catalogue {
    path: PathBuf,
    db: Connection,
}

impl Catalogue {
    /// For the thread that writes. The second is whether it is new, so that it has to be filled from the files.
    pub fn open(directory: &Path) -> Result<(Catalogue, bool), Error> {
        match Catalogue::open_once(directory) {
            Err(Error::Catalogue(path, why)) => {
                let aside = directory.join(DAMAGED);
                tracing::error!(
                    "{}: {why}: it is kept as {}, and made anew from the files",
                    path.display(),
                    aside.display()
                );
                for ending in ["-wal", "-shm"] {
                    let _ = std::fs::remove_file(directory.join(format!("{FILE}{ending}")));
                }
                std::fs::rename(&path, &aside).map_err(|e| Error::Io(path, e.to_string()))?;
                Catalogue::open_once(directory)
            }
            other => other,
        }
    }

    fn open_once(directory: &Path) -> Result<(Catalogue, bool), Error> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = directory.join(FILE);
        let made = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(fleetgate_sys::file::flags::O_NOFOLLOW)
            .open(&path);
        drop(made.map_err(|e| Error::Io(path.clone(), e.to_string()))?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let failed = |e: &rusqlite::Error| said(&path, e);
        let mut db = Connection::open_with_flags(&path, flags).map_err(|e| failed(&e))?;
        let is_new = set_up(&mut db).map_err(|e| failed(&e))?;
        let is_new = is_new.ok_or_else(|| {
            Error::Unfit(
                directory.to_owned(),
                format!("{FILE} is another program's, or a newer fleetgate's"),
            )
        })?;
        Ok((Catalogue { path, db }, is_new))
    }

    /// For one question.
    pub fn reader(directory: &Path) -> Result<Catalogue, Error> {
        let path = directory.join(FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let db = Connection::open_with_flags(&path, flags).map_err(|e| said(&path, &e))?;
        let ready = db
            .busy_timeout(Duration::from_secs(5))
            .and_then(|()| db.pragma_update(None, "temp_store", "MEMORY"));
        ready.map_err(|e| said(&path, &e))?;
        Ok(Catalogue { path, db })
    }

    /// The row of a recording, removed or not.
    pub fn row(&self, key: &Key) -> Result<Option<Row>, Error> {
        let text = format!("SELECT {COLUMNS} FROM recordings WHERE session = ? AND source = ?");
        let mut query = self.db.prepare_cached(&text).map_err(|e| self.said(&e))?;
        let row = query.query_row([&name(&key.session), &key.source], row);
        row.optional().map_err(|e| self.said(&e))
    }

    /// Whether there is a row of this session, of any machine's recording, removed or not.
    pub fn has_session(&self, session: &[u8; 16]) -> Result<bool, Error> {
        let text = "SELECT 1 FROM recordings WHERE session = ? LIMIT 1";
        let mut query = self.db.prepare_cached(text).map_err(|e| self.said(&e))?;
        query.exists([name(session)]).map_err(|e| self.said(&e))
    }

    /// Writes rows, all or none.
    pub fn write<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) -> Result<(), Error> {
        let path = self.path.clone();
        let write = |db: &mut Connection| -> rusqlite::Result<()> {
            let transaction = db.transaction()?;
            for row in rows {
                put(&transaction, row)?;
            }
            transaction.commit()
        };
        write(&mut self.db).map_err(|e| said(&path, &e))
    }

    /// The sums of all.
    pub fn sums(&self) -> Result<Sums, Error> {
        let all = "SELECT count(*), coalesce(sum(length), 0), coalesce(sum(whole = 0), 0) FROM recordings WHERE removed = 0";
        let moving = "SELECT count(*), coalesce(sum(length), 0), 0 FROM recordings \
                      WHERE removed = 0 AND whole = 1 AND place = 0";
        let three = |text: &str| {
            let sums = self.db.query_row(text, [], |row| {
                Ok([unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?])
            });
            sums.map_err(|e| self.said(&e))
        };
        let [recordings, bytes, unfinished] = three(all)?;
        let [in_directory, in_directory_bytes, _] = three(moving)?;
        Ok(Sums {
            recordings,
            bytes,
            unfinished,
            in_directory,
            in_directory_bytes,
        })
    }

    /// The machines whose recordings have more bytes than this, where there are others too.
    pub fn sources_beyond(&self, most: u64) -> Result<Vec<String>, Error> {
        let text = "SELECT source FROM recordings WHERE removed = 0 GROUP BY source HAVING sum(length) > ? \
                    AND (SELECT count(DISTINCT source) FROM recordings WHERE removed = 0) > 1";
        let mut query = self.db.prepare_cached(text).map_err(|e| self.said(&e))?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let found = query
            .query_map([most], |row| row.get(0))
            .map_err(|e| self.said(&e))?;
        found.collect::<rusqlite::Result<_>>().map_err(|e| self.said(&e))
    }

    /// When the oldest came of those that are to go to the object store; 0: there is none.
    pub fn moves_since(&self) -> Result<u64, Error> {
        let text =
            "SELECT coalesce(min(arrived), 0) FROM recordings WHERE removed = 0 AND whole = 1 AND place = 0";
        let since = self.db.query_row(text, [], |row| unsigned(row, 0));
        since.map_err(|e| self.said(&e))
    }

    /// A page of those that are wanted.
    pub fn list(&self, query: &Query, after: Option<Mark>) -> Result<Vec<Entry>, Error> {
        let (mut condition, mut values) = conditions(query)?;
        if query.limit > 0 && after.is_none() {
            // The first of the last so many.
            let text = format!(
                "SELECT started, session, source FROM recordings WHERE {condition} \
                 ORDER BY started DESC, session DESC, source DESC LIMIT 1 OFFSET {}",
                query.limit - 1
            );
            let first = self.db.query_row(&text, params_from_iter(&values), |row| {
                let (session, source) = (row.get::<_, String>(1)?, row.get::<_, String>(2)?);
                Ok((row.get::<_, i64>(0)?, session, source))
            });
            if let Some((started, session, source)) = first.optional().map_err(|e| self.said(&e))? {
                condition.push_str(" AND (started, session, source) >= (?, ?, ?)");
                values.extend([Value::Integer(started), Value::Text(session), Value::Text(source)]);
            }
        }
        if let Some(Mark {
            started,
            session,
            source,
        }) = after
        {
            condition.push_str(" AND (started, session, source) > (?, ?, ?)");
            values.extend([
                Value::Integer(signed(started)),
                Value::Text(session),
                Value::Text(source),
            ]);
        }
        let order = format!("{condition} ORDER BY started, session, source LIMIT {PAGE}");
        Ok(self
            .rows(&order, values)?
            .into_iter()
            .map(|row| row.entry)
            .collect())
    }

    /// The one whose id begins so.
    pub fn find(&self, prefix: &str) -> Result<Entry, Error> {
        let query = Query {
            session_prefix: prefix.to_owned(),
            ..Query::default()
        };
        if prefix.is_empty() {
            return Err(Error::NoId(String::new()));
        }
        let (condition, values) = conditions(&query)?;
        let mut rows = self.rows(
            &format!("{condition} ORDER BY session LIMIT {}", NAMED + 1),
            values,
        )?;
        match rows.len() {
            0 => Err(Error::Missing(prefix.to_owned())),
            1 => Ok(rows.remove(0).entry),
            _ => Err(Error::several(prefix, rows.iter().map(|row| &row.entry))),
        }
    }

    /// Whole ones that are to go to the object store, those that came first before the others.
    pub fn to_move(&self, most: usize) -> Result<Vec<Row>, Error> {
        let order = format!("removed = 0 AND whole = 1 AND place = 0 ORDER BY arrived, session LIMIT {most}");
        self.rows(&order, Vec::new())
    }

    /// Those that were removed, and whose bytes are still in this place.
    pub fn to_unlink(&self, place: Place, most: usize) -> Result<Vec<Row>, Error> {
        let place = number_of(place);
        self.rows(
            &format!("removed > 0 AND place = {place} ORDER BY removed LIMIT {most}"),
            Vec::new(),
        )
    }

    /// What has to go: first by age, then by size.
    pub fn due(&self, retention: &Retention, now: u64) -> Result<Vec<Removal>, Error> {
        retention.due(now, |order| self.rows(order, Vec::new()), || self.sums())
    }

    /// Forgets that there were those which were removed before `before`.
    pub fn forget(&self, before: u64) -> Result<(), Error> {
        let text = format!("DELETE FROM recordings WHERE removed > 0 AND removed < ? AND place = {NOWHERE}");
        let done = self.db.execute(&text, [signed(before)]);
        done.map(drop).map_err(|e| self.said(&e))
    }

    fn rows(&self, condition: &str, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let text = format!("SELECT {COLUMNS} FROM recordings WHERE {condition}");
        let read = || {
            let mut query = self.db.prepare(&text)?;
            query.query_map(params_from_iter(&values), row)?.collect()
        };
        let rows: rusqlite::Result<Vec<Row>> = read();
        rows.map_err(|e| self.said(&e))
    }

    fn said(&self, error: &rusqlite::Error) -> Error {
        said(&self.path, error)
    }
}

/// Whether it is new; nothing: it is not ours.
fn set_up(db: &mut Connection) -> rusqlite::Result<Option<bool>> {
    db.busy_timeout(Duration::from_secs(5))?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    let number = |db: &Connection, name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let is_new = match (number(db, "application_id")?, number(db, "user_version")?) {
        (APPLICATION, VERSION) => false,
        (APPLICATION, BEFORE) => {
            let changing = db.transaction()?;
            changing.execute_batch(OF_BEFORE)?;
            changing.execute_batch(TABLES)?;
            changing.execute_batch("INSERT INTO recordings SELECT *, 0 FROM before; DROP TABLE before;")?;
            changing.pragma_update(None, "user_version", VERSION)?;
            changing.commit()?;
            false
        }
        (0, 0) if number(db, "page_count")? == 0 => {
            let making = db.transaction()?;
            making.execute_batch(TABLES)?;
            making.pragma_update(None, "application_id", APPLICATION)?;
            making.pragma_update(None, "user_version", VERSION)?;
            making.commit()?;
            true
        }
        _ => return Ok(None),
    };
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "cache_size", -CACHE_KB)?;
    // What was acknowledged survives a power cut: the journal is flushed at each commit.
    db.pragma_update(None, "synchronous", "FULL")?;
    // That its tables are there and can be read.
    db.query_row(
        "SELECT count(*) FROM (SELECT 1 FROM recordings LIMIT 1)",
        [],
        |_| Ok(()),
    )?;
    Ok(Some(is_new))
}

fn put(db: &Connection, row: &Row) -> rusqlite::Result<()> {
    let entry = &row.entry;
    let text = format!(
        "INSERT OR REPLACE INTO recordings ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
                        ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)"
    );
    let place = match row.is_gone {
        true => NOWHERE,
        false => number_of(entry.place),
    };
    db.prepare_cached(&text)?.execute(params![
        entry.id(),
        entry.source,
        entry.day,
        signed(entry.started),
        signed(entry.arrived),
        entry.user,
        entry.login,
        entry.node,
        entry.begin,
        entry.end,
        entry.encrypted,
        signed(row.keep_days),
        signed(entry.bytes),
        signed(row.covered.offset),
        signed(row.covered.blocks),
        row.covered.chain.as_slice(),
        signed(entry.last),
        entry.whole,
        place,
        signed(row.removed),
        entry.aside,
    ])?;
    Ok(())
}

const fn number_of(place: Place) -> i64 {
    match place {
        Place::Directory => 0,
        Place::Objects => 1,
    }
}

fn row(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    let damaged = || rusqlite::Error::InvalidQuery;
    let chain: Vec<u8> = row.get(15)?;
    let place: i64 = row.get(18)?;
    let whole: bool = row.get(17)?;
    let last = unsigned(row, 16)?;
    let end: String = row.get(9)?;
    Ok(Row {
        keep_days: unsigned(row, 11)?,
        covered: Point {
            offset: unsigned(row, 13)?,
            blocks: unsigned(row, 14)?,
            chain: chain.try_into().map_err(|_| damaged())?,
            last,
            ended: whole,
        },
        removed: unsigned(row, 19)?,
        is_gone: place == NOWHERE,
        entry: Entry {
            session: session_of(&row.get::<_, String>(0)?).ok_or_else(damaged)?,
            source: row.get(1)?,
            day: row.get(2)?,
            started: unsigned(row, 3)?,
            arrived: unsigned(row, 4)?,
            user: row.get(5)?,
            login: row.get(6)?,
            node: row.get(7)?,
            begin: row.get(8)?,
            end,
            encrypted: row.get(10)?,
            bytes: unsigned(row, 12)?,
            last,
            whole,
            place: match place {
                1 => Place::Objects,
                _ => Place::Directory,
            },
            aside: row.get(20)?,
        },
    })
}

/// What a query asks for, with the values of its question marks.
fn conditions(query: &Query) -> Result<(String, Vec<Value>), Error> {
    let mut text = String::from("removed = 0");
    let mut values = Vec::new();
    let mut and = |condition: &str, value: Value| {
        text.push_str(&format!(" AND {condition} ?"));
        values.push(value);
    };
    for (column, wanted) in [
        ("user =", &query.user),
        ("login =", &query.login),
        ("node =", &query.node),
    ] {
        if !wanted.is_empty() {
            and(column, Value::Text(wanted.clone()));
        }
    }
    if query.since > 0 {
        and("started >=", Value::Integer(signed(query.since)));
    }
    if query.until > 0 {
        and("started <", Value::Integer(signed(query.until)));
    }
    if query.running {
        and("whole =", Value::Integer(0));
    }
    let prefix = &query.session_prefix;
    if !prefix.is_empty() {
        let is_hex = prefix
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if prefix.len() > DIGITS || !is_hex {
            return Err(Error::NoId(prefix.chars().take(2 * DIGITS).collect()));
        }
        // All that begins so: a hexadecimal digit is less than g.
        and("session >=", Value::Text(prefix.clone()));
        and("session <", Value::Text(format!("{prefix}g")));
    }
    Ok((text, values))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// What an error means. A damaged file is one that is made anew; any other error says nothing about the file.
fn said(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => Error::Catalogue(path.to_owned(), "it is damaged".to_owned()),
        Some(ErrorCode::NotADatabase) => Error::Catalogue(path.to_owned(), "it is no database".to_owned()),
        Some(_) => Error::Io(path.to_owned(), error.to_string()),
        None => Error::Catalogue(path.to_owned(), "it is damaged".to_owned()),
    }
}
