//! One side of a connection without its transport: a test gives it messages, sees its events in short words, and what
//! it sent. The peer is the test.

mod abuse;
mod messages;
mod opening;
mod requests;
mod windows;

use super::{Channels, Message, Role};
use crate::event::{ChannelId, ChannelKind, End, Event, ReplyId, Request, Stream};
use crate::recording_outbox::RecordingOutbox;
use crate::settings::Limits;

/// Small, so that tests reach them.
const LIMITS: fn() -> Limits = || Limits {
    max_channels: 4,
    max_requests_in_flight: 80,
    window: 1000,
    max_packet_data: 300,
    ..Limits::default()
};

/// The side that is tested.
struct Side {
    channels: Channels,
    out: RecordingOutbox,
    /// Replies that are owed, in the order of the requests.
    replies: Vec<ReplyId>,
}

impl Side {
    fn new(role: Role) -> Side {
        Side {
            channels: Channels::new(role, &LIMITS()),
            out: RecordingOutbox::new(),
            replies: Vec::new(),
        }
    }

    fn server() -> Side {
        Side::new(Role::Server)
    }

    fn client() -> Side {
        Side::new(Role::Client)
    }

    fn mirroring(mut self) -> Side {
        self.channels.mirror();
        self
    }

    /// A server with an open session, 0, that the peer calls 7.
    fn with_session() -> Side {
        let mut side = Side::server();
        assert_eq!(side.get(open(7, ChannelKind::Session)), "open 0 Session");
        side.accept(0);
        assert_eq!(side.sent(), ["confirmed 7 as 0, window 1000, packets 300"]);
        side
    }

    /// Gives it a message; the event that follows, or the end.
    fn get(&mut self, message: Message<'_>) -> String {
        let mut payload = Vec::new();
        message.write(&mut payload);
        self.get_bytes(&payload)
    }

    fn get_bytes(&mut self, payload: &[u8]) -> String {
        let got = self.channels.receive(payload, &mut self.out);
        short(got, &mut self.replies)
    }

    /// An event that no message brings.
    fn next(&mut self) -> String {
        short(self.channels.next(&mut self.out), &mut self.replies)
    }

    /// What was sent since this was last asked.
    fn sent(&mut self) -> Vec<String> {
        self.out
            .packets
            .drain(..)
            .map(|p| short_message(&Message::parse(&p).expect("what we send can be read")))
            .collect()
    }

    fn accept(&mut self, n: u32) {
        self.channels.accept(ChannelId(n), &mut self.out);
    }

    fn refuse(&mut self, n: u32) {
        self.channels
            .refuse(ChannelId(n), super::refusal::PROHIBITED, "no", &mut self.out);
    }

    fn open(&mut self) -> Option<u32> {
        let opened = self.channels.open(&ChannelKind::Session, &mut self.out);
        opened.map(|id| id.0)
    }

    fn request(&mut self, n: u32, request: Request) {
        self.channels.request(ChannelId(n), &request, true, &mut self.out);
    }

    fn answer(&mut self, which: usize, done: bool) {
        self.channels.answer(self.replies[which], done, &mut self.out);
    }

    fn write(&mut self, n: u32, bytes: usize) -> usize {
        let bytes = vec![b'x'; bytes];
        self.channels
            .write(ChannelId(n), Stream::Main, &bytes, &mut self.out)
    }

    fn writable(&self, n: u32) -> usize {
        self.channels.writable(ChannelId(n), &self.out)
    }

    fn consumed(&mut self, n: u32, bytes: usize) {
        self.channels.consumed(ChannelId(n), bytes, &mut self.out);
    }

    fn eof(&mut self, n: u32) {
        self.channels.eof(ChannelId(n), &mut self.out);
    }

    fn close(&mut self, n: u32) {
        self.channels.close(ChannelId(n), &mut self.out);
    }
}

/// The peer's window is 500 and its packets 200.
fn open(theirs: u32, kind: ChannelKind) -> Message<'static> {
    Message::Open {
        theirs,
        window: 500,
        max_packet: 200,
        kind,
    }
}

fn confirmed(ours: u32, theirs: u32) -> Message<'static> {
    Message::Confirmed {
        ours,
        theirs,
        window: 500,
        max_packet: 200,
    }
}

fn request(ours: u32, request: Request) -> Message<'static> {
    Message::Request {
        ours,
        request,
        want_reply: true,
    }
}

fn data(ours: u32, bytes: &[u8]) -> Message<'_> {
    Message::Data {
        ours,
        stream: Some(Stream::Main),
        bytes,
    }
}

fn other(name: &str) -> Request {
    Request::Other {
        name: name.into(),
        payload: Vec::new(),
    }
}

fn short(got: Result<Option<Event<'_>>, End>, replies: &mut Vec<ReplyId>) -> String {
    let event = match got {
        Ok(Some(event)) => event,
        Ok(None) => return "-".into(),
        Err(End::Ours { reason, text }) => return format!("{reason:?}: {text}"),
        Err(end) => return end.to_string(),
    };
    match event {
        Event::Open { channel, kind } => format!("open {} {kind:?}", channel.0),
        Event::Opened(n) => format!("opened {}", n.0),
        Event::OpenFailed {
            channel,
            reason,
            text,
        } => {
            format!("refused {} {reason} {}", channel.0, String::from_utf8_lossy(text))
        }
        Event::Data {
            channel,
            stream,
            bytes,
        } => format!("{} bytes on {} {stream:?}", bytes.len(), channel.0),
        Event::Writable(n) => format!("writable {}", n.0),
        Event::Eof(n) => format!("eof {}", n.0),
        Event::Closed(n) => format!("closed {}", n.0),
        Event::Leaving(n) => format!("leaving {}", n.0),
        Event::Request {
            channel,
            request,
            reply,
        } => {
            replies.extend(reply);
            format!("request {} {}", channel.0, request_name(&request))
        }
        Event::Replied { channel, done } => format!("replied {} {done}", channel.0),
        Event::Global { request, reply } => {
            replies.extend(reply);
            format!("global {request:?}")
        }
        Event::GlobalReplied { done } => format!("global replied {done:?}"),
        Event::Alive => "alive".into(),
        other => format!("{other:?}"),
    }
}

fn short_message(message: &Message<'_>) -> String {
    match message {
        Message::Global { request, want_reply } => format!("global {request:?} {want_reply}"),
        Message::GlobalDone(fields) => format!("global done {fields:?}"),
        Message::GlobalRefused => "global refused".into(),
        Message::Open { theirs, .. } => format!("open {theirs}"),
        Message::Confirmed {
            ours,
            theirs,
            window,
            max_packet,
        } => format!("confirmed {ours} as {theirs}, window {window}, packets {max_packet}"),
        Message::Refused { ours, reason, .. } => format!("refused {ours} {reason}"),
        Message::Adjust { ours, bytes } => format!("adjust {ours} {bytes}"),
        Message::Data { ours, bytes, .. } => format!("{} bytes on {ours}", bytes.len()),
        Message::Eof(n) => format!("eof {n}"),
        Message::Close(n) => format!("close {n}"),
        Message::Request { ours, request, .. } => format!("request {ours} {}", request_name(request)),
        Message::Reply { ours, done } => format!("reply {ours} {done}"),
    }
}

fn request_name(request: &Request) -> String {
    match request {
        Request::Other { name, .. } => String::from_utf8_lossy(name).into(),
        Request::Exec { command } => format!("exec {}", command.len()),
        other => format!("{other:?}"),
    }
}
