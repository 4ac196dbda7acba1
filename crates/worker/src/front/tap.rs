//! A session's pipe to the recorder. What the session shows goes into it as it is read, before it is encrypted for the client;
//! what a client types, where that is recorded, as it comes.
//!
//! A terminal gives 4 KB at a time, and each write to the pipe may wake the recorder. So what is read in one turn goes out
//! together: one copy, and one write for 32 KB, or for the turn. None for what is beyond a stream's limit. The pipe does not
//! wait. What does not fit is kept, and the session's output is not read on until the recorder has taken it: nothing of a
//! recording is lost because the recorder is slow for a moment. Where that lasts too long the monitor is told.

use fleetgate_record::frame::{self, Kind, MAX_BYTES};
use fleetgate_record::limit::Limited;
use fleetgate_record::pipe::{self, Head};
use fleetgate_sys::{Errno, Fd, clock, file, terminal};
use std::rc::Rc;
use std::time::Duration;

/// So many bytes of frames go out without waiting for the end of the turn.
const TOGETHER: usize = 32 << 10;
/// A session that shows less in a turn keeps no more room than this.
const QUIET: usize = 8 << 10;
/// So much typed input may wait for the recorder. What comes meanwhile is counted.
const MAX_WAITING_INPUT: usize = 256 << 10;

/// One session's.
pub(super) struct Tap {
    pipe: Fd,
    /// Microseconds of CLOCK_MONOTONIC.
    since: u64,
    input: bool,
    terminal: Option<Rc<Fd>>,
    streams: [Limited; 3],
    /// Frames that are not in the pipe yet.
    kept: Vec<u8>,
    sent: usize,
    /// Where the head of the last of them is, which may still grow.
    open: Option<(usize, Kind)>,
    /// The pipe had no room for them.
    full: bool,
    /// The loop tells of room.
    watched: bool,
    /// Since when nothing was taken.
    stuck: Option<Duration>,
    /// The monitor was told so.
    told: bool,
}

impl Tap {
    /// Of a session that began at `since`; its terminal, if it has one.
    pub(super) fn new(pipe: Fd, since: u64, input: bool, terminal: Option<Rc<Fd>>) -> Tap {
        Tap {
            pipe,
            since,
            input,
            terminal,
            streams: [Kind::Stdout, Kind::Stderr, Kind::Stdin].map(Limited::new),
            kept: Vec::new(),
            sent: 0,
            open: None,
            full: false,
            watched: false,
            stuck: None,
            told: false,
        }
    }

    /// What its frames count their time from.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Whether more output may be read: what was read before is with the recorder.
    pub(super) fn has_room(&self) -> bool {
        !self.full
    }

    /// The pipe, where it turned out to be full and is not watched yet.
    pub(super) fn newly_full(&mut self) -> Option<&Fd> {
        if self.watched || self.has_room() {
            return None;
        }
        self.watched = true;
        Some(&self.pipe)
    }

    /// Output that was read into these parts, `len` bytes in all. It goes out with the next [`Tap::flush`], or when it is much.
    pub(super) fn output(&mut self, is_error: bool, parts: &[&mut [u8]], len: usize) {
        let mut filled: [&[u8]; file::MAX_PARTS] = [&[]; file::MAX_PARTS];
        let mut left = len;
        for (place, part) in filled.iter_mut().zip(parts) {
            *place = &part[..part.len().min(left)];
            left -= place.len();
        }
        match self.terminal {
            Some(_) => filled.iter().for_each(|part| self.put(Kind::Output, part)),
            None => filled
                .iter()
                .for_each(|part| self.put_limited(usize::from(is_error), part)),
        }
        if self.kept.len() >= TOGETHER {
            self.flush();
        }
    }

    /// Input of the client's.
    pub(super) fn typed(&mut self, bytes: &[u8]) {
        if !self.input || bytes.is_empty() {
            return;
        }
        match &self.terminal {
            None => self.put_limited(2, bytes),
            Some(terminal) => {
                let is_unseen = terminal::modes(terminal.raw()).is_ok_and(|modes| modes.asks_unseen());
                let count = bytes.len() as u64;
                if is_unseen {
                    self.put(Kind::Hidden, &count.to_le_bytes());
                } else if self.kept.len() > MAX_WAITING_INPUT {
                    self.put(Kind::Omitted, &frame::omission(Kind::Input, count));
                } else {
                    self.put(Kind::Input, bytes);
                }
            }
        }
        self.flush();
    }

    /// The terminal has another size.
    pub(super) fn resized(&mut self, columns: u16, rows: u16) {
        // A client without a terminal of its own says 0: it does not know.
        if columns > 0 && rows > 0 {
            self.put(Kind::Resize, &frame::resize(columns, rows));
            self.flush();
        }
    }

    /// Somebody sees the session from here on: a size, which is what it was, parts what was shown before from what comes.
    pub(super) fn mark(&mut self, columns: u16, rows: u16) {
        self.put(Kind::Resize, &frame::resize(columns, rows));
        self.flush();
    }

    /// The session is over: what was not recorded is told. Whether everything is with the recorder.
    pub(super) fn finish(&mut self) -> bool {
        for stream in 0..self.streams.len() {
            if let Some(omission) = self.streams[stream].omission() {
                self.put(Kind::Omitted, &omission);
            }
        }
        self.flush();
        self.kept.is_empty()
    }

    /// Another recorder goes on. What it was not sent whole is lost with the one before, and the recording says so.
    pub(super) fn replace(&mut self, pipe: Fd) {
        self.pipe = pipe;
        self.kept = Vec::new();
        self.sent = 0;
        self.open = None;
        self.full = false;
        self.watched = false;
        self.stuck = None;
        self.told = false;
    }

    /// Since when the recorder takes nothing.
    pub(super) fn stuck_since(&self) -> Option<Duration> {
        self.stuck.filter(|_| !self.told)
    }

    /// Notes the time where it takes nothing.
    pub(super) fn note(&mut self, now: Duration) {
        match self.has_room() {
            true => self.stuck = None,
            false => {
                self.stuck.get_or_insert(now);
            }
        }
    }

    /// The monitor was told that it takes nothing.
    pub(super) fn told(&mut self) {
        self.told = true;
    }

    fn put_limited(&mut self, stream: usize, bytes: &[u8]) {
        let now = self.now();
        let limited = &mut self.streams[stream];
        let count = limited.take(now, bytes.len());
        let kind = limited.kind();
        self.put(kind, &bytes[..count]);
    }

    /// Queues frames of these bytes. What is read in one turn happened at one time, as far as anybody can tell.
    fn put(&mut self, kind: Kind, mut bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some((at, of)) = self.open
            && of == kind
            && kind.is_stream()
        {
            let len = self.kept.len() - at - pipe::HEAD;
            let (more, rest) = bytes.split_at(bytes.len().min(MAX_BYTES - len));
            self.kept.extend_from_slice(more);
            let len = u32::try_from(len + more.len()).unwrap_or(u32::MAX);
            self.kept[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
            bytes = rest;
        }
        if bytes.is_empty() {
            return;
        }
        let now = self.now();
        for bytes in bytes.chunks(MAX_BYTES) {
            let head = Head {
                kind,
                len: bytes.len(),
                at: now,
            };
            self.open = Some((self.kept.len(), kind));
            self.kept.extend_from_slice(&head.encode());
            self.kept.extend_from_slice(bytes);
        }
    }

    /// Microseconds since the session's start.
    fn now(&self) -> u64 {
        let now = clock::monotonic().as_nanos().cast_unsigned() / 1000;
        now.saturating_sub(self.since)
    }

    /// Writes what is kept. Whether something was.
    pub(super) fn flush(&mut self) -> bool {
        let before = self.sent;
        self.open = None;
        while self.sent < self.kept.len() {
            match file::write(self.pipe.raw(), &self.kept[self.sent..]) {
                Ok(n) => self.sent += n,
                // Nobody reads it any more (EPIPE): another pipe comes, or the session ends.
                Err(Errno::EAGAIN | Errno::EPIPE) => break,
                Err(_) => break,
            }
        }
        let some = self.sent > before;
        if some {
            self.stuck = None;
        }
        self.full = self.sent < self.kept.len();
        if !self.full {
            let was = std::mem::take(&mut self.sent);
            self.kept.clear();
            // A busy terminal fills it again at once; a quiet one needs less.
            let room = self.kept.capacity();
            if room > 2 * TOGETHER || room > QUIET && was < QUIET / 2 {
                self.kept = Vec::new();
            }
        }
        some
    }
}
