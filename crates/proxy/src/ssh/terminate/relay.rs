//! Between the two connections: channels in pairs, and what travels on them. A channel that the user's roles do not allow is
//! refused here, and of what the host opens only what the user asked for is passed on. What he asks for is in `requests`,
//! what becomes of his programs in `programs`.

use super::Host;
use super::pair::{Forward, Item, Pair};
use crate::ssh::authenticator::{Authenticator, Caller};
use crate::ssh::endpoint::{Bytes, Endpoint};
use fleetgate_policy::permits::What;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, ReplyId, Request};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// RFC 4254 §5.1.
const PROHIBITED: u32 = 1;
const UNKNOWN_CHANNEL_TYPE: u32 = 3;

/// What requests that wait may take, of all channels of a connection. No window holds them, so the connection ends.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    User,
    Host,
}

/// The state between the two.
pub(super) struct Relay<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) caller: &'a Caller,
    pub(super) pairs: Vec<Option<Pair>>,
    by_user: BTreeMap<u32, usize>,
    by_host: BTreeMap<u32, usize>,
    pub(super) globals_up: VecDeque<ReplyId>,
    pub(super) asked_for: AskedFor,
    pub(super) denials: Cell<u64>,
    /// Lines of the audit log that are to be in the recordings of this connection's sessions, too.
    pub(super) lines: RefCell<Vec<String>>,
}

/// What the user asked for and may have: the host may open such channels.
#[derive(Default)]
pub(super) struct AskedFor {
    pub(super) agent: bool,
    pub(super) x11: bool,
    pub(super) tcp: bool,
    pub(super) unix: bool,
}

impl<'a> Relay<'a> {
    pub(super) fn new(host: &'a dyn Host, caller: &'a Caller) -> Relay<'a> {
        Relay {
            host,
            caller,
            pairs: Vec::new(),
            by_user: BTreeMap::new(),
            by_host: BTreeMap::new(),
            globals_up: VecDeque::new(),
            asked_for: AskedFor::default(),
            denials: Cell::new(0),
            lines: RefCell::default(),
        }
    }

    /// Until one of them ends.
    pub(super) async fn run(
        &mut self,
        user: &mut Endpoint<impl Bytes>,
        host: &mut Endpoint<TcpStream>,
        authenticator: &mut Authenticator,
    ) -> String {
        poll_fn(|cx| self.poll(user, host, authenticator, cx)).await
    }

    fn poll(
        &mut self,
        user: &mut Endpoint<impl Bytes>,
        host: &mut Endpoint<TcpStream>,
        authenticator: &mut Authenticator,
        cx: &mut Context<'_>,
    ) -> Poll<String> {
        loop {
            if let Err(why) = self.deal_user(&mut user.core, &mut host.core, authenticator) {
                return Poll::Ready(why);
            }
            if let Err(why) = self.deal_host(&mut user.core, &mut host.core) {
                return Poll::Ready(why);
            }
            for line in self.lines.take() {
                self.record_event(&line);
            }
            for at in 0..self.pairs.len() {
                self.poll_starting(at, &mut user.core, cx);
                self.poll_recording(at, &mut host.core, cx);
                self.end_early(at, &mut host.core, cx);
                self.pass(at, &mut user.core, &mut host.core);
            }
            let moved = match (user.poll_move(cx), host.poll_move(cx)) {
                (Poll::Ready(Err(e)), _) => return Poll::Ready(format!("the user's connection ended: {e}")),
                (_, Poll::Ready(Err(e))) => return Poll::Ready(format!("the node's connection ended: {e}")),
                (user, host) => user.is_ready() || host.is_ready(),
            };
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn deal_user(
        &mut self,
        user: &mut Connection,
        host: &mut Connection,
        authenticator: &mut Authenticator,
    ) -> Result<(), String> {
        while let Some(event) = user.poll().map_err(|e| e.to_string())? {
            match event {
                Event::SignExchange(exchange) => authenticator.sign(user, &exchange)?,
                Event::Open { channel, kind } => self.open_up(channel, &kind, user, host),
                Event::Request {
                    channel,
                    request,
                    reply,
                } => self.request_up(channel, request, reply, user)?,
                Event::Global { request, reply } => self.global_up(&request, reply, user, host)?,
                event => self.common(Side::User, &event, host),
            }
        }
        Ok(())
    }

    fn deal_host(&mut self, user: &mut Connection, host: &mut Connection) -> Result<(), String> {
        while let Some(event) = host.poll().map_err(|e| e.to_string())? {
            match event {
                Event::HostKey(key) => {
                    self.host.trusts(key)?;
                    host.trust_host(true);
                }
                Event::Open { channel, kind } => self.open_down(channel, &kind, user, host),
                Event::Request {
                    channel,
                    request,
                    reply,
                } => {
                    if let Some(pair) = self.pair(Side::Host, channel).filter(|pair| !pair.refused) {
                        match &request {
                            Request::ExitStatus { code } => pair.code = Some(*code),
                            Request::ExitSignal { name, .. } => pair.signal = Some(name.clone()),
                            _ => {}
                        }
                        pair.asked_down.extend(reply);
                        pair.down.push(Item::Request(request, reply.is_some()));
                        self.has_room_for_requests()?;
                    }
                }
                // Host keys of the sshd are nothing to the user, who sees the proxy's; the rest asks whether we live.
                Event::Global { reply, .. } => {
                    if let Some(reply) = reply {
                        host.answer_global(reply, None);
                    }
                }
                Event::GlobalReplied { done } => {
                    let done = done.map(<[u8]>::to_vec);
                    if let Some(reply) = self.globals_up.pop_front() {
                        user.answer_global(reply, done.as_deref());
                    }
                }
                event => self.common(Side::Host, &event, user),
            }
        }
        Ok(())
    }

    /// What means the same from either side.
    fn common(&mut self, side: Side, event: &Event<'_>, other: &mut Connection) {
        let (channel, item) = match event {
            Event::Data {
                channel,
                stream,
                bytes,
            } => (*channel, Item::Data(*stream, bytes.to_vec())),
            Event::Eof(channel) => (*channel, Item::Eof),
            Event::Opened(channel) => return self.opened(side, *channel, other),
            Event::OpenFailed {
                channel,
                reason,
                text,
            } => return self.failed(side, *channel, *reason, &String::from_utf8_lossy(text), other),
            Event::Closed(channel) => return self.closed(side, *channel),
            Event::Leaving(channel) => return self.leaving(*channel),
            Event::Replied { channel, done } => {
                if let Some(pair) = self.pair(side, *channel) {
                    let asked = match side {
                        Side::User => pair.asked_down.pop_front(),
                        Side::Host => pair.answered(*done),
                    };
                    if let Some(reply) = asked {
                        other.answer(reply, *done);
                    }
                }
                return;
            }
            _ => return,
        };
        if let Some(pair) = self.pair(side, channel) {
            if let Item::Data(stream, bytes) = &item {
                match side {
                    Side::User => pair.passes_up(bytes),
                    Side::Host => pair.passes_down(*stream, bytes),
                }
            }
            match side {
                Side::User => pair.up.push(item),
                Side::Host if pair.refused => {}
                Side::Host => pair.down.push(item),
            }
        }
    }

    fn open_up(
        &mut self,
        channel: ChannelId,
        kind: &ChannelKind,
        user: &mut Connection,
        host: &mut Connection,
    ) {
        let allowed = match kind {
            ChannelKind::DirectTcpip { host, port, .. } => {
                self.allow(&What::ConnectTcp(host, port_of(*port)))
            }
            ChannelKind::DirectStreamlocal { path } => self.allow(&What::ConnectUnix(path)),
            ChannelKind::Session => Ok(()),
            // No role says anything of it.
            _ => return user.refuse(channel, UNKNOWN_CHANNEL_TYPE, "there is no such channel"),
        };
        if let Err(words) = allowed {
            return user.refuse(channel, PROHIBITED, &words);
        }
        match host.open(kind) {
            Some(theirs) => {
                let is_session = *kind == ChannelKind::Session;
                if is_session {
                    user.close_later(channel);
                }
                self.insert((Some(channel), Some(theirs)), is_session, forward(kind));
            }
            None => user.refuse(channel, PROHIBITED, "too many channels"),
        }
    }

    fn open_down(
        &mut self,
        channel: ChannelId,
        kind: &ChannelKind,
        user: &mut Connection,
        host: &mut Connection,
    ) {
        let is_asked_for = match kind {
            ChannelKind::Agent => self.asked_for.agent,
            ChannelKind::X11 { .. } => self.asked_for.x11,
            ChannelKind::ForwardedTcpip { .. } => self.asked_for.tcp,
            ChannelKind::ForwardedStreamlocal { .. } => self.asked_for.unix,
            _ => false,
        };
        if !is_asked_for {
            return host.refuse(channel, PROHIBITED, "the user did not ask for that");
        }
        match user.open(kind) {
            Some(ours) => self.insert((Some(ours), Some(channel)), false, None),
            None => host.refuse(channel, PROHIBITED, "too many channels"),
        }
    }

    fn insert(
        &mut self,
        (user, host): (Option<ChannelId>, Option<ChannelId>),
        takes_program: bool,
        forward: Option<Forward>,
    ) {
        let pair = Some(Pair {
            user,
            host,
            takes_program,
            forward,
            ..Pair::default()
        });
        let at = match self.pairs.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.pairs.push(None);
                self.pairs.len() - 1
            }
        };
        self.pairs[at] = pair;
        self.by_user.extend(user.map(|c| (c.0, at)));
        self.by_host.extend(host.map(|c| (c.0, at)));
    }

    /// The side that was asked to open it did: the one that asked is told.
    fn opened(&mut self, side: Side, channel: ChannelId, other: &mut Connection) {
        if let Some(pair) = self.pair(side, channel) {
            if let Some(forward) = &mut pair.forward {
                forward.is_open = true;
            }
            let asker = match side {
                Side::User => pair.host,
                Side::Host => pair.user,
            };
            if let Some(asker) = asker {
                other.accept(asker);
            }
        }
    }

    fn failed(&mut self, side: Side, channel: ChannelId, reason: u32, text: &str, other: &mut Connection) {
        let Some(at) = self.at(side, channel) else {
            return;
        };
        let asker = self.pairs[at].as_ref().and_then(|p| match side {
            Side::User => p.host,
            Side::Host => p.user,
        });
        if let Some(asker) = asker {
            other.refuse(asker, reason, text);
        }
        self.forget(at);
    }

    /// Whether the requests that wait take no more than they may.
    pub(super) fn has_room_for_requests(&self) -> Result<(), String> {
        let waiting: usize = self.pairs.iter().flatten().map(Pair::request_bytes).sum();
        match waiting > MAX_REQUEST_BYTES {
            true => Err("more requests wait than one connection may have".to_owned()),
            false => Ok(()),
        }
    }

    /// The user closed a session: the host's channel follows behind what still waits for it, and the user's when the host
    /// said how its program ended. An sshd may say so after the end of the output, at which OpenSSH's client closes.
    fn leaving(&mut self, channel: ChannelId) {
        if let Some(pair) = self.pair(Side::User, channel) {
            pair.left = true;
            pair.up.push(Item::Close);
        }
    }

    /// One side closed its channel: the other's follows, behind what still waits for it.
    fn closed(&mut self, side: Side, channel: ChannelId) {
        let Some(at) = self.at(side, channel) else {
            return;
        };
        let Some(pair) = &mut self.pairs[at] else { return };
        match side {
            Side::User => {
                self.by_user.remove(&channel.0);
                pair.user = None;
                pair.down.clear();
                pair.up.push(Item::Close);
            }
            Side::Host => {
                self.by_host.remove(&channel.0);
                pair.host = None;
                pair.up.clear();
                pair.down.push(Item::Close);
                self.tell_end(at);
            }
        }
        let Some(pair) = &self.pairs[at] else { return };
        if pair.user.is_none() && pair.host.is_none() {
            self.forget(at);
        }
    }

    /// Passes on what the other side takes.
    fn pass(&mut self, at: usize, user: &mut Connection, host: &mut Connection) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        // Its recording takes no more now.
        if pair.held {
            return;
        }
        if let Some(to) = pair.host.filter(|_| pair.starting.is_none()) {
            pair.up.flow(host, to, user, pair.user);
        }
        if pair.left {
            pair.down.drop_output(host, pair.host);
        }
        if let Some(to) = pair.user {
            pair.down.flow(user, to, host, pair.host);
        }
    }

    pub(super) fn at(&self, side: Side, channel: ChannelId) -> Option<usize> {
        match side {
            Side::User => self.by_user.get(&channel.0).copied(),
            Side::Host => self.by_host.get(&channel.0).copied(),
        }
    }

    pub(super) fn pair(&mut self, side: Side, channel: ChannelId) -> Option<&mut Pair> {
        let at = self.at(side, channel)?;
        self.pairs.get_mut(at)?.as_mut()
    }

    fn forget(&mut self, at: usize) {
        if let Some(pair) = self.pairs[at].take() {
            if let Some(line) = pair.forward.as_ref().and_then(Forward::line) {
                self.record_event(&line);
            }
            pair.user.map(|c| self.by_user.remove(&c.0));
            pair.host.map(|c| self.by_host.remove(&c.0));
        }
    }
}

/// A connection that the user has forwarded by such a channel.
fn forward(kind: &ChannelKind) -> Option<Forward> {
    let to = match kind {
        ChannelKind::DirectTcpip { host, port, .. } => format!("{}:{port}", String::from_utf8_lossy(host)),
        ChannelKind::DirectStreamlocal { path } => String::from_utf8_lossy(path).into_owned(),
        _ => return None,
    };
    Some(Forward {
        to,
        is_open: false,
        sent: 0,
        received: 0,
    })
}

pub(super) fn port_of(port: u32) -> u16 {
    // No such port exists; 0 is none to connect to, and the sshd says so itself.
    u16::try_from(port).unwrap_or(0)
}
