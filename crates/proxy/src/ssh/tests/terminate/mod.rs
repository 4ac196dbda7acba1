//! A plain sshd behind the proxy, played by a server of ours that runs nothing: what passes, in which order, and what
//! no role allows.

mod recorded;
mod refusals;
mod sessions;

use crate::recorder::tests::{fresh_state, recorder};
use crate::recorder::{FirstFrame, Opening, Recorder};
use crate::ssh::authenticator::{Caller, cookie, settings};
use crate::ssh::endpoint::Endpoint;
use crate::ssh::terminate::{Host, HostIdentity, Later, RecordedSession, SessionEvent, serve};
use crate::ssh::tests::world::{Asked, Client, certificate, host_key, identity, key, name};
use fleetgate_policy::cluster::{Allowed, Identity, Limits};
use fleetgate_policy::{Kind, Permits, Recording, RecordingFailure, Rule};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{AuthAnswer, ChannelId, ChannelKind, Event, Exchange, Request, Stream};
use fleetgate_ssh::key::{Certificate, HostKey, KeyType, PrivateKey, PublicKey};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
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
    recording: Cell<(Recording, RecordingFailure)>,
    recorder: Recorder,
    state: PathBuf,
    trusted: bool,
    /// What is begun is to end by itself.
    ending: Cell<bool>,
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
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
            onward_ssh: Default::default(),
            permits,
            limits: *self.limits.borrow(),
            recording: self.recording.get().0,
            recording_failure: self.recording.get().1,
            recording_recipients: Vec::new(),
            recording_role: self.recording.get().0.is_wanted().then(|| name("access")),
            recording_keep: None,
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

    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) -> String {
        let who = caller.map_or("nobody", |c| c.name.as_str());
        self.told.borrow_mut().push(format!("{who}: {event:?}"));
        let word = format!("{event:?}");
        let word = word.split([' ', '(']).next().unwrap_or_default();
        format!("{{\"event\":\"{word}\"}}\n")
    }

    fn record(&self, caller: &Caller, session: &RecordedSession<'_>) -> Result<Opening, String> {
        let frame = FirstFrame {
            session: session.session,
            node: self.name(),
            proxy: "edge",
            user: "ada",
            login: &caller.name,
            client: "192.0.2.7:4000",
            kind: session.kind,
            command: session.command,
            terminal: session.terminal,
            recording: session.recording,
            recipients: session.recipients,
            roles: session.roles,
            keep: session.keep,
            labels: &Default::default(),
        };
        self.recorder.begin(&frame, serde_json::json!({}))
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

    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) -> String {
        self.0.tell(caller, event)
    }

    fn record(&self, caller: &Caller, session: &RecordedSession<'_>) -> Result<Opening, String> {
        self.0.record(caller, session)
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
    let state = fresh_state();
    let host = Rc::new(Plain {
        key: Arc::new(host_key()),
        theirs: theirs.public().blob().to_vec(),
        address: listener.local_addr().expect("an address"),
        ca,
        told: RefCell::default(),
        order: RefCell::default(),
        forbidden: RefCell::new(forbidden.to_vec()),
        limits: RefCell::default(),
        recording: Cell::default(),
        recorder: recorder(&state),
        state,
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
