//! A proxy made of `net` and `proto`, a monitor made of a socket, and the tunnel between them.

use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{self, Credentials, Shown, Trust};
use fleetgate_net::x509::{Authority, Key, Leaf};
use fleetgate_policy::cluster::{Identity, Name, Subject};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{Dial, Frame, Via};
use fleetgate_sys::{Errno, Fd, process, socket};
use fleetgate_wire::node::tunnel::{
    Credentials as Wire, FromTunnel, Label, NodeDescription, Proxy as Dialled, Settings, ToTunnel,
};
use fleetgate_wire::node::{Blob, MAX_FRAME};
use std::ffi::CString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

/// What a test waits for at most; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const NODE: &str = "web1";

/// Waits, with an end.
pub async fn soon<T>(what: &str, it: impl Future<Output = T>) -> T {
    timeout(PATIENCE, it)
        .await
        .unwrap_or_else(|_| panic!("it takes too long: {what}"))
}

/// A cluster's authority and the node's key, which the test keeps as the monitor does.
pub struct Cluster {
    pub authority: Authority,
    pub key: Key,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster {
            authority: Authority::generate("home", life()).expect("made"),
            key: Key::generate(),
        }
    }

    pub fn issue(&self, key: &Key, name: &str, subject: Subject) -> Vec<u8> {
        let home = Name::parse("home").expect("a name");
        let identity = Identity {
            serial: 7,
            ..Identity::of(&home, subject, now())
        };
        self.authority
            .issue(&Leaf {
                public: key.public().spki(),
                names: &[name.to_owned()],
                client: true,
                server: true,
                identity: Some(&identity),
                validity: life(),
            })
            .expect("issued")
    }

    fn node(&self) -> Vec<u8> {
        let name = Subject::Node(Name::parse(NODE).expect("a name"));
        self.issue(&self.key, &tls::node_name(NODE), name)
    }

    /// What the tunnel is told of certificates.
    pub fn credentials(&self) -> Wire {
        let blob = |bytes: &[u8]| Blob {
            bytes: bytes.to_vec(),
        };
        Wire {
            chain: vec![blob(&self.node())],
            authorities: vec![blob(self.authority.certificate().der())],
            locked: Vec::new(),
        }
    }
}

fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

fn life() -> std::ops::Range<u64> {
    now() - 100..now() + 10_000
}

/// A proxy that waits for nodes.
pub struct Proxy {
    listener: TcpListener,
    server: tls::Server,
    pub address: SocketAddr,
}

/// A node that dialled.
pub struct Joined {
    pub channel: Channel,
    pub peer: tls::Peer,
}

impl Proxy {
    pub async fn new(cluster: &Cluster) -> Proxy {
        Proxy::at(cluster, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    pub async fn at(cluster: &Cluster, address: SocketAddr) -> Proxy {
        let key = Key::generate();
        let subject = Subject::Proxy(Name::parse("p1").expect("a name"));
        let chain = [cluster.issue(&key, tls::PROXY, subject)];
        let credentials = Credentials::new(key, &chain).expect("good");
        let trust = Trust::new([cluster.authority.certificate().der()]).expect("good");
        let shown = Shown::new().name(tls::PROXY, &credentials);
        let listener = TcpListener::bind(address).await.expect("a free port");
        Proxy {
            address: listener.local_addr().expect("bound"),
            listener,
            server: tls::Server::new(shown, Some(&trust), &[tls::TUNNEL]).expect("good"),
        }
    }

    /// The next node.
    pub async fn joined(&self) -> Joined {
        let (io, _) = soon("a node dials", self.listener.accept())
            .await
            .expect("accepted");
        let (stream, peer) = soon("TLS", self.server.accept::<TcpStream>(io))
            .await
            .expect("TLS");
        let channel = h2::connect(stream, Tuning::TUNNEL).await.expect("HTTP/2");
        Joined { channel, peer }
    }

    /// A node that does not believe it.
    pub async fn refused(&self) {
        let (io, _) = soon("a node dials", self.listener.accept())
            .await
            .expect("accepted");
        // It may be told so in the handshake, or find the connection closed after it.
        let _ = soon("TLS", self.server.accept::<TcpStream>(io)).await;
    }

    pub fn dialled(&self) -> Dialled {
        Dialled {
            host: c"127.0.0.1".into(),
            port: self.address.port(),
        }
    }
}

/// One SSH connection as the proxy carries it.
pub struct Session {
    pub to: mpsc::Sender<Frame>,
    pub from: Streaming<Frame>,
}

pub fn dial(ssh: &[u8]) -> Dial {
    Dial {
        node: NODE.into(),
        login: "ann".into(),
        ssh: ssh.to_vec().into(),
        via: Some(Via {
            source: "192.0.2.7:4711".into(),
            proxy: "p1".into(),
            user: "ann".into(),
        }),
        ..Dial::default()
    }
}

pub fn frame(kind: Kind) -> Frame {
    Frame { kind: Some(kind) }
}

impl Joined {
    /// Begins a session; the answer may be waited for with [`Session::next`].
    pub async fn session(&self, first: Kind) -> Session {
        let (to, frames) = mpsc::channel(1);
        to.send(frame(first)).await.expect("there is room");
        let mut client = TunnelClient::new(self.channel.clone());
        let from = soon("a session", client.session(Frames(frames)))
            .await
            .expect("a stream")
            .into_inner();
        Session { to, from }
    }
}

impl Session {
    pub async fn next(&mut self) -> Option<Kind> {
        let frame = soon("a frame", self.from.message()).await.expect("a frame");
        frame.map(|f| f.kind.expect("a kind that is known"))
    }

    pub async fn say(&self, ssh: &[u8]) {
        let bytes = ssh.to_vec().into();
        soon("room", self.to.send(frame(Kind::Ssh(bytes))))
            .await
            .expect("it listens");
    }

    /// The next so many bytes of SSH.
    pub async fn read(&mut self, len: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < len {
            match self.next().await {
                Some(Kind::Ssh(bytes)) => all.extend_from_slice(&bytes),
                other => panic!("not SSH: {other:?}"),
            }
        }
        all
    }
}

/// A channel as a stream of messages.
pub struct Frames<T>(pub mpsc::Receiver<T>);

impl<T> tonic::codegen::tokio_stream::Stream for Frames<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

/// The tunnel, and the monitor's end of its socket.
pub struct Tunnel {
    control: AsyncFd<Fd>,
    pub child: Child,
    /// Words that were not asked for yet.
    pub told: Vec<FromTunnel>,
}

impl Tunnel {
    /// Starts the real program.
    pub fn start(cluster: &Cluster, proxies: &[&Proxy]) -> Tunnel {
        let tunnel = Tunnel::spawn();
        tunnel.say(
            &ToTunnel::Begin {
                settings: settings(cluster, proxies.iter().map(|p| p.dialled()).collect()),
            },
            &[],
        );
        tunnel
    }

    pub fn spawn() -> Tunnel {
        let (ours, theirs) = socket::pair().expect("a pair");
        // The static image, where the tests are to be run with it.
        let program = std::env::var("FLEETGATE_TUNNEL");
        let program = program
            .as_deref()
            .unwrap_or(env!("CARGO_BIN_EXE_fleetgate-tunnel"));
        // The program looks at descriptor 3, which Command cannot place: a shell does.
        let child = Command::new("/bin/sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 </dev/null"#, program, "tunnel"])
            .args(match process::effective_uid() {
                0 => &["--uid", "65534", "--gid", "65534"][..],
                _ => &[],
            })
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .expect("it starts");
        // What takes its place is unsafe; ours is one number that stays open as long as it is watched.
        #[allow(deprecated)]
        let control = AsyncFd::new(ours).expect("in a runtime");
        Tunnel {
            control,
            child,
            told: Vec::new(),
        }
    }

    pub fn say(&self, word: &ToTunnel, fds: &[i32]) {
        socket::send(self.control.get_ref(), &fleetgate_wire::encode(word), fds).expect("the tunnel listens");
    }

    /// The next word for which `pick` has an answer. Signatures are given meanwhile, as the monitor does.
    pub async fn hear<T>(
        &mut self,
        cluster: &Cluster,
        what: &str,
        mut pick: impl FnMut(&FromTunnel) -> Option<T>,
    ) -> T {
        let look = async {
            loop {
                if let Some(at) = self.told.iter().position(|word| pick(word).is_some()) {
                    let word = self.told.remove(at);
                    return pick(&word).expect("as before");
                }
                let mut room = vec![0; MAX_FRAME];
                let mut ready = self.control.readable().await.expect("watched");
                match socket::receive(self.control.get_ref(), &mut room, false) {
                    Err(Errno::EAGAIN) => ready.clear_ready(),
                    Ok(got) if got.len > 0 => {
                        drop(ready);
                        match fleetgate_wire::decode(&room[..got.len]).expect("a frame") {
                            FromTunnel::Sign { ticket, message } => {
                                assert!(tls::client_handshake_hash(&message).is_some());
                                let signature = Some(cluster.key.sign(&message));
                                self.say(&ToTunnel::Signed { ticket, signature }, &[]);
                            }
                            word => self.told.push(word),
                        }
                    }
                    other => panic!("the tunnel ended while {what} is waited for: {other:?}"),
                }
            }
        };
        soon(what, look).await
    }

    /// The next session, taken: what came with it, and the monitor's end of its socket.
    pub async fn taken(&mut self, cluster: &Cluster) -> (FromTunnel, u64, UnixStream) {
        let word = self
            .hear(cluster, "a session", |word| match word {
                FromTunnel::Arrived { .. } => Some(word.clone()),
                _ => None,
            })
            .await;
        let FromTunnel::Arrived { ticket, .. } = word else {
            unreachable!("picked above")
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        for end in [&ours, &theirs] {
            end.set_nonblocking(true).expect("set");
        }
        let theirs = Fd::from(OwnedFd::from(theirs));
        self.say(&ToTunnel::Session { ticket }, &[theirs.raw()]);
        (word, ticket, UnixStream::from_std(ours).expect("in a runtime"))
    }

    /// Serves until the tunnel has said that it is connected.
    pub async fn connected(&mut self, cluster: &Cluster) {
        self.hear(cluster, "a connection", |word| {
            matches!(word, FromTunnel::Connected { .. }).then_some(())
        })
        .await;
    }

    /// A field of its smaps_rollup, in KB.
    pub fn memory_kb(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text.lines().find(|l| l.starts_with(field)).expect("there");
        let number = line.split_whitespace().nth(1).expect("a number");
        number.parse().expect("a number")
    }

    /// Closes the control socket and waits for the end.
    pub fn finish(self) -> Option<i32> {
        let Tunnel {
            control, mut child, ..
        } = self;
        drop(control);
        child.wait().expect("it ends").code()
    }
}

pub fn settings(cluster: &Cluster, proxies: Vec<Dialled>) -> Settings {
    Settings {
        cluster: c"home".into(),
        node: CString::new(NODE).expect("no zero"),
        proxies,
        credentials: cluster.credentials(),
        facts: facts(7),
    }
}

pub fn facts(serial: u64) -> NodeDescription {
    NodeDescription {
        labels: vec![Label {
            name: c"env".into(),
            value: c"prod".into(),
        }],
        version: c"1.2.3".into(),
        address: c"".into(),
        serial,
    }
}

/// One thread, as the tunnel has.
pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}
