//! The store in a SQLite file: one thread that writes, two that read, a directory that nobody else may open.
//!
//! Changes that wait together are one transaction, synchronised to the disk before anybody is answered (WAL,
//! synchronous=FULL). It never guesses: a database that is damaged, newer, or another program's is not opened.

mod fault;
mod leases;
mod log;
mod place;
mod reader;
mod rows;
mod schema;
mod work;
mod writer;

use crate::step::{self, Outcome, Step};
use crate::{
    Answer, Clock, Entry, Error, Key, LeaseId, MAX_TTL_SECONDS, MIN_TTL_SECONDS, MachineClock, Page, Prefix,
    Range, Revision, Store, Watch,
};
use place::{Held, Place};
use reader::Question;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;
use work::{Done, Work};
use writer::{Ask, To, Writer};

/// The most changes, and the most questions, that wait.
pub const MAX_WAITING: usize = 4096;
/// The most bytes of keys and values that wait to be written.
pub const MAX_WAITING_BYTES: usize = 64 << 20;
/// The most changes of one commit.
pub const MAX_GROUP: usize = 256;
/// How many revisions of changes are kept for watches to begin from.
pub const KEPT_REVISIONS: usize = 4096;
/// The most bytes of keys and values that are kept with them.
pub const KEPT_BYTES: usize = 64 << 20;
/// How long another program (a shell's sqlite3) may hold the database.
const BUSY: Duration = Duration::from_secs(5);
/// How far the WAL file may stay grown after a large transaction.
const WAL_BYTES: i64 = 16 << 20;
/// Threads that read.
const READERS: usize = 2;

/// A store in a directory of this machine. Dropping it finishes what was asked, closes the file, and gives the lock
/// back; it waits for that.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    asks: Option<SyncSender<Ask>>,
    questions: Option<SyncSender<Question>>,
    waiting: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
    _held: Held,
}

/// How a store is opened.
#[derive(Clone)]
pub struct Settings {
    /// The time of leases.
    pub clock: Arc<dyn Clock>,
    /// How many revisions of changes are kept; [`KEPT_REVISIONS`] by default.
    pub keep: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            clock: Arc::new(MachineClock),
            keep: KEPT_REVISIONS,
        }
    }
}

impl Sqlite {
    /// Opens the store in `directory`, made when there is none.
    pub fn open(directory: &Path) -> Result<Sqlite, Error> {
        Sqlite::open_with(directory, Settings::default())
    }

    /// The same with other settings.
    pub fn open_with(directory: &Path, settings: Settings) -> Result<Sqlite, Error> {
        let place = Place::new(directory)?;
        let held = place.hold()?;
        place.prepare()?;
        let path = place.database();
        let told = |e| fault::told(&path, &e);
        let mut database = connect(&path).map_err(told)?;
        schema::version(&database, schema::STEPS.len()).map_err(|e| fault::unfit(&path, e))?;
        sound(&path, &database)?;
        durable(&database).map_err(told)?;
        schema::migrate(&mut database, &schema::STEPS).map_err(|e| fault::unfit(&path, e))?;

        let (asks, asked) = sync_channel(MAX_WAITING);
        let (questions, questioned) = sync_channel(MAX_WAITING);
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = Writer::new(
            path.clone(),
            database,
            settings.clock,
            asked,
            waiting.clone(),
            settings.keep,
        )
        .map_err(told)?;
        let mut store = Sqlite {
            path: path.clone(),
            asks: Some(asks),
            questions: Some(questions),
            waiting,
            threads: Vec::new(),
            _held: held,
        };
        store.start("store-writer", move || writer.run())?;
        let questioned = Arc::new(Mutex::new(questioned));
        for _ in 0..READERS {
            let reading = connect(&path).map_err(told)?;
            reading.pragma_update(None, "query_only", true).map_err(told)?;
            let (path, questioned) = (path.clone(), questioned.clone());
            store.start("store-reader", move || reader::run(path, reading, questioned))?;
        }
        Ok(store)
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn start(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread =
            thread.map_err(|e| Error::Io(self.path.clone(), format!("no thread could be started: {e}")))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Asks the writer, and has its answer when it comes.
    fn ask<T: Send + 'static>(&self, ask: impl FnOnce(To<T>) -> Ask) -> Answer<'static, T> {
        let (to, answer) = oneshot::channel();
        let sent = self.asks.as_ref().map(|asks| asks.try_send(ask(to)));
        answered(sent.map(|s| s.map_err(|e| waits(&e))), answer)
    }

    fn question<T: Send + 'static>(&self, question: impl FnOnce(To<T>) -> Question) -> Answer<'static, T> {
        let (to, answer) = oneshot::channel();
        let sent = self.questions.as_ref().map(|q| q.try_send(question(to)));
        answered(sent.map(|s| s.map_err(|e| waits(&e))), answer)
    }

    fn work(&self, work: Work, bytes: usize) -> Answer<'static, Done> {
        let before = self.waiting.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > MAX_WAITING_BYTES {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
            return refused(Error::Busy);
        }
        let (to, answer) = oneshot::channel();
        let sent = self
            .asks
            .as_ref()
            .map(|asks| asks.try_send(Ask::Work(work, bytes, to)));
        if !matches!(sent, Some(Ok(()))) {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        }
        answered(sent.map(|s| s.map_err(|e| waits(&e))), answer)
    }
}

impl Store for Sqlite {
    fn get(&self, key: &Key) -> Answer<'_, Option<Entry>> {
        let key = key.clone();
        self.question(|to| Question::Get(key, to))
    }

    fn transact(&self, steps: Vec<Step>) -> Answer<'_, Outcome> {
        if let Err(e) = step::check(&steps) {
            return refused(e);
        }
        let bytes = steps.iter().map(Step::bytes).sum();
        let done = self.work(Work::Transact(steps), bytes);
        Box::pin(async {
            match done.await? {
                Done::Outcome(outcome) => Ok(outcome),
                _ => Err(Error::Broken("another answer than an outcome")),
            }
        })
    }

    fn range(&self, range: Range) -> Answer<'_, Page> {
        match range.check() {
            Ok(()) => self.question(|to| Question::Range(range, to)),
            Err(e) => refused(e),
        }
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Answer<'_, Watch> {
        self.ask(|to| Ask::Watch(prefix, after, to))
    }

    fn grant(&self, ttl: Duration) -> Answer<'_, LeaseId> {
        // A part of a second is a whole one: nobody is cut short.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&seconds) {
            return refused(Error::TimeToLive(ttl));
        }
        let done = self.work(Work::Grant(seconds), 0);
        Box::pin(async {
            match done.await? {
                Done::Granted(lease) => Ok(lease),
                _ => Err(Error::Broken("another answer than a lease")),
            }
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.ask(|to| Ask::KeepAlive(lease, to))
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        let done = self.work(Work::Revoke(lease), 0);
        Box::pin(async { done.await.map(drop) })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.asks = None;
        self.questions = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn refused<T: Send + 'static>(error: Error) -> Answer<'static, T> {
    Box::pin(async { Err(error) })
}

fn answered<T: Send + 'static>(
    sent: Option<Result<(), Error>>,
    answer: oneshot::Receiver<Result<T, Error>>,
) -> Answer<'static, T> {
    match sent {
        Some(Ok(())) => Box::pin(async { answer.await.unwrap_or(Err(Error::Closed)) }),
        Some(Err(error)) => refused(error),
        None => refused(Error::Closed),
    }
}

fn waits<T>(error: &TrySendError<T>) -> Error {
    match error {
        TrySendError::Full(_) => Error::Busy,
        TrySendError::Disconnected(_) => Error::Closed,
    }
}

/// A connection with what holds for all of them.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // One thread at a time uses a connection; the file is there, or something is wrong.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY)?;
    database.pragma_update(None, "foreign_keys", true)?;
    database.pragma_update(None, "trusted_schema", false)?;
    Ok(database)
}

/// What makes a commit durable.
fn durable(database: &Connection) -> rusqlite::Result<()> {
    database.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES, |_| Ok(()))
}

/// Refuses a file whose pages do not fit together.
fn sound(path: &Path, database: &Connection) -> Result<(), Error> {
    let found: rusqlite::Result<String> = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    match found {
        Ok(ok) if ok == "ok" => Ok(()),
        Ok(what) => Err(Error::Corrupt(path.to_owned(), what)),
        Err(e) => Err(fault::told(path, &e)),
    }
}
