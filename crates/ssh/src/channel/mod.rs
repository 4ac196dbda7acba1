//! Channels, their requests, and requests for the whole connection (RFC 4254): a state machine for either side. It takes
//! one message at a time and gives at most one event; it never waits, and holds no data: what a peer may send is what
//! its owner has room for, what it may make us remember is bounded.
//!
//! Replies go out in the order of the requests, however the owner answers. The numbers of channels are the lowest free
//! ones, or under channel-mirror@fleetgate, on a server, those that the client chose; then its own have the top bit set.

mod answers;
mod data;
#[cfg(any(test, feature = "fuzz"))]
mod driven;
mod kind;
mod message;
mod one;
mod receive;
mod table;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "fuzz"))]
pub use driven::drive;
pub use kind::MAX_HOST_KEYS;
pub use message::Message;
pub(crate) use message::is_ours;

use crate::codec::Malformed;
use crate::event::{ChannelId, ChannelKind, End, Global, Reason, ReplyId, Request};
use crate::settings::Limits;
pub(crate) use crate::settings::Role;
use crate::transport::Outbox;
use one::{Channel, Stage, Waiting};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use table::Table;

/// Requests of one channel that wait for their answer, at most; of the connection: `Limits::max_requests_in_flight`.
pub const MAX_REQUESTS_OF_CHANNEL: usize = 64;
/// Bytes of messages that are kept for channels which the owner did not accept yet, at most, of the connection.
pub const MAX_HELD: usize = 256 * 1024;
/// Opens that are refused while the peer does not read the refusals, at most.
pub const MAX_REFUSALS: u32 = 1024;

/// The window that a channel begins with, if the settings allow so much.
pub const START_WINDOW: u32 = 128 * 1024;
/// By how much the windows of all channels together may grow beyond that: with 128 channels they are 31 MB. So what an
/// owner keeps for programs that do not read is bounded for the connection, and no channel has to wait because of what
/// is kept for another.
pub const MAX_GROWTH: u32 = 15 * 1024 * 1024;

/// RFC 4254 §5.1: why a channel is not opened.
pub mod refusal {
    /// The owner does not want to.
    pub const PROHIBITED: u32 = 1;
    /// There was no way to where it was to lead.
    pub const CONNECT_FAILED: u32 = 2;
    /// Nobody knows this kind.
    pub const UNKNOWN_TYPE: u32 = 3;
    /// There are too many.
    pub const SHORTAGE: u32 = 4;
}

/// All channels of a connection.
pub(crate) struct Channels {
    role: Role,
    max_channels: u32,
    max_requests: usize,
    /// A channel's window at most.
    window: u32,
    max_packet_data: u32,
    /// What is left for windows to grow by.
    growth: u32,
    /// channel-mirror@fleetgate.
    mirror: bool,
    /// Nothing was opened yet.
    fresh: bool,
    /// Client: a server that counts from 0 gives our first channel 0.
    guess: bool,
    no_more_sessions: bool,
    /// By our numbers. `high`: those with the top bit set.
    low: Table<Channel>,
    high: Table<Channel>,
    /// The number of the next request to be answered.
    serial: u32,
    /// Requests of channels that wait for their answer.
    in_flight: usize,
    /// Requests for the connection that wait for it.
    globals: VecDeque<Waiting<Option<Vec<u8>>>>,
    /// Our own requests for the connection that the peer is to answer, first asked first.
    asked: VecDeque<Requester>,
    /// Bytes in `Channel::held`.
    held: usize,
    /// Accepted channels on which messages were held.
    replay: VecDeque<u32>,
    /// Channels that the peer closed first and the owner now too; to be told.
    left: VecDeque<u32>,
    /// Some channel is starved though its window is open.
    room_wanted: AtomicBool,
    /// Who is looked at first when there is room again.
    turn: u32,
    /// Refusals since the peer last read something.
    refusals: u32,
}

/// Who waits for the answer to a global request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requester {
    Owner,
    Keepalive,
}

/// Set in the numbers that a mirroring server chooses.
const TOP: u32 = 1 << 31;
/// In a `ReplyId`, instead of a channel.
const GLOBAL: u32 = u32::MAX;
/// What the bytes of `encode` begin with.
const VERSION: u8 = 1;

impl Channels {
    pub(crate) fn new(role: Role, limits: &Limits) -> Channels {
        Channels {
            role,
            // Numbers stay below the top bit, which is GLOBAL's and the mirror's.
            max_channels: limits.max_channels.min(TOP),
            max_requests: limits.max_requests_in_flight as usize,
            window: limits.window,
            max_packet_data: limits.max_packet_data,
            growth: MAX_GROWTH,
            mirror: false,
            fresh: true,
            guess: role == Role::Client,
            no_more_sessions: false,
            low: Table::new(),
            high: Table::new(),
            serial: 0,
            in_flight: 0,
            globals: VecDeque::new(),
            asked: VecDeque::new(),
            held: 0,
            replay: VecDeque::new(),
            left: VecDeque::new(),
            room_wanted: AtomicBool::new(false),
            turn: 0,
            refusals: 0,
        }
    }

    /// Both sides said channel-mirror@fleetgate. It counts only before the first channel.
    pub(crate) fn mirror(&mut self) {
        self.mirror |= self.fresh;
    }

    /// The server may not count from 0.
    pub(crate) fn guess_no_number(&mut self) {
        self.guess = false;
    }

    /// The peer's number of an open channel.
    pub(crate) fn peer_number(&self, channel: ChannelId) -> Option<u32> {
        self.get(channel.0).filter(|ch| ch.stage == Stage::Open)?.theirs
    }

    /// Whether there is nothing here that would have to move with the connection.
    pub(crate) fn idle(&self) -> bool {
        self.len() == 0 && self.globals.is_empty() && self.asked.is_empty()
    }

    /// The state of an idle one.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.idle(), "only an idle connection moves");
        let flags = u8::from(self.mirror)
            | u8::from(self.fresh) << 1
            | u8::from(self.guess) << 2
            | u8::from(self.no_more_sessions) << 3;
        out.extend_from_slice(&[VERSION, flags]);
    }

    /// The same again; all of `bytes` is its.
    pub(crate) fn decode(bytes: &[u8], role: Role, limits: &Limits) -> Result<Channels, Malformed> {
        let &[version, flags] = bytes else {
            return Err(Malformed::Short("channels"));
        };
        if version != VERSION || flags > 15 {
            return Err(Malformed::Invalid("channels"));
        }
        let mut channels = Channels::new(role, limits);
        channels.mirror = flags & 1 != 0;
        channels.fresh = flags & 2 != 0;
        channels.guess = flags & 4 != 0;
        channels.no_more_sessions = flags & 8 != 0;
        Ok(channels)
    }

    /// Opens a channel. Where the peer's number for it is known beforehand (channel-mirror@fleetgate, or the first
    /// channel of all), requests, EOF and CLOSE go out at once; else they are held until the peer confirmed it.
    pub(crate) fn open(&mut self, kind: &ChannelKind, out: &mut impl Outbox) -> Option<ChannelId> {
        if self.len() >= self.max_channels as usize {
            return None;
        }
        let ours = self.free_number();
        let guess = match self.role {
            Role::Server => None,
            Role::Client if self.mirror => Some(ours),
            Role::Client => (self.fresh && self.guess).then_some(0),
        };
        self.fresh = false;
        self.put(ours, Channel::new(Stage::Opening, guess));
        let message = Message::Open {
            theirs: ours,
            window: self.window_start(),
            max_packet: self.max_packet_data,
            kind: kind.clone(),
        };
        out.packet(|p| message.write(p));
        Some(ChannelId(ours))
    }

    /// Opens what the peer asked for.
    pub(crate) fn accept(&mut self, channel: ChannelId, out: &mut impl Outbox) {
        let (window, max_packet) = (self.window_start(), self.max_packet_data);
        let Some(ch) = self.get_mut(channel.0).filter(|ch| ch.stage == Stage::Asked) else {
            return;
        };
        let Some(theirs) = ch.theirs else { return };
        ch.begin(window);
        let replay = !ch.held.is_empty();
        send(
            out,
            &Message::Confirmed {
                ours: theirs,
                theirs: channel.0,
                window,
                max_packet,
            },
        );
        if replay {
            self.replay.push_back(channel.0);
        }
    }

    /// Refuses it; the number is free again.
    pub(crate) fn refuse(&mut self, channel: ChannelId, reason: u32, text: &str, out: &mut impl Outbox) {
        if self.get(channel.0).is_some_and(|ch| ch.stage == Stage::Asked)
            && let Some(ch) = self.remove(channel.0)
            && let Some(theirs) = ch.theirs
        {
            let text = text.as_bytes();
            send(
                out,
                &Message::Refused {
                    ours: theirs,
                    reason,
                    text,
                },
            );
        }
    }

    /// Sends a request on a channel. Dropped when we closed it.
    pub(crate) fn request(
        &mut self,
        channel: ChannelId,
        request: &Request,
        want_reply: bool,
        out: &mut impl Outbox,
    ) {
        let Some(ch) = self.get_mut(channel.0) else { return };
        if ch.close_sent || ch.stage == Stage::Asked {
            return;
        }
        ch.expected += u32::from(want_reply);
        ch.say(out, |p, theirs| {
            kind::write_request(p, theirs, request, want_reply)
        });
    }

    /// Sends a request for the whole connection.
    pub(crate) fn global(&mut self, request: &Global, want_reply: bool, out: &mut impl Outbox) {
        if want_reply {
            self.asked.push_back(Requester::Owner);
        }
        // A server that listens for us may open a channel before our first one.
        self.guess &= matches!(request, Global::NoMoreSessions);
        out.packet(|p| kind::write_global(p, request, want_reply));
    }

    /// Asks whether the peer lives, for where it does not know ping@openssh.com. The answer is `Event::Alive`.
    pub(crate) fn keepalive(&mut self, out: &mut impl Outbox) {
        self.asked.push_back(Requester::Keepalive);
        let request = Global::Other {
            name: KEEPALIVE.to_vec(),
            payload: Vec::new(),
        };
        out.packet(|p| kind::write_global(p, &request, true));
    }

    /// Sends nothing more on a channel but its requests.
    pub(crate) fn eof(&mut self, channel: ChannelId, out: &mut impl Outbox) {
        let Some(ch) = self.get_mut(channel.0) else { return };
        if ch.stage != Stage::Asked && !ch.eof_sent && !ch.close_sent {
            ch.eof_sent = true;
            ch.say(out, |p, theirs| Message::Eof(theirs).write(p));
        }
    }

    /// The peer's CLOSE is not answered before the owner closes the channel: it has a request to send still.
    pub(crate) fn close_later(&mut self, channel: ChannelId) {
        if let Some(ch) = self.get_mut(channel.0) {
            ch.close_later = true;
        }
    }

    /// Closes a channel. Requests that wait for an answer are refused first, and EOF goes before CLOSE, as OpenSSH has
    /// it. What the peer still sends is dropped; its number is free when the peer closed it too.
    pub(crate) fn close(&mut self, channel: ChannelId, out: &mut impl Outbox) {
        match self.get(channel.0).map(|ch| ch.stage) {
            Some(Stage::Asked) => self.refuse(channel, refusal::PROHIBITED, "closed", out),
            Some(_) => {
                self.refuse_waiting(channel.0, out);
                self.eof(channel, out);
                let Some(ch) = self.get_mut(channel.0) else { return };
                if !ch.close_sent {
                    ch.close_sent = true;
                    ch.say(out, |p, theirs| Message::Close(theirs).write(p));
                }
                if ch.close_received && self.remove(channel.0).is_some() {
                    self.left.push_back(channel.0);
                }
            }
            None => {}
        }
    }

    fn len(&self) -> usize {
        self.low.len() + self.high.len()
    }

    fn window_start(&self) -> u32 {
        self.window.min(START_WINDOW)
    }

    /// For a channel that we open.
    fn free_number(&self) -> u32 {
        if self.mirror && self.role == Role::Server {
            self.high.free() | TOP
        } else {
            self.low.free()
        }
    }

    fn get(&self, ours: u32) -> Option<&Channel> {
        if ours & TOP == 0 {
            self.low.get(ours)
        } else {
            self.high.get(ours & !TOP)
        }
    }

    fn get_mut(&mut self, ours: u32) -> Option<&mut Channel> {
        if ours & TOP == 0 {
            self.low.get_mut(ours)
        } else {
            self.high.get_mut(ours & !TOP)
        }
    }

    fn put(&mut self, ours: u32, ch: Channel) {
        if ours & TOP == 0 {
            self.low.put(ours, ch);
        } else {
            self.high.put(ours & !TOP, ch);
        }
    }

    /// Forgets a channel and all that it stood for.
    fn remove(&mut self, ours: u32) -> Option<Box<Channel>> {
        let ch = if ours & TOP == 0 {
            self.low.take(ours)
        } else {
            self.high.take(ours & !TOP)
        }?;
        self.in_flight -= ch.waiting.len();
        self.growth += ch.whole.saturating_sub(self.window_start());
        if ch.stage != Stage::Opening {
            self.held -= ch.held.iter().map(|p| held_size(p)).sum::<usize>();
        }
        Some(ch)
    }

    fn reply_id(channel: u32, serial: u32) -> ReplyId {
        ReplyId(u64::from(channel) << 32 | u64::from(serial))
    }
}

/// OpenSSH's question whether we live.
const KEEPALIVE: &[u8] = b"keepalive@openssh.com";

impl Channel {
    /// Sends a message, or holds it where the peer's number is not known yet.
    fn say(&mut self, out: &mut impl Outbox, write: impl FnOnce(&mut Vec<u8>, u32)) {
        match self.theirs {
            Some(theirs) => out.packet(|p| write(p, theirs)),
            None => {
                let mut payload = Vec::new();
                write(&mut payload, 0);
                self.held.push_back(payload);
            }
        }
    }
}

fn send(out: &mut impl Outbox, message: &Message<'_>) {
    out.packet(|p| message.write(p));
}

/// What a held message counts for: its bytes and what it costs to keep them.
fn held_size(payload: &[u8]) -> usize {
    payload.len() + 48
}

/// The peer wants more than we give.
fn too_much(text: impl Into<String>) -> End {
    End::ours(Reason::ByApplication, text)
}
