//! The client against the core's own server side, in memory: how many flights a command takes. Bytes move only when the
//! client has nothing more to say and waits, so each wait is one round trip.

use super::options::LogLevel;
use super::{Carrier, Credential, Hosts, Options, Plan, ServerMemory, SshError, Strict, Work, run};
use crate::profile::Home;
use crate::timings::Timings;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::{Method, Request as AuthRequest};
use fleetgate_ssh::event::{AuthAnswer, ChannelId, ChannelKind, Event, Request};
use fleetgate_ssh::kex::Method as Kex;
use fleetgate_ssh::key::{HostKey, KeyType, PrivateKey};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the server saw.
#[derive(Default)]
struct Seen {
    flights: u32,
    connections: u32,
    requests: Vec<String>,
    /// Requests for a login.
    logins: Vec<Vec<u8>>,
    /// Every byte, as it came.
    bytes: Vec<u8>,
}

/// A server at the other end of a function call.
struct Far {
    server: Connection,
    key: Arc<HostKey>,
    accepts: bool,
    /// What the client wrote since it last waited, and what it has not read yet.
    written: Vec<u8>,
    to_client: Vec<u8>,
    seen: Arc<Mutex<Seen>>,
    cookie: u8,
    reads_on: bool,
    /// The login came in this flight.
    logged_in_now: bool,
    is_dead: bool,
    pause: Option<tokio::task::JoinHandle<()>>,
    /// Channels that the server opens when the command is asked for, and how many of them were not answered yet.
    opens: Vec<ChannelKind>,
    unanswered: usize,
    /// The command's channel, which ends when all of them were.
    ends: Option<ChannelId>,
}

struct Here {
    settings: Settings,
    key: Arc<HostKey>,
    accepts: bool,
    seen: Arc<Mutex<Seen>>,
    opens: Vec<ChannelKind>,
    /// Else it hangs up when a channel is asked for right behind a login.
    reads_on: bool,
}

impl Carrier for Here {
    type Stream = Far;

    async fn open(&mut self, first_flight: Vec<u8>, _: &mut Timings) -> Result<Far, SshError> {
        self.seen.lock().unwrap().connections += 1;
        Ok(Far {
            server: Connection::server(Arc::new(self.settings.clone()), [1; 16]),
            key: self.key.clone(),
            accepts: self.accepts,
            written: first_flight,
            to_client: Vec::new(),
            seen: self.seen.clone(),
            cookie: 2,
            reads_on: self.reads_on,
            logged_in_now: false,
            is_dead: false,
            pause: None,
            opens: self.opens.clone(),
            unanswered: 0,
            ends: None,
        })
    }
}

impl Far {
    /// One flight to the server and all that it answers.
    fn turn(&mut self) {
        let mut bytes = std::mem::take(&mut self.written);
        {
            let mut seen = self.seen.lock().unwrap();
            seen.flights += 1;
            seen.bytes.extend_from_slice(&bytes);
        }
        self.logged_in_now = false;
        loop {
            self.serve();
            if bytes.is_empty() || !self.server.wants_input() {
                break;
            }
            let room = self.server.room(1);
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            bytes.drain(..n);
            self.server.received(n);
        }
        if self.is_dead {
            return;
        }
        self.to_client.extend_from_slice(self.server.output());
        let n = self.server.output().len();
        self.server.sent(n);
    }

    /// The command is done.
    fn end(&mut self) {
        if let Some(channel) = self.ends.take() {
            self.server
                .request(channel, &Request::ExitStatus { code: 7 }, false);
            self.server.close(channel);
        }
    }

    fn serve(&mut self) {
        enum Then {
            Nothing,
            Sign(Vec<u8>, String),
            Cookie,
            Auth(AuthAnswer),
            Accept(ChannelId),
            Answer(ChannelId, Request, Option<fleetgate_ssh::event::ReplyId>),
            AnswerGlobal(fleetgate_ssh::event::ReplyId),
            Heard(&'static str, ChannelId),
        }
        loop {
            let then = match self.server.poll() {
                Ok(Some(Event::SignExchange(exchange))) => {
                    let hash = exchange.hash().unwrap();
                    Then::Sign(hash.as_ref().to_vec(), exchange.host_key_algorithm.clone())
                }
                Ok(Some(Event::CookieWanted)) => Then::Cookie,
                Ok(Some(Event::Auth(request))) => {
                    self.seen.lock().unwrap().logins.push(request.to_vec());
                    self.logged_in_now = true;
                    let methods = vec!["publickey".to_owned()];
                    let reject = AuthAnswer::Reject {
                        methods,
                        partial: false,
                    };
                    Then::Auth(match AuthRequest::parse(request).unwrap().method {
                        Method::PublicKey(key) if self.accepts && key.signature.is_none() => {
                            AuthAnswer::KeyOk {
                                algorithm: key.algorithm.as_bytes().to_vec(),
                                key: key.key.to_vec(),
                            }
                        }
                        Method::PublicKey(_) if self.accepts => AuthAnswer::Accept,
                        _ => reject,
                    })
                }
                Ok(Some(Event::Open { channel, .. })) => {
                    self.is_dead |= self.logged_in_now && !self.reads_on;
                    Then::Accept(channel)
                }
                Ok(Some(Event::Request {
                    channel,
                    request,
                    reply,
                })) => Then::Answer(channel, request, reply),
                Ok(Some(Event::Global {
                    reply: Some(reply), ..
                })) => Then::AnswerGlobal(reply),
                Ok(Some(Event::Opened(channel))) => Then::Heard("opened", channel),
                Ok(Some(Event::OpenFailed { channel, .. })) => Then::Heard("refused", channel),
                Ok(Some(_)) => Then::Nothing,
                Ok(None) | Err(_) => return,
            };
            self.cookie += 1;
            match then {
                Then::Nothing => {}
                Then::Sign(hash, algorithm) => {
                    let signature = self.key.sign(&algorithm, &hash).unwrap();
                    self.server.signed(&signature, [self.cookie; 16]);
                }
                Then::Cookie => self.server.cookie([self.cookie; 16]),
                Then::Auth(answer) => self.server.answer_auth(answer),
                Then::Accept(channel) => self.server.accept(channel),
                Then::Heard(what, channel) => {
                    self.unanswered -= 1;
                    self.seen.lock().unwrap().requests.push(what.to_owned());
                    if what == "opened" {
                        self.server.close(channel);
                    }
                    if self.unanswered == 0 {
                        self.end();
                    }
                }
                Then::AnswerGlobal(reply) => self.server.answer_global(reply, Some(&4000u32.to_be_bytes())),
                Then::Answer(channel, request, reply) => {
                    if let Some(reply) = reply {
                        self.server.answer(reply, true);
                    }
                    let ends = matches!(request, Request::Exec { .. });
                    let words = format!("{request:?}");
                    self.seen.lock().unwrap().requests.push(words);
                    if ends {
                        for kind in std::mem::take(&mut self.opens) {
                            self.unanswered += usize::from(self.server.open(&kind).is_some());
                        }
                        self.ends = Some(channel);
                        if self.unanswered == 0 {
                            self.end();
                        }
                    }
                }
            }
        }
    }
}

impl AsyncRead for Far {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.to_client.is_empty() && (!self.written.is_empty() || self.unanswered > 0) {
            // A task of its own runs only when the client's has nothing left to do.
            let pause = self.pause.get_or_insert_with(|| tokio::spawn(async {}));
            std::task::ready!(Pin::new(pause).poll(cx)).unwrap();
            self.pause = None;
            self.turn();
            if self.to_client.is_empty() && self.unanswered > 0 {
                // What the client does about it takes its time.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        // Where neither side has anything to say the client ends: the connection is over.
        let n = buffer.remaining().min(self.to_client.len());
        buffer.put_slice(&self.to_client[..n]);
        self.to_client.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Far {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn plan() -> Plan {
    Plan {
        user: "ann".into(),
        place: "web1".into(),
        leg: "client-node",
        options: Options {
            work: Work::Exec(b"true".to_vec()),
            input: false,
            agent: true,
            exit_on_forward_failure: true,
            batch: true,
            level: LogLevel::Quiet,
            ..Options::default()
        },
        terminal: false,
        environment: vec![(b"A".to_vec(), b"b".to_vec())],
        escape: None,
        keepalive: None,
        display: None,
        starter: None,
    }
}

struct World {
    far: Here,
    known: PathBuf,
    /// Where the client remembers servers.
    home: Home,
}

impl World {
    fn new() -> World {
        let (key, _) = HostKey::generate(KeyType::Ed25519, "host").unwrap();
        let mut name = [0; 8];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut name).unwrap();
        let known = std::env::temp_dir().join(format!("fleetgate-known-{}", u64::from_ne_bytes(name)));
        std::fs::write(&known, format!("web1 {}\n", key.public().line())).unwrap();
        let settings = Settings {
            software: "OpenSSH_compatible_fleetgate_1".into(),
            host_keys: vec![HostKeyOffer {
                algorithm: "ssh-ed25519".into(),
                blob: key.public().blob().to_vec(),
            }],
            ..Settings::default()
        };
        World {
            far: Here {
                settings,
                key: Arc::new(key),
                accepts: true,
                seen: Arc::default(),
                opens: Vec::new(),
                reads_on: true,
            },
            home: Home::find(known.with_extension("home").to_str()).unwrap(),
            known,
        }
    }

    fn run(&mut self, plan: &Plan, keys: usize) -> (Result<i32, SshError>, Timings) {
        let credential = |_| {
            let (key, _) = PrivateKey::generate(KeyType::Ed25519, "ann").unwrap();
            Credential::new(key, None, "a key".into())
        };
        let hosts = Hosts::known("web1", 22, vec![self.known.clone()], Strict::Yes);
        let mut memory = ServerMemory::of_host(&self.home, "web1", 22);
        let mut timings = Timings::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let keys = (0..keys).map(credential).collect();
        let code = runtime.block_on(run(plan, &hosts, &mut memory, keys, &mut self.far, &mut timings));
        (code, timings)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.known);
        let _ = std::fs::remove_dir_all(self.home.path());
    }
}

#[test]
fn a_command_takes_two_round_trips() {
    type Change = fn(&mut World, &mut Plan);
    let table: [(&str, Change, usize, u32); 7] = [
        ("a node", |_, _| {}, 1, 2),
        (
            "a node, with a forward asked for",
            |_, p| p.options.remotes = vec![super::forward::Forward::parse("0:web:80").unwrap()],
            1,
            2,
        ),
        ("a node, with a terminal", |_, p| p.terminal = true, 1, 2),
        (
            "OpenSSH's sshd: it numbers channels from 0",
            |w, _| {
                w.far.settings.software = "OpenSSH_9.2p1".into();
                w.far.settings.channel_mirror = false;
            },
            1,
            2,
        ),
        (
            "another method of key exchange",
            |w, _| w.far.settings.kex = vec![Kex::ALL[1]],
            1,
            3,
        ),
        // The login is waited for, the channel, the command.
        (
            "a server that nobody knows",
            |w, _| {
                w.far.settings.software = "other_1".into();
                w.far.settings.channel_mirror = false;
            },
            1,
            4,
        ),
        ("two keys to choose from: a question first", |_, _| {}, 2, 4),
    ];
    for (name, change, keys, wanted) in table {
        let (mut world, mut plan) = (World::new(), plan());
        change(&mut world, &mut plan);
        let (code, timings) = world.run(&plan, keys);
        assert_eq!(code.ok(), Some(7), "{name}");
        let seen = world.far.seen.lock().unwrap();
        // The last flight says goodbye, and nobody waits for an answer to it.
        assert_eq!(
            (timings.round_trips(), seen.flights),
            (wanted, wanted),
            "{name}: {timings:?}"
        );
        assert_eq!(seen.connections, 1, "{name}");
        assert!(
            seen.requests.iter().any(|r| r.starts_with("Env")),
            "{name}: {:?}",
            seen.requests
        );
        let asked: Vec<_> = timings.steps().iter().map(|s| s.name).collect();
        assert_eq!(asked, ["key exchange", "login and command"], "{name}");
    }
}

/// What each connection to one server takes: the flights that were answered, and the connections that were made.
#[test]
fn later_connections_send_ahead_what_held_before() {
    type Change = fn(&mut World);
    // Its name, what happens to the server before each connection, and what each connection takes.
    type Row<'a> = (&'a str, &'a [Change], &'a [(u32, u32)]);
    let other: Change = |w| {
        w.far.settings.software = "other_1".into();
        w.far.settings.channel_mirror = false;
    };
    let table: [Row<'_>; 9] = [
        ("a node needs no memory", &[|_| {}, |_| {}], &[(2, 1), (2, 1)]),
        (
            "a method that is not our best",
            &[|w| w.far.settings.kex = vec![Kex::EcdhP256], |_| {}, |_| {}],
            &[(3, 1), (2, 1), (2, 1)],
        ),
        (
            "a method that is not the server's best",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256, Kex::Curve25519],
                |_| {},
            ],
            &[(3, 1), (2, 1)],
        ),
        (
            "the server takes another method than before",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256],
                |w| w.far.settings.kex = vec![Kex::Curve25519],
                |_| {},
            ],
            &[(3, 1), (3, 2), (2, 1)],
        ),
        (
            "the server takes our best method now, and is a usual one",
            &[
                |w| w.far.settings.kex = vec![Kex::EcdhP256],
                |w| w.far.settings.kex = Kex::ALL.to_vec(),
                |_| {},
            ],
            &[(3, 1), (3, 2), (2, 1)],
        ),
        (
            "a server that nobody knows: its channel goes with the login, then all does",
            &[other, |_| {}, |_| {}, |_| {}],
            &[(4, 1), (3, 1), (2, 1), (2, 1)],
        ),
        (
            "another version is another server",
            &[
                other,
                |_| {},
                |w| w.far.settings.software = "other_2".into(),
                |_| {},
            ],
            &[(4, 1), (3, 1), (4, 1), (3, 1)],
        ),
        (
            "a server that hangs up when something follows a login: it is not tried again",
            &[
                |w| {
                    w.far.settings.software = "other_1".into();
                    w.far.settings.channel_mirror = false;
                    w.far.reads_on = false;
                },
                |_| {},
                |_| {},
            ],
            // The channel was asked for and the command was not, so it can be asked for anew.
            &[(4, 1), (6, 2), (4, 1)],
        ),
        (
            "a server that nobody knows, with a method that is not our best",
            &[
                |w| {
                    w.far.settings.software = "other_1".into();
                    w.far.settings.channel_mirror = false;
                    w.far.settings.kex = vec![Kex::Curve25519];
                },
                |_| {},
                |_| {},
            ],
            &[(5, 1), (3, 1), (2, 1)],
        ),
    ];
    for (name, changes, wanted) in table {
        let mut world = World::new();
        let mut took = Vec::new();
        for change in changes {
            change(&mut world);
            *world.far.seen.lock().unwrap() = Seen::default();
            let (code, _) = world.run(&plan(), 1);
            assert_eq!(code.map_err(|e| e.to_string()), Ok(7), "{name}");
            let seen = world.far.seen.lock().unwrap();
            let commands = seen.requests.iter().filter(|r| r.starts_with("Exec")).count();
            assert_eq!(commands, 1, "{name}: the command is asked for once");
            took.push((seen.flights, seen.connections));
        }
        assert_eq!(took, wanted, "{name}");
    }
}

#[test]
fn who_is_not_let_in_is_told_what_was_tried() {
    let mut world = World::new();
    world.far.accepts = false;
    for keys in [1, 2] {
        let (code, _) = world.run(&plan(), keys);
        let error = code.expect_err("refused");
        assert_eq!(error.code(), 255);
        let words = error.to_string();
        assert!(
            words.contains("does not let ann in") && words.contains("it takes publickey"),
            "{words}"
        );
    }
}

#[test]
fn another_host_is_not_talked_to() {
    let mut world = World::new();
    std::fs::write(&world.known, "").unwrap();
    let (code, _) = world.run(&plan(), 1);
    assert!(
        matches!(&code, Err(SshError::Host(words)) if words.contains("nobody here knows web1")),
        "{code:?}"
    );
    let (other, _) = HostKey::generate(KeyType::Ed25519, "host").unwrap();
    std::fs::write(&world.known, format!("web1 {}\n", other.public().line())).unwrap();
    let (code, _) = world.run(&plan(), 1);
    assert!(
        matches!(&code, Err(SshError::Host(words)) if words.contains("HAS CHANGED")),
        "{code:?}"
    );
    assert_eq!(world.far.seen.lock().unwrap().requests, Vec::<String>::new());
}

/// An attacker in the middle has a host key of its own, and can read all that is sent to it.
#[test]
fn an_attacker_with_another_host_key_learns_no_user_key_or_command() {
    let mut world = World::new();
    let mut plan = plan();
    plan.user = "annabelle-of-the-hills".into();
    plan.options.work = Work::Exec(b"a-command-of-hers".to_vec());
    let learned = |world: &World| {
        let seen = world.far.seen.lock().unwrap();
        let told = |words: &[u8]| seen.bytes.windows(words.len()).any(|part| part == words);
        let is_clear = told(b"annabelle-of-the-hills") || told(b"a-command-of-hers");
        (seen.logins.len(), seen.requests.len(), is_clear)
    };
    let (other, _) = HostKey::generate(KeyType::Ed25519, "host").unwrap();
    let known = std::fs::read(&world.known).unwrap();
    for is_remembered in [false, true] {
        if is_remembered {
            // All that can be known of the server is known, and goes ahead.
            std::fs::write(&world.known, &known).unwrap();
            world.far.settings.software = "other_1".into();
            world.far.settings.channel_mirror = false;
            world.far.settings.kex = vec![Kex::EcdhP256];
            for _ in 0..3 {
                let (code, _) = world.run(&plan, 1);
                assert!(matches!(code, Ok(7)), "{code:?}");
            }
            assert_ne!(learned(&world), (0, 0, false), "control");
            *world.far.seen.lock().unwrap() = Seen::default();
        }
        std::fs::write(&world.known, format!("web1 {}\n", other.public().line())).unwrap();
        let (code, _) = world.run(&plan, 1);
        assert!(matches!(code, Err(SshError::Host(_))), "{code:?}");
        let (code, _) = world.run(&plan, 3);
        assert!(matches!(code, Err(SshError::Host(_))), "{code:?}");
        assert_eq!(learned(&world), (0, 0, false));
        assert!(!world.far.seen.lock().unwrap().bytes.is_empty());
    }
    // Control: the right one learns all of it, and nobody else could have read it.
    std::fs::write(&world.known, known).unwrap();
    let (code, _) = world.run(&plan, 1);
    assert!(matches!(code, Ok(7)), "{code:?}");
    let (logins, requests, is_clear) = learned(&world);
    assert!(logins > 0 && requests > 0 && !is_clear);
}

#[test]
fn words_of_a_server_turn_no_direction_and_hide_nothing() {
    let said = "motd\n\tone\x1b[2J\u{202e}two\u{200b}";
    let shown = crate::stderr::printable(said.as_bytes());
    assert!(shown.starts_with("motd\n\tone"), "{shown:?}");
    for unseen in ['\x1b', '\u{202e}', '\u{200b}'] {
        assert!(!shown.contains(unseen), "{unseen:?}");
    }
}

/// A server that opens what nobody asked for reaches nothing on this machine; what was asked for it reaches, and no more.
#[test]
fn a_server_opens_nothing_that_was_not_asked_for() {
    use super::forward::Forward;
    let folder = std::env::temp_dir().join(format!("fleetgate-opens-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("here");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let path = socket.to_str().unwrap().as_bytes().to_vec();
    let forwarded = |host: &str, port| ChannelKind::ForwardedTcpip {
        host: host.into(),
        port,
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let x11 = || ChannelKind::X11 {
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let direct = || ChannelKind::DirectTcpip {
        host: b"127.0.0.1".to_vec(),
        port: 22,
        origin: b"192.0.2.1".to_vec(),
        origin_port: 7,
    };
    let other = || ChannelKind::Other {
        name: b"tun@openssh.com".to_vec(),
        payload: vec![0; 8],
    };
    let streamlocal = || ChannelKind::ForwardedStreamlocal { path: path.clone() };
    let direct_local = || ChannelKind::DirectStreamlocal { path: path.clone() };
    type Change<'a> = &'a dyn Fn(&mut Plan);
    let asked = Forward::parse(&format!("127.0.0.1:0:{}", socket.display())).unwrap();
    let remote: Change<'_> = &|p| p.options.remotes = vec![asked.clone()];
    let display: Change<'_> = &|p| p.display = Some(super::x11::tests::at(&socket));
    let nothing: Change<'_> = &|_| {};
    // What was asked for, what is opened, how many of them are, and how often this machine's socket is reached.
    let table: [(&str, Change<'_>, Vec<ChannelKind>, usize, usize); 5] = [
        (
            "nothing was asked for",
            nothing,
            vec![
                forwarded("", 0),
                forwarded("127.0.0.1", 4000),
                streamlocal(),
                direct(),
                direct_local(),
                x11(),
                ChannelKind::Agent,
                ChannelKind::Session,
                other(),
            ],
            0,
            0,
        ),
        (
            "a forward, and others are opened",
            remote,
            vec![
                forwarded("127.0.0.1", 4001),
                streamlocal(),
                ChannelKind::Agent,
                x11(),
                direct_local(),
            ],
            0,
            0,
        ),
        (
            "a forward, and it",
            remote,
            vec![forwarded("127.0.0.1", 4000)],
            1,
            1,
        ),
        (
            "a display, and others",
            display,
            vec![forwarded("127.0.0.1", 4000), ChannelKind::Agent],
            0,
            0,
        ),
        // It is led to the display only when it has shown the cookie.
        ("a display, and it", display, vec![x11()], 1, 0),
    ];
    for (name, change, opens, opened, reached) in table {
        let mut world = World::new();
        let mut plan = plan();
        plan.options.agent = false;
        change(&mut plan);
        let count = opens.len();
        world.far.opens = opens;
        let (code, _) = world.run(&plan, 1);
        assert_eq!(code.map_err(|e| e.to_string()), Ok(7), "{name}");
        let seen = world.far.seen.lock().unwrap();
        let heard = |what: &str| seen.requests.iter().filter(|r| *r == what).count();
        assert_eq!(
            (heard("opened"), heard("refused")),
            (opened, count - opened),
            "{name}"
        );
        let came = std::iter::from_fn(|| listener.accept().ok()).count();
        assert_eq!(came, reached, "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
