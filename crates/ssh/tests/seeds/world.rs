//! Two connections, the bytes between them, and a schedule that chance makes. It knows nothing of channels.

use crate::chance::Chance;
use crate::login::{Way, blob, sign};
use crate::owner::{Known, Owner};
use fleetgate_ssh::Connection;
use fleetgate_ssh::cipher::{Cipher, Mac};
use fleetgate_ssh::event::{AuthAnswer, AuthReply, End, Event};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::settings::{FirstShare, HostKeyOffer, Keepalive, Limits, Rekey, Settings};
use ring::signature::Ed25519KeyPair;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of a world.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It comes to its end.
    End,
    /// Behind so many bytes from the client nothing arrives any more, either way.
    Cut { at: usize },
    /// A bit of the client's byte there changes on its way.
    Altered { at: usize },
}

/// Beside channel data: answers, window adjusts, key exchanges. What the limits leave room for, and some packets.
const OUTPUT_SLACK: usize = 64 * 1024 + 40 * 1024;

struct Side {
    conn: Option<Connection>,
    owner: Owner,
    settings: Arc<Settings>,
    /// What the owner owes the connection and nobody else.
    owes: VecDeque<Debt>,
    /// Bytes on their way to it.
    wire: VecDeque<u8>,
    /// How many may be.
    capacity: usize,
    logged_in: bool,
    end: Option<End>,
}

/// An answer that the owner gives when chance says so.
enum Debt {
    Sign(Vec<u8>),
    Cookie,
    Trust,
    Auth(AuthAnswer),
    Reply(AuthReply),
}

pub struct World {
    seed: u64,
    chance: Chance,
    fate: Fate,
    sides: [Side; 2],
    known: Known,
    way: Way,
    /// The client asked for a login.
    begun: bool,
    now: Duration,
    /// Bytes that the client sent.
    passed: usize,
    cookies: u8,
    moves: u64,
    broken: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl World {
    pub fn new(seed: u64, mut chance: Chance, fate: Fate) -> World {
        let mirror = chance.percent(70);
        let common = common(&mut chance, mirror);
        let client = Arc::new(settings(&common, &mut chance));
        let server = Arc::new(Settings {
            host_keys: vec![HostKeyOffer {
                algorithm: "ssh-ed25519".into(),
                blob: blob(&host_key()),
            }],
            ..settings(&common, &mut chance)
        });
        let conns = [
            Connection::client(client.clone()),
            Connection::server(server.clone(), [1; 16]),
        ];
        let mut settings = [client, server].into_iter();
        let mut server = [false, true].into_iter();
        let sides = conns.map(|conn| Side {
            conn: Some(conn),
            owner: Owner::new(server.next().expect("there are two"), mirror, &mut chance),
            settings: settings.next().expect("there are two"),
            owes: VecDeque::new(),
            wire: VecDeque::new(),
            capacity: chance.pick(&[1, 100, 1000, 1000, 10_000, 10_000, 100_000, 100_000]),
            logged_in: false,
            end: None,
        });
        World {
            seed,
            way: Way::of(&mut chance),
            chance,
            fate,
            sides,
            // Another name is another plan.
            known: Known {
                flows: (seed as u32).wrapping_mul(1021) % (1 << 30),
                ..Known::default()
            },
            begun: false,
            now: Duration::ZERO,
            passed: 0,
            cookies: 1,
            moves: 0,
            broken: false,
        }
    }

    pub fn run(mut self) -> World {
        for _ in 0..400 + self.chance.below(400) {
            let side = self.chance.below(2);
            self.step(side);
            self.check(side);
        }
        self.settle();
        if self.broken {
            return self;
        }
        for side in &self.sides {
            let conn = side.conn.as_ref().expect("it is here");
            assert!(
                side.logged_in && conn.wants_input() && conn.output().is_empty() && side.wire.is_empty(),
                "seed {}, {:?}: {} bytes unsent, {} on their way, {:?}",
                self.seed,
                self.way,
                conn.output().len(),
                side.wire.len(),
                conn.info(),
            );
        }
        for side in self.sides.iter().rev() {
            side.owner.check_done(&self.known);
        }
        self.known.released = true;
        self.settle();
        // The place of the cut or the change may have come only now.
        if self.broken {
            return self;
        }
        for side in &self.sides {
            side.owner.check_done(&self.known);
            assert!(side.owner.empty());
            let conn = side.conn.as_ref().expect("it is here");
            assert!(conn.output().is_empty() && side.wire.is_empty());
            assert!(conn.may_move(), "nothing is left of any channel");
        }
        self
    }

    pub fn channels(&self) -> u64 {
        self.sides.iter().map(|s| s.owner.opened).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.sides.iter().map(|s| s.owner.bytes).sum()
    }

    pub fn exchanges(&self) -> u64 {
        let conn = self.sides[CLIENT].conn.as_ref().expect("it is here");
        conn.info().exchanges.into()
    }

    pub fn moves(&self) -> u64 {
        self.moves
    }

    pub fn broken(&self) -> bool {
        self.broken
    }

    /// One thing that chance picks.
    fn step(&mut self, side: usize) {
        match self.chance.below(10) {
            0 | 1 => {
                let most = self.chance.pick(&[1, 100, 5000, usize::MAX]);
                self.send(side, most);
            }
            2 | 3 => {
                let most = self.chance.pick(&[1, 100, 5000, usize::MAX]);
                self.deliver(side, most);
            }
            4 | 5 => {
                let events = self.chance.up_to(5);
                for _ in 0..events {
                    self.poll(side);
                }
            }
            6 => {
                self.pay(side);
            }
            7 | 8 => self.act(side),
            _ => match self.chance.below(10) {
                0 => self.conn(side).rekey(),
                1 | 2 => self.move_over(side),
                3 => self.now += Duration::from_secs(self.chance.below(1000) as u64),
                _ => {
                    self.now += Duration::from_millis(self.chance.below(500) as u64);
                    let now = self.now;
                    self.conn(side).tick(now);
                }
            },
        }
    }

    /// Everything goes on until nothing does.
    fn settle(&mut self) {
        loop {
            let mut did = false;
            for side in [CLIENT, SERVER] {
                did |= self.send(side, usize::MAX);
                did |= self.deliver(side, usize::MAX);
                while self.poll(side) {
                    did = true;
                }
                did |= self.pay(side);
                if self.sides[side].logged_in && self.sides[side].end.is_none() {
                    let Side { conn, owner, .. } = &mut self.sides[side];
                    let conn = conn.as_mut().expect("it is here");
                    did |= owner.finish(conn, &mut self.known);
                }
                did |= self.send(side, usize::MAX);
                self.check(side);
            }
            if !did {
                return;
            }
        }
    }

    fn conn(&mut self, side: usize) -> &mut Connection {
        self.sides[side].conn.as_mut().expect("it is here")
    }

    /// From a connection's output onto the wire.
    fn send(&mut self, side: usize, most: usize) -> bool {
        let [client, server] = &mut self.sides;
        let (from, to) = if side == CLIENT {
            (client, server)
        } else {
            (server, client)
        };
        let conn = from.conn.as_mut().expect("it is here");
        let output = conn.output();
        let n = output
            .len()
            .min(most)
            .min(to.capacity.saturating_sub(to.wire.len()));
        to.wire.extend(&output[..n]);
        conn.sent(n);
        if side == CLIENT {
            let passed = self.passed..self.passed + n;
            self.passed += n;
            match self.fate {
                Fate::Cut { at } if passed.contains(&at) => self.broken = true,
                Fate::Altered { at } if passed.contains(&at) => {
                    self.broken = true;
                    let byte = to.wire.len() - n + (at - passed.start);
                    to.wire[byte] ^= 1 << (at % 8);
                }
                _ => {}
            }
        }
        n > 0
    }

    /// From the wire to a connection that wants it.
    fn deliver(&mut self, side: usize, most: usize) -> bool {
        if self.broken && matches!(self.fate, Fate::Cut { .. }) {
            return false;
        }
        let Side { conn, wire, .. } = &mut self.sides[side];
        let conn = conn.as_mut().expect("it is here");
        if wire.is_empty() || !conn.wants_input() {
            return false;
        }
        let room = conn.room(1);
        let n = room.len().min(most).min(wire.len());
        let (first, second) = wire.as_slices();
        let split = n.min(first.len());
        room[..split].copy_from_slice(&first[..split]);
        room[split..n].copy_from_slice(&second[..n - split]);
        wire.drain(..n);
        conn.received(n);
        n > 0
    }

    /// One event. False: there is none.
    fn poll(&mut self, side: usize) -> bool {
        let Side {
            conn,
            owner,
            owes,
            logged_in,
            end,
            ..
        } = &mut self.sides[side];
        if end.is_some() {
            return false;
        }
        let conn = conn.as_mut().expect("it is here");
        let id = conn.session_id().unwrap_or_default().to_vec();
        let event = match conn.poll() {
            Ok(Some(event)) => event,
            Ok(None) => return false,
            Err(e) => {
                assert!(self.broken, "seed {}, side {side}: {e}", self.seed);
                *end = Some(e);
                return false;
            }
        };
        match event {
            Event::SignExchange(exchange) => {
                owes.push_back(Debt::Sign(
                    exchange.hash().expect("a method we know").as_ref().to_vec(),
                ));
            }
            Event::CookieWanted => owes.push_back(Debt::Cookie),
            Event::HostKey(key) => {
                assert_eq!(key, blob(&host_key()));
                owes.push_back(Debt::Trust);
            }
            Event::Established => {}
            Event::Auth(payload) => owes.push_back(Debt::Auth(self.way.decide(&id, payload))),
            Event::AuthInfo(payload) => owes.push_back(Debt::Auth(self.way.judge(payload))),
            Event::AuthReply(AuthReply::Accepted) => *logged_in = true,
            Event::AuthReply(reply) => owes.push_back(Debt::Reply(reply)),
            event => owner.told(event, &self.known),
        }
        true
    }

    /// Gives the connection an answer that it waits for.
    fn pay(&mut self, side: usize) -> bool {
        let way = self.way;
        let Side {
            conn,
            owes,
            logged_in,
            ..
        } = &mut self.sides[side];
        let conn = conn.as_mut().expect("it is here");
        self.cookies = self.cookies.wrapping_add(1);
        let cookie = [self.cookies; 16];
        match owes.pop_front() {
            None => return false,
            Some(Debt::Sign(hash)) => conn.signed(&sign(&host_key(), &hash), cookie),
            Some(Debt::Cookie) => conn.cookie(cookie),
            Some(Debt::Trust) => {
                conn.trust_host(true);
                if !std::mem::replace(&mut self.begun, true) {
                    way.begin(conn);
                }
            }
            Some(Debt::Reply(reply)) => way.go_on(conn, &reply),
            Some(Debt::Auth(answer)) => {
                *logged_in = answer == AuthAnswer::Accept;
                conn.answer_auth(answer);
            }
        }
        true
    }

    /// The owner does something, once it is in; a client that says all ahead, before.
    fn act(&mut self, side: usize) {
        let ahead = side == CLIENT && self.way == Way::Ahead;
        let Side {
            conn,
            owner,
            logged_in,
            end,
            ..
        } = &mut self.sides[side];
        if end.is_none() && (*logged_in || ahead) {
            let conn = conn.as_mut().expect("it is here");
            for _ in 0..self.chance.up_to(5) {
                owner.act(conn, &mut self.chance, &mut self.known);
            }
        }
    }

    /// The connection goes on in another process.
    fn move_over(&mut self, side: usize) {
        let Side { conn, settings, .. } = &mut self.sides[side];
        if conn.as_ref().is_some_and(Connection::may_move) {
            let state = conn.take().expect("it is here").freeze().expect("it may move");
            *conn = Some(Connection::thaw(&state, settings.clone()).expect("what was frozen"));
            self.moves += 1;
        }
    }

    fn check(&self, side: usize) {
        let side = &self.sides[side];
        let waiting = side.conn.as_ref().expect("it is here").output().len();
        let most = side.settings.limits.max_buffered + OUTPUT_SLACK;
        assert!(waiting <= most, "seed {}: {waiting} bytes wait", self.seed);
    }
}

fn host_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a key")
}

/// What both sides have: cheap algorithms mostly.
fn common(chance: &mut Chance, mirror: bool) -> Settings {
    let kex = match chance.below(200) {
        0 => Method::ALL[chance.below(Method::ALL.len())],
        _ => Method::named("curve25519-sha256").expect("it is known"),
    };
    let cipher = match chance.below(20) {
        0 => chance.pick(&Cipher::ALL),
        _ => Cipher::Aes128Gcm,
    };
    Settings {
        kex: vec![kex],
        ciphers: vec![cipher],
        macs: vec![chance.pick(&Mac::ALL)],
        channel_mirror: mirror,
        first_share: chance.pick(&[FirstShare::Waits, FirstShare::Guessed, FirstShare::Known(kex)]),
        ..Settings::default()
    }
}

/// One side's own.
fn settings(common: &Settings, chance: &mut Chance) -> Settings {
    Settings {
        rekey: Rekey {
            bytes: chance.pick(&[20_000, 200_000, 1 << 40]),
            ..Rekey::default()
        },
        keepalive: chance.percent(50).then_some(Keepalive {
            after: Duration::from_secs(30),
            unanswered: u32::MAX,
        }),
        limits: Limits {
            max_channels: chance.pick(&[3, 8, 100]),
            window: chance.pick(&[200, 1000, 10_000, 100_000]),
            max_packet_data: chance.pick(&[100, 1000, 32 * 1024]),
            max_buffered: chance.pick(&[2000, 20_000, 256 * 1024]),
            ..Limits::default()
        },
        ..common.clone()
    }
}
