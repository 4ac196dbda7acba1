//! The thread that writes. It alone touches the disk, so that a slow one holds up no reading for as long as its queue has
//! room. What it wrote it reports; the kernel has it then, and kill -9 does not take it away. Within [`SYNC`] the disk has
//! it too.

use fleetgate_record::writer::Position;
use fleetgate_sys::{Errno, Fd, epoll, file};
use fleetgate_wire::common::SessionId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So long at most what was written may be lost to a power failure.
const SYNC: Duration = Duration::from_secs(2);
/// The most bytes that wait for the disk; of one recording.
const MAX_WAITING: usize = 32 << 20;
const MAX_OF_ONE: usize = 256 << 10;

/// A recording's files.
#[derive(Debug)]
pub(crate) struct Files {
    /// Its blocks; every write appends.
    pub(crate) blocks: Fd,
    /// Its tail.
    pub(crate) tail: Fd,
    /// It is to be synchronised.
    waits: AtomicBool,
    /// So many of its bytes wait for the disk.
    waiting: AtomicUsize,
}

impl Files {
    pub(crate) fn new(blocks: Fd, tail: Fd) -> Files {
        Files {
            blocks,
            tail,
            waits: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether so much of this recording waits for the disk that nothing more is read of it: it holds up nobody else.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > MAX_OF_ONE
    }
}

/// What is to be written.
enum Job {
    /// Blocks, after which the file is as `at` says.
    Blocks {
        bytes: Vec<u8>,
        at: Position,
        ended: bool,
    },
    /// An entry of the tail.
    Tail { offset: u64, bytes: Vec<u8> },
    /// Nothing: who asked hears when all before it is written.
    Mark,
    /// Nothing more comes.
    Close,
}

/// What was done.
pub(crate) enum Done {
    /// Blocks are in the file.
    Written { at: Position, ended: bool },
    /// All that stood before a mark is.
    Reached,
    /// They are not, and nothing more of this recording is written.
    Failed(Errno),
}

/// Where jobs are given.
pub(crate) struct Disk {
    jobs: Sender<(SessionId, Arc<Files>, Job)>,
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<usize>,
    room: Condvar,
    done: Mutex<Vec<(SessionId, Done)>>,
    bell: Fd,
}

impl Disk {
    /// Starts the thread; `bell` rings when something is done.
    pub(crate) fn start(bell: Fd) -> std::io::Result<Disk> {
        let (jobs, queue) = channel();
        let shared = Arc::new(Shared {
            waiting: Mutex::new(0),
            room: Condvar::new(),
            done: Mutex::default(),
            bell,
        });
        let (to_sync, synced) = channel();
        // It alone waits for the disk itself: the one that writes goes on meanwhile, into the kernel's memory.
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            for files in synced {
                let files: Arc<Files> = files;
                sync(&files);
            }
        })?;
        let of_thread = shared.clone();
        // Without a name: the sandbox has no call for one.
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || serve(&queue, &of_thread, &to_sync))?;
        Ok(Disk { jobs, shared })
    }

    /// Rings when something is done.
    pub(crate) fn bell(&self) -> &Fd {
        &self.shared.bell
    }

    /// What was done since the last call.
    pub(crate) fn done(&self) -> Vec<(SessionId, Done)> {
        std::mem::take(&mut *lock(&self.shared.done))
    }

    pub(crate) fn blocks(
        &self,
        session: SessionId,
        files: &Arc<Files>,
        bytes: Vec<u8>,
        at: Position,
        ended: bool,
    ) {
        self.give(session, files, Job::Blocks { bytes, at, ended });
    }

    pub(crate) fn tail(&self, session: SessionId, files: &Arc<Files>, (offset, bytes): (u64, Vec<u8>)) {
        self.give(session, files, Job::Tail { offset, bytes });
    }

    pub(crate) fn mark(&self, session: SessionId, files: &Arc<Files>) {
        self.give(session, files, Job::Mark);
    }

    pub(crate) fn close(&self, session: SessionId, files: &Arc<Files>) {
        self.give(session, files, Job::Close);
    }

    /// Waits where the disk is too far behind.
    fn give(&self, session: SessionId, files: &Arc<Files>, job: Job) {
        let mut waiting = lock(&self.shared.waiting);
        while *waiting > MAX_WAITING {
            waiting = self
                .shared
                .room
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *waiting += job.len();
        drop(waiting);
        files.waiting.fetch_add(job.len(), Ordering::AcqRel);
        // The thread ends with the process only.
        let _ = self.jobs.send((session, files.clone(), job));
    }
}

impl Job {
    fn len(&self) -> usize {
        match self {
            Job::Blocks { bytes, .. } | Job::Tail { bytes, .. } => bytes.len(),
            Job::Mark | Job::Close => 0,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording as the thread knows it.
#[derive(Default)]
struct Known {
    /// Written and not yet synchronised.
    dirty: Option<Arc<Files>>,
    failed: bool,
}

fn serve(queue: &Receiver<(SessionId, Arc<Files>, Job)>, shared: &Shared, to_sync: &Sender<Arc<Files>>) {
    let mut known: BTreeMap<SessionId, Known> = BTreeMap::new();
    let mut due: Option<Instant> = None;
    loop {
        let wait = due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
        let next = match due {
            Some(_) => queue.recv_timeout(wait),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((session, files, job)) => {
                let len = job.len();
                let of = known.entry(session).or_default();
                let closes = matches!(job, Job::Close);
                let of_it = files.clone();
                let done = match of.failed {
                    true => None,
                    false => write(&files, job),
                };
                if matches!(done, Some(Done::Failed(_))) {
                    of.failed = true;
                }
                if closes {
                    if of.dirty.is_some() {
                        let _ = to_sync.send(files);
                    }
                    known.remove(&session);
                } else {
                    of.dirty = Some(files);
                    due.get_or_insert_with(|| Instant::now() + SYNC);
                }
                of_it.waiting.fetch_sub(len, Ordering::AcqRel);
                if let Some(done) = done {
                    lock(&shared.done).push((session, done));
                    epoll::ring(&shared.bell);
                }
                *lock(&shared.waiting) -= len;
                shared.room.notify_one();
            }
            Err(RecvTimeoutError::Timeout) => {
                due = None;
                for of in known.values_mut() {
                    // Those that wait for it from the last time are not queued again.
                    if let Some(files) = of.dirty.take()
                        && !files.waits.swap(true, Ordering::AcqRel)
                    {
                        let _ = to_sync.send(files);
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A file system that cannot do it has had its chance; what a write could not do is told by the write.
fn sync(files: &Files) {
    files.waits.store(false, Ordering::Release);
    let _ = file::sync_data(&files.blocks);
    let _ = file::sync_data(&files.tail);
}

fn write(files: &Files, job: Job) -> Option<Done> {
    match job {
        Job::Blocks { bytes, at, ended } => Some(match file::write_all(files.blocks.raw(), &bytes) {
            Ok(()) => Done::Written { at, ended },
            Err(e) => Done::Failed(e),
        }),
        Job::Tail { offset, bytes } => match file::write_all_at(&files.tail, &bytes, offset) {
            Ok(()) => None,
            Err(e) => Some(Done::Failed(e)),
        },
        Job::Mark => Some(Done::Reached),
        Job::Close => None,
    }
}
