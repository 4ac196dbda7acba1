//! The client against the core's own server side, in memory: how many flights a command takes. Bytes move only when the
//! client has nothing more to say and waits, so each wait is one round trip.

use super::{Carrier, Credential, Hosts, Plan, SshError, Strict, Work, run};
use crate::ledger::Ledger;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::{Method, Request as AuthRequest};
use fleetgate_ssh::event::{AuthAnswer, ChannelId, Event, Request};
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
    pause: Option<tokio::task::JoinHandle<()>>,
}

struct Here {
    settings: Settings,
    key: Arc<HostKey>,
    accepts: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Carrier for Here {
    type Stream = Far;

    async fn open(&mut self, first_flight: Vec<u8>, _: &mut Ledger) -> Result<Far, SshError> {
        self.seen.lock().unwrap().connections += 1;
        Ok(Far {
            server: Connection::server(Arc::new(self.settings.clone()), [1; 16]),
            key: self.key.clone(),
            accepts: self.accepts,
            written: first_flight,
            to_client: Vec::new(),
            seen: self.seen.clone(),
            cookie: 2,
            pause: None,
        })
    }
}

impl Far {
    /// One flight to the server and all that it answers.
    fn turn(&mut self) {
        self.seen.lock().unwrap().flights += 1;
        let mut bytes = std::mem::take(&mut self.written);
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
        self.to_client.extend_from_slice(self.server.output());
        let n = self.server.output().len();
        self.server.sent(n);
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
        }
        loop {
            let then = match self.server.poll() {
                Ok(Some(Event::SignExchange(exchange))) => {
                    let hash = exchange.hash().unwrap();
                    Then::Sign(hash.as_ref().to_vec(), exchange.host_key_algorithm.clone())
                }
                Ok(Some(Event::CookieWanted)) => Then::Cookie,
                Ok(Some(Event::Auth(request))) => {
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
                Ok(Some(Event::Open { channel, .. })) => Then::Accept(channel),
                Ok(Some(Event::Request {
                    channel,
                    request,
                    reply,
                })) => Then::Answer(channel, request, reply),
                Ok(Some(Event::Global {
                    reply: Some(reply), ..
                })) => Then::AnswerGlobal(reply),
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
                Then::AnswerGlobal(reply) => self.server.answer_global(reply, Some(&4000u32.to_be_bytes())),
                Then::Answer(channel, request, reply) => {
                    if let Some(reply) = reply {
                        self.server.answer(reply, true);
                    }
                    let ends = matches!(request, Request::Exec { .. });
                    let words = format!("{request:?}");
                    self.seen.lock().unwrap().requests.push(words);
                    if ends {
                        self.server
                            .request(channel, &Request::ExitStatus { code: 7 }, false);
                        self.server.close(channel);
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
        if self.to_client.is_empty() && !self.written.is_empty() {
            // A task of its own runs only when the client's has nothing left to do.
            let pause = self.pause.get_or_insert_with(|| tokio::spawn(async {}));
            std::task::ready!(Pin::new(pause).poll(cx)).unwrap();
            self.pause = None;
            self.turn();
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
        work: Work::Exec(b"true".to_vec()),
        terminal: false,
        input: false,
        agent: true,
        environment: vec![(b"A".to_vec(), b"b".to_vec())],
        locals: Vec::new(),
        remotes: Vec::new(),
        exit_on_forward_failure: true,
        escape: None,
        connect_time: None,
        keepalive: None,
        batch: true,
        drain: false,
        quiet: true,
        verbose: 0,
    }
}

struct World {
    far: Here,
    known: PathBuf,
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
            },
            known,
        }
    }

    fn run(&mut self, plan: &Plan, keys: usize) -> (Result<i32, SshError>, Ledger) {
        let credential = |_| {
            let (key, _) = PrivateKey::generate(KeyType::Ed25519, "ann").unwrap();
            Credential::new(key, None, "a key".into())
        };
        let hosts = Hosts::known("web1", 22, vec![self.known.clone()], Strict::Yes);
        let mut ledger = Ledger::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let keys = (0..keys).map(credential).collect();
        let code = runtime.block_on(run(plan, &hosts, keys, &mut self.far, &mut ledger));
        (code, ledger)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.known);
    }
}

#[test]
fn a_command_takes_two_round_trips() {
    type Change = fn(&mut World, &mut Plan);
    let table: [(&str, Change, usize, u32); 7] = [
        ("a node", |_, _| {}, 1, 2),
        (
            "a node, with a forward asked for",
            |_, p| p.remotes = vec![super::forward::Forward::parse("0:web:80").unwrap()],
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
        let (code, ledger) = world.run(&plan, keys);
        assert_eq!(code.ok(), Some(7), "{name}");
        let seen = world.far.seen.lock().unwrap();
        // The last flight says goodbye, and nobody waits for an answer to it.
        assert_eq!(
            (ledger.round_trips(), seen.flights),
            (wanted, wanted),
            "{name}: {ledger:?}"
        );
        assert_eq!(seen.connections, 1, "{name}");
        assert!(
            seen.requests.iter().any(|r| r.starts_with("Env")),
            "{name}: {:?}",
            seen.requests
        );
        let asked: Vec<_> = ledger.steps().iter().map(|s| s.name).collect();
        assert_eq!(asked, ["key exchange", "login and command"], "{name}");
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
