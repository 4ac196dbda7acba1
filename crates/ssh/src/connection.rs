//! One SSH connection, of either role: bytes in, events and bytes out. It joins the transport, logins and channels and
//! does nothing else; it never blocks, reads no clock and opens nothing.

use crate::auth;
use crate::channel::{self, Channels};
use crate::event::{
    AuthAnswer, AuthReply, ChannelId, ChannelKind, End, Event, Global, Reason, ReplyId, Request, Stream,
};
use crate::info::ConnectionInfo;
use crate::link::{Link, Next};
use crate::message::{SERVICE_ACCEPT, SERVICE_REQUEST};
use crate::positioned::PositionedEvent;
use crate::settings::{Role, Settings};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The connection. Its owner reads from the network into [`room`](Connection::room), says so by
/// [`received`](Connection::received), asks for events by [`poll`](Connection::poll) until there is none, and writes
/// [`output`](Connection::output) to the network.
pub struct Connection {
    pub(crate) link: Link,
    pub(crate) login: Login,
    pub(crate) channels: Channels,
}

/// Either side's login.
pub(crate) enum Login {
    Client(auth::Client),
    Server(auth::Server),
}

impl Connection {
    /// A server's end. Its output already holds the version line and a KEXINIT with this cookie.
    pub fn server(settings: Arc<Settings>, cookie: [u8; 16]) -> Connection {
        Connection {
            channels: Channels::new(Role::Server, &settings.limits),
            login: Login::Server(auth::Server::new()),
            link: Link::new(settings, Role::Server, Some(cookie)),
        }
    }

    /// A client's end. Its output already holds the version line and a KEXINIT, and a guessed first message of the key
    /// exchange where the settings say so.
    pub fn client(settings: Arc<Settings>) -> Connection {
        Connection {
            channels: Channels::new(Role::Client, &settings.limits),
            login: Login::Client(auth::Client::new()),
            link: Link::new(settings, Role::Client, None),
        }
    }

    /// Whether bytes from the network are wanted now. Not while the owner owes an answer that everything behind it
    /// waits for, nor while more output waits than [`Limits::max_buffered`](crate::settings::Limits::max_buffered).
    /// Whoever reads all the same has the bytes kept, up to a bound.
    pub fn wants_input(&self) -> bool {
        self.link.reads() && !self.login.deciding()
    }

    /// Where to read to: at least so many bytes, often more. Empty only where far more was read than
    /// [`wants_input`](Connection::wants_input) asked for.
    pub fn room(&mut self, at_least: usize) -> &mut [u8] {
        self.link.inbox.room(at_least)
    }

    /// So many bytes were read to the front of [`room`](Connection::room). To be told of 0 as well: the buffer is given
    /// back where it holds nothing.
    pub fn received(&mut self, n: usize) {
        self.link.received(n);
    }

    /// The next event; none: nothing happens until more is received or the owner answers. After an end there is
    /// nothing more to ask; what is left of the output may be sent.
    pub fn poll(&mut self) -> Result<Option<Event<'_>>, End> {
        let event = self.advance()?;
        let Connection { link, .. } = self;
        Ok(event.map(|e| e.borrow(link.kex.host_key_in_question(), |at| link.inbox.lent(at))))
    }

    /// What is to be written to the network.
    pub fn output(&self) -> &[u8] {
        self.link.out.unsent()
    }

    /// So many bytes of the output were written.
    pub fn sent(&mut self, n: usize) {
        self.link.sent(n);
    }

    /// The time now, since any fixed moment. To be told before [`poll`](Connection::poll), and at the
    /// [`deadline`](Connection::deadline).
    pub fn tick(&mut self, now: Duration) {
        let ask = self.link.tick(now);
        if ask && self.login.done() {
            self.channels.keepalive(&mut self.link.out);
        }
    }

    /// When [`tick`](Connection::tick) is wanted at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.link.deadline()
    }

    /// Server: the signature (a blob) over [`Event::SignExchange`], and the cookie for the next exchange.
    pub fn signed(&mut self, signature: &[u8], next_cookie: [u8; 16]) {
        self.link.signed(signature, next_cookie);
    }

    /// Server: a cookie, wanted by [`Event::CookieWanted`].
    pub fn cookie(&mut self, cookie: [u8; 16]) {
        self.link.cookie(cookie);
    }

    /// Server: the connection moves to another process after the login. A key exchange of our own that is due by then
    /// begins there.
    pub fn will_move(&mut self) {
        self.link.will_move();
    }

    /// Replaces the keys now. A server does nothing before the login is over and the connection has moved: OpenSSH's
    /// client takes no key exchange there.
    pub fn rekey(&mut self) {
        self.link.rekey();
    }

    /// Client: whether the host of [`Event::HostKey`] is the right one.
    pub fn trust_host(&mut self, yes: bool) {
        self.link.trust_host(yes);
    }

    /// Client: sends a USERAUTH_REQUEST, made by `auth`.
    pub fn authenticate(&mut self, request: &[u8]) {
        if let Login::Client(login) = &mut self.login {
            login.authenticate(request, &mut self.link.out);
        }
    }

    /// Client: answers to the questions of [`AuthReply::Ask`](crate::event::AuthReply::Ask), one for each.
    pub fn answer_prompts(&mut self, answers: &[&[u8]]) {
        if let Login::Client(login) = &mut self.login {
            login.answer_prompts(answers, &mut self.link.out);
        }
    }

    /// The hash of the first exchange, once it is known.
    pub fn session_id(&self) -> Option<&[u8]> {
        self.link.kex.session_id()
    }

    /// Server: what becomes of the login that [`Event::Auth`] or [`Event::AuthInfo`] asked for.
    pub fn answer_auth(&mut self, answer: AuthAnswer) {
        if let Login::Server(login) = &mut self.login {
            login.answer(answer, &mut self.link.out);
        }
        self.logged_in();
    }

    /// Server: text to show before the login.
    pub fn banner(&mut self, text: &[u8]) {
        if let Login::Server(login) = &mut self.login {
            login.banner(text, &mut self.link.out);
        }
    }

    /// Opens a channel. None: there are as many as the settings allow, or nobody is logged in: a client may open
    /// channels as soon as it asked for a login, and write to them once they are open.
    pub fn open(&mut self, kind: &ChannelKind) -> Option<ChannelId> {
        if !self.login.asked() {
            return None;
        }
        self.mirror();
        self.channels.open(kind, &mut self.link.out)
    }

    /// Client: nothing is known of how the server numbers channels, so nothing is said on one before it is confirmed.
    /// To be called before the first one is opened.
    pub fn wait_for_channel_numbers(&mut self) {
        self.channels.guess_no_number();
    }

    /// The peer's number of an open channel.
    pub fn peer_number(&self, channel: ChannelId) -> Option<u32> {
        self.channels.peer_number(channel)
    }

    /// Accepts what [`Event::Open`] asked for.
    pub fn accept(&mut self, channel: ChannelId) {
        self.channels.accept(channel, &mut self.link.out);
    }

    /// Refuses it.
    pub fn refuse(&mut self, channel: ChannelId, reason: u32, text: &str) {
        self.channels.refuse(channel, reason, text, &mut self.link.out);
    }

    /// Sends a request on a channel.
    pub fn request(&mut self, channel: ChannelId, request: &Request, want_reply: bool) {
        self.channels
            .request(channel, request, want_reply, &mut self.link.out);
    }

    /// Answers [`Event::Request`].
    pub fn answer(&mut self, reply: ReplyId, done: bool) {
        self.channels.answer(reply, done, &mut self.link.out);
    }

    /// Sends a request for the whole connection.
    pub fn global(&mut self, request: &Global, want_reply: bool) {
        self.channels.global(request, want_reply, &mut self.link.out);
    }

    /// Answers [`Event::Global`]: done, with the answer's own fields, or refused.
    pub fn answer_global(&mut self, reply: ReplyId, done: Option<&[u8]>) {
        self.channels.answer_global(reply, done, &mut self.link.out);
    }

    /// How much may be written to a channel now: the least of the peer's window, its largest packet and the room in
    /// the output. After a 0, [`Event::Writable`] says when there is more.
    pub fn writable(&self, channel: ChannelId) -> usize {
        self.channels.writable(channel, &self.link.out)
    }

    /// Sends bytes on a channel; how many were taken.
    pub fn write(&mut self, channel: ChannelId, stream: Stream, bytes: &[u8]) -> usize {
        self.channels.write(channel, stream, bytes, &mut self.link.out)
    }

    /// Sends what `fill` puts into the places that it is given, of at most `max` bytes together, one for each of a few
    /// packets: readv(2) goes straight into the packets, which are sealed where they stand.
    pub fn write_parts<E>(
        &mut self,
        channel: ChannelId,
        stream: Stream,
        max: usize,
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.channels
            .write_parts(channel, stream, max, &mut self.link.out, fill)
    }

    /// The owner passed on so many bytes of [`Event::Data`]; the peer may send as many more.
    pub fn consumed(&mut self, channel: ChannelId, n: usize) {
        self.channels.consumed(channel, n, &mut self.link.out);
    }

    /// Nothing more is sent on the channel.
    pub fn eof(&mut self, channel: ChannelId) {
        self.channels.eof(channel, &mut self.link.out);
    }

    /// From now on the peer's CLOSE is [`Event::Leaving`], and answered when the channel is closed here: for an exit
    /// status that comes after the end of the output. OpenSSH's client closes at that end, and waits.
    pub fn close_later(&mut self, channel: ChannelId) {
        self.channels.close_later(channel);
    }

    /// Closes the channel. [`Event::Closed`] comes when the peer has closed it too.
    pub fn close(&mut self, channel: ChannelId) {
        self.channels.close(channel, &mut self.link.out);
    }

    /// Ends the connection. DISCONNECT is the last thing in the output.
    pub fn disconnect(&mut self, reason: Reason, text: &str) {
        self.link.fail(End::ours(reason, text));
    }

    /// Whether the connection can move to another process now: after the login, with no key exchange under way.
    pub fn may_move(&self) -> bool {
        self.login.done() && self.link.may_move() && self.channels.idle()
    }

    /// What is known about it.
    pub fn info(&self) -> &ConnectionInfo {
        &self.link.info
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.link.settings
    }

    /// Sends any payload as it is: for those who try what a peer could send.
    #[doc(hidden)]
    pub fn send_raw(&mut self, payload: &[u8]) {
        use crate::codec::Write as _;
        use crate::transport::Outbox as _;
        self.link.out.packet(|p| p.put(payload));
    }

    fn advance(&mut self) -> Result<Option<PositionedEvent>, End> {
        loop {
            if let Some(end) = self.link.ended() {
                return Err(end.clone());
            }
            if self.login.deciding() {
                // What stands behind a request for a login waits for the answer.
                return Ok(None);
            }
            if self.login.done()
                && let Some(event) = self.or_end(|c| c.channels.next(&mut c.link.out))?
            {
                return Ok(Some(PositionedEvent::Owned(event)));
            }
            let event = match self.link.next()? {
                Next::Nothing => return Ok(None),
                Next::Packet(number, range) => match self.packet(number, range)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Next::HostKey => return Ok(Some(PositionedEvent::HostKey)),
                Next::Sign(exchange) => Event::SignExchange(exchange),
                Next::Established => Event::Established,
                Next::CookieWanted => Event::CookieWanted,
                Next::Alive => Event::Alive,
            };
            return Ok(Some(PositionedEvent::Owned(event)));
        }
    }

    /// A message for the login or for channels, at this position in the inbox.
    fn packet(&mut self, number: u8, range: Range<usize>) -> Result<Option<PositionedEvent>, End> {
        let at = range.start;
        let event = self.or_end(|c| {
            let payload = c.link.inbox.lent(range);
            let event = match (number, &mut c.login) {
                (SERVICE_REQUEST | 50..=79, Login::Server(login)) => {
                    login.receive(payload, &mut c.link.out)?
                }
                (SERVICE_ACCEPT | 50..=79, Login::Client(login)) => login.receive(payload)?,
                // Sent behind the try, before its answer was read.
                (80.., Login::Server(login)) if !login.done() && login.refused() => {
                    return Err(End::ours(Reason::NoMoreAuthMethods, "its login was refused"));
                }
                (80.., login) if !login.done() => {
                    return Err(End::protocol(format!("message {number} came before the login")));
                }
                (80.., _) if channel::is_ours(number) => c.channels.receive(payload, &mut c.link.out)?,
                _ => {
                    c.link.unimplemented();
                    return Ok(None);
                }
            };
            Ok(event.map(|e| PositionedEvent::new(e, payload, at)))
        })?;
        if let Some(PositionedEvent::Owned(Event::AuthReply(AuthReply::Accepted))) = &event {
            self.logged_in();
        }
        Ok(event)
    }

    /// An error of the login's or the channels' ends the connection.
    fn or_end<T>(&mut self, part: impl FnOnce(&mut Connection) -> Result<T, End>) -> Result<T, End> {
        part(self).map_err(|end| self.link.fail(end))
    }

    fn logged_in(&mut self) {
        if self.login.done() {
            self.link.logged_in();
            self.mirror();
        }
    }

    fn mirror(&mut self) {
        if self.link.settings.channel_mirror && self.link.info.extensions.channel_mirror {
            self.channels.mirror();
        }
    }
}

impl Login {
    pub(crate) fn done(&self) -> bool {
        match self {
            Login::Client(login) => login.done(),
            Login::Server(login) => login.done(),
        }
    }

    /// Channels may be opened, if the login is granted.
    fn asked(&self) -> bool {
        match self {
            Login::Client(login) => login.asked(),
            Login::Server(login) => login.done(),
        }
    }

    fn deciding(&self) -> bool {
        matches!(self, Login::Server(login) if login.deciding())
    }
}
