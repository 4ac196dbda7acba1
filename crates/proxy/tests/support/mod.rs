//! A small cluster in one process: a real proxy on a loopback port, an auth service and nodes made of the generated
//! servers, and users.

mod session;

pub use session::Session;

use bytes::Bytes;
use fleetgate_net::h2::{self, AUTH_MESSAGE, Caller, Channel, Routes, Tuning};
use fleetgate_net::testing::{Cluster, name, now};
use fleetgate_net::tls::{self, AUTH, Believe, Client, H2, PROXY, RELAY, Server, Shown, TUNNEL};
use fleetgate_net::x509::{Key, Leaf};
use fleetgate_net::{Credentials, Peer};
use fleetgate_policy::cluster::{Fresh, Identity, Lock, Locks, Role, Selector, State, Subject, Target};
use fleetgate_proto::v1::cluster_server::{self, ClusterServer};
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proto::v1::tunnel_server::{Tunnel, TunnelServer};
use fleetgate_proto::v1::{
    AuditFrom, AuditPosition, Dial, Empty, Frame, FromNode, NodeChange, NodeFacts, NodeReport, NodeStatement,
    Opened, ReachReport, RenewFor, Renewed, SignHostReply, SignHostRequest, SignLoginReply, SignLoginRequest,
    Signed, Statement, ToNode, WatchReply, WatchRequest, frame::Kind, from_node, to_node,
};
use fleetgate_proxy::{Config, identity};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// A stream that is fed by hand.
pub struct Fed<T>(pub mpsc::Receiver<T>);

impl<T> Stream for Fed<T> {
    type Item = T;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// The cluster.
pub struct World {
    pub cluster: Cluster,
    pub address: SocketAddr,
    pub directory: PathBuf,
    pub auth: Arc<Auth>,
    state_key: PrivateKey,
    state: Mutex<State>,
    config: Config,
    /// As whoever starts a proxy keeps it.
    listener: Mutex<Option<std::net::TcpListener>>,
    process: Mutex<Option<Process>>,
    /// Reports that [`World::node`] passed over.
    pub passed: Mutex<Vec<NodeReport>>,
}

/// A proxy's own.
struct Process {
    drain: Option<oneshot::Sender<()>>,
    stop: oneshot::Sender<()>,
    stopped: oneshot::Receiver<()>,
}

/// A proxy that drains.
pub struct Drains(oneshot::Receiver<()>, #[allow(dead_code)] oneshot::Sender<()>);

impl Drains {
    /// Waits for its end.
    pub async fn ended(self) {
        self.0.await.unwrap();
    }
}

/// What auth was told, and what it tells.
pub struct Auth {
    pub replies: watch::Sender<WatchReply>,
    pub nodes: mpsc::UnboundedSender<NodeChange>,
    told_nodes: Mutex<Option<mpsc::UnboundedReceiver<NodeChange>>>,
    pub reports: mpsc::UnboundedSender<NodeReport>,
    pub reported: tokio::sync::Mutex<mpsc::UnboundedReceiver<NodeReport>>,
    /// So many reports are not taken.
    pub refuses: AtomicU64,
    pub reaches: mpsc::UnboundedSender<ReachReport>,
    pub reached: tokio::sync::Mutex<mpsc::UnboundedReceiver<ReachReport>>,
    pub batches: mpsc::UnboundedSender<AuditFrom>,
    pub audited: tokio::sync::Mutex<mpsc::UnboundedReceiver<AuditFrom>>,
    /// Handshakes that go on.
    pub handshakes: AtomicU64,
    /// How long each takes, in milliseconds.
    pub handshake: AtomicU64,
    /// So many batches of nodes are not kept.
    pub keeps_not: AtomicU64,
}

impl World {
    /// Alice has the role dev: root on every node.
    pub async fn new(label: &str) -> World {
        World::with(label, |_| {}).await
    }

    pub async fn with(label: &str, change: impl FnOnce(&mut Config)) -> World {
        let cluster = Cluster::new();
        let (state_key, _) = PrivateKey::generate(KeyType::Ed25519, "state").unwrap();
        let mut state = State::new(name("test"));
        state.serial = 1;
        state.as_of = now();
        state.trust.tls_ca = vec![cluster.authority.certificate().der().to_vec()];
        state.trust.state_keys = vec![state_key.public().blob().to_vec()];
        let mut role = Role::new(name("dev"));
        role.nodes = vec![Selector::all()];
        role.logins = vec!["root".to_owned()];
        state.roles.insert(name("dev"), role);

        let (reports, reported) = mpsc::unbounded_channel();
        let (reaches, reached) = mpsc::unbounded_channel();
        let (batches, audited) = mpsc::unbounded_channel();
        let (nodes, told_nodes) = mpsc::unbounded_channel();
        let whole = NodeChange {
            begin: true,
            complete: true,
            ..NodeChange::default()
        };
        nodes.send(whole).unwrap();
        let first = sign(&state_key, &State::signed(&state.to_json()), state.to_json());
        let auth = Arc::new(Auth {
            replies: watch::Sender::new(WatchReply {
                state: Some(first.clone()),
                fresh: None,
            }),
            nodes,
            told_nodes: Some(told_nodes).into(),
            reports,
            reported: reported.into(),
            refuses: AtomicU64::new(0),
            reaches,
            reached: reached.into(),
            batches,
            audited: audited.into(),
            handshakes: AtomicU64::new(0),
            handshake: AtomicU64::new(0),
            keeps_not: AtomicU64::new(0),
        });
        let auth_address = serve_auth(&cluster, auth.clone()).await;

        let directory = std::env::temp_dir().join(format!("fleetgate-proxy-{}-{label}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let (key, chain) = leaf(&cluster, Subject::Proxy(name("p1")), PROXY);
        identity::install(&directory, &key, &chain, &first).unwrap();
        let mut config = Config {
            auth: auth_address.to_string(),
            state_directory: directory.clone(),
            ..Config::default()
        };
        change(&mut config);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let process = Some(Process::begin(config.clone(), &listener)).into();
        World {
            cluster,
            address,
            directory,
            auth,
            state_key,
            state: state.into(),
            config,
            listener: Some(listener).into(),
            process,
            passed: Mutex::default(),
        }
    }

    /// Restarts the proxy: the old process drains, and a new one has the listening socket.
    pub fn restart(&self) -> Drains {
        let mut process = self.process.lock().unwrap();
        let old = process.take().unwrap();
        let _ = old.drain.unwrap().send(());
        let listener = self.listener.lock().unwrap();
        *process = Some(Process::begin(self.config.clone(), listener.as_ref().unwrap()));
        Drains(old.stopped, old.stop)
    }

    /// Changes the state, and has auth tell it.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap();
        change(&mut state);
        state.serial += 1;
        state.as_of = now();
        let state = sign(&self.state_key, &State::signed(&state.to_json()), state.to_json());
        self.auth.replies.send_replace(WatchReply {
            state: Some(state),
            fresh: None,
        });
    }

    pub fn fresh(&self) {
        let fresh = Fresh {
            serial: self.state.lock().unwrap().serial,
            as_of: now() + 1,
        };
        let fresh = sign(&self.state_key, &Fresh::signed(&fresh.to_json()), fresh.to_json());
        self.auth.replies.send_replace(WatchReply {
            state: None,
            fresh: Some(fresh),
        });
    }

    pub fn lock(&self, target: Target) {
        self.lock_serial_before(target, None);
    }

    pub fn lock_serial_before(&self, target: Target, serial_before: Option<u64>) {
        self.change(|state| {
            state.locks = Locks::new([Lock {
                id: name("l1"),
                target,
                serial_before,
                expires: None,
                reason: "stolen laptop".to_owned(),
                created: now(),
                by: "bob".to_owned(),
            }]);
        });
    }

    /// TLS to the proxy.
    pub async fn tls(
        &self,
        credentials: Option<&Credentials>,
        alpn: &[u8],
    ) -> (tls::Stream<TcpStream>, Peer) {
        let client = Client::new(&Believe::Trust(self.cluster.trust()), credentials, &[alpn]).unwrap();
        let tcp = TcpStream::connect(self.address).await.unwrap();
        client.connect(PROXY, tcp).await.unwrap()
    }

    /// A user's client.
    pub async fn user(&self, credentials: Option<&Credentials>) -> TransportClient<Channel> {
        let (stream, _) = self.tls(credentials, H2).await;
        TransportClient::new(h2::connect(stream, Tuning::USER).await.unwrap())
    }

    pub async fn alice(&self) -> TransportClient<Channel> {
        self.user(Some(&self.cluster.user("alice", &["dev"]))).await
    }

    /// A node whose tunnel is there.
    pub async fn node(&self, node: &str, behaviour: Behaviour) -> Node {
        let node = self.dialled(node, behaviour).await;
        // It is there when auth hears of it.
        loop {
            let report = self.auth.reported.lock().await.recv().await.unwrap();
            let said = report.statement.as_ref();
            let said = said.and_then(|s| NodeStatement::read(&s.document).ok());
            let facts = said.and_then(|said| said.facts);
            if report.connected && facts.is_some_and(|facts| facts.version == "1") {
                return node;
            }
            self.passed.lock().unwrap().push(report);
        }
    }

    /// A node that has made its connection.
    pub async fn dialled(&self, node: &str, behaviour: Behaviour) -> Node {
        let (key, chain) = leaf(&self.cluster, Subject::Node(name(node)), &tls::node_name(node));
        let credentials = Credentials::new(key, &chain).unwrap();
        let (stream, peer) = self.tls(Some(&credentials), TUNNEL).await;
        assert_eq!(peer.alpn.as_deref(), Some(TUNNEL));
        let (told, states) = mpsc::unbounded_channel();
        let (say, says) = mpsc::channel(16);
        let (arrive, dials) = mpsc::unbounded_channel();
        let (leave_session, left) = mpsc::unbounded_channel();
        let read = Arc::new(AtomicU64::new(0));
        let answers = Arc::new(Notify::new());
        let serving = Serving {
            behaviour,
            told,
            says: Mutex::new(Some(says)),
            arrive,
            leave: leave_session,
            read: read.clone(),
            answers: answers.clone(),
        };
        let service = TunnelServer::new(serving).max_decoding_message_size(AUTH_MESSAGE);
        let routes = Arc::new(Routes::new().with(service));
        let caller = Caller {
            peer: Some(Arc::new(peer)),
            address: None,
        };
        let (gone, ended) = oneshot::channel();
        let (leave, leaving) = oneshot::channel::<()>();
        tokio::spawn(async move {
            tokio::select! {
                end = h2::serve(stream, caller, routes, Tuning::TUNNEL, std::future::pending()) => { let _ = end; }
                _ = leaving => {}
            }
            let _ = gone.send(());
        });
        let facts = NodeFacts {
            labels: [("env".to_owned(), "test".to_owned())].into(),
            version: "1".to_owned(),
            ..NodeFacts::default()
        };
        say.send(FromNode {
            kind: Some(from_node::Kind::Facts(facts.clone())),
        })
        .await
        .unwrap();
        let statement = NodeStatement {
            facts: Some(facts),
            ..NodeStatement::default()
        };
        say.send(FromNode {
            kind: Some(from_node::Kind::Statement(Statement {
                document: statement.document(),
                ..Statement::default()
            })),
        })
        .await
        .unwrap();
        Node {
            told: states,
            say,
            dials,
            left,
            read,
            answers,
            vanish: Some(leave),
            ended: Some(ended),
        }
    }

    /// The next audit event of this kind.
    pub async fn event(&self, kind: &str) -> serde_json::Value {
        loop {
            let batch = self
                .auth
                .audited
                .lock()
                .await
                .recv()
                .await
                .unwrap()
                .batch
                .unwrap();
            for line in batch
                .lines
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let event: serde_json::Value = serde_json::from_slice(line).unwrap();
                if event["event"] == kind {
                    return event;
                }
            }
        }
    }

    /// Stops the proxy, and waits until it has stopped. Nobody keeps its listener.
    pub async fn stop(&self) {
        self.listener.lock().unwrap().take();
        let process = self.process.lock().unwrap().take().unwrap();
        let _ = process.stop.send(());
        process.stopped.await.unwrap();
    }
}

impl Process {
    fn begin(config: Config, listener: &std::net::TcpListener) -> Process {
        let (drain, draining) = oneshot::channel::<()>();
        let (stop, stopping) = oneshot::channel::<()>();
        let (tell, stopped) = oneshot::channel();
        let listener = listener.try_clone().unwrap();
        let server = fleetgate_proxy::Server::new(config).unwrap();
        // A thread of its own, as the process that it is.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let stop = async { _ = stopping.await };
                let drain = async {
                    if draining.await.is_err() {
                        std::future::pending().await
                    }
                };
                server.run(listener, drain, stop).await.unwrap();
            });
            let _ = tell.send(());
        });
        Process {
            drain: Some(drain),
            stop,
            stopped,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn sign(key: &PrivateKey, message: &[u8], document: Vec<u8>) -> Signed {
    Signed {
        signature: key.sign("ssh-ed25519", message).unwrap().into(),
        document: document.into(),
    }
}

pub fn leaf(cluster: &Cluster, subject: Subject, dns: &str) -> (Key, Vec<Vec<u8>>) {
    let key = Key::generate();
    let leaf = cluster.authority.issue(&Leaf {
        public: key.public().spki(),
        names: &[dns.to_owned()],
        client: true,
        server: true,
        identity: Some(&Identity::of(&name("test"), subject, now())),
        validity: now() - 60..now() + 3600,
    });
    (
        key,
        vec![leaf.unwrap(), cluster.authority.certificate().der().to_vec()],
    )
}

/// Fewer than auth's own 64, and as many as a proxy has at once: what is beyond is turned away.
const HANDSHAKES_OF_ONE: u64 = 26;

async fn serve_auth(cluster: &Cluster, auth: Arc<Auth>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let own = cluster.server(AUTH, Subject::Auth);
    let server = Server::new(
        Shown::new().name(AUTH, &own),
        Some(&cluster.trust()),
        &[H2, RELAY],
    )
    .unwrap();
    let routes = Arc::new(Routes::new().with(ClusterServer::from_arc(auth.clone())));
    tokio::spawn(async move {
        while let Ok((tcp, address)) = listener.accept().await {
            let (server, routes, auth) = (server.clone(), routes.clone(), auth.clone());
            tokio::spawn(async move {
                // As auth bounds them by the address.
                let others = auth.handshakes.fetch_add(1, SeqCst);
                let accepted = match others < HANDSHAKES_OF_ONE {
                    true => {
                        tokio::time::sleep(Duration::from_millis(auth.handshake.load(SeqCst))).await;
                        server.accept(tcp).await.ok()
                    }
                    false => None,
                };
                auth.handshakes.fetch_sub(1, SeqCst);
                let Some((mut stream, peer)) = accepted else {
                    return;
                };
                let caller = |peer, address| Caller {
                    peer: Some(Arc::new(peer)),
                    address: Some(address),
                };
                let ever = std::future::pending();
                if peer.alpn.as_deref() != Some(RELAY) {
                    let _ = h2::serve(stream, caller(peer, address), routes, Tuning::AUTH, ever).await;
                    return;
                }
                let is_proxy = peer
                    .identity
                    .is_some_and(|i| matches!(i.subject, Subject::Proxy(_)));
                assert!(is_proxy, "somebody else passes connections on");
                let Ok(source) = fleetgate_net::relay::read(&mut stream).await else {
                    return;
                };
                let Ok((stream, peer)) = server.accept(stream).await else {
                    return;
                };
                let _ = h2::serve(stream, caller(peer, source), routes, Tuning::AUTH, ever).await;
            });
        }
    });
    address
}

/// Follows a watch.
pub struct Following<T>(Pin<Box<dyn Future<Output = (T, watch::Receiver<T>)> + Send>>);

impl<T: Clone + Send + Sync + 'static> Following<T> {
    fn new(mut watched: watch::Receiver<T>) -> Following<T> {
        watched.mark_changed();
        Following(Box::pin(next(watched)))
    }
}

async fn next<T: Clone>(mut watched: watch::Receiver<T>) -> (T, watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    let value = watched.borrow_and_update().clone();
    (value, watched)
}

impl<T: Clone + Send + Sync + 'static> Stream for Following<T> {
    type Item = Result<T, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((value, watched)) => {
                self.0 = Box::pin(next(watched));
                Poll::Ready(Some(Ok(value)))
            }
        }
    }
}

/// What is sent by hand.
pub struct Sent<T>(mpsc::UnboundedReceiver<T>);

impl<T> Stream for Sent<T> {
    type Item = Result<T, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|item| item.map(Ok))
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Auth {
    type WatchStream = Following<WatchReply>;
    type WatchNodesStream = Sent<NodeChange>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Following::new(self.replies.subscribe())))
    }

    async fn watch_nodes(&self, _: Request<WatchRequest>) -> Result<Response<Sent<NodeChange>>, Status> {
        let told = self.told_nodes.lock().unwrap().take();
        told.map(|told| Response::new(Sent(told)))
            .ok_or_else(|| Status::unavailable("once"))
    }

    async fn report(&self, request: Request<NodeReport>) -> Result<Response<Empty>, Status> {
        let _ = self.reports.send(request.into_inner());
        let left = self
            .refuses
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(Status::permission_denied("a later one is known")),
            Err(_) => Ok(Response::new(Empty {})),
        }
    }

    async fn report_reach(&self, request: Request<ReachReport>) -> Result<Response<Empty>, Status> {
        let _ = self.reaches.send(request.into_inner());
        Ok(Response::new(Empty {}))
    }

    async fn renew(&self, request: Request<RenewFor>) -> Result<Response<Renewed>, Status> {
        Ok(Response::new(Renewed {
            refused: format!("not today, {}", request.into_inner().name),
            ..Renewed::default()
        }))
    }

    async fn audit(&self, request: Request<AuditFrom>) -> Result<Response<AuditPosition>, Status> {
        let from = request.into_inner();
        let batch = from.batch.clone().unwrap();
        let key = fleetgate_net::x509::Certificate::read(&batch.certificate)
            .unwrap()
            .public_key()
            .unwrap();
        let signed = fleetgate_proto::signed::audit(&from.source, &batch);
        key.verify(&signed, &batch.signature)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        let keeps_not = || {
            self.keeps_not
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        };
        if from.source != "p1" && keeps_not().is_ok() {
            return Err(Status::unavailable("the disk is full"));
        }
        let position = AuditPosition {
            offset: batch.offset + batch.lines.len() as u64,
            log: batch.log,
        };
        let _ = self.batches.send(from);
        Ok(Response::new(position))
    }

    async fn sign_login(&self, _: Request<SignLoginRequest>) -> Result<Response<SignLoginReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn sign_host(&self, _: Request<SignHostRequest>) -> Result<Response<SignHostReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}

/// What a node does with a session.
#[derive(Clone, Copy, PartialEq)]
pub enum Behaviour {
    /// Says Opened, then sends everything back; after the client's end, its own.
    Echo,
    /// Says Opened, then sends without an end.
    Pour,
    /// Reads nothing.
    Stall,
    /// Says Opened and its end, and ends the stream when the proxy has ended its side.
    End,
    /// Answers when [`Node::answers`] lets it, and then as an echo.
    Late,
    /// Never opens its Control stream.
    Mute,
    /// Reads what the client says, and takes the session when [`Node::answers`] lets it no more: it leaves.
    Leave,
    /// Is asked for its Control stream, which [`Node::left`] tells, and opens it when [`Node::answers`] lets it.
    Slow,
}

/// A node's side that the test holds.
pub struct Node {
    pub told: mpsc::UnboundedReceiver<ToNode>,
    pub say: mpsc::Sender<FromNode>,
    pub dials: mpsc::UnboundedReceiver<Dial>,
    /// Sessions that the proxy has left: whether it ended its side, or reset the stream.
    pub left: mpsc::UnboundedReceiver<bool>,
    pub read: Arc<AtomicU64>,
    pub answers: Arc<Notify>,
    pub vanish: Option<oneshot::Sender<()>>,
    pub ended: Option<oneshot::Receiver<()>>,
}

impl Node {
    /// Waits until the node was told of the lock that [`World::lock`] makes: the proxy has it by then.
    pub async fn hears_of_the_lock(&mut self) {
        loop {
            let told = self.told.recv().await.expect("the node hears of the lock");
            if matches!(told.kind, Some(to_node::Kind::State(state))
                if String::from_utf8_lossy(&state.document).contains("stolen laptop"))
            {
                return;
            }
        }
    }
}

struct Serving {
    behaviour: Behaviour,
    told: mpsc::UnboundedSender<ToNode>,
    says: Mutex<Option<mpsc::Receiver<FromNode>>>,
    arrive: mpsc::UnboundedSender<Dial>,
    leave: mpsc::UnboundedSender<bool>,
    read: Arc<AtomicU64>,
    answers: Arc<Notify>,
}

/// Frames of a task.
pub struct Frames(mpsc::Receiver<Frame>);

impl Stream for Frames {
    type Item = Result<Frame, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

pub struct Says(mpsc::Receiver<FromNode>);

impl Stream for Says {
    type Item = Result<FromNode, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|says| says.map(Ok))
    }
}

#[tonic::async_trait]
impl Tunnel for Serving {
    type SessionStream = Frames;
    type ControlStream = Says;

    async fn session(&self, request: Request<Streaming<Frame>>) -> Result<Response<Frames>, Status> {
        let mut from = request.into_inner();
        let (send, frames) = mpsc::channel(1);
        let (behaviour, arrive, read) = (self.behaviour, self.arrive.clone(), self.read.clone());
        let leave = self.leave.clone();
        let Some(Frame {
            kind: Some(Kind::Dial(dial)),
        }) = from.message().await.unwrap()
        else {
            panic!("the first frame is the dial");
        };
        let first = dial.ssh.clone();
        let node = dial.node.clone();
        let _ = arrive.send(dial);
        if behaviour == Behaviour::Late {
            self.answers.notified().await;
        }
        if behaviour == Behaviour::Leave {
            loop {
                tokio::select! {
                    () = self.answers.notified() => return Err(Status::unavailable("it leaves")),
                    Ok(Some(frame)) = from.message() => if let Some(Kind::Ssh(bytes)) = &frame.kind {
                        read.fetch_add(bytes.len() as u64, Relaxed);
                    },
                }
            }
        }
        tokio::spawn(async move {
            let opened = Kind::Opened(Opened {
                node,
                terminated: false,
            });
            let _ = send.send(frame(opened)).await;
            match behaviour {
                Behaviour::Leave => {}
                Behaviour::Echo | Behaviour::Late | Behaviour::Mute | Behaviour::Slow => {
                    let _ = send.send(frame(Kind::Ssh(first))).await;
                    let is_ended = loop {
                        let frame = match from.message().await {
                            Ok(Some(frame)) => frame,
                            end => break end.is_ok(),
                        };
                        if let Some(Kind::Ssh(bytes)) = &frame.kind {
                            read.fetch_add(bytes.len() as u64, Relaxed);
                        }
                        if send.send(frame).await.is_err() {
                            break false;
                        }
                    };
                    let _ = leave.send(is_ended);
                }
                Behaviour::Pour => {
                    let lump = Bytes::from(vec![7; 32 * 1024]);
                    while send.send(frame(Kind::Ssh(lump.clone()))).await.is_ok() {
                        read.fetch_add(lump.len() as u64, Relaxed);
                    }
                    let _ = leave.send(false);
                }
                Behaviour::End => {
                    let _ = send.send(frame(Kind::SshEnd(true))).await;
                    while from.message().await.unwrap().is_some() {}
                }
                Behaviour::Stall => {
                    // Until the proxy has enough of it.
                    send.closed().await;
                    drop(from);
                }
            }
        });
        Ok(Response::new(Frames(frames)))
    }

    async fn control(&self, request: Request<Streaming<ToNode>>) -> Result<Response<Says>, Status> {
        if self.behaviour == Behaviour::Mute {
            return std::future::pending().await;
        }
        if self.behaviour == Behaviour::Slow {
            let _ = self.leave.send(true);
            self.answers.notified().await;
        }
        let mut from = request.into_inner();
        let told = self.told.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = from.message().await {
                let _ = told.send(message);
            }
        });
        Ok(Response::new(Says(self.says.lock().unwrap().take().unwrap())))
    }
}

pub fn frame(kind: Kind) -> Frame {
    Frame { kind: Some(kind) }
}

pub fn ssh(bytes: impl Into<Bytes>) -> Frame {
    frame(Kind::Ssh(bytes.into()))
}

pub fn dial_as(node: &str, login: &str, first: &[u8]) -> Frame {
    frame(Kind::Dial(Dial {
        node: node.to_owned(),
        login: login.to_owned(),
        ssh: first.to_vec().into(),
        ..Dial::default()
    }))
}
