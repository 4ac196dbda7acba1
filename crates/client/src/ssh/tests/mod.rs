//! The client against the core's own server side, in memory. Bytes move only when the client has nothing more to say and
//! waits, so each wait is one round trip.

mod distrust;
mod round_trips;

use crate::profile::Home;
use crate::ssh::options::LogLevel;
use crate::ssh::{Carrier, Credential, Hosts, Options, Plan, ServerMemory, SshError, Strict, Work, run};
use crate::timings::Timings;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::{Method, Request as AuthRequest};
use fleetgate_ssh::event::{AuthAnswer, ChannelId, ChannelKind, Event, Request};
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
