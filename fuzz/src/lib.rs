//! What the SSH targets share: settings, packets without keys, and owners that answer whatever is asked.
#![forbid(unsafe_code)]

pub mod recordings;

use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::Request as Login;
use fleetgate_ssh::event::{AuthAnswer, ChannelId, ChannelKind, Event, Exchange, Reason, Request, Stream};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::key::{HostKey, KeyType};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use std::sync::{Arc, OnceLock};

/// A server's and a client's.
pub fn settings() -> Arc<Settings> {
    static SETTINGS: OnceLock<Arc<Settings>> = OnceLock::new();
    let make = || {
        Arc::new(Settings {
            // The post-quantum method is slow here, and its shares are tried in a test.
            kex: vec![Method::Curve25519, Method::EcdhP256, Method::EcdhP384],
            host_key_algorithms: vec!["ssh-ed25519".into()],
            host_keys: vec![HostKeyOffer {
                algorithm: "ssh-ed25519".into(),
                blob: host_key().public().blob().to_vec(),
            }],
            ..Settings::default()
        })
    };
    SETTINGS.get_or_init(make).clone()
}

fn host_key() -> &'static HostKey {
    static KEY: OnceLock<HostKey> = OnceLock::new();
    KEY.get_or_init(|| {
        HostKey::generate(KeyType::Ed25519, "")
            .expect("a key can be made")
            .0
    })
}

/// A well-made packet without keys.
pub fn plain_packet(out: &mut Vec<u8>, payload: &[u8]) {
    let mut padding = 8 - (5 + payload.len()) % 8;
    if padding < 4 {
        padding += 8;
    }
    out.extend_from_slice(&((1 + payload.len() + padding) as u32).to_be_bytes());
    out.push(padding as u8);
    out.extend_from_slice(payload);
    out.resize(out.len() + padding, 0);
}

/// Gives all of it to a connection whose owner answers everything, and looks at what it holds.
pub fn pump(connection: &mut Connection, mut bytes: &[u8], piece: usize) {
    loop {
        answer_all(connection);
        let unsent = connection.output().len();
        assert!(unsent < 1 << 20, "{unsent} bytes of output");
        connection.sent(unsent);
        if bytes.is_empty() || !connection.wants_input() {
            return;
        }
        let room = connection.room(1);
        assert!(!room.is_empty(), "who wants input has room for it");
        let n = room.len().min(piece).min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        connection.received(n);
        bytes = &bytes[n..];
    }
}

/// Deals with all events.
pub fn answer_all(connection: &mut Connection) {
    enum Answer {
        Nothing,
        Sign(Vec<u8>),
        Cookie,
        Trust,
        Auth,
        Accept(ChannelId),
        Consumed(ChannelId, usize),
        Done(fleetgate_ssh::event::ReplyId),
        GlobalDone(fleetgate_ssh::event::ReplyId),
    }
    loop {
        let answer = match connection.poll() {
            Err(end) => {
                assert_eq!(connection.poll().err(), Some(end), "an end stays");
                return;
            }
            Ok(None) => return,
            Ok(Some(event)) => match event {
                Event::SignExchange(exchange) => {
                    Answer::Sign(exchange.hash().expect("it has a hash").as_ref().to_vec())
                }
                Event::CookieWanted => Answer::Cookie,
                Event::HostKey(_) => Answer::Trust,
                Event::Auth(_) | Event::AuthInfo(_) => Answer::Auth,
                Event::Open { channel, .. } => Answer::Accept(channel),
                Event::Data { channel, bytes, .. } => Answer::Consumed(channel, bytes.len()),
                Event::Request {
                    reply: Some(reply), ..
                } => Answer::Done(reply),
                Event::Global {
                    reply: Some(reply), ..
                } => Answer::GlobalDone(reply),
                _ => Answer::Nothing,
            },
        };
        match answer {
            Answer::Nothing => {}
            Answer::Sign(hash) => {
                let signature = host_key().sign("ssh-ed25519", &hash).expect("it signs");
                connection.signed(&signature, [2; 16]);
            }
            Answer::Cookie => connection.cookie([3; 16]),
            Answer::Trust => {
                connection.trust_host(true);
                connection.authenticate(&Login::none(b"user"));
            }
            Answer::Auth => connection.answer_auth(AuthAnswer::Accept),
            Answer::Accept(channel) => connection.accept(channel),
            Answer::Consumed(channel, n) => connection.consumed(channel, n),
            Answer::Done(reply) => connection.answer(reply, true),
            Answer::GlobalDone(reply) => connection.answer_global(reply, Some(b"")),
        }
    }
}

/// Something that an owner may do at any time.
pub fn act(connection: &mut Connection, what: u8) {
    let channel = ChannelId(u32::from(what >> 4 & 3));
    match what & 15 {
        0 => connection.rekey(),
        1 => {
            connection.open(&ChannelKind::Session);
        }
        2 => connection.close(channel),
        3 => connection.eof(channel),
        4 => {
            connection.write(channel, Stream::Main, &[what; 3000]);
        }
        5 => connection.request(channel, &Request::Shell, true),
        6 => connection.refuse(channel, 1, "no"),
        7 => connection.disconnect(Reason::ByApplication, "enough"),
        8 => connection.tick(std::time::Duration::from_secs(u64::from(what) << 4)),
        _ => {}
    }
}

/// The fuzzer's bytes themselves, or one of `good` with bytes altered as they say: a place and a value, or a length to
/// cut to.
pub fn alter(data: &[u8], good: &[Vec<u8>]) -> Vec<u8> {
    let [which, rest @ ..] = data else {
        return Vec::new();
    };
    let Some(good) = good.get(usize::from(which >> 1)).filter(|_| which & 1 == 0) else {
        return rest.to_vec();
    };
    let mut altered = good.clone();
    for edit in rest.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]]));
        match altered.get_mut(at & 0x7fff) {
            Some(byte) if at < 0x8000 => *byte = edit[2],
            Some(_) => altered.truncate(at & 0x7fff),
            None => altered.push(edit[2]),
        }
    }
    altered
}

/// One that a server asks to be signed.
pub fn exchange() -> Box<Exchange> {
    let mut client = Connection::client(settings());
    let mut server = Connection::server(settings(), [1; 16]);
    loop {
        let said = client.output().to_vec();
        client.sent(said.len());
        server.room(said.len())[..said.len()].copy_from_slice(&said);
        server.received(said.len());
        if let Ok(Some(Event::SignExchange(exchange))) = server.poll() {
            return exchange;
        }
        let said = server.output().to_vec();
        server.sent(said.len());
        client.room(said.len())[..said.len()].copy_from_slice(&said);
        client.received(said.len());
        assert!(client.poll().is_ok());
    }
}

/// A peer that sends what the fuzzer wants under good keys, and the one that is tried.
pub struct Pair {
    pub sender: Connection,
    pub fuzzed: Connection,
}

impl Pair {
    /// After the login.
    pub fn logged_in(to_client: bool) -> Pair {
        let client = Connection::client(settings());
        let server = Connection::server(settings(), [1; 16]);
        let (sender, fuzzed) = if to_client {
            (server, client)
        } else {
            (client, server)
        };
        let mut pair = Pair { sender, fuzzed };
        for _ in 0..8 {
            pair.exchange();
        }
        assert!(
            pair.sender.may_move() && pair.fuzzed.may_move(),
            "they are logged in"
        );
        pair
    }

    /// Each gets what the other says.
    pub fn exchange(&mut self) {
        let there = self.sender.output().to_vec();
        self.sender.sent(there.len());
        feed(&mut self.fuzzed, &there);
        let back = self.fuzzed.output().to_vec();
        self.fuzzed.sent(back.len());
        feed(&mut self.sender, &back);
    }
}

fn feed(to: &mut Connection, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = to.room(rest.len());
        let n = room.len().min(rest.len());
        if n == 0 {
            break;
        }
        room[..n].copy_from_slice(&rest[..n]);
        to.received(n);
        rest = &rest[n..];
        answer_all(to);
    }
    answer_all(to);
    assert!(to.output().len() < 1 << 21);
}
