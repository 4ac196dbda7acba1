//! A channel of both connections, and the queues in which wait what the other side does not take yet, in the order in which
//! it came. Data never is more than the window that it was sent under; requests have a bound of their own.

use crate::recorder::{Tap, Terminal};
use fleetgate_policy::{Recording, RecordingFailure};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ReplyId, Request, Stream};
use serde_json::json;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// A side that has so much to read first gets no requests meanwhile: no window holds them.
pub(super) const MAX_UNREAD_BYTES: usize = 256 * 1024;

/// What stands in a queue.
pub(super) enum Item {
    Data(Stream, Vec<u8>),
    Request(Request, bool),
    Eof,
    Close,
}

/// What waits for one side.
#[derive(Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    /// What its requests take, about.
    request_bytes: usize,
}

/// A channel of both connections.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) user: Option<ChannelId>,
    pub(super) host: Option<ChannelId>,
    /// Towards the host, towards the user.
    pub(super) up: Queue,
    pub(super) down: Queue,
    /// Requests of the user's, of the host's, that wait for the other side's answer.
    pub(super) asked_up: VecDeque<ReplyId>,
    pub(super) asked_down: VecDeque<ReplyId>,
    /// A program may be asked for, once.
    pub(super) takes_program: bool,
    /// The id of the session of the program that was begun on it, for the audit log.
    pub(super) program: Option<String>,
    pub(super) code: Option<u32>,
    /// The signal that ended it, as SSH names it.
    pub(super) signal: Option<Vec<u8>>,
    /// The terminal that was asked for, and how many answers come before the one that says whether it is there.
    pub(super) terminal: Option<Terminal>,
    pub(super) terminal_answer: Option<usize>,
    /// Its program waits until its recording's files are there.
    pub(super) starting: Option<Starting>,
    /// Its recording.
    pub(super) tap: Option<Tap>,
    /// What follows where that cannot go on.
    pub(super) failure: RecordingFailure,
    /// Nothing of it is passed on: its recording is behind.
    pub(super) held: bool,
    /// It is a forwarded connection.
    pub(super) forward: Option<Forward>,
    /// What was asked for was refused: of the host's side only its end counts.
    pub(super) refused: bool,
    /// The user closed it and waits for the host's last words: nothing else is passed on.
    pub(super) left: bool,
    /// When its roles let it last no longer, and after how many seconds that is.
    pub(super) over: Option<(Pin<Box<Sleep>>, u64)>,
    /// Comes when somebody ordered its end.
    pub(super) ordered: Option<Pin<Box<dyn Future<Output = String>>>>,
}

/// What a user wants to run.
pub(super) struct Program {
    pub(super) session: String,
    pub(super) kind: &'static str,
    pub(super) command: Vec<u8>,
    /// It may last so long.
    pub(super) limit: Option<Duration>,
}

/// A program whose recording is being opened.
pub(super) struct Starting {
    pub(super) program: Program,
    pub(super) recording: Recording,
    pub(super) failure: RecordingFailure,
    pub(super) opened: oneshot::Receiver<Result<(), String>>,
    /// When it has waited for too long.
    pub(super) late: Pin<Box<Sleep>>,
    /// Its request's place in the queue towards the host.
    pub(super) request: usize,
    /// That one waits for an answer.
    pub(super) reply: Option<ReplyId>,
}

/// A connection that the user had forwarded.
pub(super) struct Forward {
    pub(super) to: String,
    /// The host made it.
    pub(super) is_open: bool,
    /// Bytes of the user's, of the other end's.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Forward {
    /// What recordings say of it, in the words of a node's audit log; nothing where there was none.
    pub(super) fn line(&self) -> Option<String> {
        let line = json!({"event": "forwarded", "to": self.to, "sent": self.sent, "received": self.received});
        self.is_open.then(|| line.to_string())
    }
}

impl Pair {
    /// Something passes towards the host.
    pub(super) fn passes_up(&mut self, bytes: &[u8]) {
        if let Some(forward) = &mut self.forward {
            forward.sent += bytes.len() as u64;
        }
        if let Some(tap) = &mut self.tap {
            tap.typed(bytes);
        }
    }

    /// Something passes towards the user.
    pub(super) fn passes_down(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(forward) = &mut self.forward {
            forward.received += bytes.len() as u64;
        }
        if let Some(tap) = &mut self.tap {
            tap.output(stream, bytes);
        }
    }

    /// The host answered a request of the user's; the one that is answered by it.
    pub(super) fn answered(&mut self, done: bool) -> Option<ReplyId> {
        match &mut self.terminal_answer {
            Some(0) => {
                self.terminal_answer = None;
                if !done {
                    self.terminal = None;
                    if let Some(tap) = &mut self.tap {
                        tap.without_terminal();
                    }
                }
            }
            Some(before) => *before -= 1,
            None => {}
        }
        self.asked_up.pop_front()
    }

    /// What requests that wait on it take.
    pub(super) fn request_bytes(&self) -> usize {
        self.up.request_bytes + self.down.request_bytes
    }
}

impl Queue {
    pub(super) fn push(&mut self, item: Item) {
        if let Item::Request(request, _) = &item {
            self.request_bytes += weight(request);
        }
        self.items.push_back(item);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes out the request that stands there, with everything behind it.
    pub(super) fn withdraw(&mut self, at: usize) -> Option<Request> {
        let mut withdrawn = self.items.split_off(at.min(self.items.len()));
        for item in &withdrawn {
            if let Item::Request(request, _) = item {
                self.request_bytes = self.request_bytes.saturating_sub(weight(request));
            }
        }
        match withdrawn.pop_front() {
            Some(Item::Request(request, _)) => Some(request),
            _ => None,
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Queue::default();
    }

    /// Takes from it what `to` takes, and tells the side it came from how much that was.
    pub(super) fn flow(
        &mut self,
        to: &mut Connection,
        channel: ChannelId,
        from: &mut Connection,
        source: Option<ChannelId>,
    ) {
        while let Some(item) = self.items.front_mut() {
            match item {
                Item::Data(stream, bytes) => {
                    let room = to.writable(channel).min(bytes.len());
                    if room == 0 && !bytes.is_empty() {
                        return;
                    }
                    let n = to.write(channel, *stream, &bytes[..room]);
                    if let Some(source) = source {
                        from.consumed(source, n);
                    }
                    if n < bytes.len() {
                        bytes.drain(..n);
                        return;
                    }
                }
                Item::Request(..) if to.output().len() > MAX_UNREAD_BYTES => return,
                Item::Request(request, wanted) => {
                    self.request_bytes = self.request_bytes.saturating_sub(weight(request));
                    to.request(channel, request, *wanted);
                }
                Item::Eof => to.eof(channel),
                Item::Close => to.close(channel),
            }
            self.items.pop_front();
        }
    }

    /// Takes the output that nobody reads any more out of it, so that its program gets to its end.
    pub(super) fn drop_output(&mut self, from: &mut Connection, source: Option<ChannelId>) {
        self.items.retain(|item| {
            let Item::Data(_, bytes) = item else { return true };
            if let Some(source) = source {
                from.consumed(source, bytes.len());
            }
            false
        });
    }
}

/// How much of memory a request takes, about.
fn weight(request: &Request) -> usize {
    let text = match request {
        Request::Pty(pty) => pty.term.len() + pty.modes.len(),
        Request::Exec { command } => command.len(),
        Request::Subsystem { name } | Request::Signal { name } => name.len(),
        Request::Env { name, value } => name.len() + value.len(),
        Request::X11 { protocol, cookie, .. } => protocol.len() + cookie.len(),
        Request::ExitSignal { name, message, .. } => name.len() + message.len(),
        Request::Other { name, payload } => name.len() + payload.len(),
        _ => 0,
    };
    size_of::<Item>() + text
}
