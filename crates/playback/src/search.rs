//! Searches recordings, on two threads. A recording whose index says that it cannot match is not read; one without an index
//! gets one while it is read. One that is damaged is searched up to its fault, and delays no other.

use crate::about::Begin;
use crate::clock::short;
use crate::index::{Builder, Index};
use crate::pattern::Pattern;
use crate::store::{Entry, StoreError};
use crate::text::{Extractor, Line};
use fleetgate_record::age::Keys;
use fleetgate_record::frame::Kind;
use fleetgate_sys::clock;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How many recordings are read at once.
const THREADS: usize = 2;
/// How many messages may wait for the one who prints them.
const WAITING: usize = 256;
/// Matches of later recordings wait for those of earlier ones, up to so many bytes; then they are told as they come.
const MAX_HELD: usize = 16 << 20;

/// After so many bytes the time that was used is looked at, which asks the kernel; a frame counts as some more.
const LOOK: usize = 16 << 10;
const OF_A_FRAME: usize = 64;

/// Behind the part of the text in which a line may be, so much more is read: lines that can be read at once have no order.
const BEYOND: u64 = 64 << 10;

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// When it could be read, in microseconds since the start.
    pub at: u64,
    /// Which stream it came on.
    pub stream: Kind,
    /// The line.
    pub line: String,
}

impl Match {
    /// What it takes in memory.
    fn size(&self) -> usize {
        size_of::<Match>() + self.line.len()
    }
}

/// What is told of a search.
#[derive(Debug)]
pub enum Event<'a> {
    /// A line matches.
    Match(&'a Entry, &'a Begin, &'a Match),
    /// A recording was searched, or passed over.
    Done(Progress),
    /// A recording could not be read, or not to its end.
    Trouble(&'a Entry, String),
}

/// How far a search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Recordings that are done.
    pub done: usize,
    /// All of them.
    pub of: usize,
    /// Those that the index passed over.
    pub passed_over: usize,
    /// Lines that match.
    pub matches: u64,
}

/// How to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ask the indexes, and make those that are missing.
    pub uses_index: bool,
    /// For recordings that are encrypted. Those get no index: it would tell what is in them.
    pub keys: Keys,
    /// What one recording may cost.
    pub budget: Budget,
}

/// How much of a processor's time the search of one recording may take, so that one that was made for it holds up the
/// others no longer. The longest honest ones take a tenth.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// However short it is.
    pub least: Duration,
    /// And for each MB of its file.
    pub each: Duration,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            least: Duration::from_secs(5),
            each: Duration::from_secs(5),
        }
    }
}

impl Budget {
    fn of(self, length: u64) -> Duration {
        let megabytes = u32::try_from(length >> 20).unwrap_or(u32::MAX);
        self.least.saturating_add(self.each.saturating_mul(megabytes))
    }
}

fn used() -> Duration {
    Duration::from_nanos(clock::thread().as_nanos().cast_unsigned())
}

enum Message {
    Begin(usize, Box<Begin>),
    Match(usize, Match),
    Trouble(usize, String),
    Done(usize, bool),
}

/// Searches `entries` in this order; false from `tell` ends it.
pub fn search(
    entries: &[Entry],
    pattern: &Pattern,
    options: &Options,
    tell: &mut dyn FnMut(Event<'_>) -> bool,
) -> Progress {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (to, messages) = sync_channel(WAITING);
    thread::scope(|scope| {
        for _ in 0..THREADS.min(entries.len()) {
            let (to, next, stop) = (to.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(entry) = entries.get(at) else { break };
                    let mut one = One {
                        at,
                        entry,
                        pattern,
                        options,
                        to: &to,
                        stop,
                    };
                    let passed_over = one.run();
                    if to.send(Message::Done(at, passed_over)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(to);
        let mut order = Order {
            entries,
            tell,
            current: 0,
            waiting: BTreeMap::new(),
            held: 0,
            progress: Progress {
                of: entries.len(),
                ..Progress::default()
            },
        };
        for message in messages {
            if !order.take(message) {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        // The receiver is gone now, so nobody waits for it.
        order.progress
    })
}

/// Puts what the threads find into the order of the recordings.
struct Order<'a> {
    entries: &'a [Entry],
    tell: &'a mut dyn FnMut(Event<'_>) -> bool,
    /// The recording that is told of now.
    current: usize,
    waiting: BTreeMap<usize, Found>,
    held: usize,
    progress: Progress,
}

#[derive(Default)]
struct Found {
    begin: Begin,
    matches: Vec<Match>,
    trouble: Option<String>,
    is_done: bool,
}

impl Order<'_> {
    fn take(&mut self, message: Message) -> bool {
        let at = match &message {
            Message::Begin(at, _)
            | Message::Match(at, _)
            | Message::Trouble(at, _)
            | Message::Done(at, _) => *at,
        };
        let found = self.waiting.entry(at).or_default();
        match message {
            Message::Begin(_, begin) => found.begin = *begin,
            Message::Match(_, one) => {
                self.held += one.size();
                found.matches.push(one);
                self.progress.matches += 1;
            }
            Message::Trouble(_, why) => found.trouble = Some(why),
            Message::Done(_, passed_over) => {
                found.is_done = true;
                self.progress.passed_over += usize::from(passed_over);
                self.progress.done += 1;
            }
        }
        if at != self.current && self.held > MAX_HELD && !self.flush(at) {
            return false;
        }
        loop {
            let current = self.current;
            if !self.flush(current) {
                return false;
            }
            match self.waiting.get(&current) {
                Some(found) if found.is_done => {
                    self.waiting.remove(&current);
                    self.current += 1;
                    if !(self.tell)(Event::Done(self.progress)) {
                        return false;
                    }
                }
                _ => return true,
            }
        }
    }

    /// Tells what is there of one recording.
    fn flush(&mut self, at: usize) -> bool {
        let Some(found) = self.waiting.get_mut(&at) else {
            return true;
        };
        let entry = &self.entries[at];
        for one in found.matches.drain(..) {
            self.held -= one.size();
            if !(self.tell)(Event::Match(entry, &found.begin, &one)) {
                return false;
            }
        }
        match found.trouble.take() {
            Some(why) => (self.tell)(Event::Trouble(entry, why)),
            None => true,
        }
    }
}

/// The search of one recording.
struct One<'a> {
    at: usize,
    entry: &'a Entry,
    pattern: &'a Pattern,
    options: &'a Options,
    to: &'a SyncSender<Message>,
    stop: &'a AtomicBool,
}

impl One<'_> {
    /// True: it was passed over.
    fn run(&mut self) -> bool {
        let length = self.entry.length();
        let read = match self.options.uses_index && !self.entry.runs {
            true => match self.asks_index(length) {
                Some(None) => return true,
                Some(Some(end)) => self.read(None, end.saturating_add(BEYOND)),
                None => self.read(Some(length), u64::MAX),
            },
            false => self.read(None, u64::MAX),
        };
        if let Err(e) = read {
            let _ = self.to.send(Message::Trouble(self.at, e.to_string()));
        }
        false
    }

    /// What the index says: up to where in the text it may match, or nowhere; nothing: there is none that fits.
    fn asks_index(&self, length: u64) -> Option<Option<u64>> {
        let bytes = self.entry.index()?;
        let index = Index::decode(&bytes, &self.entry.session(), length)?;
        Some(index.last(self.pattern.groups()))
    }

    /// Reads so much of its text. With a length it makes an index for a file of that length.
    fn read(&mut self, makes_index: Option<u64>, until: u64) -> Result<(), StoreError> {
        let failed = |e| StoreError::Io(self.entry.path.clone(), e);
        let mut source = self.entry.open_with(&self.options.keys)?;
        let mut is_encrypted = false;
        let mut builder = makes_index.map(|_| Builder::default());
        let mut extractor = Extractor::default();
        let mut room = String::new();
        let mut is_told = true;
        let limit = used() + self.options.budget.of(self.entry.length());
        let (mut unlooked, text) = (0, Cell::new(0));
        {
            let mut take = |line: Line<'_>| {
                // With the end of the line, as the index counts.
                text.set(text.get() + line.text.len() as u64 + 1);
                if let Some(builder) = &mut builder {
                    builder.line(line.text);
                }
                if self.pattern.is_in(line.text, &mut room) {
                    let found = Match {
                        at: line.at,
                        stream: line.stream,
                        line: line.text.to_owned(),
                    };
                    is_told &= self.to.send(Message::Match(self.at, found)).is_ok();
                }
            };
            while let Some(frame) = source.next_frame().map_err(failed)? {
                if frame.kind == Kind::Begin {
                    let begin = Box::new(Begin::read(frame.bytes));
                    is_encrypted |= !begin.recipients.is_empty();
                    let _ = self.to.send(Message::Begin(self.at, begin));
                }
                extractor.frame(&frame, &mut take);
                unlooked += OF_A_FRAME + frame.bytes.len();
                if self.stop.load(Ordering::Relaxed) || text.get() >= until {
                    return Ok(());
                }
                if unlooked < LOOK {
                    continue;
                }
                unlooked = 0;
                if used() > limit {
                    let why = format!(
                        "searched up to {}: it takes more work than a recording of its length should; `fleetgate sessions export \
                         {} --text` has all of it",
                        short(source.last()),
                        self.entry.id
                    );
                    let _ = self.to.send(Message::Trouble(self.at, why));
                    return Ok(());
                }
            }
            extractor.finish(&mut take);
        }
        if let Some(fault) = source.fault() {
            let why = format!("searched up to its fault: {fault}");
            let _ = self.to.send(Message::Trouble(self.at, why));
            return Ok(());
        }
        if source.passed_over() > 0 {
            let why = "it is encrypted, and was not searched: give --identity FILE".to_owned();
            let _ = self.to.send(Message::Trouble(self.at, why));
            return Ok(());
        }
        if is_encrypted {
            return Ok(());
        }
        // What has no end may grow, and is read anew each time.
        if let (Some(length), true, true) = (makes_index, source.has_ended(), is_told)
            && let Some(bytes) = builder.and_then(|b| b.finish(&self.entry.session(), length))
        {
            self.entry.write_index(&bytes);
        }
        Ok(())
    }
}
