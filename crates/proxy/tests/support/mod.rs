//! A small cluster in one process: a real proxy on a loopback port, an auth service and nodes made of the generated
//! servers, and users.

pub mod auth;
pub mod node;
mod session;

pub use auth::Auth;
pub use node::{Behaviour, Node};
pub use session::Session;

use bytes::Bytes;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::testing::{Cluster, name, now};
use fleetgate_net::tls::{self, Believe, Client, H2, PROXY};
use fleetgate_net::x509::{Key, Leaf};
use fleetgate_net::{Credentials, Peer};
use fleetgate_policy::cluster::{Fresh, Identity, Lock, Locks, Role, Selector, State, Subject, Target};
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proto::v1::{Denied, Dial, Frame, NodeReport, Signed, WatchReply, frame::Kind};
use fleetgate_proxy::{Config, identity};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tonic::codegen::tokio_stream::Stream;

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

        let first = sign(&state_key, &State::signed(&state.to_json()), state.to_json());
        let auth = Arc::new(Auth::new(first.clone()));
        let auth_address = auth::serve(&cluster, auth.clone()).await;

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

/// What a frame denies.
pub fn denied(kind: Option<Kind>) -> Denied {
    match kind {
        Some(Kind::Denied(denied)) => denied,
        other => panic!("not denied: {other:?}"),
    }
}

/// A connection to the proxy from 127.0.0.`host`.
pub async fn from(world: &World, host: u8) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, host], 0).into())?;
    socket.connect(world.address).await
}

/// Whether the proxy makes a TLS connection with 127.0.0.`host`.
pub async fn is_served(world: &World, host: u8, own: Option<&Credentials>) -> bool {
    let client = Client::new(&Believe::Trust(world.cluster.trust()), own, &[H2]).unwrap();
    let tcp = from(world, host).await.unwrap();
    client.connect("proxy.fleetgate", tcp).await.is_ok()
}
