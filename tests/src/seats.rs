//! A node whose lobby and fronts are the test: the real monitor, with the real resolver and helpers, in a thread; where
//! it would execute `fleetgate-front`, the test gets that process's socket and says what a taken-over process might.

use crate::world::PATIENCE_MS;
use fleetgate_node::config::{Config, PamUse};
use fleetgate_node::monitor::seats::{Executed, Images, Order, Process, Seat, Starts};
use fleetgate_node::monitor::sessions::Inherited;
use fleetgate_node::monitor::{Parts, open};
use fleetgate_seal::{Ladder, Options, Source};
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::codec::Write;
use fleetgate_ssh::event::Exchange;
use fleetgate_ssh::key::{HostKey, KeyType, PrivateKey};
use fleetgate_sys::poll::{READ, Watch, poll};
use fleetgate_sys::{Fd, process, socket};
use fleetgate_wire::node::Settings;
use fleetgate_wire::node::front::{FromFront, Program, Start, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::starter::ToMonitor;
use fleetgate_wire::node::{Connection, Verdict};
use fleetgate_wire::{Decode, Encode, decode, encode};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The accounts that tests log in to: every machine has them.
pub const USER: &str = "root";
/// See [`USER`].
pub const OTHER: &str = "daemon";
/// What every command of [`OTHER`] ends with: its shell is nologin.
pub const OTHER_ENDS: i32 = 1;

/// The node.
pub struct Node {
    directory: PathBuf,
    address: SocketAddr,
    starter: Option<Fd>,
    thread: Option<JoinHandle<()>>,
    seats: mpsc::Receiver<(Seat, Fd)>,
    /// Whose public half lets in to [`USER`].
    pub key: PrivateKey,
    /// Whose public half lets in to [`OTHER`].
    pub other_key: PrivateKey,
    /// The host's private key, as it stands in its file.
    pub host_key: Vec<u8>,
    /// What the lobby was begun with.
    pub settings: Option<Settings>,
}

/// A process's side of its socket.
pub struct Taken {
    socket: Fd,
    /// All bytes that it was sent.
    pub heard: Vec<u8>,
}

/// Hands sockets of lobby and fronts to the test; the resolver is the real one.
struct Takes {
    real: Executed,
    taken: mpsc::Sender<(Seat, Fd)>,
    /// Their processes, as far as the monitor can see: each sleeps until it is killed.
    children: Vec<Child>,
}

impl Starts for Takes {
    fn start(&mut self, order: Order) {
        if order.seat == Seat::Resolver {
            return self.real.start(order);
        }
        // Reads nothing and ends with this test.
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat");
        let pid = child.id() as i32;
        self.children.push(child);
        let pidfd = process::pidfd_open(pid).expect("pidfd");
        // The test may be over already.
        let _ = self.taken.send((order.seat, order.control));
        (order.done)(Ok(Process { pid, pidfd }));
    }
}

impl Node {
    /// Starts it; `options` stand before the key of [`USER`] in its authorized_keys.
    pub fn start(options: &str) -> Node {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = PathBuf::from(format!(
            "/var/tmp/fleetgate-seats-{}-{number}",
            std::process::id()
        ));
        std::fs::create_dir(&directory).expect("a fresh directory");
        let (host, text) = HostKey::generate(KeyType::Ed25519, "").expect("a host key");
        let host_file = directory.join("host_key");
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600);
        let mut file = file.open(&host_file).expect("its file");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        drop(host);
        let (key, _) = PrivateKey::generate(KeyType::Ed25519, "").expect("a key");
        let (other_key, _) = PrivateKey::generate(KeyType::Ed25519, "").expect("a key");
        let line = format!("{options} {}\n", key.public().line());
        std::fs::write(directory.join(USER), line.trim_start()).expect("written");
        std::fs::write(directory.join(OTHER), other_key.public().line() + "\n").expect("written");
        let all: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&directory, all).expect("mode");

        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (starter, control) = socket::pair().expect("a pair");
        let (taken, seats) = mpsc::channel();
        let ladder = |program, name: &std::ffi::CStr| {
            let options = Options {
                name: Some(name.into()),
                ..Options::default()
            };
            Arc::new(Ladder::open(Source::File(program), options).expect("a ladder"))
        };
        let resolver = ladder(crate::resolver(), c"fleetgate-resolver");
        let real = Executed::new(Images {
            front: resolver.clone(),
            resolver,
            resolver_arguments: Vec::new(),
            user: None,
        })
        .expect("a thread");
        let config = Config {
            host_keys: vec![host_file],
            state_directory: directory.join("state"),
            runtime_directory: directory.join("run"),
            audit_log: directory.join("audit.jsonl"),
            authorized_keys_files: vec![format!("{}/%u", directory.display())],
            strict_modes: false,
            pam: PamUse::Off,
            ..Config::default()
        };
        let parts = Parts {
            config,
            config_path: None,
            user_mode: false,
            session: ladder(crate::helper(), c"fleetgate-session"),
            starts: Box::new(Takes {
                real,
                taken,
                children: Vec::new(),
            }),
            listeners: vec![Fd::from(OwnedFd::from(listener))],
            control: Some(control),
            signals: None,
            inherited: Inherited::now(),
            cgroups: None,
        };
        let thread = std::thread::spawn(move || {
            open(parts).expect("a node").serve().expect("it serves");
        });
        Node {
            directory,
            address,
            starter: Some(starter),
            thread: Some(thread),
            seats,
            key,
            other_key,
            host_key: text.as_bytes().to_vec(),
            settings: None,
        }
    }

    /// The next lobby's socket, told that it is ready.
    pub fn lobby(&mut self) -> Taken {
        let lobby = self.seat(Seat::Lobby);
        lobby.say(&FromLobby::Ready);
        self.settled(lobby)
    }

    fn settled(&mut self, mut lobby: Taken) -> Taken {
        match lobby.hear::<ToLobby>() {
            Some((ToLobby::Begin { settings }, _)) => self.settings = Some(settings),
            other => panic!("{other:?} instead of Begin"),
        }
        lobby
    }

    /// The next front's socket.
    pub fn front(&mut self) -> Taken {
        let mut front = self.seat(Seat::Front);
        match front.hear::<ToFront>() {
            Some((ToFront::Begin { .. }, _)) => {}
            other => panic!("{other:?} instead of Begin"),
        }
        front.say(&FromFront::Ready);
        front
    }

    fn seat(&mut self, seat: Seat) -> Taken {
        let patience = Duration::from_millis(PATIENCE_MS.into());
        let (got, socket) = self.seats.recv_timeout(patience).expect("a process is started");
        assert_eq!(got, seat);
        Taken {
            socket,
            heard: Vec::new(),
        }
    }

    /// A client connects, and the lobby has it: its number and the first cookie.
    pub fn connect(&self, lobby: &mut Taken) -> (TcpStream, Connection, [u8; 16]) {
        let client = TcpStream::connect(self.address).expect("connects");
        match lobby.hear::<ToLobby>() {
            Some((
                ToLobby::Arrived {
                    connection, cookie, ..
                },
                fds,
            )) => {
                assert_eq!(fds.len(), 1);
                (client, connection, cookie)
            }
            other => panic!("{other:?} instead of Arrived"),
        }
    }

    /// A transcript that an honest lobby could have, with this cookie.
    pub fn exchange(&self, cookie: [u8; 16]) -> Exchange {
        let settings = self.settings.as_ref().expect("begun");
        let kexinit = |cookie: [u8; 16]| {
            let mut out = vec![20];
            out.put(&cookie);
            for list in [
                "curve25519-sha256",
                "ssh-ed25519",
                "aes128-gcm@openssh.com",
                "aes128-gcm@openssh.com",
                "",
                "",
                "none",
                "none",
                "",
                "",
            ] {
                out.put_string(list);
            }
            out.put_bool(false);
            out.put_u32(0);
            out
        };
        let mut secret = Vec::new();
        secret.put_mpint(&[7; 32]);
        Exchange {
            kex: "curve25519-sha256".to_owned(),
            host_key_algorithm: "ssh-ed25519".to_owned(),
            client_version: b"SSH-2.0-test".to_vec(),
            server_version: format!("SSH-2.0-{}", settings.software.to_string_lossy()).into_bytes(),
            client_kexinit: kexinit([1; 16]),
            server_kexinit: kexinit(cookie),
            host_key: settings.host_keys[0].blob.clone(),
            client_share: vec![2; 32],
            server_share: vec![3; 32],
            secret,
        }
    }

    /// An honest exchange, signed: the session id and the next cookie.
    pub fn sign(&self, lobby: &mut Taken, connection: Connection, cookie: [u8; 16]) -> (Vec<u8>, [u8; 16]) {
        let exchange = self.exchange(cookie);
        lobby.say(&FromLobby::Sign {
            connection,
            exchange: exchange.encode().to_vec(),
        });
        match lobby.hear::<ToLobby>() {
            Some((ToLobby::Signed { cookie, .. }, _)) => {
                (exchange.hash().expect("a hash").as_ref().to_vec(), cookie)
            }
            other => panic!("{other:?} instead of Signed"),
        }
    }

    /// A connection that is logged in and handed over: the client, its number, its front's next cookie. `front`: the
    /// front that there is already; none: a new one is started.
    pub fn enter(
        &mut self,
        lobby: &mut Taken,
        user: &str,
        front: Option<&mut Taken>,
    ) -> (TcpStream, Connection, [u8; 16], Option<Taken>) {
        let (client, connection, cookie) = self.connect(lobby);
        let (id, _) = self.sign(lobby, connection, cookie);
        let key = if user == USER { &self.key } else { &self.other_key };
        let request = login(key, user, &id, None);
        lobby.say(&FromLobby::Auth { connection, request });
        assert_eq!(lobby.verdict(connection), Verdict::Accepted);
        let mut new = front.is_none().then(|| self.front());
        lobby.say(&FromLobby::HandOver {
            connection,
            state: b"state".to_vec(),
        });
        let taken = new.as_mut().or(front).expect("a front");
        match taken.hear::<ToFront>() {
            Some((
                ToFront::Arrived {
                    connection: number,
                    cookie,
                    state,
                    ..
                },
                _,
            )) if number == connection && state == b"state" => (client, connection, cookie, new),
            other => panic!("{other:?} instead of Arrived"),
        }
    }

    /// The audit log's lines so far.
    pub fn audit(&self) -> String {
        std::fs::read_to_string(self.directory.join("audit.jsonl")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(starter) = self.starter.take() {
            let _ = socket::send(&starter, &encode(&ToMonitor::End), &[]);
            if let Some(thread) = self.thread.take() {
                let ended = thread.join();
                assert!(ended.is_ok() || std::thread::panicking(), "the monitor survives");
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Taken {
    /// Says a word.
    pub fn say(&self, word: &impl Encode) {
        self.send(&encode(word), &[]);
    }

    /// Sends anything. Nobody may be there any more.
    pub fn send(&self, frame: &[u8], fds: &[i32]) {
        let _ = socket::send(&self.socket, frame, fds);
    }

    /// The next word; none: the monitor closed the socket.
    pub fn hear<T: Decode>(&mut self) -> Option<(T, Vec<Fd>)> {
        let ready = poll(&mut [Watch::new(self.socket.raw(), READ)], Some(PATIENCE_MS)).expect("poll");
        assert_eq!(ready, 1, "a word in time");
        let mut buffer = vec![0; fleetgate_wire::MAX_INLINE];
        let got = socket::receive(&self.socket, &mut buffer, true).ok()?;
        if got.len == 0 {
            return None;
        }
        self.heard.extend_from_slice(&buffer[..got.len]);
        Some((decode(&buffer[..got.len]).expect("a word"), got.fds))
    }

    /// Whether something was said that is not heard yet.
    pub fn has_words(&self) -> bool {
        poll(&mut [Watch::new(self.socket.raw(), READ)], Some(0)).expect("poll") == 1
    }

    /// The verdict on this connection's request.
    pub fn verdict(&mut self, connection: Connection) -> Verdict {
        match self.hear::<ToLobby>() {
            Some((
                ToLobby::Verdict {
                    connection: number,
                    verdict,
                },
                _,
            )) if number == connection => verdict,
            other => panic!("{other:?} instead of a verdict"),
        }
    }

    /// Whether the monitor closed the socket; words before that are passed over.
    pub fn is_ended(&mut self) -> bool {
        while self.hear::<Skipped>().is_some() {}
        true
    }
}

/// Any word at all.
#[derive(Debug)]
struct Skipped;

impl Decode for Skipped {
    fn decode(r: &mut fleetgate_wire::Reader<'_>) -> Result<Self, fleetgate_wire::Error> {
        let rest = r.remaining();
        r.take(rest).map(|_| Skipped)
    }
}

/// A signed login request; `host_key`: bound to that host.
pub fn login(key: &PrivateKey, user: &str, session_id: &[u8], host_key: Option<&[u8]>) -> Vec<u8> {
    let blob = key.public().blob();
    let unsigned = Request::unsigned(session_id, user.as_bytes(), "ssh-ed25519", blob, host_key);
    let signature = key.sign("ssh-ed25519", unsigned.to_sign()).expect("it signs");
    unsigned.signed(&signature)
}

/// A command without a terminal.
pub fn command(line: &str) -> Start {
    Start {
        program: Program::Exec {
            command: line.as_bytes().to_vec(),
        },
        terminal: None,
        environment: Vec::new(),
        agent: None,
        x11: None,
    }
}
