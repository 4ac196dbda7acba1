//! The audit log's thread: takes events from the queue and appends their lines to the file.
//!
//! The file is opened with O_APPEND, mode 0640, and opened again when somebody moved or removed it and when told to
//! (SIGHUP). A line is written whole or, after a full disk, ended and counted as lost; the next line begins a new one and says
//! how many events are missing, and from when to when they happened.
//! The only one who waits for the disk is this thread.

use super::{Event, Gap, QUEUE, Shipping};
use fleetgate_sys::clock::{self, Time};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The most bytes of lines that are written with one call.
const BATCH: usize = 64 << 10;
/// The path that is standard output.
const OUTPUT: &str = "-";
/// The file's mode: its group may read, nobody else.
const MODE: u32 = 0o640;

/// Where events are told. Cheap to clone; the thread ends when the last one is gone and everything is written.
#[derive(Clone)]
pub struct Audit {
    queue: Sender<Word>,
    shared: Arc<Shared>,
}

/// The thread behind it; joining it waits until everything is written.
pub struct WriterThread(JoinHandle<()>);

enum Word {
    Told(Time, Box<Event>),
    /// Open the file again.
    Reopen,
    /// The cluster keeps it from now on; none: no cluster does.
    Ship(Option<Box<Shipping>>),
    /// Something of it is kept: see `Shared`.
    Kept,
}

#[derive(Default)]
struct Shared {
    /// Where lines go.
    path: PathBuf,
    /// Words in the queue, and how many it may have. std's own bounded queue has memory for all of them from the start, a
    /// third of a megabyte of an idle node.
    waiting: AtomicUsize,
    bound: usize,
    /// Lost and not yet written down.
    untold: Mutex<Option<Gap>>,
    /// Lost since the start.
    lost: AtomicU64,
    /// How far which log is kept by the cluster.
    kept: Mutex<Option<(String, u64)>>,
}

impl Audit {
    /// Begins to write to `path`; `-` is standard output. The file is opened at once, so that a path that cannot be
    /// had is an error here and not a silent loss later.
    pub fn start(path: &Path) -> std::io::Result<(Audit, WriterThread)> {
        Audit::with_queue(path, QUEUE)
    }

    pub(super) fn with_queue(path: &Path, bound: usize) -> std::io::Result<(Audit, WriterThread)> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            bound,
            ..Shared::default()
        });
        let (queue, words) = channel();
        let mut log = Log::open(path)?;
        if let Some(gap) = log.cut_line() {
            log.torn = true;
            shared.add_gap(gap);
        }
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .stack_size(256 << 10)
            .spawn({
                let shared = shared.clone();
                move || log.serve(&words, &shared)
            })?;
        Ok((Audit { queue, shared }, WriterThread(thread)))
    }

    /// Tells an event; never waits.
    pub fn tell(&self, event: Event) {
        self.tell_at(clock::wall(), event);
    }

    /// The same of something that happened then.
    pub fn tell_at(&self, at: Time, event: Event) {
        if !self.put(Word::Told(at, Box::new(event))) {
            self.shared.lose(&[at]);
        }
    }

    /// Whether there was room for it, and somebody takes it.
    fn put(&self, word: Word) -> bool {
        let waiting = &self.shared.waiting;
        let is_put =
            waiting.fetch_add(1, Ordering::Relaxed) < self.shared.bound && self.queue.send(word).is_ok();
        if !is_put {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        is_put
    }

    /// Whether there is room for many events more.
    pub fn is_at_ease(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) <= self.shared.bound / 2
    }

    /// Has the file opened again. A queue that is full has the thread busy; it looks by itself then.
    pub fn reopen(&self) {
        self.put(Word::Reopen);
    }

    /// The file that this log is, whatever the configuration has named since; none: it is standard output.
    pub fn file(&self) -> Option<&Path> {
        Some(self.shared.path.as_path()).filter(|path| *path != Path::new(OUTPUT))
    }

    /// Has lines sent on from now on, of the file that this log is; none: they are sent to nobody any more. It waits behind
    /// whatever is in the queue, however much that is: nobody would say it again.
    pub fn ship(&self, shipping: Option<Shipping>) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        // An error: the thread is gone, and nobody counts any more.
        self.queue.send(Word::Ship(shipping.map(Box::new))).is_ok()
    }

    /// The cluster keeps this log up to here. A queue that is full has the thread busy; it looks by itself then.
    pub fn kept(&self, log: String, offset: u64) {
        *self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((log, offset));
        self.put(Word::Kept);
    }

    /// How many events were lost since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl WriterThread {
    /// Waits until everything is written, once the last [`Audit`] is gone.
    pub fn finish(self) {
        let _ = self.0.join();
    }
}

impl Shared {
    /// Events of these times are lost.
    fn lose(&self, times: &[Time]) {
        for &at in times {
            self.add_gap(Gap {
                count: 1,
                first: at,
                last: at,
                cut: false,
            });
        }
        self.lost.fetch_add(times.len() as u64, Ordering::Relaxed);
    }

    /// This much is lost too, and not written down.
    fn add_gap(&self, gap: Gap) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        *untold = Some(match *untold {
            None => gap,
            Some(other) => Gap {
                count: other.count + gap.count,
                first: other.first.min(gap.first),
                last: other.last.max(gap.last),
                cut: other.cut || gap.cut,
            },
        });
    }

    fn take_gap(&self) -> Option<Gap> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where the lines go.
struct Log {
    place: Place,
    /// The last write ended in the middle of a line.
    torn: bool,
    /// The operator was told that events are being lost.
    complained: bool,
}

enum Place {
    Output,
    File { path: PathBuf, file: Option<File> },
}

impl Log {
    fn open(path: &Path) -> std::io::Result<Log> {
        let place = match path == Path::new(OUTPUT) {
            true => Place::Output,
            false => Place::File {
                path: path.to_owned(),
                file: Some(append(path)?),
            },
        };
        Ok(Log {
            place,
            torn: false,
            complained: false,
        })
    }

    /// The event of which an earlier process could write the beginning alone, because the disk was full.
    fn cut_line(&self) -> Option<Gap> {
        let Place::File { file: Some(file), .. } = &self.place else {
            return None;
        };
        let meta = file.metadata().ok().filter(|m| m.is_file() && m.len() > 0)?;
        let mut last = [0];
        file.read_exact_at(&mut last, meta.len() - 1).ok()?;
        let written = Time {
            sec: meta.mtime(),
            nsec: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
        };
        (last != *b"\n").then_some(Gap {
            count: 1,
            first: written,
            last: written,
            cut: true,
        })
    }

    fn serve(&mut self, words: &Receiver<Word>, shared: &Shared) {
        let mut batch = Vec::new();
        // When each of its events happened.
        let mut times = Vec::new();
        let mut shipping: Option<Box<Shipping>> = None;
        loop {
            let first = match shipping.as_ref().and_then(|s| s.due_in()) {
                None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => words.recv_timeout(wait),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                break;
            }
            batch.clear();
            times.clear();
            let mut next = first.ok();
            let mut reopen = false;
            while let Some(word) = next {
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
                match word {
                    Word::Told(at, event) => {
                        event.write_line(at, &mut batch);
                        times.push(at);
                    }
                    Word::Reopen => reopen = true,
                    Word::Ship(new) => {
                        if let Some(old) = &mut shipping {
                            old.ends();
                        }
                        shipping = new;
                    }
                    Word::Kept => {}
                }
                next = if batch.len() < BATCH {
                    words.try_recv().ok()
                } else {
                    None
                };
            }
            if reopen || !times.is_empty() {
                self.settle(reopen);
            }
            self.write(&batch, &times, shared);
            if let Some(shipping) = &mut shipping {
                let kept = shared.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some((log, offset)) = kept {
                    shipping.kept(&log, offset);
                }
                shipping.turn(reopen || !times.is_empty());
            }
        }
        // What was lost last has no later event to go before.
        self.write(&[], &[], shared);
    }

    /// Sees to it that the file is the one that the path names.
    fn settle(&mut self, reopen: bool) {
        let Place::File { path, file } = &mut self.place else {
            return;
        };
        let same = match (&file, std::fs::metadata(&path)) {
            (Some(open), Ok(named)) => open
                .metadata()
                .is_ok_and(|open| (open.dev(), open.ino()) == (named.dev(), named.ino())),
            _ => false,
        };
        if same && !reopen {
            return;
        }
        match append(path) {
            Ok(new) => {
                *file = Some(new);
                self.torn = false;
            }
            // The old one goes on where there is one: rather a moved file than none.
            Err(e) => tracing::warn!("the audit log {} cannot be opened again: {e}", path.display()),
        }
    }

    /// Writes the lines of events that happened at `times`, before them what was lost since the last time.
    fn write(&mut self, lines: &[u8], times: &[Time], shared: &Shared) {
        let gap = shared.take_gap();
        let mut text = Vec::with_capacity(lines.len() + 256);
        if self.torn {
            text.push(b'\n');
        }
        if let Some(gap) = gap {
            let cut = gap.cut || self.torn;
            let gap = Gap { cut, ..gap };
            Event::Lost { gap }.write_line(clock::wall(), &mut text);
        }
        text.extend_from_slice(lines);
        if text.is_empty() {
            return;
        }
        let (written, failed) = self.put(&text);
        let Some(why) = failed else {
            self.torn = false;
            self.complained = false;
            return;
        };
        // What stands there whole is told; what is torn or missing is lost, the count of the earlier ones too.
        let done = &text[..written];
        self.torn = match written {
            0 => self.torn,
            _ => done.last() != Some(&b'\n'),
        };
        let whole = done.iter().filter(|b| **b == b'\n').count();
        let own = usize::from(text.starts_with(b"\n")) + usize::from(gap.is_some());
        let told = whole.saturating_sub(own).min(times.len());
        shared.lose(&times[told..]);
        if let Some(gap) = gap.filter(|_| whole < own) {
            shared.add_gap(gap);
        }
        if !self.complained {
            self.complained = true;
            tracing::error!(
                "the audit log cannot be written: {why}; events are lost and counted until it can be"
            );
        }
    }

    /// Appends; how much, and what stood in the way of the rest.
    fn put(&mut self, bytes: &[u8]) -> (usize, Option<std::io::Error>) {
        let mut out: Box<dyn Write> = match &self.place {
            Place::Output => Box::new(std::io::stdout().lock()),
            Place::File { file: Some(file), .. } => Box::new(file),
            Place::File { file: None, .. } => {
                return (0, Some(std::io::Error::other("its file is not open")));
            }
        };
        let mut written = 0;
        while written < bytes.len() {
            match out.write(&bytes[written..]) {
                Ok(0) => return (written, Some(std::io::ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return (written, Some(e)),
            }
        }
        (written, out.flush().err())
    }
}

/// Opens for appending, made with [`MODE`] where it is missing, its directory too.
fn append(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(directory)?;
    }
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        .open(path)
}
