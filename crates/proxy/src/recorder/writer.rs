//! The thread that writes recordings. It alone makes their files and writes them, so that a slow disk holds up no connection
//! that is not recorded. Another thread synchronises, so that this one writes on meanwhile, into the kernel's memory.
//!
//! As a node's recorder: blocks of 64 KB; what is in no block is in the tail within a second; a block is signed when it is
//! full or five minutes old, at most once a second but for each 4 MB, and at the end.

use super::{Line, Recorder, Running, Signed, Spool, lock};
use fleetgate_record::age::Recipients;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind, MAX_BYTES};
use fleetgate_record::signature;
use fleetgate_record::tail::Tail;
use fleetgate_record::writer::{Position, Writer};
use fleetgate_recorder::directory::{self, Made};
use fleetgate_sys::file;
use fleetgate_wire::common::SessionId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// So often tails are brought up to date, and what is new is signed.
const SAVE: Duration = Duration::from_secs(1);
/// Every so many of those what was written is synchronised.
const SYNC: u32 = 2;
/// A block is closed when its first frame is so old.
const CLOSE: Duration = Duration::from_secs(300);
/// What is written faster than that is signed more often: auth has no room for much that no signature covers.
const MAX_UNSIGNED: u64 = 4 << 20;
/// zstd's tables are on the heap.
const STACK: usize = 256 << 10;
/// One session gets no more of the directory than one part of so many: nobody fills it with one.
const SHARE: u64 = 10;

/// What the thread is asked to do.
pub(super) enum Job {
    /// Makes the files.
    Begin {
        session: SessionId,
        begun: Instant,
        /// The first frame.
        json: Vec<u8>,
        /// For whom it is encrypted, if it is.
        recipients: Option<Recipients>,
        /// The fields of its audit events.
        who: Value,
        line: Arc<Line>,
        done: oneshot::Sender<Result<(), String>>,
    },
    Frame {
        session: SessionId,
        kind: Kind,
        at: u64,
        bytes: Vec<u8>,
    },
    /// The last frame.
    End {
        session: SessionId,
        at: u64,
        json: Vec<u8>,
    },
    /// The session did not begin.
    Discard { session: SessionId },
    /// Nothing more is recorded of it.
    GiveUp { session: SessionId },
    /// Says when everything before it is on the disk.
    Settle(oneshot::Sender<()>),
}

/// A recording's files.
struct Files {
    session: SessionId,
    made: Made,
    /// See [`Signed`].
    covered: AtomicU64,
    until: AtomicU64,
    /// They wait to be synchronised.
    waits: AtomicBool,
}

/// A recording that is being made.
struct Open {
    files: Arc<Files>,
    writer: Writer,
    tail: Tail,
    line: Arc<Line>,
    who: Value,
    begun: Instant,
    /// Something was written since it was last synchronised.
    is_dirty: bool,
    /// Blocks that a signature covers, the signatures' own included.
    signed: u64,
}

struct Thread {
    recorder: Recorder,
    open: BTreeMap<SessionId, Open>,
    compressor: Compressor,
    to_sync: Sender<Written>,
}

/// For the thread that synchronises.
enum Written {
    /// These were written; whether they are whole.
    Files(Arc<Files>, bool),
    /// Everything before is to be done.
    Settled(oneshot::Sender<()>),
}

/// Starts it.
pub(super) fn start(recorder: Recorder) -> std::io::Result<Sender<Job>> {
    let (work, jobs) = channel();
    let (to_sync, written) = channel();
    let compressor = Compressor::new().ok_or(std::io::ErrorKind::OutOfMemory)?;
    let spool = recorder.spool().clone();
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        for written in written {
            match written {
                Written::Files(files, is_whole) => synchronise(files, is_whole, &spool),
                // Nobody may wait any more.
                Written::Settled(done) => _ = done.send(()),
            }
        }
    })?;
    let thread = Thread {
        recorder,
        open: BTreeMap::new(),
        compressor,
        to_sync,
    };
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || thread.run(&jobs))?;
    Ok(work)
}

/// Only what the disk has goes to auth: what a power failure takes here would else be there, and the rest would not follow it.
fn synchronise(files: Arc<Files>, is_whole: bool, spool: &Spool) {
    files.waits.store(false, Relaxed);
    // What was covered before has its signature before that.
    let covered = files.covered.load(Acquire);
    let until = files.until.load(Relaxed);
    // A file system that cannot do it has had its chance; what a write could not do is told by the write.
    let _ = file::sync_data(&files.made.blocks);
    let _ = file::sync_data(&files.made.tail);
    if is_whole {
        directory::finish(&files.made.path);
        lock(&spool.running).remove(&files.session);
        lock(&spool.ended).insert(files.made.path.clone());
    } else if let Some(running) = lock(&spool.running).get_mut(&files.session) {
        running.signed = Signed { covered, until };
    }
    // The lock on a whole one goes with it: now it can be delivered.
    drop(files);
    spool.news.notify_one();
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut due: Option<Instant> = None;
        let mut turns = 0_u32;
        loop {
            let next = match due {
                Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Also where jobs come without a pause.
            if due.is_some_and(|due| due <= Instant::now()) {
                turns = turns.wrapping_add(1);
                self.save_all(turns.is_multiple_of(SYNC));
                due = None;
            }
            if due.is_none() && !self.open.is_empty() {
                due = Some(Instant::now() + SAVE);
            }
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Begin {
                session,
                begun,
                json,
                recipients,
                who,
                line,
                done,
            } => {
                let begun = self.begin((session, begun), (&json, recipients), who, line);
                // Where nobody waits any more, the end comes by itself.
                let _ = done.send(begun);
            }
            Job::Frame {
                session,
                kind,
                at,
                bytes,
            } => {
                let signs = self.recorder.clone();
                self.change(session, |open, compressor| {
                    open.put(kind, at, &bytes, compressor)?;
                    match open.unsigned() > MAX_UNSIGNED {
                        true => open.sign(&session, &signs),
                        false => Ok(()),
                    }
                });
                if let Some(open) = self.open.get(&session) {
                    open.line.done(bytes.len());
                }
                self.bound(session);
            }
            Job::End { session, at, json } => self.end(session, at, &json),
            Job::Discard { session } => {
                if let Some(open) = self.open.remove(&session) {
                    directory::discard(&open.files.made.path);
                    self.forget(&session);
                    self.recorder.spool().shrinks(open.writer.position().length);
                }
            }
            Job::GiveUp { session } => self.give_up(session, String::new()),
            Job::Settle(done) => {
                self.save_all(true);
                let _ = self.to_sync.send(Written::Settled(done));
            }
        }
    }

    fn begin(
        &mut self,
        (session, begun): (SessionId, Instant),
        (json, recipients): (&[u8], Option<Recipients>),
        who: Value,
        line: Arc<Line>,
    ) -> Result<(), String> {
        let spool = self.recorder.spool().clone();
        if let Some(why) = spool.lacks_room().or_else(|| spool.lacks_files()) {
            return Err(why);
        }
        let made = directory::make(&spool.root, &session)?;
        let path = made.path.clone();
        let mut open = Open {
            files: Arc::new(Files {
                session,
                made,
                covered: AtomicU64::new(0),
                until: AtomicU64::new(0),
                waits: AtomicBool::new(false),
            }),
            writer: Writer::at(Position::start(&session)),
            tail: Tail::default(),
            line,
            who,
            begun,
            is_dirty: true,
            signed: 0,
        };
        // Whose it is stands in the file before anything can be lost of it.
        open.writer.push(&Frame {
            kind: Kind::Begin,
            at: 0,
            bytes: json,
        });
        if let Err(e) = open.close_block(None) {
            directory::discard(&path);
            return Err(format!("{}: {e}", path.display()));
        }
        // All but whose it is.
        open.writer = open.writer.sealed_for(recipients);
        spool.files.fetch_add(1, Relaxed);
        spool.bytes.fetch_add(open.writer.position().length, Relaxed);
        let running = Running {
            path,
            signed: Signed::default(),
        };
        lock(&spool.running).insert(session, running);
        self.open.insert(session, open);
        Ok(())
    }

    fn end(&mut self, session: SessionId, at: u64, json: &[u8]) {
        let signs = self.recorder.clone();
        self.change(session, |open, compressor| {
            let block = open.writer.end(Some(compressor), at, json);
            open.write(&block)?;
            open.sign(&session, &signs)
        });
        let Some(open) = self.open.remove(&session) else {
            return;
        };
        let Position {
            blocks,
            length: bytes,
            chain,
            ..
        } = *open.writer.position();
        let fields = json!({
            "session": directory::name(&session),
            "blocks": blocks,
            "bytes": bytes,
            "chain": hex(&chain),
        });
        self.recorder.0.audit.tell("recorded", &[&open.who, &fields]);
        let _ = self.to_sync.send(Written::Files(open.files, true));
    }

    /// Does something to a recording. One that cannot be written is left as it is: the next look at the directory finishes it.
    fn change(
        &mut self,
        session: SessionId,
        does: impl FnOnce(&mut Open, &mut Compressor) -> std::io::Result<()>,
    ) {
        let Some(open) = self.open.get_mut(&session) else {
            return;
        };
        let before = open.writer.position().length;
        let done = does(open, &mut self.compressor);
        let length = open.writer.position().length;
        self.recorder
            .spool()
            .bytes
            .fetch_add(length.saturating_sub(before), Relaxed);
        if let Err(e) = done {
            let why = format!("{}: {e}", open.files.made.path.display());
            self.give_up(session, why);
        }
    }

    /// Whether a recording that grew may go on to.
    fn bound(&mut self, session: SessionId) {
        let spool = self.recorder.spool();
        let Some(open) = self.open.get(&session) else {
            return;
        };
        let is_large = spool.most > 0 && open.writer.position().length > spool.most / SHARE;
        let why = match is_large {
            true => Some("its recording has come to a tenth of recordings_size".to_owned()),
            false => spool.lacks_room(),
        };
        if let Some(why) = why {
            self.give_up(session, why);
        }
    }

    fn give_up(&mut self, session: SessionId, why: String) {
        if let Some(mut open) = self.open.remove(&session) {
            let _ = open.save(&mut self.compressor);
            self.forget(&session);
            open.line.fail(why);
        }
    }

    fn forget(&self, session: &SessionId) {
        lock(&self.recorder.spool().running).remove(session);
    }

    /// Brings all tails up to date, closes blocks that were open for long, and signs what is new.
    fn save_all(&mut self, syncs: bool) {
        let signs = self.recorder.clone();
        let sessions: Vec<SessionId> = self.open.keys().copied().collect();
        for session in sessions {
            self.change(session, |open, compressor| {
                let first = Duration::from_micros(open.writer.first());
                let is_old = open.begun.elapsed().saturating_sub(first) >= CLOSE;
                if is_old && !open.writer.open_frames().is_empty() {
                    open.close_block(Some(&mut *compressor))?;
                }
                if open.signed < open.writer.position().blocks && open.signed_frames() {
                    open.sign(&session, &signs)?;
                }
                open.save(compressor)
            });
            let Some(open) = self.open.get_mut(&session) else {
                continue;
            };
            // Those that wait for it from the last time are not queued again.
            if syncs && std::mem::take(&mut open.is_dirty) && !open.files.waits.swap(true, Relaxed) {
                let _ = self.to_sync.send(Written::Files(open.files.clone(), false));
            }
        }
    }
}

impl Open {
    fn put(&mut self, kind: Kind, at: u64, bytes: &[u8], compressor: &mut Compressor) -> std::io::Result<()> {
        debug_assert!(bytes.len() <= MAX_BYTES);
        match self.writer.push(&Frame { kind, at, bytes }) {
            true => self.close_block(Some(compressor)),
            false => Ok(()),
        }
    }

    fn close_block(&mut self, compressor: Option<&mut Compressor>) -> std::io::Result<()> {
        match self.writer.close(compressor) {
            Some(block) => self.write(&block),
            None => Ok(()),
        }
    }

    /// Whether there is something to sign but what a recording begins with: one that just began waits for its first block.
    fn signed_frames(&self) -> bool {
        self.writer.position().blocks > 1
    }

    /// So many bytes are behind the last signature.
    fn unsigned(&self) -> u64 {
        self.writer.position().length - self.files.until.load(Relaxed)
    }

    fn sign(&mut self, session: &SessionId, recorder: &Recorder) -> std::io::Result<()> {
        let covered = self.writer.position().length;
        let statement = directory::statement(session, self.writer.position());
        let Some(signature) = recorder.sign(&statement) else {
            return Err(std::io::Error::other("the proxy's key cannot sign"));
        };
        let block = self.writer.sign(&signature::encode(&statement, &signature));
        self.write(&block)?;
        self.signed = self.writer.position().blocks;
        self.files.until.store(self.writer.position().length, Relaxed);
        self.files.covered.store(covered, Release);
        Ok(())
    }

    fn write(&mut self, block: &[u8]) -> std::io::Result<()> {
        self.is_dirty = true;
        Ok(file::write_all(self.files.made.blocks.raw(), block)?)
    }

    /// Brings the tail up to date.
    fn save(&mut self, compressor: &mut Compressor) -> std::io::Result<()> {
        if let Some((offset, bytes)) = self.tail.write(&mut self.writer, compressor) {
            self.is_dirty = true;
            file::write_all_at(&self.files.made.tail, &bytes, offset)?;
        }
        Ok(())
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
