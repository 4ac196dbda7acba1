//! A channel of both connections, and the queues in which wait what the other side does not take yet, in the order in which
//! it came. Data never is more than the window that it was sent under; requests have a bound of their own.

use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ReplyId, Request, Stream};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
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
    /// What was asked for was refused: of the host's side only its end counts.
    pub(super) refused: bool,
    /// The user closed it and waits for the host's last words: nothing else is passed on.
    pub(super) left: bool,
    /// When its roles let it last no longer, and after how many seconds that is.
    pub(super) over: Option<(Pin<Box<Sleep>>, u64)>,
    /// Comes when somebody ordered its end.
    pub(super) ordered: Option<Pin<Box<dyn Future<Output = String>>>>,
}

impl Pair {
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
