//! A monitor that decides nothing: it lets everybody in, signs what it is asked to, runs commands by /bin/sh and opens
//! sockets itself. Around it the lobby and a front as the real program, and SSH clients over socket pairs.

mod client;
mod monitor;
mod worker;

pub use client::{Client, Said};
pub use worker::WorkerKind;

use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Request, Stream};
use fleetgate_ssh::key::{HostKey, KeyType};
use fleetgate_ssh::settings::Settings as Core;
use fleetgate_sys::{Fd, poll};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::node::front::{FromFront, Start, Ticket, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{self, ConnectionAddresses, FrontPermit, FrontPermits, Settings};
use monitor::Running;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a test waits for at most; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// All of it.
pub struct World {
    pub lobby: WorkerKind,
    pub front: WorkerKind,
    pub host_key: HostKey,
    pub clients: Vec<Client>,
    pub permits: FrontPermits,
    sockets: BTreeMap<node::ConnectionNumber, Fd>,
    programs: Vec<Running>,
    listeners: Vec<(node::ConnectionNumber, Ticket, std::net::TcpListener)>,
    next: node::ConnectionNumber,
    cookie: u8,
    /// Every word that the front said which is not answered here.
    pub told: Vec<FromFront>,
    /// Every word of the lobby's likewise.
    pub lobby_told: Vec<FromLobby>,
    /// Terminals: the user's side, kept here.
    pub terminals: Vec<Fd>,
    pub starts: Vec<Start>,
    /// Do not answer these connections' login requests.
    pub undecided: bool,
    pub client_settings: Core,
    /// The longest frozen connection that the lobby handed over.
    pub longest_frozen: usize,
    /// Requests for sockets are told and not answered.
    pub unreachable: bool,
    /// The next session at a terminal is recorded: the front's end of the pipe.
    pub recorded: Option<Fd>,
    /// Subsystems show another session, with a recording before it.
    pub viewing: bool,
}

impl World {
    /// So long a recording is.
    pub const RECORDED: usize = 3_000_000;

    pub fn new() -> World {
        World::with(|_| {})
    }

    /// With other settings for lobby and front.
    pub fn with(change: impl Fn(&mut Settings)) -> World {
        let (host_key, _) = HostKey::generate(KeyType::Ed25519, "test").expect("a key");
        let mut settings = settings(&host_key);
        change(&mut settings);
        let (lobby, front) = (WorkerKind::start("lobby"), WorkerKind::start("front"));
        lobby.say(
            &ToLobby::Begin {
                settings: settings.clone(),
            },
            &[],
        );
        front.say(&ToFront::Begin { settings }, &[]);
        World {
            lobby,
            front,
            host_key,
            clients: Vec::new(),
            permits: all_permits(),
            sockets: BTreeMap::new(),
            programs: Vec::new(),
            listeners: Vec::new(),
            next: 1,
            cookie: 0,
            told: Vec::new(),
            lobby_told: Vec::new(),
            terminals: Vec::new(),
            starts: Vec::new(),
            undecided: false,
            client_settings: Core::default(),
            longest_frozen: 0,
            unreachable: false,
            recorded: None,
            viewing: false,
        }
    }

    fn cookie(&mut self) -> [u8; 16] {
        self.cookie = self.cookie.wrapping_add(1);
        [self.cookie; 16]
    }

    /// A raw connection to the lobby; its number.
    pub fn arrive(&mut self, server_side: Fd) -> node::ConnectionNumber {
        let connection = self.next;
        self.next += 1;
        let word = ToLobby::Arrived {
            connection,
            addresses: ConnectionAddresses {
                peer: nowhere(),
                local: nowhere(),
            },
            cookie: self.cookie(),
            grace_ms: 20_000,
        };
        self.lobby.say(&word, &[server_side.raw()]);
        self.sockets.insert(connection, server_side);
        connection
    }

    /// A client that is logged in; its place in `clients`.
    pub fn login(&mut self) -> usize {
        let at = self.connect();
        self.until(|w| w.clients[at].said.contains(&Said::LoggedIn));
        at
    }

    /// A client that begins.
    pub fn connect(&mut self) -> usize {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let number = self.arrive(Fd::from(OwnedFd::from(theirs)));
        self.clients.push(Client {
            core: Connection::client(Arc::new(self.client_settings.clone())),
            socket: Fd::from(OwnedFd::from(ours)),
            number,
            said: Vec::new(),
            over: None,
            hoard: None,
            deaf: false,
            end: None,
        });
        self.clients.len() - 1
    }

    /// Opens a session and waits until it is there.
    pub fn session(&mut self, client: usize) -> ChannelId {
        let channel = self.clients[client]
            .core
            .open(&ChannelKind::Session)
            .expect("allowed");
        self.clients[client].forget(channel);
        self.until(|w| w.clients[client].said.contains(&Said::Opened(channel.0)));
        channel
    }

    /// A session that executes a command.
    pub fn exec(&mut self, client: usize, command: &str) -> ChannelId {
        let channel = self.session(client);
        let command = command.as_bytes().to_vec();
        self.clients[client]
            .core
            .request(channel, &Request::Exec { command }, true);
        channel
    }

    /// Sends all of it on a channel, or what can be sent until that is closed.
    pub fn write(&mut self, client: usize, channel: ChannelId, mut bytes: &[u8]) {
        let start = Instant::now();
        while !bytes.is_empty() && !self.clients[client].said.contains(&Said::Closed(channel.0)) {
            assert!(start.elapsed() < PATIENCE, "wrote in vain; {:?}", self.summary());
            let some = bytes.len().min(30_000);
            let n = self.clients[client]
                .core
                .write(channel, Stream::Main, &bytes[..some]);
            bytes = &bytes[n..];
            self.step(if n == 0 { 100 } else { 0 });
        }
    }

    /// Goes on until it holds.
    pub fn until(&mut self, holds: impl Fn(&World) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain; {:?}", self.summary());
            self.step(100);
        }
    }

    fn summary(&self) -> Vec<String> {
        let short = |s: &Said| match s {
            Said::Data(c, stream, bytes) => format!("Data({c}, {stream:?}, {})", bytes.len()),
            other => format!("{other:?}"),
        };
        let one = |c: &Client| {
            let said: Vec<String> = c.said.iter().rev().take(20).map(short).collect();
            format!("{}: {said:?} over {:?} end {:?}", c.number, c.over, c.end)
        };
        self.clients.iter().map(one).collect()
    }

    /// One turn: waits for something to happen, and deals with all that did.
    pub fn step(&mut self, wait_ms: u32) {
        let mut watches = vec![
            poll::Watch::new(self.lobby.control.raw(), poll::READ),
            poll::Watch::new(self.front.control.raw(), poll::READ),
        ];
        for c in &mut self.clients {
            c.turn();
            let mut events = if c.deaf { 0 } else { poll::READ };
            if !c.core.output().is_empty() {
                events |= poll::WRITE;
            }
            let fd = if c.end.is_some() { -1 } else { c.socket.raw() };
            watches.push(poll::Watch::new(fd, events));
        }
        watches.extend(
            self.programs
                .iter()
                .map(|p| poll::Watch::new(p.pidfd.raw(), poll::READ)),
        );
        watches.extend(
            self.listeners
                .iter()
                .map(|l| poll::Watch::new(l.2.as_raw_fd(), poll::READ)),
        );
        poll::poll(&mut watches, Some(wait_ms)).expect("it can be waited");
        for c in &mut self.clients {
            c.turn();
        }
        while let Some(word) = self.lobby.hear::<FromLobby>() {
            self.lobby_said(word);
        }
        while let Some(word) = self.front.hear::<FromFront>() {
            self.front_said(word);
        }
        self.accept();
        self.reap();
    }

    /// What a client got of a stream.
    pub fn output(&self, client: usize, channel: ChannelId, stream: Stream) -> Vec<u8> {
        let mut all = Vec::new();
        for said in &self.clients[client].said {
            if let Said::Data(c, s, bytes) = said
                && (*c, *s) == (channel.0, stream)
            {
                all.extend_from_slice(bytes);
            }
        }
        all
    }
}

fn nowhere() -> Endpoint {
    let mut address = [0; 16];
    address[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    Endpoint {
        address,
        scope: 0,
        port: 0,
    }
}

pub fn all_permits() -> FrontPermits {
    let all = FrontPermit::ALL.into_iter();
    all.fold(FrontPermits::default(), FrontPermits::with)
}

fn settings(host_key: &HostKey) -> Settings {
    Settings {
        software: c"fleetgate_test".to_owned(),
        host_keys: vec![node::HostKey {
            blob: host_key.blob("ssh-ed25519").expect("it has one").to_vec(),
            algorithms: vec![c"ssh-ed25519".to_owned()],
        }],
        key_exchanges: Vec::new(),
        ciphers: Vec::new(),
        macs: Vec::new(),
        banner: Vec::new(),
        rekey_bytes: 0,
        rekey_seconds: 0,
        alive_seconds: 0,
        alive_count: 0,
        max_channels: 32,
        window: 2 << 20,
        max_buffered: 256 << 10,
    }
}
