//! One SSH connection, of either role: bytes in, events and bytes out. It joins the transport, logins and channels and
//! does nothing else; it never blocks, reads no clock and opens nothing.

use crate::codec::Malformed;
use crate::event::{
    AuthAnswer, ChannelId, ChannelKind, End, Event, Global, Reason, ReplyId, Request, Stream,
};
use crate::facts::Facts;
use crate::kex::kexinit::Role;
use crate::lent::Lent;
use crate::settings::Settings;
use crate::transport::{Link, Next};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The connection. Its owner reads from the network into [`room`](Connection::room), says so by
/// [`received`](Connection::received), asks for events by [`poll`](Connection::poll) until there is none, and writes
/// [`output`](Connection::output) to the network.
pub struct Connection {
    link: Link,
}

impl Connection {
    /// A server's end. Its output already holds the version line and a KEXINIT with this cookie.
    pub fn server(settings: Arc<Settings>, cookie: [u8; 16]) -> Connection {
        Connection {
            link: Link::new(settings, Role::Server, Some(cookie)),
        }
    }

    /// A client's end. Its output already holds the version line and a KEXINIT, and a guessed first message of the key
    /// exchange where the settings say so.
    pub fn client(settings: Arc<Settings>) -> Connection {
        Connection {
            link: Link::new(settings, Role::Client, None),
        }
    }

    /// Whether bytes from the network are wanted now. Not while the owner owes an answer that everything behind it
    /// waits for, nor while more output waits than [`Limits::max_buffered`](crate::settings::Limits::max_buffered).
    /// Whoever reads all the same has the bytes kept, up to a bound.
    pub fn wants_input(&self) -> bool {
        self.link.reads()
    }

    /// Where to read to: at least so many bytes, often more. Empty only where far more was read than
    /// [`wants_input`](Connection::wants_input) asked for.
    pub fn room(&mut self, at_least: usize) -> &mut [u8] {
        self.link.inbox.room(at_least)
    }

    /// So many bytes were read to the front of [`room`](Connection::room).
    pub fn received(&mut self, n: usize) {
        self.link.received(n);
    }

    /// The next event; none: nothing happens until more is received or the owner answers. After an end there is
    /// nothing more to ask; what is left of the output may be sent.
    pub fn poll(&mut self) -> Result<Option<Event<'_>>, End> {
        let lent = self.advance()?;
        let Connection { link, .. } = self;
        Ok(lent.map(|l| l.lend(link.kex.host_key_in_question(), |at| link.inbox.lent(at))))
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
        self.link.tick(now);
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

    /// Replaces the keys now.
    pub fn rekey(&mut self) {
        self.link.rekey();
    }

    /// Client: whether the host of [`Event::HostKey`] is the right one.
    pub fn trust_host(&mut self, yes: bool) {
        self.link.trust_host(yes);
    }

    /// Client: sends a USERAUTH_REQUEST, made by `auth`.
    pub fn authenticate(&mut self, request: &[u8]) {
        let _ = request;
    }

    /// Client: answers to the questions of [`AuthReply::Ask`](crate::event::AuthReply::Ask), one for each.
    pub fn answer_prompts(&mut self, answers: &[&[u8]]) {
        let _ = answers;
    }

    /// The hash of the first exchange, once it is known.
    pub fn session_id(&self) -> Option<&[u8]> {
        self.link.kex.session_id()
    }

    /// Server: what becomes of the login that [`Event::Auth`] or [`Event::AuthInfo`] asked for.
    pub fn answer_auth(&mut self, answer: AuthAnswer) {
        let _ = answer;
    }

    /// Server: text to show before the login.
    pub fn banner(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// Opens a channel. None: there are as many as the settings allow.
    pub fn open(&mut self, kind: &ChannelKind) -> Option<ChannelId> {
        let _ = kind;
        None
    }

    /// Accepts what [`Event::Open`] asked for.
    pub fn accept(&mut self, channel: ChannelId) {
        let _ = channel;
    }

    /// Refuses it.
    pub fn refuse(&mut self, channel: ChannelId, reason: u32, text: &str) {
        let _ = (channel, reason, text);
    }

    /// Sends a request on a channel.
    pub fn request(&mut self, channel: ChannelId, request: &Request, want_reply: bool) {
        let _ = (channel, request, want_reply);
    }

    /// Answers [`Event::Request`].
    pub fn answer(&mut self, reply: ReplyId, done: bool) {
        let _ = (reply, done);
    }

    /// Sends a request for the whole connection.
    pub fn global(&mut self, request: &Global, want_reply: bool) {
        let _ = (request, want_reply);
    }

    /// Answers [`Event::Global`]: done, with the answer's own fields, or refused.
    pub fn answer_global(&mut self, reply: ReplyId, done: Option<&[u8]>) {
        let _ = (reply, done);
    }

    /// How much may be written to a channel now: the least of the peer's window, its largest packet and the room in
    /// the output. After a 0, [`Event::Writable`] says when there is more.
    pub fn writable(&self, channel: ChannelId) -> usize {
        let _ = channel;
        0
    }

    /// Sends bytes on a channel; how many were taken.
    pub fn write(&mut self, channel: ChannelId, stream: Stream, bytes: &[u8]) -> usize {
        let _ = (channel, stream, bytes);
        0
    }

    /// Sends what `fill` puts into the at most `max` bytes that it is given: read(2) goes straight into the packet,
    /// which is sealed where it stands.
    pub fn write_with<E>(
        &mut self,
        channel: ChannelId,
        stream: Stream,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let _ = (channel, stream, max, fill);
        Ok(0)
    }

    /// The owner passed on so many bytes of [`Event::Data`]; the peer may send as many more.
    pub fn consumed(&mut self, channel: ChannelId, n: usize) {
        let _ = (channel, n);
    }

    /// Nothing more is sent on the channel.
    pub fn eof(&mut self, channel: ChannelId) {
        let _ = channel;
    }

    /// Closes the channel.
    pub fn close(&mut self, channel: ChannelId) {
        let _ = channel;
    }

    /// Ends the connection. DISCONNECT is the last thing in the output.
    pub fn disconnect(&mut self, reason: Reason, text: &str) {
        let text = text.into();
        self.link.fail(End::Ours { reason, text });
    }

    /// Whether the connection can move to another process now: after the login, with no key exchange under way.
    pub fn may_move(&self) -> bool {
        false
    }

    /// All of it as bytes, what was read and not dealt with and what was not sent included. It holds keys.
    pub fn freeze(self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(Vec::new())
    }

    /// A connection from what [`freeze`](Connection::freeze) made.
    pub fn thaw(bytes: &[u8], settings: Arc<Settings>) -> Result<Connection, Malformed> {
        let _ = (bytes, settings);
        Err(Malformed::Short("state"))
    }

    /// What is known about it.
    pub fn facts(&self) -> &Facts {
        &self.link.facts
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.link.settings
    }

    fn advance(&mut self) -> Result<Option<Lent>, End> {
        loop {
            return Ok(Some(Lent::Owned(match self.link.next()? {
                Next::Nothing => return Ok(None),
                Next::Packet(_) => {
                    self.link.unimplemented();
                    continue;
                }
                Next::HostKey => return Ok(Some(Lent::HostKey)),
                Next::Sign(exchange) => Event::SignExchange(exchange),
                Next::Established => Event::Established,
                Next::CookieWanted => Event::CookieWanted,
                Next::Alive => Event::Alive,
            })));
        }
    }
}
