//! A monitor that decides nothing: it lets everybody in, signs what it is asked to, runs commands by /bin/sh and opens
//! sockets itself. Around it the lobby and a front as the real program, and SSH clients over socket pairs.

use fleetgate_ssh::auth;
use fleetgate_ssh::event::{AuthReply, ChannelId, ChannelKind, Exchange, Global, Reason, Request, Stream};
use fleetgate_ssh::key::{HostKey, KeyType};
use fleetgate_ssh::settings::Settings as Core;
use fleetgate_ssh::{Connection, driver};
use fleetgate_sys::{Errno, Fd, net, poll, process, socket, stream};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::front::{FromFront, Program, Start, Ticket, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{self, ConnectionAddresses, FrontPermit, FrontPermits, Settings, Verdict};
use fleetgate_wire::{Decode, Encode};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a test waits for at most; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker and the socket to it.
pub struct WorkerKind {
    pub control: Fd,
    pub child: Child,
}

impl WorkerKind {
    /// Starts the real program.
    pub fn start(name: &str) -> WorkerKind {
        let (ours, theirs) = socket::pair().expect("a pair");
        // The static image, where the tests are to be run with it.
        let program = std::env::var("FLEETGATE_FRONT");
        let program = program
            .as_deref()
            .unwrap_or(env!("CARGO_BIN_EXE_fleetgate-front"));
        // The program looks at descriptor 3, which Command cannot place: a shell does.
        let child = Command::new("/bin/sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 </dev/null"#, program, name])
            .args(if process::effective_uid() == 0 {
                &["--uid", "65534", "--gid", "65534"][..]
            } else {
                &[]
            })
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .expect("it starts");
        WorkerKind { control: ours, child }
    }

    /// Says a word, with descriptors.
    pub fn say<T: Encode>(&self, word: &T, fds: &[i32]) {
        socket::send(&self.control, &fleetgate_wire::encode(word), fds).expect("the worker listens");
    }

    fn hear<T: Decode>(&self) -> Option<T> {
        let mut room = vec![0; node::MAX_FRAME + 4096];
        match socket::receive(&self.control, &mut room, false) {
            Ok(got) if got.len == 0 => panic!("the worker ended"),
            Ok(got) => Some(fleetgate_wire::decode(&room[..got.len]).expect("a frame")),
            Err(Errno::EAGAIN) => None,
            Err(e) => panic!("the worker ended: {e}"),
        }
    }

    /// Its memory that it shares with nobody, in KB.
    pub fn private_kb(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text
            .lines()
            .find(|l| l.starts_with("Anonymous:"))
            .expect("it has one");
        line.split_whitespace()
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number")
    }

    /// Closes the control socket and waits for the end.
    pub fn finish(mut self) -> Option<i32> {
        drop(self.control);
        self.child.wait().expect("it ends").code()
    }
}

/// One client.
pub struct Client {
    pub core: Connection,
    pub socket: Fd,
    pub number: node::ConnectionNumber,
    pub said: Vec<Said>,
    /// The front's part of it ended, in its words.
    pub over: Option<String>,
    /// What comes on this channel is not consumed.
    pub hoard: Option<ChannelId>,
    /// No more is read from the socket.
    pub deaf: bool,
    /// The server's DISCONNECT, or our own end.
    pub end: Option<String>,
}

/// What happened to a client, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    LoggedIn,
    Opened(u32),
    OpenFailed(u32, u32),
    Open(u32, ChannelKind),
    Data(u32, Stream, Vec<u8>),
    Replied(u32, bool),
    Exit(u32, u32),
    Signal(u32, String),
    Eof(u32),
    Closed(u32),
    Global(bool, Vec<u8>),
    HostKeys(usize),
}

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
}

/// A program that runs.
struct Running {
    connection: node::ConnectionNumber,
    ticket: Ticket,
    child: Child,
    pidfd: Fd,
}

impl World {
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

    fn lobby_said(&mut self, word: FromLobby) {
        match word {
            FromLobby::Sign { connection, exchange } => {
                let signature = self.sign(&exchange);
                let cookie = self.cookie();
                let word = ToLobby::Signed {
                    connection,
                    signature,
                    cookie,
                };
                self.lobby.say(&word, &[]);
            }
            FromLobby::Auth { connection, .. } if !self.undecided => {
                let verdict = Verdict::Accepted { notes: Vec::new() };
                self.lobby.say(&ToLobby::Verdict { connection, verdict }, &[]);
            }
            FromLobby::HandOver { connection, frozen } => {
                self.longest_frozen = self.longest_frozen.max(frozen.expose().len());
                let word = ToFront::Arrived {
                    connection,
                    addresses: ConnectionAddresses {
                        peer: nowhere(),
                        local: nowhere(),
                    },
                    frozen,
                    permits: self.permits,
                    cookie: self.cookie(),
                };
                self.front.say(&word, &[self.sockets[&connection].raw()]);
            }
            FromLobby::Closed { connection, ref why } => {
                let why = why.to_string_lossy().into_owned();
                self.over(connection, why);
                self.lobby_told.push(word);
            }
            other => self.lobby_told.push(other),
        }
    }

    fn over(&mut self, connection: node::ConnectionNumber, why: String) {
        self.sockets.remove(&connection);
        if let Some(c) = self.clients.iter_mut().find(|c| c.number == connection) {
            c.over = Some(why);
        }
    }

    fn sign(&self, exchange: &[u8]) -> Vec<u8> {
        let exchange = Exchange::decode(exchange).expect("an exchange");
        let hash = exchange.hash().expect("a known method");
        self.host_key
            .sign(&exchange.host_key_algorithm, hash.as_ref())
            .expect("it signs")
    }

    fn front_said(&mut self, word: FromFront) {
        match word {
            FromFront::Sign { connection, exchange } => {
                let signature = self.sign(&exchange);
                let cookie = self.cookie();
                let word = ToFront::Signed {
                    connection,
                    signature,
                    cookie,
                };
                self.front.say(&word, &[]);
            }
            FromFront::Start {
                connection,
                ticket,
                start,
            } => self.start(connection, ticket, start),
            FromFront::Network { .. } if self.unreachable => self.told.push(word),
            FromFront::Network {
                connection,
                ticket,
                what,
            } => self.network(connection, ticket, what),
            FromFront::Closed {
                connection, ref why, ..
            } => {
                let why = why.to_string_lossy().into_owned();
                self.over(connection, why);
                self.told.push(word);
            }
            other => self.told.push(other),
        }
    }

    fn start(&mut self, connection: node::ConnectionNumber, ticket: Ticket, start: Start) {
        self.starts.push(start.clone());
        if start.terminal.is_some() {
            let (ours, theirs, _) = fleetgate_sys::terminal::open().expect("a terminal");
            self.terminals.push(theirs);
            self.front.say(&begun(connection, ticket), &[ours.raw()]);
            return;
        }
        let command = match &start.program {
            Program::Exec { command } if command == b"refused" => {
                return self
                    .front
                    .say(&not_started(connection, ticket, c"not today"), &[]);
            }
            Program::Exec { command } => String::from_utf8_lossy(command).into_owned(),
            Program::Subsystem { name } if name == b"refused" => {
                let word = not_started(connection, ticket, c"no such subsystem");
                return self.front.say(&word, &[]);
            }
            _ => "exec cat".to_owned(),
        };
        let mut child = Command::new("/bin/sh")
            .args(["-c", &command])
            .envs(start.environment.iter().map(|v| {
                let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                (text(&v.name), text(&v.value))
            }))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let pidfd = process::pidfd_open(child.id() as i32).expect("it was not waited for");
        let stdin = OwnedFd::from(child.stdin.take().expect("piped"));
        let stdout = OwnedFd::from(child.stdout.take().expect("piped"));
        let stderr = OwnedFd::from(child.stderr.take().expect("piped"));
        let fds = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
        self.front.say(&begun(connection, ticket), &fds);
        self.programs.push(Running {
            connection,
            ticket,
            child,
            pidfd,
        });
    }

    /// Says that a session is about to be ended.
    pub fn announce_end(&mut self, client: usize, ticket: Ticket) {
        let connection = self.clients[client].number;
        self.front.say(&ToFront::Ending { connection, ticket }, &[]);
    }

    /// Says how a session ended whose terminal is kept here.
    pub fn end_session(&mut self, client: usize, ticket: Ticket, status: i32, why: &str) {
        let word = ToFront::Ended {
            connection: self.clients[client].number,
            ticket,
            ended: node::ProcessEnd {
                status,
                signalled: false,
                core: false,
            },
            why: CString::new(why).expect("no zero"),
        };
        self.front.say(&word, &[]);
    }

    fn reap(&mut self) {
        use std::os::unix::process::ExitStatusExt;
        let mut left = Vec::new();
        for mut p in std::mem::take(&mut self.programs) {
            match p.child.try_wait().expect("ours") {
                None => left.push(p),
                Some(status) => {
                    let word = ToFront::Ended {
                        connection: p.connection,
                        ticket: p.ticket,
                        ended: node::ProcessEnd {
                            status: status.code().or(status.signal()).unwrap_or(255),
                            signalled: status.signal().is_some(),
                            core: status.core_dumped(),
                        },
                        why: CString::default(),
                    };
                    self.front.say(&word, &[]);
                }
            }
        }
        self.programs = left;
    }

    fn network(&mut self, connection: node::ConnectionNumber, ticket: Ticket, what: What) {
        let failed = |errno: Errno| Done::Failed {
            failure: fleetgate_wire::Failure {
                reason: fleetgate_wire::Reason::System,
                errno: errno.0,
                subject: CString::default(),
            },
        };
        let mut fds: Vec<Fd> = Vec::new();
        let done = match what {
            What::Connect { host, port, .. } => {
                let host = host.to_string_lossy().into_owned();
                match std::net::TcpStream::connect((host, port)) {
                    Ok(socket) => {
                        fds.push(OwnedFd::from(socket).into());
                        Done::Connected { peer: None }
                    }
                    Err(e) => failed(e.into()),
                }
            }
            What::Accept { port, .. } => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a port");
                listener.set_nonblocking(true).expect("set");
                let port = listener.local_addr().expect("bound").port();
                self.listeners.push((connection, ticket, listener));
                let local = vec![Endpoint { port, ..nowhere() }];
                Done::Listening { local }
            }
            What::AgentSocket => {
                let path = std::env::temp_dir().join(format!("worker-agent-{}-{ticket}", std::process::id()));
                let _ = std::fs::remove_file(&path);
                let listener = std::os::unix::net::UnixListener::bind(&path).expect("a path");
                listener.set_nonblocking(true).expect("set");
                fds.push(OwnedFd::from(listener).into());
                let path = CString::new(path.to_string_lossy().into_owned()).expect("no zero");
                Done::UnixListening { path }
            }
            What::Cancel { of } => {
                self.listeners.retain(|l| l.1 != of);
                Done::Cancelled
            }
            _ => failed(Errno::EOPNOTSUPP),
        };
        let raw: Vec<i32> = fds.iter().map(Fd::raw).collect();
        let word = ToFront::Network {
            connection,
            ticket,
            done,
        };
        self.front.say(&word, &raw);
    }

    /// Answers the requests for sockets that were only told.
    pub fn answer_sockets(&mut self) {
        for word in std::mem::take(&mut self.told) {
            match word {
                FromFront::Network {
                    connection,
                    ticket,
                    what,
                } => self.network(connection, ticket, what),
                other => self.told.push(other),
            }
        }
    }

    fn accept(&mut self) {
        for (connection, ticket, listener) in &self.listeners {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_nonblocking(true).expect("set");
                let done = Done::Accepted {
                    peer: Endpoint { port: 7, ..nowhere() },
                    local: 0,
                };
                let word = ToFront::Network {
                    connection: *connection,
                    ticket: *ticket,
                    done,
                };
                self.front.say(&word, &[socket.as_raw_fd()]);
            }
        }
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

impl Client {
    /// Writes and reads what there is.
    fn turn(&mut self) {
        use fleetgate_ssh::event::Event;
        if self.end.is_some() {
            return;
        }
        loop {
            let fd = self.socket.raw();
            let written = driver::write(&mut self.core, |out| stream::send_now(fd, out));
            if written.is_err_and(|e| e != Errno::EAGAIN) && self.deaf {
                return;
            }
            match self.core.poll() {
                Err(end) => {
                    self.end = Some(end.to_string());
                    let _ = driver::write(&mut self.core, |out| stream::send_now(fd, out));
                    return;
                }
                Ok(Some(event)) => {
                    let said = match event {
                        Event::HostKey(_) => {
                            self.core.trust_host(true);
                            None
                        }
                        Event::Established => {
                            let request = auth::Request::none(b"somebody");
                            self.core.authenticate(&request);
                            None
                        }
                        Event::AuthReply(AuthReply::Accepted) => Some(Said::LoggedIn),
                        Event::Opened(c) => Some(Said::Opened(c.0)),
                        Event::OpenFailed { channel, reason, .. } => {
                            Some(Said::OpenFailed(channel.0, reason))
                        }
                        Event::Open { channel, kind } => {
                            self.core.accept(channel);
                            Some(Said::Open(channel.0, kind))
                        }
                        Event::Data {
                            channel,
                            stream,
                            bytes,
                        } => {
                            let (n, said) = (bytes.len(), Said::Data(channel.0, stream, bytes.to_vec()));
                            if self.hoard != Some(channel) {
                                self.core.consumed(channel, n);
                            }
                            Some(said)
                        }
                        Event::Replied { channel, done } => Some(Said::Replied(channel.0, done)),
                        Event::Request { channel, request, .. } => match request {
                            Request::ExitStatus { code } => Some(Said::Exit(channel.0, code)),
                            Request::ExitSignal { name, .. } => Some(Said::Signal(
                                channel.0,
                                String::from_utf8_lossy(&name).into_owned(),
                            )),
                            _ => None,
                        },
                        Event::Eof(c) => Some(Said::Eof(c.0)),
                        Event::Closed(c) => Some(Said::Closed(c.0)),
                        Event::GlobalReplied { done } => {
                            Some(Said::Global(done.is_some(), done.unwrap_or_default().to_vec()))
                        }
                        Event::Global {
                            request: Global::HostKeys { keys },
                            ..
                        } => Some(Said::HostKeys(keys.len())),
                        _ => None,
                    };
                    self.said.extend(said);
                }
                Ok(None) if self.deaf => return,
                Ok(None) => match driver::read(&mut self.core, 65536, |room| stream::receive_now(fd, room)) {
                    Ok(Some(0)) => {
                        self.end = Some("closed".to_owned());
                        return;
                    }
                    Ok(_) => {}
                    Err(Errno::EAGAIN) => return,
                    Err(e) => {
                        self.end = Some(e.to_string());
                        return;
                    }
                },
            }
        }
    }

    /// Everything said about a channel but data, in order.
    pub fn steps(&self, channel: ChannelId) -> Vec<Said> {
        let about = |s: &&Said| match s {
            Said::Opened(c) | Said::Replied(c, _) | Said::Exit(c, _) | Said::Signal(c, _) => *c == channel.0,
            Said::Eof(c) | Said::Closed(c) => *c == channel.0,
            _ => false,
        };
        self.said.iter().filter(about).cloned().collect()
    }

    /// What was said about a number before it was used again.
    fn forget(&mut self, channel: ChannelId) {
        self.said
            .retain(|s| !matches!(s, Said::Data(c, ..) if *c == channel.0));
        let steps = self.steps(channel);
        self.said.retain(|s| !steps.contains(s));
    }

    /// Cuts the connection.
    pub fn cut(&mut self) {
        net::shut(&self.socket).expect("it is connected");
        self.end = Some("cut".to_owned());
    }

    /// Disconnects.
    pub fn disconnect(&mut self) {
        self.core.disconnect(Reason::ByApplication, "bye");
    }
}

fn begun(connection: node::ConnectionNumber, ticket: Ticket) -> ToFront {
    ToFront::Started {
        connection,
        ticket,
        is_socket: false,
        output_limit: None,
    }
}

fn not_started(connection: node::ConnectionNumber, ticket: Ticket, why: &CStr) -> ToFront {
    ToFront::NotStarted {
        connection,
        ticket,
        why: why.to_owned(),
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
