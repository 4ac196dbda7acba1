//! A cluster made by hand, a machine that joined it, and a proxy of it that the test plays: TLS, HTTP/2 and the tunnel's
//! service over loopback. What the proxy is told to carry it carries unread.

use crate::service::ssh;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{self, Credentials, Shown, Trust};
use fleetgate_net::x509::{Authority, Key, Leaf};
use fleetgate_node::config::cluster::SignedState;
use fleetgate_node::identity::{NodeIdentity, save_tls_key};
use fleetgate_policy::cluster::{Fresh, Identity, Name, State, Subject};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{Dial, Frame, FromNode, Span, ToNode, Via};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

/// The node's name.
pub const NODE: &str = "web1";
/// What a test waits for at most; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster's keys, and the node's.
pub struct Cluster {
    /// Of TLS certificates.
    pub authority: Authority,
    /// Signs states.
    pub state_key: PrivateKey,
    /// Signs hosts' certificates.
    pub host_ca: PrivateKey,
    /// The node's TLS key.
    pub key: Key,
    /// As it was signed last.
    pub state: State,
}

impl Cluster {
    /// The cluster `home`, whose state knows its authorities and nobody else.
    pub fn new() -> Cluster {
        let authority = Authority::generate("home", life(100_000)).expect("made");
        let key = || PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0;
        let (state_key, host_ca) = (key(), key());
        let mut state = State::new(name("home"));
        (state.serial, state.as_of) = (1, now());
        state.trust.state_keys = vec![state_key.public().blob().to_vec()];
        state.trust.host_ca = vec![host_ca.public().blob().to_vec()];
        state.trust.tls_ca = vec![authority.certificate().der().to_vec()];
        Cluster {
            authority,
            state_key,
            host_ca,
            key: Key::generate(),
            state,
        }
    }

    /// A certificate of the authority's for this key.
    pub fn issue(&self, key: &Key, dns: &str, subject: Subject, validity: Range<u64>) -> Vec<u8> {
        let identity = Identity::of(&name("home"), subject, now());
        self.authority
            .issue(&Leaf {
                public: key.public().spki(),
                names: &[dns.to_owned()],
                client: true,
                server: true,
                identity: Some(&identity),
                validity,
            })
            .expect("issued")
    }

    /// The node's.
    pub fn node_certificate(&self, validity: Range<u64>) -> Vec<u8> {
        let subject = Subject::Node(name(NODE));
        self.issue(&self.key, &tls::node_name(NODE), subject, validity)
    }

    /// The state as it is now, signed.
    pub fn signed(&self) -> SignedState {
        sign(&self.state_key, self.state.to_json(), State::signed)
    }

    /// The same after a change.
    pub fn next(&mut self, change: impl FnOnce(&mut State)) -> SignedState {
        self.state.serial += 1;
        self.state.as_of = now();
        change(&mut self.state);
        self.signed()
    }

    /// A sign that it holds.
    pub fn fresh(&self) -> SignedState {
        let fresh = Fresh {
            serial: self.state.serial,
            as_of: now(),
        };
        sign(&self.state_key, fresh.to_json(), Fresh::signed)
    }

    /// Writes what `fleetgate join` writes.
    pub fn join(&self, state_directory: &Path, proxies: &[SocketAddr], validity: Range<u64>) {
        let joined = NodeIdentity {
            cluster: "home".into(),
            node: NODE.into(),
            proxies: proxies.iter().map(ToString::to_string).collect(),
            tls_chain: vec![self.node_certificate(validity)],
            host_certificates: Vec::new(),
            labels: Default::default(),
        };
        joined.save(state_directory).expect("written");
        save_tls_key(state_directory, self.key.pkcs8()).expect("written");
        self.signed().save(state_directory).expect("written");
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

/// A document signed by this key.
pub fn sign(key: &PrivateKey, document: Vec<u8>, with: fn(&[u8]) -> Vec<u8>) -> SignedState {
    let signature = key.sign("ssh-ed25519", &with(&document)).expect("signed");
    SignedState { document, signature }
}

/// A name.
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

/// Unix seconds.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// From a while ago, for so long.
pub fn life(seconds: u64) -> Range<u64> {
    now() - 100..now() + seconds
}

/// Waits, with an end.
pub async fn soon<T>(what: &str, it: impl Future<Output = T>) -> T {
    timeout(PATIENCE, it)
        .await
        .unwrap_or_else(|_| panic!("it takes too long: {what}"))
}

/// Runs `test` on a runtime of the calling thread's, whose network is the thread's own.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test)
}

/// A proxy that waits for nodes.
pub struct Proxy {
    listener: TcpListener,
    server: tls::Server,
    /// Where.
    pub address: SocketAddr,
}

impl Proxy {
    /// On a free port of loopback.
    pub async fn new(cluster: &Cluster) -> Proxy {
        let key = Key::generate();
        let chain = [cluster.issue(&key, tls::PROXY, Subject::Proxy(name("p1")), life(100_000))];
        let credentials = Credentials::new(key, &chain).expect("good");
        let trust = Trust::new([cluster.authority.certificate().der()]).expect("good");
        let shown = Shown::new().name(tls::PROXY, &credentials);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(loopback).await.expect("a free port");
        Proxy {
            address: listener.local_addr().expect("bound"),
            listener,
            server: tls::Server::new(shown, Some(&trust), &[tls::TUNNEL]).expect("good"),
        }
    }

    /// The next node.
    pub async fn joined(&self) -> Channel {
        let (io, _) = soon("a node dials", self.listener.accept())
            .await
            .expect("accepted");
        let (stream, peer) = soon("TLS", self.server.accept::<TcpStream>(io))
            .await
            .expect("TLS");
        let is_node = |i: &Identity| i.subject == Subject::Node(name(NODE));
        assert!(peer.identity.as_ref().is_some_and(is_node));
        h2::connect(stream, Tuning::TUNNEL).await.expect("HTTP/2")
    }
}

/// The cluster's stream with a node.
pub struct Control {
    to: mpsc::Sender<ToNode>,
    from: Streaming<FromNode>,
}

impl Control {
    /// Opens it.
    pub async fn new(channel: &Channel) -> Control {
        let (to, words) = mpsc::channel(4);
        let mut client = TunnelClient::new(channel.clone());
        let from = soon("the control stream", client.control(Frames(words))).await;
        Control {
            to,
            from: from.expect("a stream").into_inner(),
        }
    }

    /// The next word of the node's for which `pick` has an answer.
    pub async fn hear<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(fleetgate_proto::v1::from_node::Kind) -> Option<T>,
    ) -> T {
        loop {
            let word = soon(what, self.from.message())
                .await
                .expect("a word")
                .expect("a word");
            if let Some(found) = word.kind.and_then(&mut pick) {
                return found;
            }
        }
    }

    /// Waits until the node has ended it.
    pub async fn ended(&mut self) {
        while let Ok(Some(_)) = soon("the end of the control stream", self.from.message()).await {}
    }

    /// Says a word.
    pub async fn say(&self, kind: fleetgate_proto::v1::to_node::Kind) {
        let word = ToNode { kind: Some(kind) };
        soon("room", self.to.send(word)).await.expect("it listens");
    }
}

/// A listener on loopback whose connections go to the node, each as a session with this client's address.
pub struct Bridge {
    /// Where.
    pub address: SocketAddr,
    /// Spans that came.
    pub spans: mpsc::UnboundedReceiver<Vec<Span>>,
}

impl Bridge {
    /// Serves in the background, as long as the runtime runs.
    pub async fn new(channel: Channel, source: &'static str) -> Bridge {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(loopback).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (tell, spans) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                tokio::spawn(carry(io, channel.clone(), source, tell.clone()));
            }
        });
        Bridge { address, spans }
    }
}

/// OpenSSH's client that runs a command at this address.
pub fn ssh_by(address: SocketAddr, command: &str) -> Command {
    let port = address.port().to_string();
    let mut ssh = ssh("ada");
    ssh.args(["-p", &port])
        .args(["-o", "HostKeyAlias=gate.test", "-o", "HostName=127.0.0.1"])
        .args([
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "StrictHostKeyChecking=no",
        ])
        .args(["gate", command]);
    ssh
}

/// What came of a command by OpenSSH's client to this address. It waits on a thread of its own, so that the proxy on this
/// one goes on.
pub async fn tried_by(address: SocketAddr, command: &'static str) -> Output {
    let (done, output) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let out = ssh_by(address, command).output();
        let _ = done.send(out.expect("ssh starts"));
    });
    soon("ssh", output).await.expect("it ended")
}

/// The same of one that has to succeed: its output.
pub async fn by(address: SocketAddr, command: &'static str) -> String {
    let out = tried_by(address, command).await;
    assert!(
        out.status.success(),
        "{command}: {}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

async fn carry(
    io: TcpStream,
    channel: Channel,
    source: &'static str,
    tell: mpsc::UnboundedSender<Vec<Span>>,
) {
    let (to, frames) = mpsc::channel(1);
    let (mut read, mut write) = io.into_split();
    let up = async move {
        let mut room = vec![0; 16 << 10];
        // The first flight travels with Dial, as a proxy's would.
        let mut first = true;
        loop {
            let n = read.read(&mut room).await.unwrap_or(0);
            let bytes = room[..n].to_vec().into();
            let kind = match (n, std::mem::take(&mut first)) {
                (0, _) => Kind::SshEnd(true),
                (_, false) => Kind::Ssh(bytes),
                (_, true) => Kind::Dial(Dial {
                    node: NODE.into(),
                    ssh: bytes,
                    explain: true,
                    via: Some(Via {
                        source: source.into(),
                        proxy: "p1".into(),
                        user: "ann".into(),
                    }),
                    ..Dial::default()
                }),
            };
            let frame = Frame { kind: Some(kind) };
            if to.send(frame).await.is_err() || n == 0 {
                return;
            }
        }
    };
    let down = async move {
        let mut client = TunnelClient::new(channel);
        let Ok(from) = client.session(Frames(frames)).await else {
            return;
        };
        let mut from = from.into_inner();
        while let Ok(Some(frame)) = from.message().await {
            match frame.kind {
                Some(Kind::Ssh(bytes)) if write.write_all(&bytes).await.is_err() => return,
                Some(Kind::Spans(spans)) => drop(tell.send(spans.spans)),
                _ => {}
            }
        }
    };
    tokio::select! {
        () = down => {}
        () = async { up.await; std::future::pending().await } => {}
    }
}

/// A channel as a stream of messages.
struct Frames<T>(mpsc::Receiver<T>);

impl<T> tonic::codegen::tokio_stream::Stream for Frames<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}
