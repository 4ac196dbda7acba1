//! What idle tunnels and open sessions cost a proxy: a real one in a process of its own, and nodes over real TLS on
//! loopback. It prints the proxy's memory at each step, one JSON object a line. It never judges.
//!
//! ```text
//! bench-tunnels [COUNT]...       at these numbers of tunnels; then at 100 open sessions
//! ```
#![forbid(unsafe_code)]

use fleetgate_net::Credentials;
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::testing::{Cluster, name, now};
use fleetgate_net::tls::{self, Believe, Client, H2, PROXY, TUNNEL};
use fleetgate_net::x509::{Key, Leaf};
use fleetgate_policy::cluster::{Identity, Role, Selector, State, Subject};
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proto::v1::tunnel_server::{Tunnel, TunnelServer};
use fleetgate_proto::v1::{Dial, Frame, FromNode, NodesRequest, Opened, Signed, ToNode, frame::Kind};
use fleetgate_proxy::{Config, Server, identity};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Sessions that are opened at the end.
const SESSIONS: usize = 100;
/// Handshakes under way at once.
const AT_ONCE: usize = 64;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match args.first().map(String::as_str) {
        Some("proxy") => runtime.block_on(proxy(Path::new(&args[1]))),
        _ => {
            let counts: Vec<usize> = args
                .iter()
                .map(|arg| arg.parse())
                .collect::<std::result::Result<_, _>>()?;
            let counts = if counts.is_empty() {
                vec![100, 1_000, 10_000]
            } else {
                counts
            };
            runtime.block_on(nodes(&counts))
        }
    }
}

/// The proxy's process: says where it listens, and ends when its input does.
async fn proxy(directory: &Path) -> Result {
    let config = Config {
        // Nobody is there: what is measured needs none.
        auth: "127.0.0.1:1".to_owned(),
        state_directory: directory.to_owned(),
        sessions_per_user: 100_000,
        ..Config::default()
    };
    let server = Server::new(config)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    Ok(server.run(listener, std::future::pending()).await?)
}

/// The measured process.
struct Proxy {
    child: Child,
    address: SocketAddr,
    directory: std::path::PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Proxy {
    fn start(cluster: &Cluster) -> Result<Proxy> {
        let directory = std::env::temp_dir().join(format!("fleetgate-bench-{}", std::process::id()));
        let (state_key, _) = PrivateKey::generate(KeyType::Ed25519, "state")?;
        let mut state = State::new(name("test"));
        state.serial = 1;
        state.as_of = now();
        state.trust.tls_ca = vec![cluster.authority.certificate().der().to_vec()];
        state.trust.state_keys = vec![state_key.public().blob().to_vec()];
        let mut role = Role::new(name("dev"));
        role.nodes = vec![Selector::all()];
        role.logins = vec!["root".to_owned()];
        state.roles.insert(name("dev"), role);
        let document = state.to_json();
        let signed = Signed {
            signature: state_key.sign("ssh-ed25519", &State::signed(&document))?.into(),
            document: document.into(),
        };
        let (key, chain) = leaf(cluster, Subject::Proxy(name("p1")), PROXY)?;
        identity::install(&directory, &key, &chain, &signed)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("proxy")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("the proxy has no output")?;
        BufReader::new(out).read_line(&mut line)?;
        Ok(Proxy {
            child,
            address: line.trim().parse()?,
            directory,
        })
    }

    /// Its own memory (PSS), in bytes.
    fn memory(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Pss:"))
            .ok_or("no Pss")?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    async fn tls(
        &self,
        cluster: &Cluster,
        credentials: &Credentials,
        alpn: &[u8],
    ) -> Result<tls::Stream<TcpStream>> {
        let client = Client::new(&Believe::Trust(cluster.trust()), Some(credentials), &[alpn])?;
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        Ok(client.connect(PROXY, tcp).await?.0)
    }
}

async fn nodes(counts: &[usize]) -> Result {
    let cluster = Cluster::new();
    let proxy = Proxy::start(&cluster)?;
    let alice = cluster.user("alice", &["dev"]);
    let stream = proxy.tls(&cluster, &alice, H2).await?;
    let mut user = TransportClient::new(h2::connect(stream, Tuning::USER).await?);
    user.nodes(NodesRequest::default()).await?;
    let before = proxy.memory()?;
    println!("{{\"tunnels\":0,\"bytes\":{before}}}");
    // One key for all of them: what the proxy holds of a node does not depend on it.
    let mut there = 0;
    for count in counts {
        while there < *count {
            let some = AT_ONCE.min(count - there);
            let mut under_way = tokio::task::JoinSet::new();
            for number in there..there + some {
                let (key, chain) = leaf(
                    &cluster,
                    Subject::Node(name(&format!("n{number}"))),
                    &format!("n{number}.node.fleetgate"),
                )?;
                let stream = proxy
                    .tls(&cluster, &Credentials::new(key, &chain)?, TUNNEL)
                    .await?;
                let (known, reached) = tokio::sync::oneshot::channel();
                tokio::spawn(node(stream, known));
                under_way.spawn(reached);
            }
            while let Some(reached) = under_way.join_next().await {
                reached??;
            }
            there += some;
        }
        // Every one of them is in the registry when the proxy lists it.
        let listed = async |user: &mut TransportClient<h2::Channel>| -> Result<usize> {
            Ok(user
                .nodes(NodesRequest {
                    selector: "n0".to_owned(),
                })
                .await?
                .into_inner()
                .nodes
                .len())
        };
        while listed(&mut user).await? == 0 {}
        let bytes = proxy.memory()?;
        println!(
            "{{\"tunnels\":{there},\"bytes\":{bytes},\"each\":{}}}",
            (bytes.saturating_sub(before)) / there as u64
        );
    }
    let before = proxy.memory()?;
    let mut open = Vec::new();
    for number in 0..SESSIONS {
        let dial = Dial {
            node: format!("n{}", number % there),
            login: "root".to_owned(),
            ssh: vec![7; 2000].into(),
            ..Dial::default()
        };
        let (send, frames) = mpsc::channel(1);
        send.send(Frame {
            kind: Some(Kind::Dial(dial)),
        })
        .await?;
        let mut answers = user.dial(Fed(frames)).await?.into_inner();
        while let Some(frame) = answers.message().await? {
            if matches!(frame.kind, Some(Kind::Opened(_))) {
                break;
            }
        }
        open.push((send, answers));
    }
    let bytes = proxy.memory()?;
    println!(
        "{{\"sessions\":{SESSIONS},\"bytes\":{bytes},\"each\":{}}}",
        bytes.saturating_sub(before) / SESSIONS as u64
    );
    Ok(())
}

fn leaf(cluster: &Cluster, subject: Subject, dns: &str) -> Result<(Key, Vec<Vec<u8>>)> {
    let key = Key::generate();
    let leaf = cluster.authority.issue(&Leaf {
        public: key.public().spki(),
        names: &[dns.to_owned()],
        client: true,
        server: true,
        identity: Some(&Identity::of(&name("test"), subject, now())),
        validity: now() - 60..now() + 36_000,
    })?;
    Ok((key, vec![leaf, cluster.authority.certificate().der().to_vec()]))
}

async fn node(stream: tls::Stream<TcpStream>, known: tokio::sync::oneshot::Sender<()>) {
    let serving = Serving(std::sync::Mutex::new(Some(known)));
    let routes = Arc::new(Routes::new().with(TunnelServer::new(serving)));
    let caller = Caller {
        peer: None,
        address: None,
    };
    let _ = h2::serve(stream, caller, routes, Tuning::TUNNEL, std::future::pending()).await;
}

/// A node that says Opened and then nothing.
struct Serving(std::sync::Mutex<Option<tokio::sync::oneshot::Sender<()>>>);

/// A stream that is fed by hand.
struct Fed<T>(mpsc::Receiver<T>);

impl<T> Stream for Fed<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// What a node says, and the client's stream for as long.
struct Says<T, K>(Option<T>, K);

impl<T: Unpin, K: Unpin> Stream for Says<T, K> {
    type Item = std::result::Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Poll::Pending,
        }
    }
}

#[tonic::async_trait]
impl Tunnel for Serving {
    type SessionStream = Says<Frame, Streaming<Frame>>;
    type ControlStream = Says<FromNode, Streaming<ToNode>>;

    async fn session(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> std::result::Result<Response<Self::SessionStream>, Status> {
        let opened = Frame {
            kind: Some(Kind::Opened(Opened::default())),
        };
        Ok(Response::new(Says(Some(opened), request.into_inner())))
    }

    async fn control(
        &self,
        request: Request<Streaming<ToNode>>,
    ) -> std::result::Result<Response<Self::ControlStream>, Status> {
        let mut from = request.into_inner();
        // The first message is the state: the tunnel is carried.
        let _ = from.message().await?;
        if let Some(known) = self.0.lock().ok().and_then(|mut known| known.take()) {
            let _ = known.send(());
        }
        Ok(Response::new(Says(None, from)))
    }
}
