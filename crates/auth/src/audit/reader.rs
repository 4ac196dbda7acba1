//! Asking the audit log, in order of time: page by page, each with a connection of its own, so that a long answer holds up neither the
//! writer nor the service.

use super::schema::{alone, reader, said};
use super::{AuditError, Log};
use fleetgate_policy::Invalid;
use rusqlite::OptionalExtension;
use rusqlite::types::Value;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The most events of one page.
const PAGE: u32 = 500;
/// The most bytes of its lines; one line is always in it.
const PAGE_BYTES: usize = 1 << 20;

/// What is asked for; what is empty or 0 is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Of this user.
    pub user: String,
    /// Of this node.
    pub node: String,
    /// Of one of these kinds.
    pub events: Vec<String>,
    /// Of the session whose id begins so.
    pub session: String,
    /// Of the connection with this number at its node.
    pub connection: u64,
    /// Only `session_started`, of sessions that have not ended.
    pub present: bool,
    /// From this second on.
    pub from: u64,
    /// Before this second.
    pub until: u64,
    /// Only the last so many.
    pub limit: u32,
}

/// An event that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub id: i64,
    /// When it happened, in milliseconds since 1970.
    pub time: i64,
    /// JSON.
    pub line: String,
}

/// How far somebody has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// In order of time, behind this event, among those that were there when the reading began.
    Time {
        /// Its time.
        time: i64,
        /// Its number.
        id: i64,
        /// The last number that was there.
        newest: i64,
    },
    /// In order of arrival, behind this number: the events that came since.
    Arrival(i64),
}

impl Mark {
    /// Behind `found`.
    pub fn behind(self, found: &Found) -> Mark {
        match self {
            Mark::Time { newest, .. } => Mark::Time {
                time: found.time,
                id: found.id,
                newest,
            },
            Mark::Arrival(_) => Mark::Arrival(found.id),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark::Time { time, id, newest } => write!(f, "{time} {id} {newest}"),
            Mark::Arrival(id) => write!(f, "{id}"),
        }
    }
}

impl FromStr for Mark {
    type Err = Invalid;

    /// As it was shown: a number of one event, or a time, a number, and the last number that was there.
    fn from_str(text: &str) -> Result<Mark, Invalid> {
        let mut numbers = text.splitn(3, ' ').map(str::parse::<i64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(id)), None, None) => Ok(Mark::Arrival(id)),
            (Some(Ok(time)), Some(Ok(id)), Some(Ok(newest))) => Ok(Mark::Time { time, id, newest }),
            _ => Err("the mark of an event is none that was given out: ask without it".into()),
        }
    }
}

impl Query {
    /// The conditions, with the values of their question marks.
    fn conditions(&self) -> (String, Vec<Value>) {
        let mut text = String::from("1");
        let mut values = Vec::new();
        let mut and = |condition: &str, value: Value| {
            values.push(value);
            text.push_str(&format!(" AND {condition} ?"));
        };
        for (column, wanted) in [("user =", &self.user), ("node =", &self.node)] {
            if !wanted.is_empty() {
                and(column, Value::Text(wanted.clone()));
            }
        }
        let millis = |seconds: u64| Value::Integer((seconds.min(1 << 40) * 1000).cast_signed());
        if self.from > 0 {
            and("time >=", millis(self.from));
        }
        if self.until > 0 {
            and("time <", millis(self.until));
        }
        if self.connection > 0 {
            let number = i64::try_from(self.connection).unwrap_or(i64::MAX);
            and("json_extract(line, '$.connection') =", Value::Integer(number));
        }
        if !self.session.is_empty() {
            // All that begins so: a hexadecimal digit is less than g.
            let session = "json_extract(line, '$.session')";
            and(&format!("{session} >="), Value::Text(self.session.clone()));
            and(&format!("{session} <"), Value::Text(format!("{}g", self.session)));
        }
        if !self.events.is_empty() {
            let marks = vec!["?"; self.events.len()].join(", ");
            values.extend(self.events.iter().cloned().map(Value::Text));
            text.push_str(&format!(" AND event IN ({marks})"));
        }
        if self.present {
            text.push_str(PRESENT);
        }
        (text, values)
    }
}

/// Of a session that no event says has ended. No machine ends another's: each line has the name of its own, and of a plain
/// sshd's session the proxy speaks that it goes through. A name that was only claimed is that of a sshd which is removed by now.
///
/// An end may never arrive: it was lost with an auth that a backup was put in the place of, or with the power of its machine.
/// So a node says which sessions it has when it begins and at each new state, and a restore makes one. What it says counts for
/// sessions that began five seconds before, because a session that begins meanwhile may not be among them. Nobody says so of
/// plain sshds: after a restore it is not known of their sessions of before whether they run. Of a restore auth alone tells.
const PRESENT: &str = " AND event = 'session_started' AND json_extract(line, '$.session') IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM events AS ends WHERE json_extract(ends.line, '$.session') = json_extract(events.line, '$.session')
        AND ends.event = 'session_ended' AND json_extract(ends.line, '$.proxy') IS json_extract(events.line, '$.proxy')
        AND coalesce(ends.node, json_extract(ends.line, '$.claimed_node'))
            IS coalesce(events.node, json_extract(events.line, '$.claimed_node')))
    AND instr(coalesce((SELECT json_extract(told.line, '$.sessions') FROM events AS told INDEXED BY by_state
        WHERE told.node = events.node AND told.event IN ('cluster_state', 'node_started') AND told.id > events.id
            AND told.time >= events.time + 5000 AND json_extract(told.line, '$.sessions') IS NOT NULL
            AND json_extract(told.line, '$.proxy') IS NULL
        ORDER BY told.id DESC LIMIT 1), line), json_extract(line, '$.session')) > 0
    AND (json_extract(line, '$.proxy') IS NULL OR NOT EXISTS (
        SELECT 1 FROM events AS restored WHERE restored.event = 'restored' AND restored.id > events.id
            AND restored.node IS NULL AND json_extract(restored.line, '$.proxy') IS NULL))";

impl Log {
    /// Where the answer to `query` begins: with the first event, unless only the last ones are wanted.
    pub async fn begin(&self, query: &Query) -> Result<Mark, AuditError> {
        let (conditions, values) = query.conditions();
        let limit = query.limit;
        self.read(move |db| {
            let newest = db.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0))?;
            let first = Mark::Time {
                time: i64::MIN,
                id: 0,
                newest,
            };
            if limit == 0 {
                return Ok(first);
            }
            let sql = format!(
                "SELECT time, id FROM events WHERE {conditions} AND id <= ?
                     ORDER BY time DESC, id DESC LIMIT 1 OFFSET {limit}"
            );
            let all = values.into_iter().chain([Value::Integer(newest)]);
            let before = db.query_row(&sql, rusqlite::params_from_iter(all), |row| {
                Ok(Mark::Time {
                    time: row.get(0)?,
                    id: row.get(1)?,
                    newest,
                })
            });
            before.optional().map(|before| before.unwrap_or(first))
        })
        .await
    }

    /// The next events behind `mark`; none: there are no more now.
    pub async fn page(&self, query: &Query, mark: Mark) -> Result<Vec<Found>, AuditError> {
        let (conditions, values) = query.conditions();
        let (behind, order, marks) = match mark {
            Mark::Time { time, id, newest } => (
                "(time, id) > (?, ?) AND id <= ?",
                "time, id",
                vec![time, id, newest],
            ),
            Mark::Arrival(id) => ("id > ?", "id", vec![id]),
        };
        self.read(move |db| {
            let sql = format!(
                "SELECT id, time, line FROM events WHERE {conditions} AND {behind} ORDER BY {order} LIMIT {PAGE}"
            );
            let all = values.into_iter().chain(marks.into_iter().map(Value::Integer));
            let mut statement = db.prepare(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(all))?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let line: String = row.get(2)?;
                bytes += line.len();
                found.push(Found {
                    id: row.get(0)?,
                    time: row.get(1)?,
                    line,
                });
                if bytes > PAGE_BYTES {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, AuditError> {
        self.read_by(&self.readers, work).await
    }

    /// The same within the bound of these readers.
    pub(super) async fn read_by<T: Send + 'static>(
        &self,
        readers: &Arc<Semaphore>,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, AuditError> {
        let permit = readers.clone().acquire_owned().await;
        let path = self.path().to_owned();
        let read = move || {
            let _permit = permit.map_err(|_| AuditError::Closed)?;
            let db = reader(&path)?;
            alone(&db).and_then(|()| work(&db)).map_err(|e| said(&path, &e))
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or(Err(AuditError::Closed))
    }
}
