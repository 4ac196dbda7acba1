//! How far the sinks are that get the log's events. Each has a row, which goes with the log into a backup and comes back with
//! it, so that no number is taken for another log's. The log waits for no sink: when events are cut off that a sink has not
//! got, they are counted for it, and the service's log says so.

use super::AuditError;
use super::log::{Log, Work};
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use std::collections::BTreeMap;
use tokio::sync::{oneshot, watch};

pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS exports (
        sink TEXT PRIMARY KEY,
        acknowledged INTEGER NOT NULL,
        lost INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;";

/// Events that were cut off before a sink had them, by the sink.
pub type Lost = BTreeMap<String, u64>;

/// What is to be written down.
pub(super) enum Note {
    /// These sinks there are, and no others.
    Sinks(Vec<String>),
    /// This one has all up to here.
    Acknowledged(String, i64),
}

/// An event for a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its number.
    pub id: i64,
    /// When it happened, in milliseconds since 1970.
    pub time: u64,
    /// JSON.
    pub line: String,
}

impl Log {
    /// Sets down which sinks there are. A new one has no event yet; one that is gone is forgotten.
    pub async fn set_sinks(&self, names: Vec<String>) -> Result<(), AuditError> {
        self.note(Note::Sinks(names)).await
    }

    /// Sets down that a sink has all events up to this one; done when that is on the disk.
    pub async fn acknowledged(&self, sink: &str, id: i64) -> Result<(), AuditError> {
        self.note(Note::Acknowledged(sink.to_owned(), id)).await
    }

    async fn note(&self, note: Note) -> Result<(), AuditError> {
        let (answer, done) = oneshot::channel();
        self.put_to_work(Work::Note(note, answer))?;
        done.await.unwrap_or(Err(AuditError::Closed))
    }

    /// The last event that a sink has.
    pub async fn exported(&self, sink: &str) -> Result<i64, AuditError> {
        let sink = sink.to_owned();
        self.read_by(&self.export_readers, move |db| {
            db.query_row(
                "SELECT acknowledged FROM exports WHERE sink = ?1",
                [sink],
                |row| row.get(0),
            )
            .optional()
        })
        .await
        .map(|known| known.unwrap_or(0))
    }

    /// The next events behind this one, in the order in which they came: at most so many, and of so many bytes, but one at
    /// least.
    pub async fn behind(&self, id: i64, most: usize, most_bytes: usize) -> Result<Vec<Exported>, AuditError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read_by(&self.export_readers, move |db| {
            let mut next =
                db.prepare("SELECT id, time, line FROM events WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let mut rows = next.query(params![id, most])?;
            let (mut events, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let line: String = row.get(2)?;
                bytes += line.len();
                if bytes > most_bytes && !events.is_empty() {
                    break;
                }
                let time: i64 = row.get(1)?;
                events.push(Exported {
                    id: row.get(0)?,
                    time: time.unsigned_abs(),
                    line,
                });
            }
            Ok(events)
        })
        .await
    }

    /// What was cut off before sinks had it.
    pub fn export_lost(&self) -> watch::Receiver<Lost> {
        self.lost.clone()
    }
}

impl Note {
    pub(super) fn write(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        match self {
            Note::Sinks(names) => {
                for known in lost(db)?.into_keys().filter(|known| !names.contains(known)) {
                    db.execute("DELETE FROM exports WHERE sink = ?1", [known])?;
                }
                for name in names {
                    db.execute(
                        "INSERT OR IGNORE INTO exports (sink, acknowledged, lost) VALUES (?1, 0, 0)",
                        [name],
                    )?;
                }
                Ok(())
            }
            Note::Acknowledged(sink, id) => db
                .prepare_cached(
                    "INSERT INTO exports (sink, acknowledged, lost) VALUES (?1, ?2, 0)
                         ON CONFLICT (sink) DO UPDATE SET acknowledged = ?2",
                )?
                .execute(params![sink, id])
                .map(drop),
        }
    }
}

/// What was cut off before sinks had it; each sink has an entry.
pub(super) fn lost(db: &Connection) -> Result<Lost, rusqlite::Error> {
    let mut rows = db.prepare_cached("SELECT sink, lost FROM exports")?;
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, u64>(1)?)))?;
    rows.collect()
}

/// Counts, for each sink, the events among those that `condition` names which it has not. They are about to be cut off.
pub(super) fn count_lost(
    db: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<(), rusqlite::Error> {
    let before = lost(db)?;
    if before.is_empty() {
        return Ok(());
    }
    db.execute(
        &format!(
            "UPDATE exports SET lost = lost +
                 (SELECT count(*) FROM events NOT INDEXED WHERE id > exports.acknowledged AND {condition})"
        ),
        values,
    )?;
    for (sink, after) in lost(db)? {
        let count = after - before.get(&sink).copied().unwrap_or(0);
        if count > 0 {
            tracing::error!(
                sink,
                count,
                "the audit log is at its size (`audit_size`): events are cut off that were not exported to this sink yet"
            );
        }
    }
    Ok(())
}
