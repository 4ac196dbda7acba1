//! Recordings of sessions on plain sshds, whose SSH ends at this proxy: nobody else sees them. They are as a node's
//! (docs/recording.md), signed by the proxy's SSH key, and go to auth.
//!
//! ```text
//! relay ─ tap ─ frames, bounded ─► writer (a thread) ─► recordings/DAY/SESSION.rec, .tail ─► delivery ─► auth
//!           ◄─ it is behind, it failed ─┘       └─ written files ─► a thread that synchronises
//! ```
//!
//! A file is locked (flock) by the process that writes or delivers it. So two processes of one proxy leave each other's alone,
//! and what a killed one left is finished by the next, or by one that runs beside. Nothing of this begins before the first
//! session that is to be recorded.

pub mod echo;
mod first_frame;
pub(crate) mod housekeeping;
mod tap;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub use first_frame::{FirstFrame, Terminal, end};
pub use tap::{STUCK, Tap};

use crate::audit::Audit;
use crate::files::RECORDINGS;
use fleetgate_record::age::{MAX_RECIPIENTS, Recipients};
use fleetgate_record::signature::{self, Statement};
use fleetgate_ssh::key::HostKey;
use fleetgate_ssh::sshsig;
use fleetgate_wire::common::SessionId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use tokio::sync::{Notify, oneshot};
use writer::Job;

/// A session of which more waits to be written is not read on.
const MAX_WAITING: usize = 256 << 10;
/// Recordings that wait for auth at once: the next proxy looks at each.
pub const MAX_FILES: u32 = 8_192;

/// All of one proxy. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Inner>);

struct Inner {
    spool: Arc<Spool>,
    key: Arc<HostKey>,
    audit: Arc<Audit>,
    /// Where the thread takes its work, as soon as there is one.
    writer: Mutex<Option<Sender<Job>>>,
}

/// The directory.
pub(crate) struct Spool {
    root: PathBuf,
    /// It may hold so many bytes; 0: any number.
    most: u64,
    /// It holds so many, and so many recordings.
    bytes: AtomicU64,
    files: AtomicU64,
    /// This process makes them.
    pub(crate) running: Mutex<BTreeMap<SessionId, Running>>,
    /// They are whole, and wait for auth.
    pub(crate) ended: Mutex<BTreeSet<PathBuf>>,
    /// There may be something to deliver.
    pub(crate) news: Notify,
}

/// A recording that this process makes.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) path: PathBuf,
    /// What of it the disk has.
    pub(crate) signed: Signed,
}

/// How much of a recording is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The last signature covers so many of its bytes: auth acknowledges those.
    pub(crate) covered: u64,
    /// It ends there itself: auth needs it to see that.
    pub(crate) until: u64,
}

/// What a session and the writer have together.
#[derive(Default)]
struct Line {
    /// So many bytes wait to be written.
    waiting: AtomicUsize,
    /// So many were written.
    written: AtomicU64,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// Why nothing more is recorded.
    failed: Option<String>,
    /// The session waits for either.
    waker: Option<Waker>,
}

/// A recording that begins.
pub struct Opening {
    /// Where the session's frames go at once.
    pub tap: Tap,
    /// Its files are there, or why there are none.
    pub opened: oneshot::Receiver<Result<(), String>>,
}

impl Recorder {
    /// Of a proxy with this state directory, and this key.
    pub(crate) fn new(state: &Path, most: u64, key: Arc<HostKey>, audit: Arc<Audit>) -> Recorder {
        let spool = Spool {
            root: state.join(RECORDINGS),
            most,
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            running: Mutex::default(),
            ended: Mutex::default(),
            news: Notify::new(),
        };
        Recorder(Arc::new(Inner {
            spool: Arc::new(spool),
            key,
            audit,
            writer: Mutex::default(),
        }))
    }

    /// The same with its state directory under another path.
    pub(crate) fn at(&self, state: &Path) -> Recorder {
        let inner = &self.0;
        Recorder::new(state, inner.spool.most, inner.key.clone(), inner.audit.clone())
    }

    /// Begins a recording. `who` are the fields of its audit events.
    pub(crate) fn begin(&self, frame: &FirstFrame<'_>, who: Value) -> Result<Opening, String> {
        let work = self.work()?;
        let keys: Vec<[u8; 32]> = frame.recipients.iter().map(|recipient| recipient.0).collect();
        let recipients = match keys.len() {
            0 => None,
            count => Some(Recipients::new(&keys).ok_or_else(|| {
                format!(
                    "it cannot be encrypted for its {count} recipients: there are more than {MAX_RECIPIENTS}, or one is no sound key"
                )
            })?),
        };
        let line = Arc::new(Line::default());
        let (done, opened) = oneshot::channel();
        let tap = Tap::new(work.clone(), line.clone(), frame);
        let session = frame.session;
        let begin = Job::Begin {
            session,
            begun: tap.since(),
            json: frame.json(),
            recipients,
            who,
            line,
            done,
        };
        work.send(begin)
            .map_err(|_| "the thread that records has ended".to_owned())?;
        Ok(Opening { tap, opened })
    }

    /// Signs what is said of a recording.
    fn sign(&self, statement: &Statement) -> Option<Vec<u8>> {
        sshsig::sign(&self.0.key, signature::NAMESPACE, statement.text().as_bytes())
    }

    /// Where the writer takes its work.
    fn work(&self) -> Result<Sender<Job>, String> {
        let mut writer = lock(&self.0.writer);
        if let Some(work) = &*writer {
            return Ok(work.clone());
        }
        let work = writer::start(self.clone()).map_err(|e| format!("starting a thread: {e}"))?;
        *writer = Some(work.clone());
        Ok(work)
    }

    /// Waits until everything that was said before is on the disk.
    pub(crate) async fn settle(&self) {
        let work = lock(&self.0.writer).clone();
        let (done, settled) = oneshot::channel();
        if work.is_some_and(|work| work.send(Job::Settle(done)).is_ok()) {
            let _ = settled.await;
        }
    }

    pub(crate) fn spool(&self) -> &Arc<Spool> {
        &self.0.spool
    }
}

impl Spool {
    /// Why nothing more can be recorded: its bytes.
    fn lacks_room(&self) -> Option<String> {
        let is_full = self.most > 0 && self.bytes.load(Relaxed) >= self.most;
        is_full.then(|| {
            format!(
                "{} holds as much as it may (recordings_size), and auth has not taken it yet: see that this proxy reaches auth, or \
                 raise recordings_size",
                self.root.display()
            )
        })
    }

    /// Likewise, the number of recordings.
    fn lacks_files(&self) -> Option<String> {
        (self.files.load(Relaxed) >= u64::from(MAX_FILES)).then(|| {
            let root = self.root.display();
            format!("{MAX_FILES} recordings wait in {root} until auth takes them: see that this proxy reaches auth")
        })
    }

    /// A recording of so many bytes is gone.
    pub(crate) fn shrinks(&self, bytes: u64) {
        let less = |by: u64| move |now: u64| Some(now.saturating_sub(by));
        // It never fails: the closures always say something.
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, less(bytes));
        let _ = self.files.fetch_update(Relaxed, Relaxed, less(1));
    }

    /// How many recordings this process makes, how many are in the directory, and their bytes.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let running = lock(&self.running).len() as u64;
        (running, self.files.load(Relaxed), self.bytes.load(Relaxed))
    }
}

impl Line {
    /// So many bytes are with the kernel, or in a block's memory for a second.
    fn done(&self, len: usize) {
        self.written.fetch_add(len as u64, Relaxed);
        let before = self.waiting.fetch_sub(len, Relaxed);
        if before > MAX_WAITING && before - len <= MAX_WAITING {
            let waker = lock(&self.state).waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Nothing more is recorded of the session.
    fn fail(&self, why: String) {
        let mut state = lock(&self.state);
        state.failed.get_or_insert(why);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
