//! Between the two connections: channels in pairs. What the user's roles do not allow is refused here, and of what the host
//! opens only what the user asked for is passed on.

use super::pair::{Item, MAX_UNREAD_BYTES, Pair};
use super::{Host, SessionEvent};
use crate::ssh::authenticator::{Authenticator, Caller};
use crate::ssh::endpoint::{Bytes, Endpoint};
use fleetgate_net::backoff::random;
use fleetgate_policy::cluster::Allowed;
use fleetgate_policy::permits::What;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Event, Global, ReplyId, Request, Stream};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// RFC 4254 §5.1.
const PROHIBITED: u32 = 1;
const UNKNOWN_CHANNEL_TYPE: u32 = 3;

/// What requests that wait may take, of all channels of a connection. No window holds them, so the connection ends.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Refusals of one connection that have a line of their own; of the others the number is told, as a node does.
const MAX_DENIAL_LINES: u64 = 100;

/// What ssh exits with when it fails itself.
const FAILED: u32 = 255;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    User,
    Host,
}

/// The state between the two.
pub(super) struct Relay<'a> {
    host: &'a dyn Host,
    caller: &'a Caller,
    pairs: Vec<Option<Pair>>,
    by_user: BTreeMap<u32, usize>,
    by_host: BTreeMap<u32, usize>,
    globals_up: VecDeque<ReplyId>,
    asked_for: AskedFor,
    denials: Cell<u64>,
}

/// What the user asked for and may have: the host may open such channels.
#[derive(Default)]
struct AskedFor {
    agent: bool,
    x11: bool,
    tcp: bool,
    unix: bool,
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

    /// Ends the programs that run. An sshd does that for commands and shells of all but root; with the connection go
    /// terminals, files and whoever reads or writes.
    pub(super) fn kill(&self, host: &mut Connection) {
        for pair in self.pairs.iter().flatten().filter(|pair| pair.program.is_some()) {
            if let Some(channel) = pair.host {
                host.request(channel, &kill(), false);
            }
        }
    }

    /// Tells the ends of programs that end with the connection, and how much more was refused than was told.
    pub(super) fn tell_ends(&mut self) {
        let further = self.denials.get().saturating_sub(MAX_DENIAL_LINES);
        if further > 0 {
            let words = format!("{further} further refusals, of which only the number is told");
            self.host.tell(Some(self.caller), SessionEvent::Denied(&words));
        }
        for pair in self.pairs.iter_mut().flatten() {
            if let Some(session) = pair.program.take() {
                let (session, code) = (&*session, pair.code);
                self.host
                    .tell(Some(self.caller), SessionEvent::Ended { session, code });
            }
        }
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
            for at in 0..self.pairs.len() {
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
                        if let Request::ExitStatus { code } = request {
                            pair.code = Some(code);
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
                        Side::User => &mut pair.asked_down,
                        Side::Host => &mut pair.asked_up,
                    };
                    if let Some(reply) = asked.pop_front() {
                        other.answer(reply, *done);
                    }
                }
                return;
            }
            _ => return,
        };
        if let Some(pair) = self.pair(side, channel) {
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
                self.insert(Some(channel), Some(theirs), is_session);
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
            Some(ours) => self.insert(Some(ours), Some(channel), false),
            None => host.refuse(channel, PROHIBITED, "too many channels"),
        }
    }

    fn insert(&mut self, user: Option<ChannelId>, host: Option<ChannelId>, takes_program: bool) {
        let pair = Some(Pair {
            user,
            host,
            takes_program,
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

    fn request_up(
        &mut self,
        channel: ChannelId,
        request: Request,
        reply: Option<ReplyId>,
        user: &mut Connection,
    ) -> Result<(), String> {
        let refuse = |user: &mut Connection| {
            if let Some(reply) = reply {
                user.answer(reply, false);
            }
            Ok(())
        };
        let (what, began): (Option<What<'_>>, Option<(&str, &[u8])>) = match &request {
            Request::Shell => (Some(What::Shell), Some(("shell", b""))),
            Request::Exec { command } => (Some(What::Exec(command)), Some(("exec", command))),
            Request::Subsystem { name } if name == b"sftp" => {
                (Some(What::Subsystem(name)), Some(("sftp", name)))
            }
            Request::Subsystem { name } => (Some(What::Subsystem(name)), Some(("subsystem", name))),
            Request::Pty(_) => (Some(What::Pty), None),
            Request::Agent => (Some(What::Agent), None),
            Request::X11 { .. } => (Some(What::X11), None),
            Request::Env { name, .. } => (Some(What::Environment(name)), None),
            Request::WindowChange(_)
            | Request::Signal { .. }
            | Request::Break { .. }
            | Request::EndOfWrite => (None, None),
            // What only a host says, and what no role says anything of.
            Request::ExitStatus { .. } | Request::ExitSignal { .. } | Request::Other { .. } => {
                return refuse(user);
            }
        };
        if let Some((kind, command)) = began {
            // Of a second one the sshd would refuse the start, and nobody would watch the first.
            let takes = |pair: &mut Pair| std::mem::take(&mut pair.takes_program);
            if !self.pair(Side::User, channel).is_some_and(takes) {
                return refuse(user);
            }
            match self.begin(&what) {
                Ok(limit) => {
                    let session = format!("{:016x}{:016x}", random(), random());
                    let began = SessionEvent::Began {
                        session: &session,
                        kind,
                        command,
                    };
                    self.host.tell(Some(self.caller), began);
                    let ordered = self.host.ordered(&session);
                    if let Some(pair) = self.pair(Side::User, channel) {
                        pair.program = Some(session);
                        pair.ordered = Some(ordered);
                        pair.over = limit.map(|limit| (Box::pin(sleep(limit)), limit.as_secs()));
                    }
                }
                Err(words) => {
                    self.not_begun(channel, &request, reply, &words, user);
                    return Ok(());
                }
            }
        } else if what.is_some_and(|what| self.allow(&what).is_err()) {
            return refuse(user);
        }
        self.asked_for.agent |= matches!(request, Request::Agent);
        self.asked_for.x11 |= matches!(request, Request::X11 { .. });
        if let Some(pair) = self.pair(Side::User, channel) {
            pair.asked_up.extend(reply);
            pair.up.push(Item::Request(request, reply.is_some()));
        }
        self.has_room_for_requests()
    }

    /// Whether the requests that wait take no more than they may.
    fn has_room_for_requests(&self) -> Result<(), String> {
        let waiting: usize = self.pairs.iter().flatten().map(Pair::request_bytes).sum();
        match waiting > MAX_REQUEST_BYTES {
            true => Err("more requests wait than one connection may have".to_owned()),
            false => Ok(()),
        }
    }

    /// Whether this may be done, by the state as it is now. What may not is told.
    fn allow(&self, what: &What<'_>) -> Result<(), String> {
        self.decided(what).map(drop)
    }

    fn decided(&self, what: &What<'_>) -> Result<Allowed, String> {
        let decided = self.host.allowed(self.caller).and_then(|allowed| {
            allowed.permits.allow(what).map_err(|denied| denied.to_string())?;
            Ok(allowed)
        });
        decided.inspect_err(|words| self.tell_denied(words))
    }

    fn tell_denied(&self, words: &str) {
        self.denials.set(self.denials.get() + 1);
        if self.denials.get() <= MAX_DENIAL_LINES {
            self.host.tell(Some(self.caller), SessionEvent::Denied(words));
        }
    }

    /// Whether a program may begin, and how long it may last.
    fn begin(&self, what: &Option<What<'_>>) -> Result<Option<Duration>, String> {
        let Some(what) = what else { return Ok(None) };
        let limits = self.decided(what)?.limits;
        let running = self
            .pairs
            .iter()
            .flatten()
            .filter(|pair| pair.program.is_some())
            .count();
        match limits.sessions {
            Some(most) if running >= most as usize => {
                let words = format!("a connection has at most {most} sessions by its roles: end one of them");
                self.tell_denied(&words);
                Err(words)
            }
            _ => Ok(limits.session),
        }
    }

    /// OpenSSH's client shows nothing of a channel whose request failed, so to a user the words come as those of a program,
    /// which ended with the code that ssh has for a failure of its own; a subsystem's reader would take them for data.
    fn not_begun(
        &mut self,
        channel: ChannelId,
        request: &Request,
        reply: Option<ReplyId>,
        words: &str,
        user: &mut Connection,
    ) {
        let subsystem = matches!(request, Request::Subsystem { .. });
        if let Some(reply) = reply {
            user.answer(reply, !subsystem);
        }
        if let Some(at) = self.at(Side::User, channel)
            && let Some(pair) = &mut self.pairs[at]
        {
            pair.refused = true;
            // Behind what was asked for before, which is answered still.
            pair.up.push(Item::Close);
            pair.down
                .push(Item::Data(Stream::Stderr, format!("{words}\r\n").into_bytes()));
            if !subsystem {
                pair.down
                    .push(Item::Request(Request::ExitStatus { code: FAILED }, false));
            }
            pair.down.push(Item::Eof);
        }
    }

    /// Ends a program whose roles let it last no longer, or whose end was ordered.
    fn end_early(&mut self, at: usize, host: &mut Connection, cx: &mut Context<'_>) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let over = pair
            .over
            .as_mut()
            .and_then(|(sleep, limit)| sleep.as_mut().poll(cx).is_ready().then_some(*limit));
        let words = match over {
            Some(limit) => {
                format!("a session of more than {limit} s is not allowed by its roles: it was ended")
            }
            None => match pair.ordered.as_mut().map(|ordered| ordered.as_mut().poll(cx)) {
                Some(Poll::Ready(words)) => words,
                _ => return,
            },
        };
        (pair.over, pair.ordered) = (None, None);
        if let Some(channel) = pair.host {
            host.request(channel, &kill(), false);
        }
        pair.up.clear();
        pair.up.push(Item::Close);
        pair.down
            .push(Item::Data(Stream::Stderr, format!("{words}\r\n").into_bytes()));
        self.host.tell(Some(self.caller), SessionEvent::Denied(&words));
    }

    fn global_up(
        &mut self,
        request: &Global,
        reply: Option<ReplyId>,
        user: &mut Connection,
        host: &mut Connection,
    ) -> Result<(), String> {
        let allowed = match request {
            Global::TcpipForward { host, port } => self.allow(&What::ListenTcp(host, port_of(*port))),
            Global::StreamlocalForward { path } => self.allow(&What::ListenUnix(path)),
            Global::CancelTcpipForward { .. }
            | Global::CancelStreamlocalForward { .. }
            | Global::NoMoreSessions => Ok(()),
            // Keepalives, and proofs of host keys that were never told.
            _ => {
                if let Some(reply) = reply {
                    user.answer_global(reply, None);
                }
                return Ok(());
            }
        };
        match allowed {
            // A host that reads nothing is asked for nothing more.
            Ok(()) if host.output().len() > MAX_UNREAD_BYTES + MAX_REQUEST_BYTES => {
                return Err("more requests wait than one connection may have".to_owned());
            }
            Ok(()) => {
                self.asked_for.tcp |= matches!(request, Global::TcpipForward { .. });
                self.asked_for.unix |= matches!(request, Global::StreamlocalForward { .. });
                self.globals_up.extend(reply);
                host.global(request, reply.is_some());
            }
            Err(_) => {
                if let Some(reply) = reply {
                    user.answer_global(reply, None);
                }
            }
        }
        Ok(())
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
        let (host, caller) = (self.host, self.caller);
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
                if let Some(session) = pair.program.take() {
                    let (session, code) = (&*session, pair.code);
                    host.tell(Some(caller), SessionEvent::Ended { session, code });
                }
            }
        }
        if pair.user.is_none() && pair.host.is_none() {
            self.forget(at);
        }
    }

    /// Passes on what the other side takes.
    fn pass(&mut self, at: usize, user: &mut Connection, host: &mut Connection) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        if let Some(to) = pair.host {
            pair.up.flow(host, to, user, pair.user);
        }
        if pair.left {
            pair.down.drop_output(host, pair.host);
        }
        if let Some(to) = pair.user {
            pair.down.flow(user, to, host, pair.host);
        }
    }

    fn at(&self, side: Side, channel: ChannelId) -> Option<usize> {
        match side {
            Side::User => self.by_user.get(&channel.0).copied(),
            Side::Host => self.by_host.get(&channel.0).copied(),
        }
    }

    fn pair(&mut self, side: Side, channel: ChannelId) -> Option<&mut Pair> {
        let at = self.at(side, channel)?;
        self.pairs.get_mut(at)?.as_mut()
    }

    fn forget(&mut self, at: usize) {
        if let Some(pair) = self.pairs[at].take() {
            pair.user.map(|c| self.by_user.remove(&c.0));
            pair.host.map(|c| self.by_host.remove(&c.0));
        }
    }
}

fn kill() -> Request {
    Request::Signal {
        name: b"KILL".to_vec(),
    }
}

fn port_of(port: u32) -> u16 {
    // No such port exists; 0 is none to connect to, and the sshd says so itself.
    u16::try_from(port).unwrap_or(0)
}
