//! The store in a SQLite file: one thread that writes, two that read, a directory that nobody else may open.
//!
//! Changes that wait together are one transaction, synchronised to the disk before anybody is answered (WAL,
//! synchronous=FULL). It never guesses: a database that is damaged, newer, or another program's is not opened.

mod backup;
pub(crate) mod connect;
mod fault;
mod leases;
mod log;
mod place;
mod reader;
mod rows;
pub(crate) mod schema;
mod work;
mod writer;

use crate::step::{self, Outcome, Step};
use crate::{
    Answer, Clock, Entry, Error, Key, LeaseId, MAX_TTL_SECONDS, MIN_TTL_SECONDS, MachineClock, Page, Prefix,
    Range, Revision, Store, Watch,
};
use place::{Held, Place};
use reader::{Desk, Question, Reader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;
use work::{Done, To, Work};
use writer::{Ask, Writer};

pub use backup::{RESTORED, backup, exists, look, restore};

/// The most changes, and the most questions, that wait.
pub const MAX_WAITING_CHANGES: usize = 4096;
/// The most bytes of keys and values that wait to be written.
pub const MAX_WAITING_BYTES: usize = 64 << 20;
/// The most changes of one commit.
pub const MAX_GROUP: usize = 256;
/// How many revisions of changes are kept for watches to begin from.
pub const KEPT_REVISIONS: usize = 4096;
/// The most bytes of keys and values that are kept with them.
pub const KEPT_BYTES: usize = 64 << 20;
/// Threads that read.
const READERS: usize = 2;

/// A store in a directory of this machine. Dropping it finishes what was asked, closes the file with nothing left
/// beside it, and gives the lock back; it waits for that.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    asks: Option<SyncSender<Ask>>,
    questions: Option<SyncSender<Question>>,
    waiting: Arc<AtomicUsize>,
    writer: Option<JoinHandle<()>>,
    readers: Vec<JoinHandle<()>>,
    /// Last, so that it is let go last.
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
        let mut connected = connect::open(&path).map_err(told)?;
        let database = &mut connected.database;
        schema::version(database, schema::STEPS.len()).map_err(|e| fault::unfit(&path, e))?;
        connect::sound(&path, database, false)?;
        connect::durable(database).map_err(told)?;
        schema::migrate(database, &schema::STEPS).map_err(|e| fault::unfit(&path, e))?;

        let (asks, asked) = sync_channel(MAX_WAITING_CHANGES);
        let (questions, questioned) = sync_channel(MAX_WAITING_CHANGES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let desks: Vec<Desk> = (0..READERS).map(|_| Desk::default()).collect();
        let writer = Writer::new(
            path.clone(),
            connected,
            desks.clone(),
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
            writer: None,
            readers: Vec::new(),
            _held: held,
        };
        store.writer = Some(store.start("store-writer", move || writer.run())?);
        let questioned = Arc::new(Mutex::new(questioned));
        for desk in desks {
            let connected = connect::open_to_read(&path).map_err(told)?;
            *reader::locked(&desk) = Some(connected);
            let (path, questions) = (path.clone(), questioned.clone());
            let reader = Reader {
                path,
                desk,
                questions,
            };
            store
                .readers
                .push(store.start("store-reader", move || reader.run())?);
        }
        Ok(store)
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        thread.map_err(|e| Error::Io(self.path.clone(), format!("no thread could be started: {e}")))
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
        // The writer's connection is the last to close, alone: SQLite brings the WAL into the file with its last
        // connection, and where two close at the same moment each takes the other for the last.
        self.questions = None;
        // A thread that panicked has said so already.
        for thread in self.readers.drain(..) {
            let _ = thread.join();
        }
        self.asks = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
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
