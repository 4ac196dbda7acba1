//! Rows in and out: the only place that knows the tables' columns. It begins and ends no transaction.

use crate::{
    Change, Entry, Error, Key, LeaseId, MAX_KEY, MAX_PAGE_BYTES, Page, Prefix, Range, Revision, Update, Value,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

/// What every key stands before: it is longer than a key can be.
const BEHIND_ALL: [u8; MAX_KEY + 1] = [u8::MAX; MAX_KEY + 1];

/// The store's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Of the last change.
    pub revision: Revision,
    /// Of the last change that the log has lost.
    pub compacted: Revision,
}

/// The counters.
pub fn state(database: &Connection) -> Result<State> {
    let mut ask = database.prepare_cached("SELECT revision, compacted FROM state WHERE one = 1")?;
    ask.query_row([], |row| {
        Ok(State {
            revision: revision(row, 0)?,
            compacted: revision(row, 1)?,
        })
    })
}

/// Writes the counters.
pub fn set_state(database: &Connection, state: State) -> Result<()> {
    let mut tell = database.prepare_cached("UPDATE state SET revision = ?1, compacted = ?2 WHERE one = 1")?;
    tell.execute(params![number(state.revision.0), number(state.compacted.0)])
        .map(drop)
}

/// What a key holds.
pub fn entry(database: &Connection, key: &Key) -> Result<Option<Entry>> {
    let mut ask = database.prepare_cached("SELECT value, revision, lease FROM entries WHERE key = ?1")?;
    ask.query_row([key.as_bytes()], |row| {
        Ok(Entry {
            key: key.clone(),
            value: value(row, 0)?,
            revision: revision(row, 1)?,
            lease: lease(row, 2)?,
        })
    })
    .optional()
}

/// A page of a range; its revision is that of the moment, if one transaction is around it.
pub fn page(database: &Connection, range: &Range) -> Result<Page> {
    let revision_now = state(database)?.revision;
    let mut ask = database.prepare_cached(
        "SELECT key, value, revision, lease FROM entries
         WHERE key >= ?1 AND key > ?2 AND key < ?3 ORDER BY key LIMIT ?4",
    )?;
    // Every key is longer than the empty one.
    let after = range.after.as_ref().map_or(&[][..], Key::as_bytes);
    let from = range.from.as_slice().max(after);
    let to = range.to.as_deref().unwrap_or(&BEHIND_ALL);
    let mut rows = ask.query(params![from, after, to, number(range.limit as u64 + 1)])?;
    let mut page = Page {
        entries: Vec::new(),
        revision: revision_now,
        more: false,
    };
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let entry = Entry {
            key: key(row, 0)?,
            value: value(row, 1)?,
            revision: revision(row, 2)?,
            lease: lease(row, 3)?,
        };
        bytes += entry.bytes();
        if page.entries.len() == range.limit || (bytes > MAX_PAGE_BYTES && !page.entries.is_empty()) {
            page.more = true;
            break;
        }
        page.entries.push(entry);
    }
    Ok(page)
}

/// Writes an entry.
pub fn put(database: &Connection, entry: &Entry) -> Result<()> {
    let mut tell = database.prepare_cached(
        "INSERT INTO entries (key, value, revision, lease) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (key) DO UPDATE SET value = ?2, revision = ?3, lease = ?4",
    )?;
    tell.execute(params![
        entry.key.as_bytes(),
        entry.value.as_bytes(),
        number(entry.revision.0),
        entry.lease.map(|l| number(l.0)),
    ])
    .map(drop)
}

/// Removes an entry; whether there was one.
pub fn delete(database: &Connection, key: &Key) -> Result<bool> {
    let mut tell = database.prepare_cached("DELETE FROM entries WHERE key = ?1")?;
    Ok(tell.execute([key.as_bytes()])? > 0)
}

/// Writes what changed into the log.
pub fn log(database: &Connection, update: &Update) -> Result<()> {
    let mut tell = database.prepare_cached(
        "INSERT INTO changes (revision, step, key, value, lease) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (step, change) in update.changes.iter().enumerate() {
        let (value, lease) = match change {
            Change::Put(entry) => (Some(entry.value.as_bytes()), entry.lease),
            Change::Delete(_) => (None, None),
        };
        tell.execute(params![
            number(update.revision.0),
            number(step as u64),
            change.key().as_bytes(),
            value,
            lease.map(|l| number(l.0)),
        ])?;
    }
    Ok(())
}

/// Forgets the log up to and with `last`.
pub fn forget(database: &Connection, last: Revision) -> Result<()> {
    let mut tell = database.prepare_cached("DELETE FROM changes WHERE revision <= ?1")?;
    tell.execute([number(last.0)]).map(drop)
}

/// The revisions in the log, and how many bytes each has.
pub fn logged(database: &Connection) -> Result<Vec<(Revision, usize)>> {
    let mut ask = database.prepare(
        "SELECT revision, sum(length(key) + ifnull(length(value), 0)) FROM changes GROUP BY revision ORDER BY revision",
    )?;
    let rows = ask.query_map([], |row| {
        let bytes: i64 = row.get(1)?;
        Ok((revision(row, 0)?, usize::try_from(bytes).unwrap_or(usize::MAX)))
    })?;
    rows.collect()
}

/// Tells `each` the updates after `after` under `prefix`, in order, until it says `false`.
pub fn updates(
    database: &Connection,
    prefix: &Prefix,
    after: Revision,
    mut each: impl FnMut(&Update) -> bool,
) -> Result<()> {
    let mut ask = database.prepare_cached(
        "SELECT revision, key, value, lease FROM changes WHERE revision > ?1 ORDER BY revision, step",
    )?;
    let mut rows = ask.query([number(after.0)])?;
    let mut open: Option<Update> = None;
    while let Some(row) = rows.next()? {
        let at = revision(row, 0)?;
        if let Some(done) = open.take_if(|u| u.revision != at)
            && !each(&done)
        {
            return Ok(());
        }
        let key = key(row, 1)?;
        if !prefix.holds(&key) {
            continue;
        }
        let change = match row.get_ref(2)? {
            ValueRef::Null => Change::Delete(key),
            _ => Change::Put(Entry {
                key,
                value: value(row, 2)?,
                revision: at,
                lease: lease(row, 3)?,
            }),
        };
        let update = open.get_or_insert_with(|| Update {
            revision: at,
            changes: Vec::new(),
        });
        update.changes.push(change);
    }
    if let Some(last) = open {
        each(&last);
    }
    Ok(())
}

/// Makes a lease.
pub fn grant(database: &Connection, seconds: u64) -> Result<LeaseId> {
    let mut tell = database.prepare_cached("INSERT INTO leases (seconds) VALUES (?1)")?;
    tell.execute([number(seconds)])?;
    Ok(LeaseId(database.last_insert_rowid().unsigned_abs()))
}

/// Forgets a lease, of which no entry may be left.
pub fn revoke(database: &Connection, lease: LeaseId) -> Result<()> {
    let mut tell = database.prepare_cached("DELETE FROM leases WHERE id = ?1")?;
    tell.execute([number(lease.0)]).map(drop)
}

/// Every lease and its time to live in seconds.
pub fn leases(database: &Connection) -> Result<Vec<(LeaseId, u64)>> {
    let mut ask = database.prepare("SELECT id, seconds FROM leases")?;
    let rows = ask.query_map([], |row| {
        let (id, seconds): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok((LeaseId(id.unsigned_abs()), seconds.unsigned_abs()))
    })?;
    rows.collect()
}

/// The keys under a lease.
pub fn keys_of(database: &Connection, lease: LeaseId) -> Result<Vec<Key>> {
    let mut ask = database.prepare_cached("SELECT key FROM entries WHERE lease = ?1 ORDER BY key")?;
    let rows = ask.query_map([number(lease.0)], |row| key(row, 0))?;
    rows.collect()
}

/// How many keys are under a lease.
pub fn count_of(database: &Connection, lease: LeaseId) -> Result<usize> {
    let mut ask = database.prepare_cached("SELECT count(*) FROM entries WHERE lease = ?1")?;
    let count: i64 = ask.query_row([number(lease.0)], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// SQLite's numbers are signed; ours grow by one from 1 and never come near the end.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn revision(row: &Row<'_>, column: usize) -> Result<Revision> {
    let number: i64 = row.get(column)?;
    u64::try_from(number)
        .map(Revision)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn lease(row: &Row<'_>, column: usize) -> Result<Option<LeaseId>> {
    let number: Option<i64> = row.get(column)?;
    Ok(number.map(|n| LeaseId(n.unsigned_abs())))
}

fn key(row: &Row<'_>, column: usize) -> Result<Key> {
    Key::new(row.get_ref(column)?.as_blob()?).map_err(|e| out_of_bounds(column, e))
}

fn value(row: &Row<'_>, column: usize) -> Result<Value> {
    Value::new(row.get_ref(column)?.as_blob()?).map_err(|e| out_of_bounds(column, e))
}

/// A row that another program wrote.
fn out_of_bounds(column: usize, error: Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, Box::new(error))
}
