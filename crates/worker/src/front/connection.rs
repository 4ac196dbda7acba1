//! One connection of the login: its socket, its SSH core, its channels. It reads, deals with and writes what there is,
//! and keeps no more than the windows allow. A peer that sends garbage loses this and nothing else.

use super::Context;
use super::channel::{Channel, Listener, Use};
use super::pump::Which;
use crate::lobby::reason_of;
use crate::start::WorkerEnd;
use fleetgate_record::live::Start;
use fleetgate_ssh::event::{End, Event, Global, ReplyId};
use fleetgate_ssh::settings::Settings;
use fleetgate_ssh::{Connection, driver};
use fleetgate_sys::epoll::{self, Epoll};
use fleetgate_sys::{Errno, Fd, net, stream};
use fleetgate_wire::node::front::{FromFront, Ticket, ToFront};
use fleetgate_wire::node::{self, FrontPermits};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Reads, dealings and writes in one turn, before other connections have theirs.
const ROUNDS: usize = 8;
/// What clients may have sent to programs that do not read, of one connection. Beyond it nothing more is read from it.
pub(super) const MAX_UNREAD_BYTES: usize = 32 << 20;
/// How long a peer may take to read our closing message.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// One connection.
pub(super) struct FrontConnection {
    pub(super) number: node::ConnectionNumber,
    pub(super) place: u32,
    pub(super) core: Connection,
    socket: Fd,
    readable: bool,
    hung_up: bool,
    writable: bool,
    pub(super) permits: FrontPermits,
    pub(super) channels: BTreeMap<u32, Channel>,
    /// What the monitor's answers by these tickets are for.
    pub(super) uses: BTreeMap<Ticket, Use>,
    pub(super) last_ticket: Ticket,
    pub(super) listeners: BTreeMap<u32, Listener>,
    /// The ticket of the agent's socket: one for all sessions.
    pub(super) agent: Option<Ticket>,
    /// Channels that may have something for the client.
    pub(super) busy: VecDeque<u32>,
    /// Bytes that are kept for programs.
    pub(super) kept: usize,
    /// Host keys were told.
    pub(super) announced: bool,
    pub(super) denied: u32,
    /// It stands in the queue for a turn.
    due: bool,
    /// Channels that wait for the recorder, and when one of them has waited too long.
    pub(super) held: Vec<u32>,
    pub(super) recorder_due: Option<Duration>,
    /// Channels that others see, and when viewers are looked at again.
    pub(super) viewed: Vec<u32>,
    pub(super) views_due: Option<Duration>,
    /// An EOF that waits for the exit status, at the latest until then.
    pub(super) eof_due: Option<Duration>,
    ending: Option<Ending>,
}

/// How it ends.
struct Ending {
    why: String,
    /// Nothing is to be said to the peer.
    silent: bool,
    /// Until when it may read our closing message.
    until: Option<Duration>,
}

/// What a turn left.
pub(super) enum TurnResult {
    Idle,
    /// There is more to do.
    More,
    Ended(String),
}

impl FrontConnection {
    /// From what the lobby handed over.
    pub(super) fn thaw(
        number: node::ConnectionNumber,
        place: u32,
        (settings, frozen): (Arc<Settings>, &[u8]),
        socket: Fd,
        permits: FrontPermits,
        cookie: [u8; 16],
    ) -> Result<FrontConnection, String> {
        let mut core = Connection::thaw(frozen, settings)
            .map_err(|e| format!("the lobby's state cannot be read: {e}"))?;
        core.cookie(cookie);
        Ok(FrontConnection {
            number,
            place,
            core,
            socket,
            readable: true,
            hung_up: false,
            writable: true,
            permits,
            channels: BTreeMap::new(),
            uses: BTreeMap::new(),
            last_ticket: 0,
            listeners: BTreeMap::new(),
            agent: None,
            busy: VecDeque::new(),
            kept: 0,
            announced: false,
            denied: 0,
            due: false,
            held: Vec::new(),
            recorder_due: None,
            viewed: Vec::new(),
            views_due: None,
            eof_due: None,
            ending: None,
        })
    }

    pub(super) fn socket(&self) -> &Fd {
        &self.socket
    }

    /// Whether it was not yet in the queue for a turn.
    pub(super) fn becomes_due(&mut self) -> bool {
        !std::mem::replace(&mut self.due, true)
    }

    pub(super) fn ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable;
        self.writable |= writable;
        self.hung_up |= hung_up;
    }

    pub(super) fn channel_ready(&mut self, channel: u32, which: Which, event: &epoll::Event) {
        let Some(ch) = self.channels.get_mut(&channel) else {
            return;
        };
        ch.pump()
            .ready(which, event.readable(), event.writable(), event.hung_up());
        self.queue(channel);
        self.flush(channel);
    }

    /// When a turn is wanted at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let until = self.ending.as_ref().and_then(|e| e.until);
        [
            self.core.deadline().filter(|_| self.ending.is_none()),
            self.eof_due,
            self.recorder_due,
            self.views_due,
            until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Ends it with a DISCONNECT.
    fn end(&mut self, reason: u32, text: &str) {
        if self.ending.is_none() {
            self.core.disconnect(reason_of(reason), text);
            self.ending = Some(Ending {
                why: text.to_owned(),
                silent: false,
                until: None,
            });
        }
    }

    /// A message of the monitor's about this connection.
    pub(super) fn obey(
        &mut self,
        message: ToFront,
        fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        match message {
            ToFront::Signed {
                signature, cookie, ..
            } => self.core.signed(&signature, cookie),
            ToFront::Started {
                ticket,
                is_socket,
                output_limit,
                recorded,
                ..
            } => self.started(ticket, (is_socket, output_limit, recorded), fds, context)?,
            ToFront::RecordAnew { ticket, .. } => self.record_anew(ticket, fds),
            ToFront::Viewing {
                ticket, at, recorded, ..
            } => self.viewing(ticket, Start { at, recorded }, fds, context)?,
            ToFront::View {
                ticket,
                viewer,
                who,
                types,
                ..
            } => self.view(ticket, (viewer, &who, types), fds, context),
            ToFront::EndView { ticket, viewer, .. } => self.end_view(ticket, viewer),
            ToFront::NotStarted {
                ticket,
                why,
                is_final,
                ..
            } => self.not_started(ticket, &why, is_final),
            ToFront::Ended {
                ticket, ended, why, ..
            } => self.program_ended(ticket, &ended, &why),
            ToFront::Ending { ticket, .. } => self.program_ends(ticket),
            ToFront::Network { ticket, done, .. } => self.network(ticket, done, fds, context)?,
            ToFront::Proved {
                ticket, signatures, ..
            } => self.proved(ticket, signatures),
            ToFront::End { reason, text, .. } => self.end(reason, &text.to_string_lossy()),
            ToFront::Draining { .. } => {
                // Whoever does not know it skips it (RFC 4254 §4).
                let draining = Global::Other {
                    name: fleetgate_ssh::event::DRAINING.to_vec(),
                    payload: Vec::new(),
                };
                self.core.global(&draining, false);
            }
            ToFront::Begin { .. } | ToFront::Arrived { .. } => {}
        }
        Ok(())
    }

    /// Reads, deals with and writes what there is.
    pub(super) fn turn(&mut self, context: &mut Context<'_>) -> Result<TurnResult, WorkerEnd> {
        self.due = false;
        self.core.tick(context.now);
        self.pass_eofs(context.now);
        let turned = self.rounds(context);
        self.hold_eofs(context.now);
        turned
    }

    fn rounds(&mut self, context: &mut Context<'_>) -> Result<TurnResult, WorkerEnd> {
        for _ in 0..ROUNDS {
            if self.ending.is_none() {
                self.deal(context)?;
            }
            let poured = self.ending.is_none() && self.pour();
            if !self.held.is_empty() {
                self.watch_recordings(context)?;
            }
            if !self.viewed.is_empty() && self.ending.is_none() {
                self.serve_views(context)?;
            }
            let wrote = match self.write() {
                Ok(wrote) => wrote,
                Err(e) => return Ok(TurnResult::Ended(format!("writing: {e}"))),
            };
            if let Some(ended) = self.closing(context.now) {
                return Ok(ended);
            }
            let read = !context.control.is_congested()
                && self.readable
                && self.kept < MAX_UNREAD_BYTES
                && self.core.wants_input();
            if read && let Some(why) = self.read() {
                return Ok(TurnResult::Ended(why));
            }
            // What was written made room, which the core tells of when it is asked.
            if !read && !poured && !wrote {
                return Ok(TurnResult::Idle);
            }
        }
        Ok(TurnResult::More)
    }

    /// What is left of a connection that ends.
    fn closing(&mut self, now: Duration) -> Option<TurnResult> {
        let unsaid = !self.core.output().is_empty();
        let ending = self.ending.as_mut()?;
        let until = *ending.until.get_or_insert(now + CLOSING_TIME);
        if ending.silent || !unsaid || until <= now {
            return Some(TurnResult::Ended(std::mem::take(&mut ending.why)));
        }
        Some(TurnResult::Idle)
    }

    /// Ends the connection itself: the monitor has a descriptor of it too, so closing ours would not. Its number, and
    /// the bytes that it received and sent.
    pub(super) fn leave(&mut self, epoll: &Epoll) -> (node::ConnectionNumber, u64, u64) {
        // Unread bytes would make the kernel reset the connection, and the peer lose our closing message.
        let mut rest = [0u8; 4096];
        let _ = net::shut_sending(&self.socket);
        for _ in 0..64 {
            if !matches!(stream::receive_now(self.socket.raw(), &mut rest), Ok(n) if n == rest.len()) {
                break;
            }
        }
        let _ = net::shut(&self.socket);
        let _ = epoll.remove(&self.socket);
        let facts = self.core.info();
        (self.number, facts.bytes_in, facts.bytes_out)
    }

    /// What came of one read; a text: the connection is over.
    fn read(&mut self) -> Option<String> {
        let socket = self.socket.raw();
        let mut room_len = 0;
        let read = driver::read(&mut self.core, driver::READ_AT_LEAST, |room| {
            room_len = room.len();
            stream::receive_now(socket, room)
        });
        match read {
            Ok(Some(0)) => Some("the peer closed the connection".to_owned()),
            Ok(Some(n)) => {
                // Less than was asked for: there is no more (epoll(7)).
                self.readable = n == room_len || self.hung_up;
                None
            }
            Ok(None) => None,
            Err(Errno::EAGAIN) => {
                self.readable = false;
                None
            }
            Err(e) => Some(format!("reading: {e}")),
        }
    }

    /// Whether anything was written.
    fn write(&mut self) -> Result<bool, Errno> {
        let before = self.core.output().len();
        if !self.writable || before == 0 {
            return Ok(false);
        }
        let socket = self.socket.raw();
        match driver::write(&mut self.core, |output| stream::send_now(socket, output)) {
            Err(Errno::EAGAIN) => {
                self.writable = false;
                Ok(self.core.output().len() < before)
            }
            other => other.map(|()| true),
        }
    }

    /// Every event there is.
    fn deal(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        loop {
            let event = match self.core.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(end) => {
                    self.ending = Some(Ending {
                        silent: matches!(end, End::Theirs { .. }),
                        why: end.to_string(),
                        until: None,
                    });
                    return Ok(());
                }
            };
            match event {
                Event::Data { channel, bytes, .. } => {
                    let Some(ch) = self.channels.get_mut(&channel.0) else {
                        continue;
                    };
                    let pump = ch.pump();
                    let done = pump.take(bytes);
                    self.kept += bytes.len() - done;
                    self.core.consumed(channel, done);
                    self.watch_if_full(channel.0, context);
                    self.notice_recording(channel.0);
                    self.settle(channel.0);
                }
                Event::Writable(channel) => self.queue(channel.0),
                Event::Request {
                    channel,
                    request,
                    reply,
                } => self.request(channel, request, reply, context)?,
                Event::Eof(channel) => {
                    if let Some(ch) = self.channels.get_mut(&channel.0) {
                        match ch {
                            Channel::Session(session) if session.pump.is_early() => session.no_input = true,
                            ch => ch.pump().finish(),
                        }
                        self.settle(channel.0);
                    }
                }
                Event::Open { channel, kind } => self.open(channel, kind, context)?,
                Event::Opened(channel) => self.opened(channel, context)?,
                Event::OpenFailed { channel, .. } => {
                    self.channels.remove(&channel.0);
                }
                Event::Closed(channel) => self.closed(channel, context)?,
                Event::Leaving(channel) => self.leaving(channel),
                Event::Global { request, reply } => self.global(request, reply, context)?,
                Event::SignExchange(exchange) => {
                    let exchange = exchange.encode().to_vec();
                    context.control.say(&FromFront::Sign {
                        connection: self.number,
                        exchange,
                    })?;
                }
                // Cookies come with each signature, and one with the connection. The rest a server has no use for.
                _ => {}
            }
        }
    }

    /// A number for a request to the monitor.
    pub(super) fn ticket(&mut self, what: Use) -> Ticket {
        self.last_ticket += 1;
        self.uses.insert(self.last_ticket, what);
        self.last_ticket
    }

    /// Answers where an answer is wanted.
    pub(super) fn answer(&mut self, reply: Option<ReplyId>, done: bool) {
        if let Some(reply) = reply {
            self.core.answer(reply, done);
        }
    }

    /// The same of a request for the whole connection: with what it asks for, or none where that is refused.
    pub(super) fn answer_global(&mut self, reply: Option<ReplyId>, done: Option<&[u8]>) {
        if let Some(reply) = reply {
            self.core.answer_global(reply, done);
        }
    }
}
