//! An event whose bytes are kept as positions in the inbox. The compiler does not take a loop that lends from a buffer
//! on one turn and changes it on the next, so the loop notes positions and the way out of it lends.

use crate::event::{ChannelId, Event, Stream};
use std::ops::Range;

/// One event.
pub(crate) enum PositionedEvent {
    /// It lends nothing.
    Owned(Event<'static>),
    /// The host key that is in question; it stands in the key exchange.
    HostKey,
    Auth(Range<usize>),
    AuthInfo(Range<usize>),
    Banner(Range<usize>),
    OpenFailed {
        channel: ChannelId,
        reason: u32,
        text: Range<usize>,
    },
    Data {
        channel: ChannelId,
        stream: Stream,
        bytes: Range<usize>,
    },
    GlobalReplied(Range<usize>),
}

impl PositionedEvent {
    /// Of an event that may lend from `payload`, which stands at `at` in the inbox.
    pub(crate) fn new(event: Event<'_>, payload: &[u8], at: usize) -> PositionedEvent {
        let place = |part: &[u8]| {
            // An empty part may stand anywhere.
            if part.is_empty() {
                return at..at;
            }
            let offset = part.as_ptr().addr() - payload.as_ptr().addr();
            at + offset..at + offset + part.len()
        };
        PositionedEvent::Owned(match event {
            Event::HostKey(_) => return PositionedEvent::HostKey,
            Event::Auth(b) => return PositionedEvent::Auth(place(b)),
            Event::AuthInfo(b) => return PositionedEvent::AuthInfo(place(b)),
            Event::Banner(b) => return PositionedEvent::Banner(place(b)),
            Event::OpenFailed {
                channel,
                reason,
                text,
            } => {
                let text = place(text);
                return PositionedEvent::OpenFailed {
                    channel,
                    reason,
                    text,
                };
            }
            Event::Data {
                channel,
                stream,
                bytes,
            } => {
                let bytes = place(bytes);
                return PositionedEvent::Data {
                    channel,
                    stream,
                    bytes,
                };
            }
            Event::GlobalReplied { done: Some(b) } => return PositionedEvent::GlobalReplied(place(b)),
            Event::GlobalReplied { done: None } => Event::GlobalReplied { done: None },
            Event::SignExchange(exchange) => Event::SignExchange(exchange),
            Event::Established => Event::Established,
            Event::AuthReply(reply) => Event::AuthReply(reply),
            Event::Open { channel, kind } => Event::Open { channel, kind },
            Event::Opened(channel) => Event::Opened(channel),
            Event::Writable(channel) => Event::Writable(channel),
            Event::Eof(channel) => Event::Eof(channel),
            Event::Closed(channel) => Event::Closed(channel),
            Event::Leaving(channel) => Event::Leaving(channel),
            Event::Request {
                channel,
                request,
                reply,
            } => Event::Request {
                channel,
                request,
                reply,
            },
            Event::Replied { channel, done } => Event::Replied { channel, done },
            Event::Global { request, reply } => Event::Global { request, reply },
            Event::CookieWanted => Event::CookieWanted,
            Event::Alive => Event::Alive,
        })
    }

    /// The event again, lending from the inbox by `bytes`.
    pub(crate) fn borrow<'a>(
        self,
        host_key: &'a [u8],
        bytes: impl Fn(Range<usize>) -> &'a [u8],
    ) -> Event<'a> {
        match self {
            PositionedEvent::Owned(event) => event,
            PositionedEvent::HostKey => Event::HostKey(host_key),
            PositionedEvent::Auth(at) => Event::Auth(bytes(at)),
            PositionedEvent::AuthInfo(at) => Event::AuthInfo(bytes(at)),
            PositionedEvent::Banner(at) => Event::Banner(bytes(at)),
            PositionedEvent::OpenFailed {
                channel,
                reason,
                text,
            } => Event::OpenFailed {
                channel,
                reason,
                text: bytes(text),
            },
            PositionedEvent::Data {
                channel,
                stream,
                bytes: at,
            } => Event::Data {
                channel,
                stream,
                bytes: bytes(at),
            },
            PositionedEvent::GlobalReplied(at) => Event::GlobalReplied {
                done: Some(bytes(at)),
            },
        }
    }
}
