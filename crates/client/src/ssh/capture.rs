//! One command's session in a run on many nodes: what it says is kept in memory, within bounds, and its owner may have it
//! ended. It reads no standard stream, prints nothing, and knows of no other node.

use fleetgate_ssh::event::{NOT_BEGUN, Request, Stream};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// What is kept of one command's output and errors together.
pub const MAX_OUTPUT: usize = 1 << 20;
/// What is kept of all of them.
pub const MAX_ALL: usize = 256 << 20;
/// What is kept of the words before a login.
const MAX_BANNER: usize = 2048;
/// How long a command has to end after each word that tells it to.
const GRACE: Duration = Duration::from_secs(2);

/// Room that all outputs of a run share.
#[derive(Clone, Debug)]
pub struct Room(Rc<Cell<usize>>);

/// What a command said. It gives its room back when it is dropped.
#[derive(Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Not all of it is here.
    pub cut: Option<Cut>,
    room: Room,
}

/// Why not all of an output was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// It is longer than one may be.
    Own,
    /// All together are longer than they may be.
    All,
}

/// Why a command is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Its time is over.
    TimedOut,
    /// The user cancelled the run.
    Cancelled,
}

/// What is done about a session that is to end, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// Its program gets SIGINT, and the node hears that nothing of it is to stay.
    Interrupt,
    /// It gets SIGKILL.
    Kill,
    /// Its channel is closed, and nobody waits any more.
    Leave,
}

/// A session that is to end.
struct Stopping {
    reason: StopReason,
    last: Option<StopStep>,
    patience: Pin<Box<Sleep>>,
}

/// A session, from its beginning to its end.
pub(crate) struct Capture {
    pub(crate) output: Output,
    /// What the node said before the login.
    banner: Vec<u8>,
    /// The command was sent.
    pub(crate) is_asked: bool,
    /// The node runs it.
    pub(crate) has_begun: bool,
    /// The node says that it does not; its words are on standard error.
    pub(crate) is_refused: bool,
    pub(crate) code: Option<i32>,
    /// The signal that ended it, without SIG.
    pub(crate) signal: Option<String>,
    stop: Pin<Box<dyn Future<Output = StopReason>>>,
    stopping: Option<Stopping>,
    /// Its program was sent a signal.
    was_told: bool,
}

impl Room {
    /// For so many bytes.
    pub(crate) fn new(bytes: usize) -> Room {
        Room(Rc::new(Cell::new(bytes)))
    }
}

impl Output {
    pub(crate) fn new(room: &Room) -> Output {
        Output {
            stdout: Vec::new(),
            stderr: Vec::new(),
            cut: None,
            room: room.clone(),
        }
    }

    /// How many bytes are kept.
    fn len(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        let own = MAX_OUTPUT - self.len();
        let all = self.room.0.get();
        let n = bytes.len().min(own).min(all);
        if n < bytes.len() {
            self.cut
                .get_or_insert(if own <= all { Cut::Own } else { Cut::All });
        }
        self.room.0.set(all - n);
        let kept = match stream {
            Stream::Main => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        kept.extend_from_slice(&bytes[..n]);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.room.0.set(self.room.0.get() + self.len());
    }
}

impl Capture {
    /// A session that ends at the latest when `stop` says so.
    pub(crate) fn new(room: &Room, stop: impl Future<Output = StopReason> + 'static) -> Capture {
        Capture {
            output: Output::new(room),
            banner: Vec::new(),
            is_asked: false,
            has_begun: false,
            is_refused: false,
            code: None,
            signal: None,
            stop: Box::pin(stop),
            stopping: None,
            was_told: false,
        }
    }

    /// What the node said before the login.
    pub(crate) fn banner(&self) -> &[u8] {
        &self.banner
    }

    /// Why it was told to end, if it was.
    pub(crate) fn stopped(&self) -> Option<StopReason> {
        // Before the first step it may have ended by itself.
        let stopping = self.stopping.as_ref().filter(|s| s.last.is_some())?;
        Some(stopping.reason)
    }

    /// Whether its program heard of it.
    pub(crate) fn was_told(&self) -> bool {
        self.was_told
    }

    /// What it said, when all is over.
    pub(crate) fn into_output(self) -> Output {
        self.output
    }

    /// The program has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.code.is_some() || self.signal.is_some()
    }

    pub(crate) fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        self.output.keep(stream, bytes);
    }

    pub(crate) fn keep_banner(&mut self, text: &[u8]) {
        let room = MAX_BANNER - self.banner.len();
        self.banner.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// What the node tells of the session.
    pub(crate) fn heed(&mut self, request: &Request) {
        match request {
            Request::ExitStatus { code } => self.code = Some(i32::from(code.to_le_bytes()[0])),
            Request::ExitSignal { name, .. } => {
                self.signal = Some(String::from_utf8_lossy(name).into_owned());
            }
            Request::Other { name, .. } if name == NOT_BEGUN && !self.has_begun => self.is_refused = true,
            _ => {}
        }
    }

    /// What is to be done now about its end; none: nothing, or nothing yet.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Option<StopStep> {
        let stopping = match &mut self.stopping {
            Some(stopping) => stopping,
            None => {
                let Poll::Ready(reason) = self.stop.as_mut().poll(cx) else {
                    return None;
                };
                self.stopping.insert(Stopping {
                    reason,
                    last: None,
                    patience: Box::pin(sleep(GRACE)),
                })
            }
        };
        // A program that has ended hears no signals: what it left in the background has its output.
        let has_ended = self.code.is_some() || self.signal.is_some();
        let step = match stopping.last {
            Some(StopStep::Leave) => return None,
            None if !self.is_asked || has_ended => StopStep::Leave,
            // Also where it is not known to run: one that is on its way is not to stay either.
            None => StopStep::Interrupt,
            last => {
                if stopping.patience.as_mut().poll(cx).is_pending() {
                    return None;
                }
                match last {
                    Some(StopStep::Interrupt) if !has_ended => StopStep::Kill,
                    _ => StopStep::Leave,
                }
            }
        };
        self.was_told |= step == StopStep::Interrupt;
        stopping.last = Some(step);
        stopping.patience.as_mut().reset(Instant::now() + GRACE);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn, ready};

    #[test]
    fn an_output_is_cut_at_its_bound_and_at_that_of_all() {
        let room = Room::new(2 * MAX_OUTPUT);
        let mut one = Output::new(&room);
        one.keep(Stream::Main, &vec![b'a'; MAX_OUTPUT - 1]);
        assert_eq!(one.cut, None);
        one.keep(Stream::Stderr, b"bc");
        assert_eq!((one.stdout.len(), &one.stderr[..]), (MAX_OUTPUT - 1, &b"b"[..]));
        assert_eq!(one.cut, Some(Cut::Own));
        let mut two = Output::new(&room);
        two.keep(Stream::Main, &vec![b'a'; MAX_OUTPUT - 1]);
        let mut three = Output::new(&room);
        three.keep(Stream::Main, b"de");
        assert_eq!((&three.stdout[..], three.cut), (&b"d"[..], Some(Cut::All)));
        // What is dropped makes room again.
        drop(two);
        three.keep(Stream::Main, b"f");
        assert_eq!(&three.stdout[..], b"df");
        drop((one, three));
        assert_eq!(room.0.get(), 2 * MAX_OUTPUT);
    }

    #[test]
    fn the_words_before_a_login_are_bounded() {
        let mut capture = Capture::new(&Room::new(0), pending());
        capture.keep_banner(&[b'x'; MAX_BANNER - 1]);
        capture.keep_banner(b"yz");
        assert_eq!(capture.banner().len(), MAX_BANNER);
    }

    /// The steps of a session that is told to end at once, each with the seconds until then; the clock is the test's.
    fn steps(
        begin: impl FnOnce(&mut Capture),
        after: impl Fn(StopStep, &mut Capture),
    ) -> Vec<(StopStep, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut capture = Capture::new(&Room::new(0), ready(StopReason::TimedOut));
            begin(&mut capture);
            let start = Instant::now();
            let mut steps = Vec::new();
            while !steps.iter().any(|(step, _)| *step == StopStep::Leave) {
                let step = poll_fn(|cx| match capture.poll_step(cx) {
                    Some(step) => Poll::Ready(step),
                    None => Poll::Pending,
                })
                .await;
                steps.push((step, start.elapsed().as_secs()));
                after(step, &mut capture);
            }
            assert_eq!(capture.stopped(), Some(StopReason::TimedOut));
            steps
        })
    }

    #[test]
    fn a_session_is_told_to_end_step_by_step() {
        use StopStep::{Interrupt, Kill, Leave};
        let runs = |c: &mut Capture| (c.is_asked, c.has_begun) = (true, true);
        assert_eq!(steps(runs, |_, _| {}), [(Interrupt, 0), (Kill, 2), (Leave, 4)]);
        // Its program ended by the first, and something that it left has its output; it had ended before.
        let ended = |c: &mut Capture| c.signal = Some("INT".into());
        assert_eq!(steps(runs, |_, c| ended(c)), [(Interrupt, 0), (Leave, 2)]);
        assert_eq!(steps(|c| (runs(c), ended(c)).1, |_, _| {}), [(Leave, 0)]);
        // Nothing was asked for; it was, and the node does not answer.
        assert_eq!(steps(|_| {}, |_, _| {}), [(Leave, 0)]);
        let asked = |c: &mut Capture| c.is_asked = true;
        assert_eq!(steps(asked, |_, _| {}), [(Interrupt, 0), (Kill, 2), (Leave, 4)]);
    }

    #[test]
    fn what_ended_by_itself_was_not_told_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut capture = Capture::new(&Room::new(0), ready(StopReason::Cancelled));
            assert_eq!(capture.stopped(), None);
            capture.is_asked = true;
            let step = poll_fn(|cx| Poll::Ready(capture.poll_step(cx))).await;
            assert_eq!(step, Some(StopStep::Interrupt));
            assert_eq!(capture.stopped(), Some(StopReason::Cancelled));
        });
    }
}
