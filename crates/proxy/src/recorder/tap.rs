//! A session's end of its recording: what the relay passes on becomes frames here, and the writer gets them. It waits for
//! nothing; the relay asks it whether the session has to.

use super::echo::{Echo, Typed};
use super::writer::Job;
use super::{FirstFrame, Line, MAX_WAITING, end, lock};
use fleetgate_policy::Recording;
use fleetgate_record::frame::{self, Kind, MAX_BYTES};
use fleetgate_record::limit::Limited;
use fleetgate_ssh::event::Stream;
use fleetgate_wire::common::SessionId;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

/// So long it waits while nothing is written, as on a node.
pub const STUCK: Duration = Duration::from_secs(5);
/// Events of one recording, of which anybody can make many.
const MAX_EVENTS: u32 = 4_096;

/// One session's.
pub struct Tap {
    work: Sender<Job>,
    line: Arc<Line>,
    session: SessionId,
    since: Instant,
    terminal: bool,
    /// What is typed is recorded.
    input: bool,
    echo: Echo,
    streams: [Limited; 3],
    events: u32,
    /// Set while it is behind, with what was written when it was set.
    stuck: Option<(Pin<Box<Sleep>>, u64)>,
    ended: bool,
}

impl Tap {
    pub(super) fn new(work: Sender<Job>, line: Arc<Line>, frame: &FirstFrame<'_>) -> Tap {
        // A file transfer is no text; how much it was is told at its end.
        let stream = match frame.kind {
            "sftp" => Limited::counted,
            _ => Limited::new,
        };
        Tap {
            work,
            line,
            session: frame.session,
            since: Instant::now(),
            terminal: frame.terminal.is_some(),
            input: frame.recording == Recording::Full,
            echo: Echo::default(),
            streams: [Kind::Stdout, Kind::Stderr, Kind::Stdin].map(stream),
            events: 0,
            stuck: None,
            ended: false,
        }
    }

    /// When it began.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The sshd gave it no terminal.
    pub fn without_terminal(&mut self) {
        self.terminal = false;
    }

    /// What its program said.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        match (self.terminal, stream) {
            (true, _) => {
                if self.input {
                    let typed = self.echo.shown(bytes);
                    self.typed_frames(typed);
                }
                self.put(Kind::Output, bytes);
            }
            (false, Stream::Main) => self.put_limited(0, bytes),
            (false, Stream::Stderr) => self.put_limited(1, bytes),
        }
    }

    /// What its user sent.
    pub fn typed(&mut self, bytes: &[u8]) {
        match (self.input, self.terminal) {
            (true, true) => {
                let typed = self.echo.typed(bytes);
                self.typed_frames(typed);
            }
            (true, false) => self.put_limited(2, bytes),
            _ => {}
        }
    }

    /// The terminal has another size; 0: the client does not know it.
    pub fn resized(&mut self, columns: u32, rows: u32) {
        let sides = u16::try_from(columns).ok().zip(u16::try_from(rows).ok());
        if let Some((columns, rows)) = sides.filter(|(columns, rows)| *columns > 0 && *rows > 0) {
            self.put(Kind::Resize, &frame::resize(columns, rows));
        }
    }

    /// An event that belongs to it, as JSON.
    pub fn event(&mut self, json: &str) {
        let json = json.trim_end();
        if json.is_empty() || json.len() > MAX_BYTES || self.events >= MAX_EVENTS {
            return;
        }
        self.events += 1;
        self.put(Kind::Event, json.as_bytes());
    }

    /// It ended; how, as JSON.
    pub fn end(mut self, json: Vec<u8>) {
        self.finish(json);
    }

    /// It did not begin: there is no recording.
    pub fn discard(mut self) {
        self.ended = true;
        let session = self.session;
        let _ = self.work.send(Job::Discard { session });
    }

    /// It cannot be gone on with. What is written of it stays, and is finished as what a crash leaves.
    pub fn give_up(mut self) {
        self.ended = true;
        let session = self.session;
        let _ = self.work.send(Job::GiveUp { session });
    }

    /// Whether the session has to wait, because so much is not written yet. An error: nothing more is recorded, and why. The
    /// task is woken when either changes.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        {
            let mut state = lock(&self.line.state);
            if let Some(why) = &state.failed {
                return Err(why.clone());
            }
            let is_known = state
                .waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(cx.waker()));
            if !is_known {
                state.waker = Some(cx.waker().clone());
            }
        }
        if !self.is_behind() {
            self.stuck = None;
            return Ok(false);
        }
        let written = self.line.written.load(Relaxed);
        loop {
            let (timer, before) = self
                .stuck
                .get_or_insert_with(|| (Box::pin(sleep(STUCK)), written));
            match timer.as_mut().poll(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(()) if *before == written => {
                    return Err(format!("nothing could be written for {} s", STUCK.as_secs()));
                }
                Poll::Ready(()) => self.stuck = None,
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.line.waiting.load(Relaxed) > MAX_WAITING
    }

    fn typed_frames(&mut self, typed: Vec<Typed>) {
        for typed in typed {
            match typed {
                Typed::Input(bytes) => self.put(Kind::Input, &bytes),
                Typed::Hidden(count) => self.put(Kind::Hidden, &count.to_le_bytes()),
            }
        }
    }

    fn put_limited(&mut self, stream: usize, bytes: &[u8]) {
        let now = self.now();
        let limited = &mut self.streams[stream];
        let (count, kind) = (limited.take(now, bytes.len()), limited.kind());
        self.put(kind, &bytes[..count]);
    }

    fn put(&self, kind: Kind, bytes: &[u8]) {
        for bytes in bytes.chunks(MAX_BYTES) {
            self.line.waiting.fetch_add(bytes.len(), Relaxed);
            let frame = Job::Frame {
                session: self.session,
                kind,
                at: self.now(),
                bytes: bytes.to_vec(),
            };
            // The thread ends with the process only.
            let _ = self.work.send(frame);
        }
    }

    fn finish(&mut self, json: Vec<u8>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let typed = self.echo.finish();
        self.typed_frames(typed);
        for stream in 0..self.streams.len() {
            if let Some(omission) = self.streams[stream].omission() {
                self.put(Kind::Omitted, &omission);
            }
        }
        let end = Job::End {
            session: self.session,
            at: self.now(),
            json,
        };
        let _ = self.work.send(end);
    }

    /// Microseconds since its start.
    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Its connection was lost with it.
impl Drop for Tap {
    fn drop(&mut self) {
        self.finish(end(None, None));
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}
