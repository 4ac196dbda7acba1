//! Writing the audit log: one thread, what waits for it goes into one transaction, and is answered when that is on the
//! disk. What a source handed in before is not written twice.

use super::cut::cut;
use super::exports::{Lost, Note, lost};
use super::schema::{said, writer};
use super::{
    AuditError, Event, MAX_EXPORT_READERS, MAX_LINE, MAX_LOGS, MAX_READERS, MAX_UNWRITTEN_REQUESTS, event,
};
use crate::clock::{Clock, read_rfc3339};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// The most batches in one transaction.
const MAX_TOGETHER: usize = 64;

/// How far a line's own time may be ahead of ours, and how late it may come; in milliseconds.
const AHEAD: u64 = 60_000;
const LATE: u64 = 30 * 86_400_000;

/// The audit log.
#[derive(Clone)]
pub struct Log {
    path: Arc<PathBuf>,
    work: mpsc::Sender<Work>,
    last: watch::Receiver<i64>,
    pub(super) lost: watch::Receiver<Lost>,
    pub(super) readers: Arc<Semaphore>,
    pub(super) export_readers: Arc<Semaphore>,
}

/// How it is kept.
#[derive(Clone)]
pub struct Settings {
    /// The most bytes of it; then the oldest events are cut off.
    pub size: u64,
    /// For the time of what has none.
    pub clock: Arc<dyn Clock>,
}

/// What a source hands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who: "node web1", "proxy edge", or "auth".
    pub source: String,
    /// Which file of the source; empty: lines that have an origin each.
    pub log: String,
    /// Where its first line begins in it.
    pub offset: u64,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A line of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where in the source's file it ends.
    pub end: u64,
    /// A name that no other line has, for lines without a place in a file.
    pub origin: Option<String>,
    /// Milliseconds since 1970.
    pub time: u64,
    /// What happened.
    pub event: String,
    /// To whom.
    pub user: Option<String>,
    /// Of which login of its node it is, where it says so and not to whom.
    pub of: Option<Of>,
    /// Where.
    pub node: Option<String>,
    /// JSON.
    pub text: String,
}

/// What a line says of the login that it belongs to, and what tells its user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// The session with this id, whose `session_started` has the user. It may have outlived its connection's number.
    Session(String),
    /// The session with this id, or the connection with this number where the session never began.
    Beginning(String, u64),
    /// The connection with this number, whose `login_accepted` has the user.
    Connection(u64),
}

/// Whose lines a batch has, by its signature.
#[derive(Clone, Copy)]
pub enum Teller<'a> {
    /// The node of this name.
    Node(&'a str),
    /// The proxy of this name. It speaks for plain sshds too: whether there is one of a name.
    Proxy(&'a str, &'a dyn Fn(&str) -> bool),
}

/// What a proxy says of itself about a node: that somebody wants to get there.
const OF_PROXIES: [&str; 3] = ["dial", "dial_denied", "dial_ended"];

/// What is to be written, and who waits for it to be on the disk.
pub(super) enum Work {
    /// Events; answered with the position up to which the source's file is kept.
    Batch(Batch, oneshot::Sender<Result<u64, AuditError>>),
    /// How far a sink is.
    Note(Note, oneshot::Sender<Result<(), AuditError>>),
}

impl Log {
    /// Opens it, and makes it with mode 0600 when there is none.
    pub fn open(path: &Path, settings: Settings) -> Result<Log, AuditError> {
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(fleetgate_sys::file::flags::O_NOFOLLOW)
            .open(path);
        drop(made.map_err(|e| AuditError::Io(path.to_owned(), e.to_string()))?);
        let db = writer(path)?;
        let last: Option<i64> = db
            .query_row("SELECT max(id) FROM events", [], |row| row.get(0))
            .map_err(|e| said(path, &e))?;
        let (work, waiting) = mpsc::channel(MAX_UNWRITTEN_REQUESTS);
        let (told, last) = watch::channel(last.unwrap_or(0));
        let (lost_told, lost) = watch::channel(lost(&db).map_err(|e| said(path, &e))?);
        let path = Arc::new(path.to_owned());
        let mut thread = Writer {
            path: path.clone(),
            db,
            settings,
            last: told,
            lost: lost_told,
        };
        std::thread::Builder::new()
            .name("audit".to_string())
            .spawn(move || thread.run(waiting))
            .map_err(|e| AuditError::Io(path.to_path_buf(), e.to_string()))?;
        Ok(Log {
            path,
            work,
            last,
            lost,
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            export_readers: Arc::new(Semaphore::new(MAX_EXPORT_READERS)),
        })
    }

    /// Writes a batch; answered when it is on the disk, with the position up to which the source's file is kept.
    pub async fn write(&self, batch: Batch) -> Result<u64, AuditError> {
        let (answer, done) = oneshot::channel();
        self.put_to_work(Work::Batch(batch, answer))?;
        done.await.unwrap_or(Err(AuditError::Closed))
    }

    pub(super) fn put_to_work(&self, work: Work) -> Result<(), AuditError> {
        self.work.try_send(work).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => AuditError::Busy,
            mpsc::error::TrySendError::Closed(_) => AuditError::Closed,
        })
    }

    /// The number of the last event, as it grows.
    pub fn last(&self) -> watch::Receiver<i64> {
        self.last.clone()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Teller<'_> {
    /// Puts the name into a line. That of a machine which it does not speak for it has only claimed.
    fn put_name(self, line: &mut Map<String, Value>) {
        let (field, name, other) = match self {
            Teller::Node(node) => ("node", node, Some("proxy")),
            Teller::Proxy(proxy, is_sshd) => {
                let text = |field: &str| line.get(field).and_then(Value::as_str).unwrap_or_default();
                let may = OF_PROXIES.contains(&text("event")) || is_sshd(text("node"));
                ("proxy", proxy, (!may).then_some("node"))
            }
        };
        line.insert(field.to_string(), name.into());
        if let Some(other) = other
            && let Some(claimed) = line.remove(other)
        {
            line.insert(format!("claimed_{other}"), claimed);
        }
    }
}

/// The lines of a batch as a source sends them. Its name goes into each, so that none speaks for another; what is no
/// JSON object is kept as a text.
pub fn lines(bytes: &[u8], offset: u64, teller: Teller<'_>, now: u64) -> Vec<Line> {
    let is_node = matches!(teller, Teller::Node(_));
    let mut end = offset;
    let mut out = Vec::new();
    for raw in bytes.split_inclusive(|&b| b == b'\n') {
        end += raw.len() as u64;
        let raw = raw.trim_ascii();
        if raw.is_empty() {
            continue;
        }
        let mut object = match raw.len() <= MAX_LINE {
            true => serde_json::from_slice::<Map<String, Value>>(raw).ok(),
            false => None,
        }
        .unwrap_or_else(|| {
            let text = String::from_utf8_lossy(&raw[..raw.len().min(1024)]).into_owned();
            let mut object = Map::new();
            object.insert("time".to_string(), crate::clock::rfc3339(now).into());
            object.insert("event".to_string(), "unreadable".into());
            object.insert("text".to_string(), text.into());
            object
        });
        teller.put_name(&mut object);
        let field = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_string);
        // A try to log in names an account too, and is nobody's yet.
        let is_inside =
            object.contains_key("login") && field("event").is_none_or(|e| !e.starts_with("login_"));
        let of = match (field("session"), object.get("connection").and_then(Value::as_u64)) {
            _ if !is_node || !is_inside || object.contains_key("user") => None,
            // A session that could not be recorded may have been refused for that.
            (Some(session), Some(connection)) if field("event").is_some_and(|e| e == "not_recorded") => {
                Some(Of::Beginning(session, connection))
            }
            (Some(session), _) => Some(Of::Session(session)),
            (None, connection) => connection.map(Of::Connection),
        };
        out.push(Line {
            of,
            end,
            origin: None,
            time: own_time(field("time").as_deref(), now),
            event: field("event").unwrap_or_default(),
            user: field("user"),
            node: field("node"),
            text: Value::Object(object).to_string(),
        });
    }
    out
}

/// When something happened by its own line, if that can be: what waited for its delivery stands where it belongs. A
/// machine whose clock is wrong is not believed.
fn own_time(line: Option<&str>, now: u64) -> u64 {
    line.and_then(read_rfc3339)
        .filter(|&time| time <= now + AHEAD && now <= time + LATE)
        .unwrap_or(now)
}

struct Writer {
    path: Arc<PathBuf>,
    db: Connection,
    settings: Settings,
    last: watch::Sender<i64>,
    lost: watch::Sender<Lost>,
}

impl Writer {
    fn run(&mut self, mut waiting: mpsc::Receiver<Work>) {
        while let Some(first) = waiting.blocking_recv() {
            let mut together = vec![first];
            while together.len() < MAX_TOGETHER
                && let Ok(next) = waiting.try_recv()
            {
                together.push(next);
            }
            self.write(together);
        }
    }

    fn write(&mut self, together: Vec<Work>) {
        match self.commit(&together) {
            Ok(Committed { kept, last, lost }) => {
                let mut kept = kept.into_iter();
                for work in together {
                    match work {
                        Work::Batch(_, answer) => drop(answer.send(kept.next().ok_or(AuditError::Closed))),
                        Work::Note(_, answer) => drop(answer.send(Ok(()))),
                    }
                }
                self.last.send_if_modified(|seen| {
                    let grew = last > *seen;
                    *seen = last.max(*seen);
                    grew
                });
                self.lost.send_if_modified(|known| {
                    let is_other = *known != lost;
                    *known = lost;
                    is_other
                });
            }
            Err(error) => {
                let told = said(&self.path, &error);
                tracing::error!("{told}");
                for work in together {
                    match work {
                        Work::Batch(_, answer) => drop(answer.send(Err(told.clone()))),
                        Work::Note(_, answer) => drop(answer.send(Err(told.clone()))),
                    }
                }
            }
        }
    }

    fn commit(&mut self, together: &[Work]) -> Result<Committed, rusqlite::Error> {
        let now = self.settings.clock.millis();
        let transaction = self.db.transaction()?;
        let mut kept = Vec::with_capacity(together.len());
        for work in together {
            match work {
                Work::Batch(batch, _) => kept.push(append(&transaction, batch, now)?),
                Work::Note(note, _) => note.write(&transaction)?,
            }
        }
        cut(&transaction, self.settings.size, now)?;
        let last: Option<i64> = transaction.query_row("SELECT max(id) FROM events", [], |row| row.get(0))?;
        let lost = lost(&transaction)?;
        transaction.commit()?;
        Ok(Committed {
            kept,
            last: last.unwrap_or(0),
            lost,
        })
    }
}

/// What was written.
struct Committed {
    /// Up to where the source's file of each batch is kept.
    kept: Vec<u64>,
    /// The number of the last event.
    last: i64,
    lost: Lost,
}

/// What of a batch was not written before; up to where the source's file is kept then.
fn append(db: &Connection, batch: &Batch, now: u64) -> Result<u64, rusqlite::Error> {
    let known: Option<u64> = match batch.log.is_empty() {
        true => None,
        false => db
            .prepare_cached("SELECT kept FROM positions WHERE source = ?1 AND log = ?2")?
            .query_row(params![batch.source, batch.log], |row| row.get(0))
            .optional()?,
    };
    if let Some(known) = known
        && batch.offset > known
    {
        let gap = Event::new(event::AUDIT_GAP, now)
            .with("source", batch.source.as_str())
            .with("log", batch.log.as_str())
            .with("missing_bytes", batch.offset - known);
        let node = batch.source.strip_prefix("node ").map(str::to_string);
        put(db, &own(gap, now, node))?;
    }
    let known = known.unwrap_or(0);
    let mut kept = known.max(batch.offset);
    let mut users = HashMap::new();
    for line in &batch.lines {
        if line.origin.is_some() || line.end > known {
            // The number may be somebody else's from here on.
            if line.event == "login_accepted" {
                users.clear();
            }
            match user_of(db, line, &mut users)? {
                Some(user) => put(db, &with_user(line, user))?,
                None => put(db, line)?,
            }
        }
        kept = kept.max(line.end);
    }
    if !batch.log.is_empty() {
        db.prepare_cached(
            "INSERT OR REPLACE INTO positions (source, log, kept, touched) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![batch.source, batch.log, kept, now])?;
        db.prepare_cached(
            "DELETE FROM positions WHERE source = ?1 AND log IN
                 (SELECT log FROM positions WHERE source = ?1 ORDER BY touched DESC, log LIMIT -1 OFFSET ?2)",
        )?
        .execute(params![batch.source, MAX_LOGS])?;
    }
    Ok(kept)
}

/// The user of the login that a line belongs to, as the same node said before. `users` has what was found for this batch.
fn user_of(
    db: &Connection,
    line: &Line,
    users: &mut HashMap<Of, String>,
) -> Result<Option<String>, rusqlite::Error> {
    let (Some(of), Some(node)) = (&line.of, &line.node) else {
        return Ok(None);
    };
    if let Some(user) = users.get(of) {
        return Ok(Some(user.clone()));
    }
    let user = match of {
        Of::Session(id) => user_of_session(db, node, id)?.flatten(),
        Of::Connection(number) => user_of_connection(db, node, *number)?,
        Of::Beginning(id, number) => match user_of_session(db, node, id)? {
            Some(user) => user,
            None => user_of_connection(db, node, *number)?,
        },
    };
    if let Some(user) = &user {
        users.insert(of.clone(), user.clone());
    }
    Ok(user)
}

/// None: no such session began.
fn user_of_session(db: &Connection, node: &str, id: &str) -> Result<Option<Option<String>>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT user FROM events INDEXED BY by_session WHERE json_extract(line, '$.session') = ?1
             AND event = 'session_started' AND node = ?2 AND json_extract(line, '$.proxy') IS NULL LIMIT 1",
    )?
    .query_row(params![id, node], |row| row.get(0))
    .optional()
}

/// A node that began anew counts from 1 again: the last login with this number is meant.
fn user_of_connection(db: &Connection, node: &str, number: u64) -> Result<Option<String>, rusqlite::Error> {
    let found: Option<Option<String>> = db
        .prepare_cached(
            "SELECT user FROM events INDEXED BY by_login WHERE node = ?1 AND json_extract(line, '$.connection') = ?2
                 AND event = 'login_accepted' AND json_extract(line, '$.proxy') IS NULL ORDER BY id DESC LIMIT 1",
        )?
        .query_row(params![node, i64::try_from(number).unwrap_or(i64::MAX)], |row| row.get(0))
        .optional()?;
    Ok(found.flatten())
}

fn with_user(line: &Line, user: String) -> Line {
    let mut text = line.text.clone();
    // It is an object with a login in it.
    text.truncate(text.len() - 1);
    text.push_str(&format!(",\"user\":{}}}", Value::from(user.as_str())));
    Line {
        user: Some(user),
        text,
        ..line.clone()
    }
}

pub(super) fn put(db: &Connection, line: &Line) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO events (time, event, user, node, origin, line) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        line.time,
        line.event,
        line.user,
        line.node,
        line.origin,
        line.text
    ])
    .map(drop)
}

pub(super) fn own(event: Event, time: u64, node: Option<String>) -> Line {
    Line {
        end: 0,
        origin: None,
        time,
        event: event.name().to_string(),
        of: None,
        user: None,
        node,
        text: event.line(),
    }
}
