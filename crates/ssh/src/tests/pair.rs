//! Two connections joined in memory: a client and a server that trusts everybody. What either is told is noted.
//! No network, no clock: bytes move when the test says so, in pieces of the size that it says.

use crate::Connection;
use crate::auth::Request as AuthRequest;
use crate::codec::Write as _;
use crate::event::{AuthAnswer, AuthReply, ChannelId, ChannelKind, End, Event, Stream};
use crate::settings::{HostKeyOffer, Settings};
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::collections::VecDeque;
use std::sync::Arc;

/// What one side was told, and its end.
#[derive(Default)]
pub struct Observations {
    pub established: bool,
    pub logged_in: bool,
    pub opened: VecDeque<ChannelId>,
    pub data: Vec<u8>,
    pub alive: u32,
    pub cookies: u32,
    pub signed: u32,
    pub host_keys: u32,
    /// Questions that the server asked during the login.
    pub questions: u32,
    /// Refusals of a login.
    pub rejected: u32,
    /// Logins that the server's owner was asked about, or that wait for its answer.
    pub login_requests: u32,
    pub end: Option<End>,
}

/// What happens to the client's bytes, by their place in all that it sends.
#[derive(Clone, Copy, Debug)]
pub enum Tamper {
    /// One bit of this byte is turned.
    Flip(usize),
    /// Nothing from this byte on arrives.
    Cut(usize),
}

pub struct Pair {
    pub client: Connection,
    pub server: Connection,
    pub to_server: VecDeque<u8>,
    pub to_client: VecDeque<u8>,
    pub client_told: Observations,
    pub server_told: Observations,
    /// Bytes that move at a time.
    pub piece: usize,
    /// Bytes that either side has sent so far, and what is done to those of the client.
    pub sent_by_client: usize,
    pub tamper: Option<Tamper>,
    /// The client opens a channel right behind its request for a login.
    pub ahead: bool,
    /// The client logs in when it can.
    pub login: bool,
    /// The server's owner answers logins at once, by these and then by yes. Otherwise the test answers.
    pub decides: bool,
    pub answers: VecDeque<AuthAnswer>,
    /// The client trusts the host's key; the server signs something else.
    pub client_trusts: bool,
    pub server_lies: bool,
    /// Bytes consumed as they come.
    pub consume: bool,
    pub key: Ed25519KeyPair,
    next_cookie: u8,
}

pub fn host_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

pub fn offer(key: &Ed25519KeyPair) -> HostKeyOffer {
    let mut blob = Vec::new();
    blob.put_string("ssh-ed25519");
    blob.put_string(key.public_key());
    HostKeyOffer {
        algorithm: "ssh-ed25519".into(),
        blob,
    }
}

pub fn sign(key: &Ed25519KeyPair, message: &[u8]) -> Vec<u8> {
    let mut signature = Vec::new();
    signature.put_string("ssh-ed25519");
    signature.put_string(key.sign(message));
    signature
}

impl Pair {
    pub fn new(client: Settings, mut server: Settings) -> Pair {
        let key = host_key();
        server.host_keys = vec![offer(&key)];
        Pair {
            client: Connection::client(Arc::new(client)),
            server: Connection::server(Arc::new(server), [1; 16]),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            client_told: Observations::default(),
            server_told: Observations::default(),
            piece: usize::MAX,
            sent_by_client: 0,
            tamper: None,
            ahead: false,
            login: true,
            decides: true,
            answers: VecDeque::new(),
            client_trusts: true,
            server_lies: false,
            consume: true,
            key,
            next_cookie: 2,
        }
    }

    /// A pair that is logged in, with a channel open.
    pub fn open(client: Settings, server: Settings) -> (Pair, ChannelId, ChannelId) {
        let mut pair = Pair::new(client, server);
        pair.run();
        assert!(
            pair.client_told.logged_in,
            "{:?} {:?}",
            pair.client_told.end, pair.server_told.end
        );
        let ours = pair.client.open(&ChannelKind::Session).unwrap();
        pair.run();
        let theirs = pair
            .server_told
            .opened
            .pop_front()
            .expect("the server saw the channel");
        assert_eq!(pair.client_told.opened.pop_front(), Some(ours));
        (pair, ours, theirs)
    }

    /// Until neither side has anything more to say.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// One turn of each side. False: nothing happened.
    pub fn step(&mut self) -> bool {
        let (_, client_did) = (self.tell_client(), self.move_client());
        let (_, server_did) = (self.tell_server(), self.move_server());
        client_did || server_did
    }

    fn move_client(&mut self) -> bool {
        let first = self.to_server.len();
        let sent = take(&mut self.client, &mut self.to_server);
        match self.tamper {
            Some(Tamper::Flip(at)) => {
                let at = at.wrapping_sub(self.sent_by_client).wrapping_add(first);
                if let Some(byte) = self.to_server.get_mut(at).filter(|_| at >= first) {
                    *byte ^= 1;
                }
            }
            Some(Tamper::Cut(at)) => {
                let left = at.saturating_sub(self.sent_by_client);
                self.sent_by_client += self.to_server.len() - first;
                self.to_server.truncate(first + left);
                return sent | give(&mut self.client, &mut self.to_client, self.piece);
            }
            None => {}
        }
        self.sent_by_client += self.to_server.len() - first;
        sent | give(&mut self.client, &mut self.to_client, self.piece)
    }

    fn move_server(&mut self) -> bool {
        let sent = take(&mut self.server, &mut self.to_client);
        sent | give(&mut self.server, &mut self.to_server, self.piece)
    }

    pub fn tell_client(&mut self) {
        let told = &mut self.client_told;
        loop {
            let mut consumed = None;
            let mut trust = false;
            match self.client.poll() {
                Err(end) => {
                    told.end = Some(end);
                    return;
                }
                Ok(None) => return,
                Ok(Some(event)) => match event {
                    Event::HostKey(blob) => {
                        assert_eq!(blob, offer(&self.key).blob);
                        told.host_keys += 1;
                        trust = true;
                    }
                    Event::Established => told.established = true,
                    Event::AuthReply(AuthReply::Accepted) => told.logged_in = true,
                    Event::AuthReply(AuthReply::Ask { .. }) => told.questions += 1,
                    Event::AuthReply(AuthReply::Rejected { .. }) => told.rejected += 1,
                    Event::Opened(channel) => told.opened.push_back(channel),
                    Event::Data { channel, bytes, .. } => {
                        told.data.extend_from_slice(bytes);
                        consumed = Some((channel, bytes.len()));
                    }
                    Event::Alive => told.alive += 1,
                    _ => {}
                },
            }
            if trust {
                self.client.trust_host(self.client_trusts);
                if self.login && self.client_trusts {
                    self.client.authenticate(&AuthRequest::none(b"user"));
                    if self.ahead {
                        self.client.open(&ChannelKind::Session);
                    }
                }
            }
            if let Some((channel, n)) = consumed.filter(|_| self.consume) {
                self.client.consumed(channel, n);
            }
        }
    }

    pub fn tell_server(&mut self) {
        enum Do {
            Nothing,
            Sign(Vec<u8>),
            Cookie,
            Auth,
            Accept(ChannelId),
            Consume(ChannelId, usize),
        }
        let told = &mut self.server_told;
        loop {
            let next = match self.server.poll() {
                Err(end) => {
                    told.end = Some(end);
                    return;
                }
                Ok(None) => return,
                Ok(Some(event)) => match event {
                    Event::SignExchange(exchange) => {
                        told.signed += 1;
                        let again = crate::event::Exchange::decode(&exchange.encode()).unwrap();
                        assert_eq!(again, *exchange);
                        Do::Sign(exchange.hash().unwrap().as_ref().to_vec())
                    }
                    Event::CookieWanted => Do::Cookie,
                    Event::Established => {
                        told.established = true;
                        Do::Nothing
                    }
                    Event::Auth(_) | Event::AuthInfo(_) => {
                        told.login_requests += 1;
                        Do::Auth
                    }
                    Event::Open { channel, .. } => {
                        told.opened.push_back(channel);
                        Do::Accept(channel)
                    }
                    Event::Data { channel, bytes, .. } => {
                        told.data.extend_from_slice(bytes);
                        Do::Consume(channel, bytes.len())
                    }
                    Event::Alive => {
                        told.alive += 1;
                        Do::Nothing
                    }
                    _ => Do::Nothing,
                },
            };
            self.next_cookie = self.next_cookie.wrapping_add(1);
            let cookie = [self.next_cookie; 16];
            match next {
                Do::Nothing => {}
                Do::Sign(mut hash) => {
                    hash[0] ^= u8::from(self.server_lies);
                    self.server.signed(&sign(&self.key, &hash), cookie);
                }
                Do::Cookie => {
                    told.cookies += 1;
                    self.server.cookie(cookie);
                }
                Do::Auth if !self.decides => {}
                Do::Auth => {
                    let answer = self.answers.pop_front().unwrap_or(AuthAnswer::Accept);
                    told.logged_in = matches!(answer, AuthAnswer::Accept);
                    self.server.answer_auth(answer);
                }
                Do::Accept(channel) => self.server.accept(channel),
                Do::Consume(channel, n) if self.consume => self.server.consumed(channel, n),
                Do::Consume(..) => {}
            }
        }
    }
}

/// Moves a connection's output. True: there was some.
pub fn take(from: &mut Connection, wire: &mut VecDeque<u8>) -> bool {
    let n = from.output().len();
    wire.extend(from.output());
    from.sent(n);
    n > 0
}

/// Moves at most `piece` bytes to a connection that wants them. True: there were some.
pub fn give(to: &mut Connection, wire: &mut VecDeque<u8>, piece: usize) -> bool {
    if !to.wants_input() || wire.is_empty() {
        return false;
    }
    let room = to.room(1);
    let n = room.len().min(piece).min(wire.len());
    for slot in &mut room[..n] {
        *slot = wire.pop_front().expect("no more is taken than there is");
    }
    to.received(n);
    true
}

/// Writes all of it, running the pair in between.
pub fn send(pair: &mut Pair, by_server: bool, channel: ChannelId, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let side = if by_server {
            &mut pair.server
        } else {
            &mut pair.client
        };
        let n = side.write(channel, Stream::Main, bytes);
        bytes = &bytes[n..];
        assert!(pair.step() || n > 0, "there is a way on");
    }
}
