//! A fleet for `cargo xtask bench proxy` and `commands`: as many nodes as it is told, each with a certificate and a TLS connection of
//! its own, all in one process, and a user's sessions to them. One word a line in, one line of numbers out:
//! `join N` and `dial N`: seconds until N nodes in all have joined, have a tunnel; `sessions N`: seconds until N more
//! sessions of the login in HOME are open and have carried [`CARRIED`] bytes each way; `hang-up`: these end; `record N`: seconds until a
//! new recording of each of the first N nodes is kept by auth, and the bytes of all ([`recorded`]; nodes that speak SSH alone).
//! The nodes do nothing but tell their facts and send back what a session sends; with the word `ssh` behind HOME they speak SSH
//! instead ([`ssh`]), and every command ends at once.
#![forbid(unsafe_code)]

mod recorded;
mod ssh;

use bytes::Bytes;
use fleetgate_client::connect;
use fleetgate_client::join::{self, Machine};
use fleetgate_client::master_client::{Keep, ProxyConnector};
use fleetgate_client::profile::Home;
use fleetgate_client::timings::Timings;
use fleetgate_client::transport::{DialOptions, DialStream, Proxy};
use fleetgate_client::waiting::BoundedChannel;
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::tls::{self, Believe, Client, Credentials};
use fleetgate_net::{Ticket, dial, x509};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::tunnel_server::{Tunnel, TunnelServer};
use fleetgate_proto::v1::{
    Frame, FromNode, JoinRequest, NodeFacts, NodeStatement, Opened, RecordingKept, RecordingPart, Statement,
    ToNode, from_node,
};
use fleetgate_ssh::key::HostKey;
use fleetgate_sys::process::{self, Limit, numbers::RLIMIT_NOFILE};
use recorded::{Round, Rounds};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// What a session carries each way before it is left idle.
const CARRIED: usize = 16 * 1024;
/// The frames in which it does.
const LUMP: usize = 4 * 1024;
/// Joins, handshakes and sessions that are begun at once.
const AT_ONCE: usize = 32;
/// What all of them need.
const DESCRIPTORS: u64 = 12_000;
/// How long one step of one node may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long no recording may be whole, of those that come at once: they end at about the same time.
const KEPT_WITHIN: Duration = Duration::from_secs(600);

type Result<T> = std::result::Result<T, String>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (proxy, token, home, ssh) = match words.as_slice() {
        [proxy, token, home] => (proxy, token, home, false),
        [proxy, token, home, word] if word == "ssh" => (proxy, token, home, true),
        _ => {
            eprintln!("usage: bench-fleet PROXY TOKEN_FILE HOME [ssh]");
            std::process::exit(2);
        }
    };
    if let Err(why) = run(proxy, token, home, ssh) {
        eprintln!("bench-fleet: {why}");
        std::process::exit(1);
    }
}

fn run(proxy: &str, token: &str, home: &str, ssh: bool) -> Result<()> {
    let hard = process::limit(RLIMIT_NOFILE).map_err(said)?.hard;
    // Where root may not raise it, what is allowed has to do.
    if hard < DESCRIPTORS {
        return Err(format!(
            "{DESCRIPTORS} open descriptors are needed and {hard} are allowed: raise the limit (ulimit -Hn)"
        ));
    }
    process::set_limit(RLIMIT_NOFILE, Limit { soft: hard, hard }).map_err(said)?;
    let text = std::fs::read_to_string(token).map_err(|e| format!("{token}: {e}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(said)?;
    let (whole, kept) = mpsc::unbounded_channel();
    let mut fleet = Fleet {
        proxy: proxy.to_owned(),
        token: join::token(&text).map_err(said)?,
        home: Home::find(Some(home)).map_err(said)?,
        ssh,
        nodes: Vec::new(),
        connected: 0,
        sessions: Vec::new(),
        user: None,
        rounds: Rounds {
            now: watch::Sender::default(),
            whole,
        },
        kept,
    };
    let (tell, mut told) = mpsc::channel(1);
    // Standard input has no event that the runtime would hear of.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if tell.blocking_send(line).is_err() {
                return;
            }
        }
    });
    runtime.block_on(async {
        while let Some(line) = told.recv().await {
            let begun = Instant::now();
            let count = |n: &str| n.parse().map_err(|_| format!("{line:?}: how many?"));
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("join", n) => fleet.join(count(n)?).await?,
                ("dial", n) => fleet.dial(count(n)?).await?,
                ("sessions", n) => fleet.open(count(n)?).await?,
                ("hang-up", _) => fleet.sessions.clear(),
                ("record", n) => {
                    let bytes = fleet.record(count(n)?).await?;
                    println!("{} {bytes}", begun.elapsed().as_secs_f64());
                    std::io::stdout().flush().map_err(said)?;
                    continue;
                }
                _ => return Err(format!("unknown word {line:?}")),
            }
            println!("{}", begun.elapsed().as_secs_f64());
            std::io::stdout().flush().map_err(said)?;
        }
        Ok(())
    })
}

/// All nodes, and the user who visits them.
struct Fleet {
    proxy: String,
    token: Ticket,
    home: Home,
    /// The nodes speak SSH.
    ssh: bool,
    nodes: Vec<Node>,
    connected: usize,
    /// Each ends when it is dropped.
    sessions: Vec<DialStream>,
    user: Option<Proxy>,
    rounds: Rounds,
    kept: mpsc::UnboundedReceiver<u64>,
}

/// A node, before it dials.
#[derive(Clone)]
struct Node {
    client: Client,
    /// None: it sends back what it gets.
    ssh: Option<Arc<ssh::Identity>>,
}

fn name(n: usize) -> String {
    format!("sim{n:05}")
}

impl Fleet {
    /// Until so many have certificates, by one connection to the auth service.
    async fn join(&mut self, count: usize) -> Result<()> {
        let believe = Believe::Pin(self.token.pin);
        let mut under_way = JoinSet::new();
        let mut next = self.nodes.len();
        // The first by the client's own way; the others in the same words, over a connection that they share.
        if next == 0 && count > 0 {
            let key = ssh_key(self.ssh)?;
            let machine = Machine {
                name: name(0),
                host_keys: key.iter().map(|key| key.public().blob().to_vec()).collect(),
                labels: HashMap::new(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            };
            let joined = join::join(&self.proxy, &self.token, machine)
                .await
                .map_err(said)?;
            self.nodes.push(Node {
                client: client(joined.tls_key, &joined.reply.tls_chain, &believe)?,
                ssh: certified(key, &joined.reply.host_certificates)?,
            });
            next = 1;
        }
        let auth = connect::identity(&self.proxy, &believe, None)
            .await
            .map_err(said)?;
        while next < count || !under_way.is_empty() {
            while next < count && under_way.len() < AT_ONCE {
                let (auth, believe) = (auth.clone(), believe.clone());
                let secret = self.token.secret().to_owned();
                under_way.spawn(join_one(auth, believe, secret, next, self.ssh));
                next += 1;
            }
            if let Some(joined) = under_way.join_next().await {
                self.nodes.push(joined.map_err(said)??);
            }
        }
        Ok(())
    }

    /// Until so many tunnels are there.
    async fn dial(&mut self, count: usize) -> Result<()> {
        let mut under_way = JoinSet::new();
        while self.connected < count || !under_way.is_empty() {
            while self.connected < count && under_way.len() < AT_ONCE {
                let node = self.nodes.get(self.connected).ok_or("more tunnels than nodes")?;
                let rounds = self.rounds.clone();
                under_way.spawn(tunnel(self.proxy.clone(), node.clone(), self.connected, rounds));
                self.connected += 1;
            }
            if let Some(dialled) = under_way.join_next().await {
                dialled.map_err(said)??;
            }
        }
        Ok(())
    }

    /// A recording of each of the first nodes, all at once; the bytes that are kept.
    async fn record(&mut self, count: usize) -> Result<u64> {
        let number = self.rounds.now.borrow().number + 1;
        let _ = self.rounds.now.send_replace(Round { number, count });
        let mut bytes = 0;
        for kept in 0..count {
            let next = tokio::time::timeout(KEPT_WITHIN, self.kept.recv()).await;
            bytes += next
                .ok()
                .flatten()
                .ok_or_else(|| format!("{kept} of {count} recordings are kept, and no other comes"))?;
        }
        Ok(bytes)
    }

    /// So many sessions more, one for each of as many nodes.
    async fn open(&mut self, count: usize) -> Result<()> {
        let profile = self.home.login().map_err(said)?;
        if self.user.is_none() {
            let mut own = ProxyConnector::new(&self.home, Keep::No, None, |_| {});
            let proxy = own.proxy(&profile.proxy, &mut Timings::default()).await;
            self.user = Some(proxy.map_err(said)?);
        }
        let user = self.user.as_ref().ok_or("no connection")?;
        let (first, last) = (self.sessions.len(), self.sessions.len() + count);
        let mut under_way = JoinSet::new();
        let mut next = first;
        while next < last || !under_way.is_empty() {
            while next < last && under_way.len() < AT_ONCE {
                under_way.spawn(session(user.clone(), name(next % self.connected.max(1))));
                next += 1;
            }
            if let Some(opened) = under_way.join_next().await {
                self.sessions.push(opened.map_err(said)??);
            }
        }
        Ok(())
    }
}

async fn join_one(
    mut auth: IdentityClient<BoundedChannel>,
    believe: Believe,
    secret: String,
    n: usize,
    ssh: bool,
) -> Result<Node> {
    let (key, host_key) = (x509::Key::generate(), ssh_key(ssh)?);
    let request = JoinRequest {
        secret,
        name: name(n),
        tls_public: key.public().spki().to_vec().into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host_keys: host_key
            .iter()
            .map(|key| key.public().blob().to_vec().into())
            .collect(),
        ..JoinRequest::default()
    };
    let reply = auth.join(request).await.map_err(|status| h2::words(&status))?;
    let reply = reply.into_inner();
    Ok(Node {
        client: client(key, &reply.tls_chain, &believe)?,
        ssh: certified(host_key, &reply.host_certificates)?,
    })
}

/// A fresh host key, where nodes speak SSH.
fn ssh_key(ssh: bool) -> Result<Option<HostKey>> {
    ssh.then(ssh::fresh_key).transpose()
}

/// The key with the cluster's certificate for it.
fn certified(key: Option<HostKey>, certificates: &[Bytes]) -> Result<Option<Arc<ssh::Identity>>> {
    let Some(key) = key else { return Ok(None) };
    let certificate = certificates.first().ok_or("no host certificate")?;
    ssh::Identity::new(key, certificate).map(Arc::new).map(Some)
}

fn client(key: x509::Key, chain: &[Bytes], believe: &Believe) -> Result<Client> {
    let credentials = Credentials::new(key, chain).map_err(said)?;
    Client::new(believe, Some(&credentials), &[tls::TUNNEL]).map_err(said)
}

/// A node's connection; done when the proxy has asked for its facts and was sent them.
async fn tunnel(proxy: String, node: Node, n: usize, rounds: Rounds) -> Result<()> {
    let Node { client, ssh } = node;
    let stream = dial::connect(&proxy, dial::DEADLINE).await.map_err(said)?;
    let (stream, peer) = client.connect(tls::PROXY, stream).await.map_err(said)?;
    let group = format!("{:?}", peer.group);
    if !group.contains("X25519MLKEM768") {
        return Err(format!(
            "{}: the key exchange is {group}, not post-quantum",
            name(n)
        ));
    }
    let (asked, mut was_asked) = mpsc::channel(1);
    let routes = Arc::new(Routes::new().with(TunnelServer::new(Simulated {
        asked,
        ssh,
        n,
        rounds,
    })));
    let caller = Caller {
        peer: None,
        address: None,
    };
    tokio::spawn(async move {
        let served = h2::serve(stream, caller, routes, Tuning::TUNNEL, std::future::pending()).await;
        // Where one is gone the figures are of something else.
        eprintln!("bench-fleet: the tunnel of {} ended: {served:?}", name(n));
        std::process::exit(1);
    });
    let asked = tokio::time::timeout(PATIENCE, was_asked.recv()).await;
    asked
        .ok()
        .flatten()
        .ok_or_else(|| format!("{}: the proxy did not ask for its facts", name(n)))
}

/// A session that has carried bytes each way and is idle.
async fn session(proxy: Proxy, node: String) -> Result<DialStream> {
    let mut stream = proxy.dial(&node, "root", Bytes::new(), &DialOptions::default());
    let mut back = [0; LUMP];
    for _ in 0..CARRIED / LUMP {
        let (mut read, mut write) = tokio::io::split(&mut stream);
        let carried = async { tokio::try_join!(write.write_all(&[7; LUMP]), read.read_exact(&mut back)) };
        let carried = tokio::time::timeout(PATIENCE, carried).await;
        carried.map_err(said)?.map_err(said)?;
    }
    Ok(stream)
}

/// What a simulated node serves.
struct Simulated {
    asked: mpsc::Sender<()>,
    ssh: Option<Arc<ssh::Identity>>,
    n: usize,
    rounds: Rounds,
}

/// Items of a task, in order.
struct Fed<T>(mpsc::Receiver<T>);

impl<T> Stream for Fed<T> {
    type Item = T;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// Facts, what would be signed of them, and then nothing.
struct Facts {
    told: u8,
}

impl Stream for Facts {
    type Item = std::result::Result<FromNode, Status>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let facts = NodeFacts {
            labels: HashMap::from([("env".to_owned(), "bench".to_owned())]),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..NodeFacts::default()
        };
        let kind = match self.told {
            0 => from_node::Kind::Facts(facts),
            // As long as a real one. The proxy keeps it; this bench's auth is not the one that checks it.
            1 => from_node::Kind::Statement(Statement {
                document: NodeStatement {
                    node: "node00000".to_owned(),
                    proxy: "edge".to_owned(),
                    facts: Some(facts),
                    as_of: 1,
                    millis: 1,
                }
                .document(),
                signature: vec![0; 71].into(),
                key: vec![0; 91].into(),
            }),
            _ => return Poll::Pending,
        };
        self.told += 1;
        Poll::Ready(Some(Ok(FromNode { kind: Some(kind) })))
    }
}

#[tonic::async_trait]
impl Tunnel for Simulated {
    type SessionStream = Fed<std::result::Result<Frame, Status>>;
    type ControlStream = Facts;
    type RecordingsStream = Fed<std::result::Result<RecordingPart, Status>>;

    async fn recordings(
        &self,
        request: Request<Streaming<RecordingKept>>,
    ) -> std::result::Result<Response<Self::RecordingsStream>, Status> {
        let Some(identity) = self.ssh.clone() else {
            return Err(Status::unimplemented(
                "this simulated node has no key to sign with",
            ));
        };
        let (send, parts) = mpsc::channel(1);
        tokio::spawn(recorded::serve(
            self.n,
            identity,
            self.rounds.clone(),
            request.into_inner(),
            send,
        ));
        Ok(Response::new(Fed(parts)))
    }

    async fn session(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> std::result::Result<Response<Self::SessionStream>, Status> {
        let mut from = request.into_inner();
        let (send, frames) = mpsc::channel(1);
        if let Some(identity) = self.ssh.clone() {
            tokio::spawn(ssh_session(identity, from, send));
            return Ok(Response::new(Fed(frames)));
        }
        tokio::spawn(async move {
            while let Ok(Some(frame)) = from.message().await {
                let answer = match frame.kind {
                    Some(Kind::Dial(dial)) => Kind::Opened(Opened {
                        node: dial.node,
                        terminated: false,
                    }),
                    Some(kind) => kind,
                    None => continue,
                };
                if send.send(Ok(Frame { kind: Some(answer) })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Fed(frames)))
    }

    async fn control(
        &self,
        request: Request<Streaming<ToNode>>,
    ) -> std::result::Result<Response<Facts>, Status> {
        let mut from = request.into_inner();
        tokio::spawn(async move { while let Ok(Some(_)) = from.message().await {} });
        let _ = self.asked.try_send(());
        Ok(Response::new(Facts { told: 0 }))
    }
}

/// A connection to a node that speaks SSH.
async fn ssh_session(
    identity: Arc<ssh::Identity>,
    mut from: Streaming<Frame>,
    to: mpsc::Sender<std::result::Result<Frame, Status>>,
) {
    let mut server = ssh::Server::new(identity);
    let mut answers = Vec::new();
    while let Ok(Some(frame)) = from.message().await {
        let bytes = match frame.kind {
            Some(Kind::Dial(dial)) => {
                answers.push(Kind::Opened(Opened {
                    node: dial.node,
                    terminated: false,
                }));
                dial.ssh
            }
            Some(Kind::Ssh(bytes)) => bytes,
            _ => continue,
        };
        let Some(out) = server.turn(&bytes) else {
            return;
        };
        answers.extend((!out.is_empty()).then_some(Kind::Ssh(out)));
        for answer in answers.drain(..) {
            if to.send(Ok(Frame { kind: Some(answer) })).await.is_err() {
                return;
            }
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
