//! An SSH client that is driven by hand, beside a running node: the core in the client's role over a socket, through
//! which a test says whatever it likes, honest or not; and bytes without any core. It waits for what happens, never for a
//! while, and decides nothing about what is right.

use crate::peer::{DIR, PORT};
use fleetgate_ssh::auth::Request as Login;
use fleetgate_ssh::channel::Message;
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::event::{
    AuthReply, ChannelId, ChannelKind, End, Event, Global, Reason, Request, Stream as Of,
};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::key::PrivateKey;
use fleetgate_ssh::settings::{FirstShare, Settings};
use fleetgate_ssh::{Connection, driver};
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::poll::{READ, WRITE, Watch, poll};
use fleetgate_sys::{Errno, stream};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// So much of a channel's output is kept.
const KEPT: usize = 1 << 20;

/// What happened, in order; output stands in [`Client::output`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The first key exchange is done.
    Established,
    /// In.
    LoggedIn,
    /// Not this way.
    Rejected,
    /// A channel is open.
    Opened(u32),
    /// It was refused, for this reason.
    OpenFailed(u32, u32),
    /// What became of a request on it.
    Replied(u32, bool),
    /// Its program ended.
    Exit(u32, u32),
    /// Both sides closed it.
    Closed(u32),
    /// What became of a request for the connection.
    Global(bool),
}

/// How a client is made.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Whom it logs in as.
    pub user: String,
    /// By the world's key, or by one that nobody knows.
    pub key: &'static str,
    /// Says nothing after the key exchange.
    pub mute: bool,
    /// From this address of loopback, as its last byte.
    pub from: u8,
    /// Sends so many bytes in all and then nothing more, ever.
    pub bytes: Option<usize>,
    /// Loses its first packet after NEWKEYS on the way, as an attacker in the middle would have it.
    pub truncated: bool,
    /// The core's settings.
    pub core: Settings,
}

/// The client.
pub struct Client {
    /// Its core.
    pub core: Connection,
    /// Its socket.
    pub socket: TcpStream,
    /// What happened.
    pub said: Vec<Said>,
    /// What channels printed, both streams.
    pub output: BTreeMap<u32, Vec<u8>>,
    /// How it ended, by whom and with which words.
    pub end: Option<End>,
    /// Nothing is read.
    pub deaf: bool,
    /// What comes on channels is not consumed.
    pub hoards: bool,
    kind: Kind,
    host_key: Vec<u8>,
    left: usize,
    /// The server sends nothing more.
    over: bool,
}

impl Kind {
    /// An honest one, with the quickest key exchange.
    pub fn honest(user: &str) -> Kind {
        let mut core = Settings {
            kex: vec![Method::Curve25519],
            first_share: FirstShare::Waits,
            channel_mirror: false,
            host_key_algorithms: vec!["ssh-ed25519".to_owned()],
            ..Settings::default()
        };
        core.limits.max_channels = 4096;
        core.limits.max_requests_in_flight = 1 << 20;
        Kind {
            user: user.to_owned(),
            key: "user_ed25519",
            mute: false,
            from: 1,
            bytes: None,
            truncated: false,
            core,
        }
    }

    /// One that says nothing after the key exchange.
    pub fn mute() -> Kind {
        Kind {
            mute: true,
            ..Kind::honest("ada")
        }
    }

    /// Connects.
    pub fn connect(&self) -> Client {
        Client {
            core: Connection::client(Arc::new(self.core.clone())),
            socket: connect_from(self.from),
            said: Vec::new(),
            output: BTreeMap::new(),
            end: None,
            deaf: false,
            hoards: false,
            left: self.bytes.unwrap_or(usize::MAX),
            kind: self.clone(),
            host_key: Vec::new(),
            over: false,
        }
    }
}

/// A connection of bytes.
pub fn connect() -> TcpStream {
    connect_from(1)
}

/// The same from 127.0.0.`host`.
pub fn connect_from(host: u8) -> TcpStream {
    let socket = net::tcp(&Address::v4([127, 0, 0, host], 0)).expect("a socket");
    net::bind(&socket, &Address::v4([127, 0, 0, host], 0)).expect("an address of loopback");
    match net::connect(&socket, &Address::v4([127, 0, 0, 1], PORT)) {
        Ok(()) => {}
        Err(Errno::EINPROGRESS) => {
            poll(&mut [Watch::new(socket.raw(), WRITE)], None).expect("poll");
        }
        Err(e) => panic!("it listens: {e}"),
    }
    socket.set_nonblocking(false).expect("a socket");
    let socket = TcpStream::from(OwnedFd::from(socket));
    socket.set_nodelay(true).expect("TCP");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket
}

/// Sends bytes and reads what comes until the server closes. What it sent: its DISCONNECT, if it said one before there
/// were keys.
pub fn send(bytes: &[u8]) -> Option<(u32, String)> {
    let mut socket = connect();
    // It may be closed before all is written.
    let _ = socket.write_all(bytes);
    disconnected(&mut socket)
}

/// Reads until the server closes.
pub fn disconnected(socket: &mut TcpStream) -> Option<(u32, String)> {
    let mut all = Vec::new();
    match socket.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the server does not close the connection: {e}"),
    }
    let line = all.iter().position(|b| *b == b'\n')? + 1;
    let mut rest = Reader::new(&all[line..]);
    while let Ok(packet) = rest.string("packet") {
        let mut packet = Reader::new(packet);
        packet.u8("padding").ok()?;
        if packet.u8("number").ok()? == 1 {
            let reason = packet.u32("reason").ok()?;
            let text = packet.string("text").ok()?;
            return Some((reason, String::from_utf8_lossy(text).into_owned()));
        }
    }
    None
}

impl Client {
    /// One that is logged in.
    pub fn login(user: &str) -> Client {
        let mut client = Kind::honest(user).connect();
        client.until("the login", |c| c.said.contains(&Said::LoggedIn));
        client
    }

    /// A session.
    pub fn session(&mut self) -> ChannelId {
        let channel = self
            .core
            .open(&ChannelKind::Session)
            .expect("it may be asked for");
        self.forget(channel);
        self.until("a session", |c| c.said.contains(&Said::Opened(channel.0)));
        channel
    }

    /// Runs a command in it and waits for the answer.
    pub fn exec(&mut self, channel: ChannelId, command: &str) {
        let command = command.as_bytes().to_vec();
        assert!(self.asks(channel, Request::Exec { command }));
    }

    /// Whether the request is done.
    pub fn asks(&mut self, channel: ChannelId, request: Request) -> bool {
        let replies = |c: &Client| c.replies(channel).len();
        let before = replies(self);
        self.core.request(channel, &request, true);
        self.until("an answer", |c| replies(c) > before);
        self.replies(channel)[before]
    }

    /// The answers to requests on this channel.
    pub fn replies(&self, channel: ChannelId) -> Vec<bool> {
        let of = |said: &Said| match said {
            Said::Replied(number, done) if *number == channel.0 => Some(*done),
            _ => None,
        };
        self.said.iter().filter_map(of).collect()
    }

    /// Asks for something for the connection; whether it is done.
    pub fn asks_for(&mut self, global: Global) -> bool {
        let answers = |c: &Client| c.said.iter().filter(|s| matches!(s, Said::Global(_))).count();
        let before = answers(self);
        self.core.global(&global, true);
        self.until("an answer", |c| answers(c) > before);
        self.said.iter().rfind(|s| matches!(s, Said::Global(_))) == Some(&Said::Global(true))
    }

    /// What opening a channel came to: the reason for which it was refused.
    pub fn opens(&mut self, kind: &ChannelKind) -> Result<ChannelId, u32> {
        let channel = self.core.open(kind).expect("it may be asked for");
        self.forget(channel);
        let answer = |c: &Client| {
            c.said.iter().find_map(|s| match s {
                Said::Opened(number) if *number == channel.0 => Some(Ok(channel)),
                Said::OpenFailed(number, reason) if *number == channel.0 => Some(Err(*reason)),
                _ => None,
            })
        };
        self.until("an answer", |c| answer(c).is_some());
        answer(self).expect("waited for")
    }

    /// All that a command prints.
    pub fn prints(&mut self, command: &str) -> String {
        let channel = self.session();
        self.exec(channel, command);
        self.until("the command's end", |c| c.said.contains(&Said::Closed(channel.0)));
        let output = self.output.remove(&channel.0).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Writes to a session that runs cat, and reads it back.
    pub fn echoes(&mut self, channel: ChannelId, word: &str) {
        let before = self.output.get(&channel.0).map_or(0, Vec::len);
        assert_eq!(
            self.core.write(channel, Of::Main, word.as_bytes()),
            word.len(),
            "there is a window"
        );
        self.until("what was written", |c| {
            c.output
                .get(&channel.0)
                .is_some_and(|o| o.len() >= before + word.len())
        });
        assert!(self.output[&channel.0].ends_with(word.as_bytes()));
    }

    /// The host key that it was shown.
    pub fn host_key(&self) -> Vec<u8> {
        self.host_key.clone()
    }

    /// Says a message as it is.
    pub fn says(&mut self, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.write(&mut payload);
        self.core.send_raw(&payload);
    }

    /// Waits until it holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Client) -> bool) {
        let start = Instant::now();
        loop {
            self.turn();
            if holds(self) {
                return;
            }
            assert!(
                !self.over && self.end.is_none(),
                "{what} does not come: the connection ended: {:?}; {}",
                self.end,
                self.last()
            );
            assert!(
                start.elapsed() < PATIENCE,
                "waited too long for {what}: {}",
                self.last()
            );
            self.wait(1000);
        }
    }

    /// Waits for the connection's end: the server's reason and words; none: it closed without a word.
    pub fn ends(&mut self) -> Option<(u32, String)> {
        let start = Instant::now();
        while self.end.is_none() && !self.over {
            self.turn();
            assert!(
                start.elapsed() < PATIENCE,
                "the connection does not end: {}",
                self.last()
            );
            self.wait(1000);
        }
        match self.end.take()? {
            End::Theirs { reason, text } => Some((reason, text)),
            End::Ours { text, .. } => panic!("the client ended it: {text}"),
        }
    }

    /// Waits until something can be read or written.
    fn wait(&self, ms: u32) {
        let mut events = if self.deaf { 0 } else { READ };
        if self.left > 0 && !self.core.output().is_empty() {
            events |= WRITE;
        }
        if events != 0 && !self.over && self.end.is_none() {
            let _ = poll(&mut [Watch::new(self.socket.as_raw_fd(), events)], Some(ms));
        }
    }

    /// Sends all that it can; whether all was sent. False: the server reads no further, or is gone.
    pub fn pushes(&mut self) -> bool {
        self.turn();
        while !self.core.output().is_empty() {
            let mut watch = [Watch::new(self.socket.as_raw_fd(), WRITE)];
            if self.over || poll(&mut watch, Some(300)).expect("poll") == 0 {
                return false;
            }
            self.turn();
        }
        true
    }

    /// Says goodbye, and waits until the server has heard it.
    pub fn leaves(mut self) {
        self.core.disconnect(Reason::ByApplication, "done");
        self.write();
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = disconnected(&mut self.socket);
    }

    fn last(&self) -> String {
        let from = self.said.len().saturating_sub(12);
        format!("{:?}", &self.said[from..])
    }

    fn forget(&mut self, channel: ChannelId) {
        self.output.remove(&channel.0);
        self.said.retain(|said| {
            !matches!(said, Said::Opened(n) | Said::OpenFailed(n, _) | Said::Replied(n, _)
                | Said::Exit(n, _) | Said::Closed(n) if *n == channel.0)
        });
    }

    /// Whether the connection has ended, from either side.
    pub fn is_over(&self) -> bool {
        self.over || self.end.is_some()
    }

    /// Writes, reads and deals with all there is.
    pub fn turn(&mut self) {
        loop {
            self.deal();
            self.write();
            if self.deaf || self.over || self.end.is_some() {
                return;
            }
            let socket = self.socket.as_raw_fd();
            match driver::read(&mut self.core, 16 * 1024, |room| {
                stream::receive_now(socket, room)
            }) {
                Ok(Some(0)) => self.over = true,
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::EAGAIN) => return,
                Err(_) => self.over = true,
            }
        }
    }

    fn write(&mut self) {
        while !self.core.output().is_empty() && self.left > 0 {
            let most = self.core.output().len().min(self.left);
            match stream::send_now(self.socket.as_raw_fd(), &self.core.output()[..most]) {
                Ok(n) => {
                    self.core.sent(n);
                    self.left -= n;
                }
                Err(Errno::EAGAIN) => return,
                // What the server said before is still to be read.
                Err(_) => self.left = 0,
            }
            if self.left == 0 {
                let _ = self.socket.shutdown(Shutdown::Write);
            }
        }
    }

    fn deal(&mut self) {
        loop {
            let event = match self.core.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(end) => {
                    self.end.get_or_insert(end);
                    return;
                }
            };
            let said = match event {
                Event::HostKey(key) => {
                    self.host_key = key.to_vec();
                    self.trust();
                    continue;
                }
                Event::Established => {
                    if !self.kind.mute {
                        self.authenticate();
                    }
                    Said::Established
                }
                Event::AuthReply(AuthReply::Accepted) => Said::LoggedIn,
                Event::AuthReply(_) => Said::Rejected,
                Event::Opened(channel) => Said::Opened(channel.0),
                Event::OpenFailed { channel, reason, .. } => Said::OpenFailed(channel.0, reason),
                Event::Data { channel, bytes, .. } => {
                    let kept = self.output.entry(channel.0).or_default();
                    let n = bytes.len();
                    kept.extend_from_slice(&bytes[..n.min(KEPT.saturating_sub(kept.len()))]);
                    if !self.hoards {
                        self.core.consumed(channel, n);
                    }
                    continue;
                }
                Event::Closed(channel) => Said::Closed(channel.0),
                Event::Replied { channel, done } => Said::Replied(channel.0, done),
                Event::Request {
                    channel,
                    request: Request::ExitStatus { code },
                    ..
                } => Said::Exit(channel.0, code),
                Event::GlobalReplied { done } => Said::Global(done.is_some()),
                Event::Open { channel, .. } => {
                    self.core.accept(channel);
                    continue;
                }
                _ => continue,
            };
            self.said.push(said);
        }
    }

    fn trust(&mut self) {
        if !self.kind.truncated || self.said.contains(&Said::Established) {
            return self.core.trust_host(true);
        }
        self.write();
        self.core.trust_host(true);
        // NEWKEYS is the last packet in plain: 16 bytes. What stands behind it never arrives.
        let all = self.core.output().len();
        assert!(all > 16, "extensions are told behind NEWKEYS");
        let newkeys = self.core.output()[..16].to_vec();
        let _ = (&self.socket).write_all(&newkeys);
        self.core.sent(all);
    }

    /// Tries a password: whether it is right. None: the server ended the connection.
    pub fn tries_password(&mut self, password: &str) -> Option<bool> {
        let answers = |c: &Client| {
            let is_answer = |said: &&Said| matches!(said, Said::LoggedIn | Said::Rejected);
            c.said.iter().filter(is_answer).count()
        };
        let before = answers(self);
        let user = self.kind.user.as_bytes().to_vec();
        self.core
            .authenticate(&Login::password(&user, password.as_bytes(), None));
        while answers(self) == before {
            self.turn();
            if self.over || self.end.is_some() {
                return None;
            }
            self.wait(1000);
        }
        Some(self.said.contains(&Said::LoggedIn))
    }

    /// Asks for a login.
    pub fn authenticate(&mut self) {
        let key = key(self.kind.key);
        let id = self.core.session_id().expect("there are keys").to_vec();
        let user = self.kind.user.as_bytes();
        let unsigned = Login::unsigned(&id, user, "ssh-ed25519", key.public().blob(), None);
        let signature = key.sign("ssh-ed25519", unsigned.to_sign()).expect("it signs");
        self.core.authenticate(&unsigned.signed(&signature));
    }
}

/// A private key of the world's.
fn key(name: &str) -> PrivateKey {
    let file = std::fs::read(format!("{DIR}/{name}")).expect("it is there");
    PrivateKey::parse(&file).expect("a key")
}
