//! A plain sshd behind the proxy, played by a server of ours that runs nothing: what passes, in which order, and what
//! no role allows.

use super::world::{Asked, Client, certificate, host_key, identity, key, name};
use crate::ssh::door::{Caller, cookie, settings};
use crate::ssh::end::End;
use crate::ssh::terminate::{AgentFrames, Host, Later, Told, serve};
use fleetgate_policy::cluster::Identity;
use fleetgate_policy::{Kind, Permits, Rule};
use fleetgate_proto::v1::Agent;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{AuthAnswer, ChannelKind, Event, Request, Stream};
use fleetgate_ssh::key::{Certificate, HostKey, PrivateKey, PublicKey};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

struct Plain {
    key: Arc<HostKey>,
    /// The sshd's own.
    theirs: Vec<u8>,
    address: SocketAddr,
    ca: PrivateKey,
    told: RefCell<Vec<String>>,
    forbidden: Vec<Kind>,
    trusted: bool,
}

impl Host for Plain {
    fn name(&self) -> &str {
        "old1"
    }

    fn host_key(&self) -> Later<Arc<HostKey>> {
        let key = self.key.clone();
        Box::pin(async move { Ok(key) })
    }

    fn check(&self, _: &Certificate, login: &str) -> Result<(Identity, Permits), String> {
        if login != "ada" {
            return Err(format!("role access does not allow the login {login}"));
        }
        let mut permits = Permits::all();
        permits.forbid(&self.forbidden, &Rule::new("role access"));
        Ok((identity("ada"), permits))
    }

    fn connect(&self) -> Later<TcpStream> {
        let address = self.address;
        Box::pin(async move { TcpStream::connect(address).await.map_err(|e| e.to_string()) })
    }

    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>> {
        assert_eq!(caller.identity.user(), Some(&name("ada")));
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

    fn tell(&self, caller: Option<&Caller>, event: Told<'_>) {
        let who = caller.map_or("nobody", |c| c.name.as_str());
        self.told.borrow_mut().push(format!("{who}: {event:?}"));
    }

    fn ended(&self, _: &Caller) -> Pin<Box<dyn Future<Output = String>>> {
        Box::pin(std::future::pending())
    }
}

/// A server that takes every certificate, answers requests, echoes what it is sent, and asks the agent when it is told
/// to by the command `agent`.
async fn sshd(listener: TcpListener, key: Arc<HostKey>) {
    let (stream, _) = listener.accept().await.expect("accepted");
    let mut end = End::new(Connection::server(settings(&key).into(), cookie()), stream);
    let mut session = Vec::new();
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
                    Ask(fleetgate_ssh::event::ChannelId),
                    Nothing,
                }
                let next = match end.core.poll() {
                    Err(_) => return Poll::Ready(()),
                    Ok(None) => break,
                    Ok(Some(Event::SignExchange(exchange))) => Do::Sign(exchange),
                    Ok(Some(Event::Auth(_))) => Do::In,
                    Ok(Some(Event::Open { channel, .. })) => Do::Accept(channel),
                    Ok(Some(Event::Opened(channel))) => Do::Ask(channel),
                    Ok(Some(Event::Request {
                        channel,
                        request,
                        reply,
                    })) => {
                        let agent = matches!(&request, Request::Exec { command } if command == b"agent");
                        Do::Run(channel, reply, agent)
                    }
                    Ok(Some(Event::Data { channel, bytes, .. })) => Do::Echo(channel, bytes.to_vec()),
                    Ok(Some(Event::Eof(channel))) => Do::End(channel),
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
                    Do::End(channel) => {
                        end.core.request(channel, &Request::ExitStatus { code: 7 }, false);
                        end.core.eof(channel);
                        end.core.close(channel);
                    }
                    Do::Ask(channel) => {
                        end.core.write(channel, Stream::Main, b"who?");
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

async fn scene(forbidden: &[Kind], trusted: bool, agent: Option<AgentFrames>) -> Scene {
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
        forbidden: forbidden.to_vec(),
        trusted,
    });
    tokio::task::spawn_local(sshd(listener, theirs));
    let (ours, far) = duplex(64 * 1024);
    let serves: Rc<dyn Host> = host.clone();
    tokio::task::spawn_local(async move {
        let source = "192.0.2.7:4000".parse().expect("an address");
        serve(far, source, serves, agent).await
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
        let mut s = scene(&[], true, None).await;
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
        assert_eq!(
            *told,
            [
                "nobody: Refused(\"role access does not allow the login eve\")".to_owned(),
                "ada: In".to_owned(),
                format!("ada: Began {{ kind: \"exec\", command: {:?} }}", b"uptime"),
                "ada: Ended(Some(7))".to_owned(),
            ]
        );
    });
}

#[test]
fn what_no_role_allows_is_refused_and_told() {
    run(async || {
        let mut s = scene(&[Kind::Shell, Kind::ConnectTcp], true, None).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        s.client.end.core.request(channel, &Request::Shell, true);
        let refused = s.client.until(|_, e| match e {
            Event::Replied { done, .. } => Some(done),
            _ => None,
        });
        assert_eq!(refused.await, Ok(false));
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
fn a_host_key_that_is_not_the_registered_one_ends_it_with_a_sentence() {
    run(async || {
        let mut s = scene(&[], false, None).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let end = s.client.until(|_, _| None::<()>).await.expect_err("it ends");
        assert!(
            end.contains("old1: its host key is not the registered one"),
            "{end}"
        );
    });
}

#[test]
fn an_agent_that_stalls_stalls_no_session() {
    run(async || {
        let (to_client, mut agent_asks) = mpsc::unbounded_channel();
        let (answers, from_client) = mpsc::unbounded_channel();
        let frames = AgentFrames::new(to_client, from_client);
        let mut s = scene(&[], true, Some(frames)).await;
        assert_eq!(s.client.log_in("ada", &s.key, &s.blob).await, Ok(true));
        let channel = s.client.end.core.open(&ChannelKind::Session).expect("open");
        let command = b"agent".to_vec();
        s.client
            .end
            .core
            .request(channel, &Request::Exec { command }, true);
        s.client
            .until(|_, e| matches!(e, Event::Replied { .. }).then_some(()))
            .await
            .expect("answered");
        // The agent was asked, and says nothing: the session goes on.
        let echo = async |s: &mut Scene| {
            s.client.end.core.write(channel, Stream::Main, b"on");
            let got = s.client.until(|asked, e| match e {
                Event::Data { channel, bytes, .. } => {
                    *asked = Some(Asked::Consumed(channel, bytes.len()));
                    Some(bytes.to_vec())
                }
                _ => None,
            });
            got.await.expect("bytes")
        };
        assert_eq!(echo(&mut s).await, b"on");
        let asked = agent_asks.recv().await.expect("a frame");
        assert_eq!((asked.connection, &asked.data[..]), (1, &b"who?"[..]));
        assert_eq!(echo(&mut s).await, b"on");
        // And what it says at last gets there.
        let answer = Agent {
            connection: 1,
            data: b"me".to_vec().into(),
            ..Agent::default()
        };
        answers.send(answer).expect("it listens");
        let got = s.client.until(|_, e| match e {
            Event::Data { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        });
        // The frame wakes the relay.
        assert_eq!(got.await.as_deref(), Ok(&b"me"[..]));
    });
}
