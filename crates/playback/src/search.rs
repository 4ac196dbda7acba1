//! Searches recordings, on two threads. A recording whose index says that it cannot match is not read; one without an index
//! gets one while it is read. One that is damaged is searched up to its fault, and delays no other.

use crate::about::Begin;
use crate::index::{Builder, Index};
use crate::pattern::Pattern;
use crate::store::{Entry, StoreError};
use crate::text::{Extractor, Line};
use fleetgate_record::frame::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// How many recordings are read at once.
const THREADS: usize = 2;
/// How many messages may wait for the one who prints them.
const WAITING: usize = 256;
/// Matches of later recordings wait for those of earlier ones, up to so many bytes; then they are told as they come.
const MAX_HELD: usize = 16 << 20;

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
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Ask the indexes, and make those that are missing.
    pub uses_index: bool,
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
    options: Options,
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
    options: Options,
    to: &'a SyncSender<Message>,
    stop: &'a AtomicBool,
}

impl One<'_> {
    /// True: it was passed over.
    fn run(&mut self) -> bool {
        let length = self.entry.length();
        let has_index = match self.options.uses_index && !self.entry.runs {
            true => self.asks_index(length),
            false => Some(true),
        };
        if has_index == Some(false) {
            return true;
        }
        if let Err(e) = self.read(has_index.is_none().then_some(length)) {
            let _ = self.to.send(Message::Trouble(self.at, e.to_string()));
        }
        false
    }

    /// Whether the index says that it may match; nothing: there is none that fits.
    fn asks_index(&self, length: u64) -> Option<bool> {
        let bytes = self.entry.index()?;
        let index = Index::decode(&bytes, &self.entry.session(), length)?;
        Some(index.may_have(self.pattern.groups()))
    }

    /// Reads it all. With a length it makes an index for a file of that length.
    fn read(&mut self, makes_index: Option<u64>) -> Result<(), StoreError> {
        let failed = |e| StoreError::Io(self.entry.path.clone(), e);
        let mut source = self.entry.open()?;
        let mut builder = makes_index.map(|_| Builder::default());
        let mut extractor = Extractor::default();
        let mut room = String::new();
        let mut is_told = true;
        {
            let mut take = |line: Line<'_>| {
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
                    let _ = self.to.send(Message::Begin(self.at, begin));
                }
                extractor.frame(&frame, &mut take);
                if self.stop.load(Ordering::Relaxed) {
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
        // What has no end may grow, and is read anew each time.
        if let (Some(length), true, true) = (makes_index, source.has_ended(), is_told)
            && let Some(bytes) = builder.and_then(|b| b.finish(&self.entry.session(), length))
        {
            self.entry.write_index(&bytes);
        }
        Ok(())
    }
}
