//! What a peer's messages do. Whatever breaks the protocol or a bound ends the connection, with the reason.

use super::one::{Channel, Stage, Waiting};
use super::{
    Channels, GLOBAL, KEEPALIVE, MAX_HELD, MAX_REFUSALS, MAX_REQUESTS_OF_CHANNEL, Message, Requester, Role,
    TOP, held_size, message, refusal, send, too_much,
};
use crate::event::{ChannelId, ChannelKind, End, Event, Global, ReplyId, Request, Stream};
use crate::transport::Outbox;
use std::sync::atomic::Ordering;

impl Channels {
    /// Events that no message brings: channels that were left, what was said on one before it was accepted, and room to
    /// write. To be asked until there is none before the next message is given to `receive`.
    pub(crate) fn next(&mut self, out: &mut impl Outbox) -> Result<Option<Event<'static>>, End> {
        if let Some(ours) = self.left.pop_front() {
            return Ok(Some(Event::Closed(ChannelId(ours))));
        }
        while let Some(&ours) = self.replay.front() {
            let Some(payload) = self.get_mut(ours).and_then(|ch| ch.held.pop_front()) else {
                self.replay.pop_front();
                continue;
            };
            self.held -= held_size(&payload);
            let message = Message::parse(&payload).map_err(|e| malformed(&payload, e))?;
            if let Some(event) = self.on_holdable(message, out)? {
                return Ok(Some(event));
            }
        }
        Ok(self.next_writable(out))
    }

    /// Takes a message whose number is one of ours.
    pub(crate) fn receive<'a>(
        &mut self,
        payload: &'a [u8],
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'a>>, End> {
        match Message::parse(payload).map_err(|e| malformed(payload, e))? {
            Message::Global { request, want_reply } => self.on_global(request, want_reply, out),
            Message::GlobalDone(fields) => self.on_global_reply(Some(fields)),
            Message::GlobalRefused => self.on_global_reply(None),
            Message::Open {
                theirs,
                window,
                max_packet,
                kind,
            } => self.on_open(theirs, (window, max_packet), kind, out),
            Message::Confirmed {
                ours,
                theirs,
                window,
                max_packet,
            } => self.on_confirmed(ours, theirs, (window, max_packet), out),
            Message::Refused { ours, reason, text } => self.on_refused(ours, reason, text),
            Message::Adjust { ours, bytes } => self.on_adjust(ours, bytes, out),
            Message::Data { ours, stream, bytes } => self.on_data(ours, stream, bytes, out),
            Message::Reply { ours, done } => self.on_reply(ours, done),
            message @ (Message::Eof(ours) | Message::Close(ours) | Message::Request { ours, .. }) => {
                match self.get(ours) {
                    Some(ch) if ch.stage == Stage::Asked => self.hold(ours, payload).map(|()| None),
                    _ => self.on_holdable(message, out),
                }
            }
        }
    }

    /// A channel that messages may come for. None: they are to be ignored.
    fn open_channel(&mut self, ours: u32, what: &str) -> Result<Option<&mut Channel>, End> {
        // A client that knows our numbers beforehand may have said something on a channel that we refused meanwhile.
        let ahead = self.mirror && self.role == Role::Server && ours & TOP == 0;
        match self.get_mut(ours) {
            Some(ch) if ch.stage == Stage::Open => Ok(Some(ch)),
            None if ahead => Ok(None),
            Some(_) => Err(End::protocol(format!(
                "{what} for channel {ours}, which is not open yet"
            ))),
            None => Err(End::protocol(format!(
                "{what} for channel {ours}, which does not exist"
            ))),
        }
    }

    /// What may be said ahead and is therefore held until the channel is open: requests, EOF and CLOSE.
    fn on_holdable(
        &mut self,
        message: Message<'_>,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        match message {
            Message::Eof(ours) => {
                let Some(ch) = self.open_channel(ours, "EOF")? else {
                    return Ok(None);
                };
                let first = !std::mem::replace(&mut ch.eof_received, true);
                Ok((first && !ch.close_sent).then_some(Event::Eof(ChannelId(ours))))
            }
            Message::Close(ours) => {
                let Some(ch) = self.open_channel(ours, "CLOSE")? else {
                    return Ok(None);
                };
                if ch.close_later && !ch.close_sent {
                    let first = !std::mem::replace(&mut ch.close_received, true);
                    return Ok(first.then_some(Event::Leaving(ChannelId(ours))));
                }
                if let Some(ch) = self.remove(ours)
                    && let (false, Some(theirs)) = (ch.close_sent, ch.theirs)
                {
                    send(out, &Message::Close(theirs));
                }
                Ok(Some(Event::Closed(ChannelId(ours))))
            }
            Message::Request {
                ours,
                request,
                want_reply,
            } => self.on_request(ours, request, want_reply, out),
            _ => Ok(None),
        }
    }

    fn on_request(
        &mut self,
        ours: u32,
        request: Request,
        want_reply: bool,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        let full = self.in_flight + self.globals.len() >= self.max_requests;
        let serial = self.serial;
        let Some(ch) = self.open_channel(ours, "a request")? else {
            return Ok(None);
        };
        // Nothing can be answered behind our CLOSE, and nobody is there to do it. An exit status may still come.
        let told = matches!(request, Request::ExitStatus { .. } | Request::ExitSignal { .. });
        if ch.close_sent && (want_reply || !told) {
            return Ok(None);
        }
        let keepalive = matches!(&request, Request::Other { name, .. } if name == KEEPALIVE);
        if want_reply {
            if full || ch.waiting.len() >= MAX_REQUESTS_OF_CHANNEL {
                return Err(too_many_requests());
            }
            let answer = keepalive.then_some(false);
            ch.waiting.push_back(Waiting { serial, answer });
            self.in_flight += 1;
            self.serial = serial.wrapping_add(1);
        }
        if keepalive {
            self.send_answers(ours, out);
            return Ok(None);
        }
        Ok(Some(Event::Request {
            channel: ChannelId(ours),
            request,
            reply: want_reply.then(|| Self::reply_id(ours, serial)),
        }))
    }

    fn on_reply(&mut self, ours: u32, done: bool) -> Result<Option<Event<'static>>, End> {
        let Some(ch) = self.open_channel(ours, "a reply")? else {
            return Ok(None);
        };
        if ch.expected == 0 {
            return Err(End::protocol(format!("a reply on channel {ours} to no request")));
        }
        ch.expected -= 1;
        Ok((!ch.close_sent).then_some(Event::Replied {
            channel: ChannelId(ours),
            done,
        }))
    }

    fn on_global(
        &mut self,
        request: Global,
        want_reply: bool,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        let keepalive = matches!(&request, Global::Other { name, .. } if name == KEEPALIVE);
        let mut reply: Option<ReplyId> = None;
        if want_reply {
            if self.in_flight + self.globals.len() >= self.max_requests {
                return Err(too_many_requests());
            }
            let serial = self.serial;
            self.serial = serial.wrapping_add(1);
            let answer = keepalive.then_some(None);
            self.globals.push_back(Waiting { serial, answer });
            reply = Some(Self::reply_id(GLOBAL, serial));
        }
        if keepalive {
            self.send_global_answers(out);
            return Ok(None);
        }
        if request == Global::NoMoreSessions && self.role == Role::Server {
            self.no_more_sessions = true;
        }
        Ok(Some(Event::Global { request, reply }))
    }

    fn on_global_reply<'a>(&mut self, done: Option<&'a [u8]>) -> Result<Option<Event<'a>>, End> {
        match self.asked.pop_front() {
            Some(Requester::Owner) => Ok(Some(Event::GlobalReplied { done })),
            Some(Requester::Keepalive) => Ok(Some(Event::Alive)),
            None => Err(End::protocol("a reply to no global request")),
        }
    }

    fn on_open(
        &mut self,
        theirs: u32,
        (window, max_packet): (u32, u32),
        kind: ChannelKind,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        self.fresh = false;
        let mirrored = self.mirror && self.role == Role::Server;
        if kind == ChannelKind::Session && self.role == Role::Server && self.no_more_sessions {
            return Err(End::protocol("a session was asked for after no-more-sessions"));
        }
        // RFC 4254 §6.1: a client refuses sessions.
        if kind == ChannelKind::Session && self.role == Role::Client {
            return self.turn_away(theirs, refusal::PROHIBITED, "a client has no sessions", out);
        }
        if mirrored && self.get(theirs).is_some() {
            return Err(End::protocol(format!("channel {theirs} was opened twice")));
        }
        if self.len() >= self.max_channels as usize || mirrored && theirs >= self.max_channels {
            return self.turn_away(theirs, refusal::SHORTAGE, "too many channels", out);
        }
        let ours = if mirrored { theirs } else { self.low.free() };
        let mut ch = Channel::new(Stage::Asked, Some(theirs));
        ch.send_window = window;
        ch.send_packet = max_packet;
        self.put(ours, ch);
        Ok(Some(Event::Open {
            channel: ChannelId(ours),
            kind,
        }))
    }

    /// Refuses an open without asking the owner. A peer that never reads what we say makes us hold only so many.
    fn turn_away(
        &mut self,
        theirs: u32,
        reason: u32,
        text: &str,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        if out.room() > 0 {
            self.refusals = 0;
        }
        self.refusals += 1;
        if self.refusals > MAX_REFUSALS {
            return Err(too_much(format!(
                "{MAX_REFUSALS} refused channels, and no refusal was read"
            )));
        }
        let text = text.as_bytes();
        send(
            out,
            &Message::Refused {
                ours: theirs,
                reason,
                text,
            },
        );
        Ok(None)
    }

    fn on_confirmed(
        &mut self,
        ours: u32,
        theirs: u32,
        (window, max_packet): (u32, u32),
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        let window_start = self.window_start();
        let ch = self.opening(ours)?;
        if ch.theirs.is_some_and(|guess| guess != theirs) {
            return Err(too_much(format!(
                "the server calls channel {ours} {theirs}, and other was said ahead"
            )));
        }
        ch.begin(window_start);
        ch.theirs = Some(theirs);
        ch.send_window = window;
        ch.send_packet = max_packet;
        ch.fed();
        for mut payload in std::mem::take(&mut ch.held) {
            // All that is held begins with its number and the peer's number for the channel.
            payload[1..5].copy_from_slice(&theirs.to_be_bytes());
            out.packet(|p| p.append(&mut payload));
        }
        Ok((!ch.close_sent).then_some(Event::Opened(ChannelId(ours))))
    }

    fn on_refused<'a>(&mut self, ours: u32, reason: u32, text: &'a [u8]) -> Result<Option<Event<'a>>, End> {
        self.opening(ours)?;
        self.remove(ours);
        Ok(Some(Event::OpenFailed {
            channel: ChannelId(ours),
            reason,
            text,
        }))
    }

    /// A channel that the peer may confirm or refuse.
    fn opening(&mut self, ours: u32) -> Result<&mut Channel, End> {
        self.get_mut(ours)
            .filter(|ch| ch.stage == Stage::Opening)
            .ok_or_else(|| End::protocol(format!("an answer to opening channel {ours}, which nobody opens")))
    }

    fn on_adjust(
        &mut self,
        ours: u32,
        bytes: u32,
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'static>>, End> {
        // A client whose program still reads what came may give room after both sides have said CLOSE (paramiko does, from
        // another thread than the one that closes). As in sshd, that is no error: nothing is done for it.
        if self.get_mut(ours).is_none() {
            return Ok(None);
        }
        let Some(ch) = self.open_channel(ours, "a window")? else {
            return Ok(None);
        };
        // RFC 4254 §5.2: a window is at most 2^32 - 1.
        ch.send_window = ch
            .send_window
            .checked_add(bytes)
            .ok_or_else(|| End::protocol(format!("the window of channel {ours} grows beyond 2^32 - 1")))?;
        if !ch.starved() || ch.sendable() == 0 {
            return Ok(None);
        }
        if out.room() == 0 {
            self.room_wanted.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        ch.fed();
        Ok(Some(Event::Writable(ChannelId(ours))))
    }

    fn on_data<'a>(
        &mut self,
        ours: u32,
        stream: Option<Stream>,
        bytes: &'a [u8],
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'a>>, End> {
        let max_packet = self.max_packet_data as usize;
        let Some(ch) = self.open_channel(ours, "data")? else {
            return Ok(None);
        };
        if ch.eof_received {
            return Err(End::protocol(format!("data on channel {ours} after its EOF")));
        }
        if bytes.len() > max_packet {
            return Err(End::protocol(format!(
                "{} bytes of data in one packet on channel {ours}, of {max_packet} at most",
                bytes.len()
            )));
        }
        let window = ch.window;
        if !u32::try_from(bytes.len()).is_ok_and(|n| ch.take_in(n)) {
            return Err(End::protocol(format!(
                "{} bytes of data on channel {ours}, whose window has {window}",
                bytes.len()
            )));
        }
        match stream {
            _ if ch.close_sent || bytes.is_empty() => Ok(None),
            Some(stream) => Ok(Some(Event::Data {
                channel: ChannelId(ours),
                stream,
                bytes,
            })),
            // RFC 4254 §5.2 names only stderr. What nobody reads has been read.
            None => {
                self.consumed(ChannelId(ours), bytes.len(), out);
                Ok(None)
            }
        }
    }

    /// Keeps a message for a channel that the owner has not accepted.
    fn hold(&mut self, ours: u32, payload: &[u8]) -> Result<(), End> {
        let size = held_size(payload);
        if self.held + size > MAX_HELD {
            return Err(too_much(format!(
                "more than {MAX_HELD} bytes were said on channels that are not open yet"
            )));
        }
        if let Some(ch) = self.get_mut(ours) {
            ch.held.push_back(payload.to_vec());
            self.held += size;
        }
        Ok(())
    }
}

fn malformed(payload: &[u8], e: crate::codec::Malformed) -> End {
    let name = payload.first().and_then(|&n| message::name(n));
    End::malformed(name.unwrap_or("a message"), e)
}

fn too_many_requests() -> End {
    too_much("too many requests wait for their answer")
}
