//! The recorder's loop: pipes of sessions, the monitor's words, and what the disk has.

use crate::disk::{Disk, Done, Files};
use crate::recording::{Heard, ROOM, Recording};
use fleetgate_record::age::Recipients;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Kind, MAX_BYTES};
use fleetgate_record::pipe::HEAD;
use fleetgate_record::writer::{self, Writer};
use fleetgate_sys::epoll::{self, Epoll, Event};
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Fd, clock};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::recorder::{FromRecorder, Position, ToRecorder};
use fleetgate_worker::rest::Rest;
use fleetgate_worker::start::{Control, Log, Start, WorkerEnd, c_text};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// So many events of its own loop are taken at once.
const EVENTS: usize = 64;
/// A block is closed, and so can be signed, when its first frame is so old, however little is in it.
const CLOSE: Duration = Duration::from_secs(300);
/// The same where nothing came for so long and at least so many bytes wait: what a burst showed is signed, and with the cluster,
/// soon after it. A block costs 260 bytes with its signature, so a session has no more than one of these in so long a time.
const QUIET: Duration = Duration::from_secs(10);
const MUCH: usize = 16 << 10;
const SELDOM: Duration = Duration::from_secs(30);
/// So long at most a frame is in this process alone.
const SAVE: Duration = Duration::from_secs(1);
const CONTROL: u64 = 0;
const BELL: u64 = 1;
/// Pipes come behind these.
const FIRST: u64 = 16;

struct Recorder {
    control: Control,
    epoll: Epoll,
    log: Log,
    rest: Rest,
    disk: Disk,
    compressor: Compressor,
    room: Vec<u8>,
    recordings: BTreeMap<SessionId, Entry>,
    sessions: BTreeMap<u64, SessionId>,
    next: u64,
    /// When tails are brought up to date; none: they are.
    save_due: Option<Duration>,
    /// When blocks are looked at that are not closed; none: there are none.
    close_due: Option<Duration>,
    /// Events that were taken and not told of.
    taken: u32,
}

struct Entry {
    key: u64,
    recording: Recording,
    /// Its tail is behind.
    unsaved: bool,
    /// Since when its block is open.
    open_since: Option<Duration>,
    /// When its tail was last brought up to date.
    saved: Duration,
    /// When a block of its was last closed that was not full.
    rested: Option<Duration>,
    /// Its pipe is not watched until the disk has caught up.
    held: bool,
}

impl Entry {
    /// When its block is to be closed, if it is not full before.
    fn close_due(&self) -> Option<Duration> {
        let old = self.open_since? + CLOSE;
        if self.recording.open_bytes() < MUCH {
            return Some(old);
        }
        let seldom = self.rested.map_or(Duration::ZERO, |rested| rested + SELDOM);
        Some(old.min(seldom.max(self.saved + QUIET)))
    }
}

/// Serves until the monitor ends it.
pub(crate) fn run(start: &Start) -> WorkerEnd {
    let made = (|| {
        let epoll = Epoll::new().map_err(WorkerEnd::at("making an epoll"))?;
        let bell = epoll::bell().map_err(WorkerEnd::at("making an eventfd"))?;
        let rest = Rest::now();
        start.confine(&[])?;
        let disk = Disk::start(bell).map_err(WorkerEnd::at("starting a thread"))?;
        let compressor = Compressor::new()
            .ok_or_else(|| WorkerEnd::Because("there is no memory to compress in".to_owned()))?;
        Ok(Recorder {
            control: Control::inherited(),
            epoll,
            log: start.log,
            rest,
            disk,
            compressor,
            room: vec![0; ROOM + MAX_BYTES + HEAD],
            recordings: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next: FIRST,
            save_due: None,
            close_due: None,
            taken: 0,
        })
    })();
    match made {
        Ok(mut recorder) => {
            let Err(ended) = recorder.run();
            ended
        }
        Err(ended) => ended,
    }
}

fn now() -> Duration {
    Duration::from_nanos(clock::monotonic().as_nanos().cast_unsigned())
}

impl Recorder {
    fn run(&mut self) -> Result<Infallible, WorkerEnd> {
        self.control.watch(&self.epoll, CONTROL)?;
        self.epoll
            .add(self.disk.bell(), READ, BELL)
            .map_err(WorkerEnd::at("watching the bell"))?;
        self.control.say(&FromRecorder::Ready)?;
        let mut events = [Event::EMPTY; EVENTS];
        loop {
            let due = self.save_due.into_iter().chain(self.close_due).min();
            let wait = due.map(|due| {
                let left = due.saturating_sub(now()).as_micros().div_ceil(1000);
                u32::try_from(left).unwrap_or(u32::MAX)
            });
            self.control.will_wait(&self.epoll)?;
            let count = self
                .epoll
                .wait(&mut events, self.rest.wait(wait))
                .map_err(WorkerEnd::at("waiting"))?;
            self.rest.woke(count);
            for event in &events[..count] {
                match event.key() {
                    CONTROL => self.hear()?,
                    BELL => self.report()?,
                    key => self.read(key)?,
                }
            }
            self.save_if_due();
            self.close_if_due();
            if self.taken > 0 && !self.control.is_congested() {
                let events = std::mem::take(&mut self.taken);
                self.control.say(&FromRecorder::More { events })?;
            }
        }
    }

    fn hear(&mut self) -> Result<(), WorkerEnd> {
        self.control.flush()?;
        while let Some((message, fds)) = self.control.receive::<ToRecorder>()? {
            match message {
                ToRecorder::Begin {
                    session,
                    at,
                    recipients,
                } => {
                    self.begin(session, fds, (&at, &recipients), None)?;
                }
                ToRecorder::Resume {
                    session,
                    at,
                    recipients,
                    gap_at,
                    json,
                } => {
                    let gap = Some((Kind::Gap, gap_at, &json[..]));
                    self.begin(session, fds, (&at, &recipients), gap)?;
                }
                ToRecorder::Event { session, at, json } => {
                    self.taken += 1;
                    self.note(session, (Kind::Event, at, &json));
                }
                ToRecorder::Signature {
                    session,
                    blocks,
                    bytes,
                } => {
                    if let Some(entry) = self.recordings.get_mut(&session)
                        && !entry.recording.sign(blocks, &bytes, &self.disk)
                    {
                        self.control.say(&FromRecorder::TooLate { session })?;
                    }
                }
                ToRecorder::End { session, at, json } => {
                    if let Some(entry) = self.recordings.get_mut(&session) {
                        entry.recording.end(at, json, &mut self.compressor, &self.disk);
                    }
                }
                ToRecorder::Done { session } => self.forget(session),
                ToRecorder::Flush { session } => self.flush(session)?,
            }
        }
        Ok(())
    }

    /// Takes a recording over; the pipe is missing where nothing but events comes.
    fn begin(
        &mut self,
        session: SessionId,
        fds: Vec<Fd>,
        (at, recipients): (&Position, &[[u8; 32]]),
        first: Option<(Kind, u64, &[u8])>,
    ) -> Result<(), WorkerEnd> {
        let sealed_for = Recipients::new(recipients);
        if sealed_for.is_none() && !recipients.is_empty() {
            return self.failed(
                session,
                "it cannot be encrypted for the recipients that were named",
            );
        }
        let writer = Writer::at(position(at)).sealed_for(sealed_for);
        let mut fds = fds.into_iter();
        let (Some(blocks), Some(tail), pipe) = (fds.next(), fds.next(), fds.next()) else {
            return Err(WorkerEnd::Because(
                "a message of the monitor came without its files".to_owned(),
            ));
        };
        let key = self.next;
        self.next += 1;
        if let Some(pipe) = &pipe
            && let Err(e) = self.epoll.add(pipe, READ, key)
        {
            return self.failed(session, &format!("its pipe cannot be watched: {e}"));
        }
        let recording = Recording::new(session, Files::new(blocks, tail), pipe, writer);
        self.sessions.insert(key, session);
        self.recordings.insert(
            session,
            Entry {
                key,
                recording,
                unsaved: false,
                open_since: None,
                saved: Duration::ZERO,
                rested: None,
                held: false,
            },
        );
        if let Some(first) = first {
            self.note(session, first);
        }
        Ok(())
    }

    fn note(&mut self, session: SessionId, (kind, at, json): (Kind, u64, &[u8])) {
        if let Some(entry) = self.recordings.get_mut(&session) {
            entry
                .recording
                .note(kind, at, json, &mut self.compressor, &self.disk);
            entry.unsaved = true;
            self.save_due.get_or_insert_with(|| now() + SAVE);
        }
    }

    /// What is in the pipe goes into the file. One that there is no more has all that it will have.
    fn flush(&mut self, session: SessionId) -> Result<(), WorkerEnd> {
        let Some(key) = self.recordings.get(&session).map(|entry| entry.key) else {
            return self.control.say(&FromRecorder::Flushed { session });
        };
        self.read(key)?;
        if let Some(entry) = self.recordings.get_mut(&session) {
            entry.recording.close_block(&mut self.compressor, &self.disk);
            entry.open_since = None;
            entry.recording.tell_written(&self.disk);
        }
        Ok(())
    }

    /// A pipe has something.
    fn read(&mut self, key: u64) -> Result<(), WorkerEnd> {
        let Some(session) = self.sessions.get(&key).copied() else {
            return Ok(());
        };
        let Some(entry) = self.recordings.get_mut(&session) else {
            return Ok(());
        };
        let heard = entry
            .recording
            .hear(&mut self.room, &mut self.compressor, &self.disk);
        entry.unsaved = true;
        self.save_due.get_or_insert_with(|| now() + SAVE);
        // Its pipe fills, and its session waits; others go on.
        if matches!(heard, Ok(Heard::More))
            && entry.recording.is_behind()
            && let Some(pipe) = entry.recording.pipe()
        {
            let _ = self.epoll.remove(pipe);
            entry.held = true;
        }
        match heard {
            // A descriptor that is closed is watched no more.
            Ok(Heard::More | Heard::Closed) => Ok(()),
            Ok(Heard::Garbage) => self.failed(session, "its front sent what is no frame"),
            Err(e) => self.failed(session, &format!("its pipe: {e}")),
        }
    }

    /// What the disk has goes to the monitor.
    fn report(&mut self) -> Result<(), WorkerEnd> {
        epoll::quiet(self.disk.bell());
        for (session, done) in self.disk.done() {
            if let Some(entry) = self.recordings.get_mut(&session)
                && entry.held
                && !entry.recording.is_behind()
                && let Some(pipe) = entry.recording.pipe()
            {
                entry.held = self.epoll.add(pipe, READ, entry.key).is_err();
            }
            match done {
                Done::Written { at, ended } => {
                    let at = Position {
                        blocks: at.blocks,
                        chain: at.chain,
                        anchor: at.anchor,
                        length: at.length,
                        last: at.last,
                    };
                    self.control.say(&FromRecorder::Closed { session, at, ended })?;
                }
                Done::Reached => self.control.say(&FromRecorder::Flushed { session })?,
                Done::Failed(e) => self.failed(session, &format!("writing: {e}"))?,
            }
        }
        Ok(())
    }

    fn save_if_due(&mut self) {
        if self.save_due.is_none_or(|due| due > now()) {
            return;
        }
        self.save_due = None;
        let now = now();
        for entry in self.recordings.values_mut().filter(|entry| entry.unsaved) {
            let is_open = entry.recording.save(&mut self.compressor, &self.disk);
            entry.unsaved = false;
            entry.saved = now;
            entry.open_since = match is_open {
                true => Some(entry.open_since.unwrap_or(now)),
                false => None,
            };
        }
        self.close_due = self.next_close();
    }

    /// Closes the blocks that were open for long, and those of sessions that became quiet: what is in them is not signed before.
    fn close_if_due(&mut self) {
        let now = now();
        if self.close_due.is_none_or(|due| due > now) {
            return;
        }
        for entry in self.recordings.values_mut() {
            if entry.close_due().is_some_and(|due| due <= now) {
                entry.recording.close_block(&mut self.compressor, &self.disk);
                entry.open_since = None;
                entry.rested = Some(now);
            }
        }
        self.close_due = self.next_close();
    }

    fn next_close(&self) -> Option<Duration> {
        self.recordings.values().filter_map(Entry::close_due).min()
    }

    /// A recording cannot go on: its pipe is closed, which its front notices, and the monitor decides.
    fn failed(&mut self, session: SessionId, why: &str) -> Result<(), WorkerEnd> {
        self.log.warn(&format_args!("a recording ends early: {why}"));
        if let Some(entry) = self.recordings.get_mut(&session) {
            entry.recording.save(&mut self.compressor, &self.disk);
        }
        self.forget(session);
        self.control.say(&FromRecorder::Failed {
            session,
            why: c_text(why.as_bytes()),
        })
    }

    fn forget(&mut self, session: SessionId) {
        if let Some(entry) = self.recordings.remove(&session) {
            self.sessions.remove(&entry.key);
            if let Some(pipe) = entry.recording.pipe() {
                let _ = self.epoll.remove(pipe);
            }
            entry.recording.close(&self.disk);
        }
    }
}

fn position(at: &Position) -> writer::Position {
    writer::Position {
        blocks: at.blocks,
        chain: at.chain,
        anchor: at.anchor,
        length: at.length,
        last: at.last,
    }
}
