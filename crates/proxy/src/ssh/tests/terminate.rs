//! A plain sshd behind the proxy, played by a server of ours that runs nothing: what passes, in which order, and what
//! no role allows.

use super::world::{Asked, Client, certificate, host_key, identity, key, name};
use crate::ssh::authenticator::{Caller, cookie, settings};
use crate::ssh::endpoint::Endpoint;
use crate::ssh::terminate::{Host, HostIdentity, Later, SessionEvent, serve};
use fleetgate_policy::cluster::{Allowed, Identity, Limits, Recording};
use fleetgate_policy::{Kind, Permits, Rule};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{AuthAnswer, ChannelId, ChannelKind, Event, Exchange, Request, Stream};
use fleetgate_ssh::key::{Certificate, HostKey, KeyType, PrivateKey, PublicKey};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};

/// Auth's.
const COOKIE: [u8; 16] = [7; 16];

struct Plain {
    key: Arc<HostKey>,
    /// The sshd's own.
    theirs: Vec<u8>,
    address: SocketAddr,
    ca: PrivateKey,
    told: RefCell<Vec<String>>,
    /// The order to end the next session.
    order: RefCell<Option<tokio::sync::oneshot::Receiver<String>>>,
    forbidden: RefCell<Vec<Kind>>,
    limits: RefCell<Limits>,
    trusted: bool,
    /// What is begun is to end by itself.
    ending: Cell<bool>,
}

impl Plain {
    fn ends(&self) -> bool {
        self.ending.get()
    }
}

impl Host for Plain {
    fn name(&self) -> &str {
        "old1"
    }

    fn host_key(&self) -> Later<HostIdentity> {
        let key = self.key.clone();
        Box::pin(async move { Ok(HostIdentity { key, cookie: COOKIE }) })
    }

    fn check(&self, _: &Certificate, login: &str) -> Result<Identity, String> {
        if login != "ada" {
            return Err(format!("role access does not allow the login {login}"));
        }
        Ok(identity("ada"))
    }

    fn allowed(&self, _: &Caller) -> Result<Allowed, String> {
        let mut permits = Permits::all();
        permits.forbid(&self.forbidden.borrow(), &Rule::new("role access"));
        Ok(Allowed {
            container_by_id: false,
            permits,
            limits: *self.limits.borrow(),
            recording: Recording::default(),
            watching: Default::default(),
            roles: vec![name("access")],
            until: None,
        })
    }

    fn pinned(&self) -> Vec<KeyType> {
        vec![KeyType::Ed25519]
    }

    fn connect(&self) -> Later<TcpStream> {
        let address = self.address;
        Box::pin(async move { TcpStream::connect(address).await.map_err(|e| e.to_string()) })
    }

    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>> {
        assert_eq!(caller.identity.user(), Some(&name("ada")));
        // What auth is handed is this very exchange, by the cookie that it gave, and what the user signed over it.
        let exchange = Exchange::decode(&caller.proof.exchange).expect("an exchange");
        assert_eq!(exchange.server_cookie(), Some(COOKIE));
        let request = fleetgate_ssh::auth::Request::parse(&caller.proof.request).expect("a request");
        assert_eq!(request.user, caller.name.as_bytes());
        let user = key.blob().to_vec();
        let public = PublicKey::parse(&user).expect("a key");
        let made = fleetgate_ssh::key::Draft {
            kind: fleetgate_ssh::key::CertificateKind::User,
            serial: 1,
            key_id: "ada",
            principals: &[&caller.name],
            valid_after: 0,
            valid_before: u64::MAX,
            critical: &[],
            extensions: &[],
        }
        .sign(&public, &self.ca)
        .map(|c| c.blob().to_vec())
        .map_err(|e| e.to_string());
        Box::pin(async move { made })
    }

    fn trusts(&self, key: &[u8]) -> Result<(), String> {
        match self.trusted && key == self.theirs {
            true => Ok(()),
            false => Err("its host key is not the registered one".to_owned()),
        }
    }

    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) {
        let who = caller.map_or("nobody", |c| c.name.as_str());
        self.told.borrow_mut().push(format!("{who}: {event:?}"));
    }

    fn ended(&self, _: &Caller) -> Pin<Box<dyn Future<Output = String>>> {
        Box::pin(std::future::pending())
    }

    fn ordered(&self, _: &str) -> Pin<Box<dyn Future<Output = String>>> {
        match self.order.borrow_mut().take() {
            Some(order) => Box::pin(async move { order.await.unwrap_or_default() }),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The same without a key to show.
struct Keyless(Rc<Plain>);

impl Host for Keyless {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn host_key(&self) -> Later<HostIdentity> {
        Box::pin(async { Err("auth is away".to_owned()) })
    }

    fn check(&self, certificate: &Certificate, login: &str) -> Result<Identity, String> {
        self.0.check(certificate, login)
    }

    fn allowed(&self, caller: &Caller) -> Result<Allowed, String> {
        self.0.allowed(caller)
    }

    fn connect(&self) -> Later<TcpStream> {
        self.0.connect()
    }

    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>> {
        self.0.sign(caller, key)
    }

    fn pinned(&self) -> Vec<KeyType> {
        self.0.pinned()
    }

    fn trusts(&self, key: &[u8]) -> Result<(), String> {
        self.0.trusts(key)
    }

    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) {
        self.0.tell(caller, event);
    }

    fn ended(&self, caller: &Caller) -> Pin<Box<dyn Future<Output = String>>> {
        self.0.ended(caller)
    }

    fn ordered(&self, session: &str) -> Pin<Box<dyn Future<Output = String>>> {
        self.0.ordered(session)
    }
}

/// A server that takes every certificate, answers requests, and echoes what it is sent. By the command `agent` it asks the
/// user's agent, and says what came of it; by `deaf` it reads nothing more.
async fn sshd(listener: TcpListener, key: Arc<HostKey>) {
    let (stream, _) = listener.accept().await.expect("accepted");
    let mut end = Endpoint::new(Connection::server(settings(&key).into(), cookie()), stream);
    let (mut session, mut late, mut is_deaf) = (Vec::new(), None, false);
    poll_fn(|cx| {
        loop {
            loop {
                enum Do {
                    Sign(Box<fleetgate_ssh::event::Exchange>),
                    In,
                    Accept(fleetgate_ssh::event::ChannelId),
                    Run(
                        fleetgate_ssh::event::ChannelId,
                        Option<fleetgate_ssh::event::ReplyId>,
                        bool,
                    ),
                    Echo(fleetgate_ssh::event::ChannelId, Vec<u8>),
                    End(fleetgate_ssh::event::ChannelId),
                    EndOutput(fleetgate_ssh::event::ChannelId),
                    Ask(fleetgate_ssh::event::ChannelId),
                    Refused,
                    Nothing,
                }
                let next = match end.core.poll() {
                    Err(_) => return Poll::Ready(()),
                    Ok(None) => break,
                    Ok(Some(Event::SignExchange(exchange))) => Do::Sign(exchange),
                    Ok(Some(Event::Auth(_))) => Do::In,
                    Ok(Some(Event::Open { channel, .. })) => Do::Accept(channel),
                    Ok(Some(Event::Opened(channel))) => Do::Ask(channel),
                    Ok(Some(Event::OpenFailed { .. })) => Do::Refused,
                    Ok(Some(Event::Request {
                        channel,
                        request,
                        reply,
                    })) => {
                        let agent = matches!(&request, Request::Exec { command } if command == b"agent");
                        is_deaf |= matches!(&request, Request::Exec { command } if command == b"deaf");
                        if matches!(&request, Request::Exec { command } if command == b"late") {
                            late = Some(channel);
                        }
                        Do::Run(channel, reply, agent)
                    }
                    Ok(Some(Event::Data { .. })) if is_deaf => Do::Nothing,
                    Ok(Some(Event::Data { channel, bytes, .. })) => Do::Echo(channel, bytes.to_vec()),
                    Ok(Some(Event::Eof(channel))) if late == Some(channel) => Do::EndOutput(channel),
                    Ok(Some(Event::Eof(channel) | Event::Leaving(channel))) => Do::End(channel),
                    Ok(Some(_)) => Do::Nothing,
                };
                match next {
                    Do::Sign(exchange) => {
                        let hash = exchange.hash().expect("known");
                        let signature = key
                            .sign(&exchange.host_key_algorithm, hash.as_ref())
                            .expect("signed");
                        end.core.signed(&signature, cookie());
                    }
                    Do::In => end.core.answer_auth(AuthAnswer::Accept),
                    Do::Accept(channel) => end.core.accept(channel),
                    Do::Run(channel, reply, agent) => {
                        if let Some(reply) = reply {
                            end.core.answer(reply, true);
                        }
                        if agent {
                            session.push(channel);
                            end.core.open(&ChannelKind::Agent);
                        }
                    }
                    // What the agent says goes to the session that asked.
                    Do::Echo(channel, bytes) => {
                        let to = session
                            .first()
                            .filter(|s| **s != channel)
                            .copied()
                            .unwrap_or(channel);
                        end.core.write(to, Stream::Main, &bytes);
                        end.core.consumed(channel, bytes.len());
                    }
                    Do::EndOutput(channel) => {
                        end.core.close_later(channel);
                        end.core.eof(channel);
                    }
                    Do::End(channel) => {
                        end.core.request(channel, &Request::ExitStatus { code: 7 }, false);
                        end.core.eof(channel);
                        end.core.close(channel);
                    }
                    Do::Ask(channel) => {
                        end.core.write(channel, Stream::Main, b"who?");
                    }
                    Do::Refused => {
                        let asker = session.last().copied().expect("somebody asked for it");
                        end.core.write(asker, Stream::Main, b"refused");
                    }
                    Do::Nothing => {}
                }
            }
            match end.poll_move(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

struct Scene {
    host: Rc<Plain>,
    client: Client<DuplexStream>,
    key: PrivateKey,
    blob: Vec<u8>,
}

async fn scene(forbidden: &[Kind], trusted: bool) -> Scene {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let theirs = Arc::new(host_key());
    let ca = key();
    let user = key();
    let blob = certificate(&ca, &user, &identity("ada")).blob().to_vec();
    let host = Rc::new(Plain {
        key: Arc::new(host_key()),
        theirs: theirs.public().blob().to_vec(),
        address: listener.local_addr().expect("an address"),
        ca,
        told: RefCell::default(),
        order: RefCell::default(),
        forbidden: RefCell::new(forbidden.to_vec()),
        limits: RefCell::default(),
        trusted,
        ending: Cell::default(),
    });
    tokio::task::spawn_local(sshd(listener, theirs));
    let (ours, far) = duplex(64 * 1024);
    let serves: Rc<dyn Host> = host.clone();
    tokio::task::spawn_local(async move {
        let source = "192.0.2.7:4000".parse().expect("an address");
        serve(far, source, serves).await
    });
    Scene {
        host,
        client: Client::new(ours),
        key: user,
        blob,
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test());
}

#[test]
fn a_session_passes_with_its_output_its_end_and_its_exit_status() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("eve", &s.key, &s.blob).await, Ok(false));
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let core = &mut s.client.end.core;
        let channel = core.open(&ChannelKind::Session).expect("open");
        s.client
            .until(|_, e| matches!(e, Event::Opened(_)).then_some(()))
            .await
            .expect("opened");
        let command = b"uptime".to_vec();
        s.client
            .end
            .core
            .request(channel, &Request::Exec { command }, true);
        s.client.end.core.write(channel, Stream::Main, &[5; 100_000]);
        s.client.end.core.eof(channel);
        let (mut seen, mut bytes) = (Vec::new(), 0);
        while seen.last() != Some(&"closed") {
            let what = s.client.until(|asked, e| match e {
                Event::Replied { done: true, .. } => Some(("done", 0)),
                Event::Data { channel, bytes, .. } => {
                    *asked = Some(Asked::Consumed(channel, bytes.len()));
                    Some(("data", bytes.len()))
                }
                Event::Request {
                    request: Request::ExitStatus { code: 7 },
                    ..
                } => Some(("status", 0)),
                Event::Eof(_) => Some(("end", 0)),
                Event::Closed(_) => Some(("closed", 0)),
                _ => None,
            });
            let (what, n) = what.await.expect("more");
            bytes += n;
            if seen.last() != Some(&what) {
                seen.push(what);
            }
        }
        assert_eq!(seen, ["done", "data", "status", "end", "closed"]);
        assert_eq!(bytes, 100_000);
        let told = s.host.told.borrow();
        let session = told
            .iter()
            .find_map(|event| Some(event.split_once("session: \"")?.1[..32].to_owned()))
            .expect("a session's id");
        assert!(session.bytes().all(|b| b.is_ascii_hexdigit()), "{session}");
        assert_eq!(
            *told,
            [
                "nobody: Refused(\"role access does not allow the login eve\")".to_owned(),
                "ada: In".to_owned(),
                format!(
                    "ada: Began {{ session: \"{session}\", kind: \"exec\", command: {:?} }}",
                    b"uptime"
                ),
                format!("ada: Ended {{ session: \"{session}\", code: Some(7) }}"),
            ]
        );
    });
}

#[test]
fn the_exit_status_comes_to_a_user_who_closed_at_the_end_of_the_output() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let core = &mut s.client.end.core;
        let channel = core.open(&ChannelKind::Session).expect("open");
        let command = b"late".to_vec();
        core.request(channel, &Request::Exec { command }, true);
        core.eof(channel);
        let ended = s.client.until(|_, e| matches!(e, Event::Eof(_)).then_some(()));
        ended.await.expect("the end of the output");
        s.client.end.core.close(channel);
        let mut status = None;
        let closed = s.client.until(|_, e| match e {
            Event::Request {
                request: Request::ExitStatus { code },
                ..
            } => {
                status = Some(code);
                None
            }
            Event::Closed(_) => Some(()),
            _ => None,
        });
        closed.await.expect("closed by both");
        assert_eq!(status, Some(7));
        let told = s.host.told.borrow();
        let last = told.last().expect("something");
        assert!(last.ends_with("code: Some(7) }"), "{last}");
    });
}

/// Asks for a program on a channel of its own, and takes what comes: the answer, what stands on its stderr, its exit code,
/// and whether it was closed. Nothing more comes where nothing ends it.
async fn program(s: &mut Scene, request: &Request) -> (bool, String, Option<u32>) {
    let asked = s.client.end.core.open(&ChannelKind::Session).expect("open");
    s.client.end.core.request(asked, request, true);
    let (mut done, mut words, mut code) = (false, String::new(), None);
    let ended = s.client.until(|say, e| {
        match e {
            Event::Replied { done: yes, channel } if channel == asked => {
                done = yes;
                // One that runs goes on.
                return (yes && words.is_empty() && !s.host.ends()).then_some(());
            }
            Event::Data { channel, bytes, .. } if channel == asked => {
                words += &String::from_utf8_lossy(bytes);
                *say = Some(Asked::Consumed(channel, bytes.len()));
            }
            Event::Request {
                request: Request::ExitStatus { code: told },
                ..
            } => code = Some(told),
            Event::Closed(channel) if channel == asked => return Some(()),
            _ => {}
        }
        None
    });
    ended.await.expect("it is there");
    (done, words, code)
}

#[test]
fn what_no_role_allows_is_refused_and_told() {
    run(async || {
        let mut s = scene(&[Kind::Shell, Kind::ConnectTcp], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        s.host.ending.set(true);
        // As a program that says why, since clients show nothing of a request that failed.
        let (done, words, code) = program(&mut s, &Request::Shell).await;
        assert!(done && words.contains("role access"), "{words}");
        assert_eq!(code, Some(255));
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        s.client.end.core.open(&to).expect("open");
        let words = s.client.until(|_, e| match e {
            Event::OpenFailed { text, .. } => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        });
        let words = words.await.expect("words");
        assert!(words.contains("role access"), "{words}");
        let told = s.host.told.borrow();
        assert_eq!(
            told.iter().filter(|t| t.contains("Denied")).count(),
            2,
            "{told:?}"
        );
    });
}

#[test]
fn each_session_is_decided_anew_and_held_to_its_roles_limits() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let command = b"uptime".to_vec();
        let exec = Request::Exec { command };
        s.host.limits.borrow_mut().sessions = Some(1);
        assert!(program(&mut s, &exec).await.0);
        s.host.ending.set(true);
        let (_, words, code) = program(&mut s, &exec).await;
        assert!(words.contains("at most 1 sessions by its roles"), "{words}");
        assert_eq!(code, Some(255));
        // A role that changes counts for what comes next.
        *s.host.limits.borrow_mut() = Limits::default();
        s.host.forbidden.borrow_mut().push(Kind::Exec);
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(words.contains("role access"), "{words}");
        s.host.forbidden.borrow_mut().clear();
        s.host.limits.borrow_mut().session = Some(Duration::ZERO);
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(
            words.contains("a session of more than 0 s is not allowed by its roles"),
            "{words}"
        );
        // One whose end somebody orders ends with his words.
        *s.host.limits.borrow_mut() = Limits::default();
        let (order, ordered) = tokio::sync::oneshot::channel();
        *s.host.order.borrow_mut() = Some(ordered);
        order
            .send("the session was ended by user bob".to_owned())
            .expect("somebody waits");
        let (_, words, _) = program(&mut s, &exec).await;
        assert!(words.contains("was ended by user bob"), "{words}");
        // And what runs since before goes on.
        s.host.ending.set(false);
        *s.host.limits.borrow_mut() = Limits::default();
        assert!(program(&mut s, &exec).await.0);
        let told = s.host.told.borrow();
        let count = |what: &str| told.iter().filter(|t| t.contains(what)).count();
        assert_eq!((count("Began"), count("Denied")), (4, 4), "{told:?}");
    });
}

#[test]
fn who_cannot_be_served_is_told_why() {
    run(async || {
        let mut s = scene(&[], true).await;
        // The control: with a key it goes on.
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let (ours, far) = duplex(64 * 1024);
        let keyless = Rc::new(Keyless(s.host.clone()));
        let source = "192.0.2.7:4000".parse().expect("an address");
        let mut client = Client::new(ours);
        let served = tokio::task::spawn_local(serve(far, source, keyless));
        let end = client.until(|_, _| None::<()>).await;
        let end = end.expect_err("it ends");
        assert!(end.contains("auth is away"), "{end}");
        drop(client);
        assert_eq!(served.await.expect("served"), "auth is away");
    });
}

#[test]
fn a_host_key_that_is_not_the_registered_one_ends_it_with_a_sentence() {
    run(async || {
        let mut s = scene(&[], false).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let end = s.client.until(|_, _| None::<()>).await.expect_err("it ends");
        assert!(
            end.contains("old1: its host key is not the registered one"),
            "{end}"
        );
    });
}

/// Asks for something on a channel; whether it was done.
async fn asked(s: &mut Scene, channel: ChannelId, request: &Request) -> bool {
    s.client.end.core.request(channel, request, true);
    let answer = s.client.until(|_, e| match e {
        Event::Replied { done, .. } => Some(done),
        _ => None,
    });
    answer.await.expect("an answer")
}

fn exec(command: &[u8]) -> Request {
    let command = command.to_vec();
    Request::Exec { command }
}

#[test]
fn a_host_reaches_the_agent_of_a_user_who_asked_for_that_alone() {
    run(async || {
        let mut s = scene(&[Kind::Agent], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        for is_allowed in [false, true] {
            let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
            // He asks for it, and his role does not allow it before the second try.
            assert_eq!(asked(&mut s, channel, &Request::Agent).await, is_allowed);
            assert!(asked(&mut s, channel, &exec(b"agent")).await);
            let came = s.client.until(|_, e| match e {
                Event::Open { kind, .. } => Some(format!("{kind:?}")),
                Event::Data { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            });
            let wanted = if is_allowed { "Agent" } else { "refused" };
            assert_eq!(came.await.as_deref(), Ok(wanted));
            s.host.forbidden.borrow_mut().clear();
        }
    });
}

#[test]
fn a_channel_begins_one_program_and_only_a_session_does() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        s.host.limits.borrow_mut().session = Some(Duration::from_secs(1));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        assert!(asked(&mut s, channel, &exec(b"uptime")).await);
        assert!(!asked(&mut s, channel, &exec(b"another")).await);
        assert!(!asked(&mut s, channel, &Request::Shell).await);
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        let connection = s.client.end.core.open(&to).expect("open");
        assert!(!asked(&mut s, connection, &exec(b"uptime")).await);
        let name = b"unknown@example.org".to_vec();
        let unknown = Request::Other {
            name: name.clone(),
            payload: Vec::new(),
        };
        assert!(!asked(&mut s, channel, &unknown).await);
        let unknown = ChannelKind::Other {
            name,
            payload: Vec::new(),
        };
        s.client.end.core.open(&unknown).expect("open");
        let reason = s.client.until(|_, e| match e {
            Event::OpenFailed { reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(reason.await, Ok(3));
        // The time that its roles give is still the first one's.
        let words = s.client.until(|_, e| match e {
            Event::Data { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        let words = words.await.expect("words");
        assert!(words.contains("more than 1 s is not allowed"), "{words}");
        let told = s.host.told.borrow();
        let count = |what: &str| told.iter().filter(|t| t.contains(what)).count();
        assert_eq!((count("Began"), count("another")), (1, 0), "{told:?}");
    });
}

#[test]
fn of_many_refusals_the_first_are_told_and_the_number_of_the_others() {
    run(async || {
        let mut s = scene(&[Kind::ConnectTcp], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let to = ChannelKind::DirectTcpip {
            host: b"db".to_vec(),
            port: 1,
            origin: Vec::new(),
            origin_port: 0,
        };
        for _ in 0..150 {
            s.client.end.core.open(&to).expect("open");
            let failed = s
                .client
                .until(|_, e| matches!(e, Event::OpenFailed { .. }).then_some(()));
            failed.await.expect("refused");
        }
        drop(s.client);
        let told = || {
            s.host
                .told
                .borrow()
                .iter()
                .filter(|t| t.contains("Denied"))
                .count()
        };
        let is_out = || s.host.told.borrow().iter().any(|t| t.contains(": Out("));
        while !is_out() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(told(), 101);
        let told = s.host.told.borrow();
        assert!(told.iter().any(|t| t.contains("50 further refusals")), "{told:?}");
    });
}

#[test]
fn requests_that_no_window_holds_are_bounded() {
    run(async || {
        let mut s = scene(&[], true).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        assert!(asked(&mut s, channel, &exec(b"deaf")).await);
        // Until nothing more is taken: what a window holds is no reason to end.
        let quiet = Duration::from_millis(200);
        loop {
            let sent = s.client.end.core.write(channel, Stream::Main, &[0; 64 * 1024]);
            let on = tokio::time::timeout(quiet, s.client.until(|_, _| None::<()>));
            if on.await.is_err() && sent == 0 {
                break;
            }
        }
        // Behind that they wait.
        let name = vec![b'x'; 100_000];
        for _ in 0..11 {
            let signal = Request::Signal { name: name.clone() };
            s.client.end.core.request(channel, &signal, false);
        }
        let end = s.client.until(|_, _| None::<()>).await.expect_err("it ends");
        assert!(end.contains("more requests wait"), "{end}");
    });
}
