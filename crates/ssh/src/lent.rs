//! An event whose bytes are kept as positions in the inbox. The compiler does not take a loop that lends from a buffer
//! on one turn and changes it on the next, so the loop notes positions and the way out of it lends.

use crate::event::{ChannelId, Event, Stream};
use std::ops::Range;

/// One event.
pub(crate) enum Lent {
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

impl Lent {
    /// Of an event that may lend from `payload`, which stands at `at` in the inbox.
    pub(crate) fn note(event: Event<'_>, payload: &[u8], at: usize) -> Lent {
        let place = |part: &[u8]| {
            // An empty part may stand anywhere.
            if part.is_empty() {
                return at..at;
            }
            let offset = part.as_ptr().addr() - payload.as_ptr().addr();
            at + offset..at + offset + part.len()
        };
        Lent::Owned(match event {
            Event::HostKey(_) => return Lent::HostKey,
            Event::Auth(b) => return Lent::Auth(place(b)),
            Event::AuthInfo(b) => return Lent::AuthInfo(place(b)),
            Event::Banner(b) => return Lent::Banner(place(b)),
            Event::OpenFailed {
                channel,
                reason,
                text,
            } => {
                let text = place(text);
                return Lent::OpenFailed {
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
                return Lent::Data {
                    channel,
                    stream,
                    bytes,
                };
            }
            Event::GlobalReplied { done: Some(b) } => return Lent::GlobalReplied(place(b)),
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
    pub(crate) fn lend<'a>(self, host_key: &'a [u8], bytes: impl Fn(Range<usize>) -> &'a [u8]) -> Event<'a> {
        match self {
            Lent::Owned(event) => event,
            Lent::HostKey => Event::HostKey(host_key),
            Lent::Auth(at) => Event::Auth(bytes(at)),
            Lent::AuthInfo(at) => Event::AuthInfo(bytes(at)),
            Lent::Banner(at) => Event::Banner(bytes(at)),
            Lent::OpenFailed {
                channel,
                reason,
                text,
            } => Event::OpenFailed {
                channel,
                reason,
                text: bytes(text),
            },
            Lent::Data {
                channel,
                stream,
                bytes: at,
            } => Event::Data {
                channel,
                stream,
                bytes: bytes(at),
            },
            Lent::GlobalReplied(at) => Event::GlobalReplied {
                done: Some(bytes(at)),
            },
        }
    }
}
