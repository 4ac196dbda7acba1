//! The networking helper as its launching side sees it: started with an order, asked, listened to, ended. The
//! resolver's part is played by [`Stub`].

use crate::helper;
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, poll, process, socket};
use fleetgate_wire::common::{Endpoint, Ids};
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::net::{Done, Networking, Request, Response, What};
use fleetgate_wire::order::{Order, Role, Work};
use fleetgate_wire::{Failure, Reply};
use std::cell::Cell;
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How long anything may take before a test gives up; no test waits for it to pass.
pub const BOUND_MS: u32 = 60_000;
/// The ordinary user of these tests.
pub const NOBODY: u32 = 65_534;

/// A running helper, seen from the launching side.
pub struct Net {
    /// Our end of its control socket.
    pub control: Fd,
    /// Its process.
    pub child: fleetgate_sys::spawn::Child,
    last: Cell<u32>,
}

/// How a helper is started.
pub struct Start {
    /// Whom it becomes; the group has the same number.
    pub uid: u32,
    /// The order's bound.
    pub max_pending: u32,
    /// The other end of a [`Stub`].
    pub resolver: Option<Fd>,
    /// A network namespace of its own: the shell commands that furnish it.
    pub world: Option<&'static str>,
    /// The process whose network namespace it joins.
    pub join: Option<i32>,
}

impl Start {
    /// As an ordinary user.
    pub fn user() -> Start {
        Start {
            uid: NOBODY,
            max_pending: 16,
            resolver: None,
            world: None,
            join: None,
        }
    }
    /// As root.
    pub fn root() -> Start {
        Start {
            uid: 0,
            ..Start::user()
        }
    }
    /// The order.
    pub fn order(&self) -> Order {
        Order {
            work: Work::Networking(Networking {
                ids: ids(self.uid),
                max_pending: self.max_pending,
                selinux: None,
            }),
            roles: self.resolver.iter().map(|_| Role::Resolver).collect(),
        }
    }
    /// Starts it and waits for Ready.
    pub fn net(self) -> Net {
        let order = self.order();
        let resolver: Vec<i32> = self.resolver.iter().map(Fd::raw).collect();
        let net = self.launch(&fleetgate_wire::encode(&order), &resolver);
        let (frame, _) = net.frame().expect("the helper's first word");
        assert_eq!(fleetgate_wire::decode(&frame), Ok(Reply::Ready));
        net
    }
    /// Starts it with `frame` as its order.
    pub fn launch(&self, frame: &[u8], fds: &[i32]) -> Net {
        let (ours, theirs) = socket::pair().expect("socketpair");
        socket::send(&ours, frame, fds).expect("the order");
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let path = text(&helper());
        let run = format!("exec -a fleetgate-session '{path}' networking --order");
        let argv: Vec<String> = match (self.world, self.join) {
            (Some(world), _) => strings(&[
                "unshare",
                "--net",
                "bash",
                "-ec",
                &format!("ip link set lo up\n{world}\n{run}"),
            ]),
            (None, Some(pid)) => strings(&[
                "nsenter",
                "--net",
                &format!("--target={pid}"),
                "bash",
                "-ec",
                &run,
            ]),
            (None, None) => strings(&["fleetgate-session", "networking", "--order"]),
        };
        let program = match argv[0].as_str() {
            "fleetgate-session" => path,
            tool => format!("/usr/bin/{tool}"),
        };
        let (argv, program) = (argv.into_iter().map(c).collect::<Vec<_>>(), c(program));
        let environment = c("PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        let what = Spawn {
            program: Program::Path(&program),
            argv: &Strings::new(argv.iter().map(CString::as_c_str)),
            envp: &Strings::new([environment.as_c_str()]),
            fds: &[null.as_raw_fd(), null.as_raw_fd(), 2, theirs.raw()],
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("stack")).expect("starting the helper");
        Net {
            control: ours,
            child,
            last: Cell::new(0),
        }
    }
}

impl Net {
    /// Asks; returns the request's number.
    pub fn ask(&self, what: What) -> u32 {
        let id = self.last.get() + 1;
        self.last.set(id);
        self.send(&fleetgate_wire::encode(&Request { id, what }), &[]);
        id
    }
    /// Sends a frame as it is.
    pub fn send(&self, frame: &[u8], fds: &[i32]) {
        socket::send(&self.control, frame, fds).expect("sending to the helper");
    }
    /// The next frame, or `None` at the end.
    pub fn frame(&self) -> Option<(Vec<u8>, Vec<Fd>)> {
        readable(&self.control);
        let mut buffer = vec![0; 64 << 10];
        match socket::receive(&self.control, &mut buffer, false) {
            Ok(got) if got.len > 0 => {
                assert!(!got.truncated);
                buffer.truncate(got.len);
                Some((buffer, got.fds))
            }
            Ok(_) | Err(Errno::ECONNRESET) => None,
            Err(e) => panic!("receiving from the helper: {e}"),
        }
    }
    /// The next answer.
    pub fn answer(&self) -> (u32, Done, Vec<Fd>) {
        let (frame, fds) = self.frame().expect("an answer");
        let Response { id, done } = fleetgate_wire::decode(&frame).expect("a response");
        (id, done, fds)
    }
    /// Asks and waits for the answer to just that.
    pub fn call(&self, what: What) -> (Done, Vec<Fd>) {
        let id = self.ask(what);
        let (answered, done, fds) = self.answer();
        assert_eq!(answered, id, "{done:?}");
        (done, fds)
    }
    /// Asks for what must fail.
    pub fn failure(&self, what: What) -> Failure {
        match self.call(what) {
            (Done::Failed { failure }, fds) => {
                assert!(fds.is_empty());
                failure
            }
            other => panic!("it did not fail: {other:?}"),
        }
    }
    /// How many descriptors it has, once it has closed those of its last answer: it does one thing at a time.
    pub fn descriptors(&self) -> usize {
        self.failure(What::Cancel { of: u32::MAX });
        std::fs::read_dir(format!("/proc/{}/fd", self.child.pid))
            .expect("its descriptors")
            .count()
    }
    /// A field of /proc/PID/status.
    pub fn status(&self, field: &str) -> String {
        let all = std::fs::read_to_string(format!("/proc/{}/status", self.child.pid)).expect("its status");
        let line = all
            .lines()
            .find_map(|l| l.strip_prefix(field))
            .expect("the field");
        line.trim_start_matches(':')
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
    /// What it has written to of its own memory, in KB, counted page by page: RssAnon is an estimate that may be
    /// hundreds of KB off, and Private_Dirty holds pages of a program that was built a moment ago too.
    pub fn memory(&self) -> u64 {
        let all =
            std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.pid)).expect("its memory");
        let line = all
            .lines()
            .find_map(|l| l.strip_prefix("Anonymous:"))
            .expect("the field");
        let number = line.split_whitespace().next().expect("a word");
        number.parse().expect("a number")
    }
    /// Waits for its end; the exit.
    pub fn end(&self) -> process::Exit {
        readable(&self.child.pidfd);
        process::wait(&self.child.pidfd, true)
            .expect("wait")
            .expect("it ended")
    }
    /// Tells it to stop, and sees that it does.
    pub fn stop(self) {
        self.send(
            &fleetgate_wire::encode(&Request {
                id: u32::MAX,
                what: What::Stop,
            }),
            &[],
        );
        assert_eq!(self.end(), process::Exit::Code(0));
    }
}

/// Waits for something to read, or the end.
pub fn readable(fd: &Fd) {
    let mut watch = [poll::Watch::new(fd.raw(), poll::READ)];
    assert_eq!(poll::poll(&mut watch, Some(BOUND_MS)), Ok(1), "nothing came");
}

/// The ids of a user of one group.
pub fn ids(uid: u32) -> Ids {
    Ids {
        uid,
        gid: uid,
        groups: vec![uid],
    }
}

/// A string for a frame.
pub fn c(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).expect("no zero byte")
}

/// A path as text.
pub fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// Owned strings.
pub fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

/// Connect over TCP.
pub fn connect(host: &str, port: u16) -> What {
    What::Connect {
        host: c(host),
        port,
        timeout_ms: BOUND_MS,
    }
}

/// Listen over TCP.
pub fn listen(host: &str, port: u16) -> What {
    What::Listen {
        host: c(host),
        port,
        backlog: 0,
    }
}

/// Listen, the sockets staying with the helper.
pub fn keep(host: &str, port: u16) -> What {
    What::Accept {
        host: c(host),
        port,
        backlog: 4096,
    }
}

/// Connect to a path.
pub fn unix_connect(path: &Path) -> What {
    What::ConnectUnix {
        path: c(path.as_os_str().as_bytes()),
        timeout_ms: BOUND_MS,
    }
}

/// Listen at a path.
pub fn unix_listen(path: &Path, umask: u32, unlink_first: bool) -> What {
    What::ListenUnix {
        path: c(path.as_os_str().as_bytes()),
        umask,
        unlink_first,
        backlog: 0,
    }
}

/// As the standard library has it.
pub fn address(e: &Endpoint) -> SocketAddr {
    let ip = Ipv6Addr::from(e.address);
    SocketAddr::new(ip.to_ipv4_mapped().map_or(ip.into(), Into::into), e.port)
}

/// As frames have it.
pub fn endpoint(ip: impl Into<std::net::IpAddr>, port: u16) -> Endpoint {
    let ip = match ip.into() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    Endpoint {
        address: ip.octets(),
        scope: 0,
        port,
    }
}

/// The sockets of an answer, as listeners that wait.
pub fn listeners(done: &Done, fds: Vec<Fd>) -> Vec<(TcpListener, SocketAddr)> {
    let Done::Listening { local } = done else {
        panic!("not listening: {done:?}");
    };
    assert_eq!(local.len(), fds.len());
    let owned = fds.into_iter().map(|f| TcpListener::from(OwnedFd::from(f)));
    let all: Vec<_> = owned.zip(local.iter().map(address)).collect();
    for (listener, at) in &all {
        listener.set_nonblocking(false).expect("blocking");
        assert_eq!(listener.local_addr().expect("bound"), *at);
    }
    all
}

/// The connection of an answer.
pub fn stream((done, mut fds): (Done, Vec<Fd>)) -> TcpStream {
    assert!(
        matches!(done, Done::Connected { peer: Some(_) } | Done::Accepted { .. }),
        "{done:?}"
    );
    assert_eq!(fds.len(), 1);
    let stream = TcpStream::from(OwnedFd::from(fds.remove(0)));
    stream.set_nonblocking(false).expect("blocking");
    assert!(stream.nodelay().expect("option"));
    stream
}

/// Both ends of one connection.
pub fn talk(a: &mut (impl Read + Write), b: &mut (impl Read + Write)) {
    let mut got = [0; 5];
    a.write_all(b"hello").expect("write");
    b.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"hello");
    b.write_all(b"there").expect("write");
    a.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"there");
}

/// The resolver's part, played by the test.
pub struct Stub(pub Fd);
impl Stub {
    /// A new one.
    pub fn new() -> (Stub, Fd) {
        let (ours, theirs) = socket::pair().expect("socketpair");
        (Stub(ours), theirs)
    }
    /// The next question: its number and the name it asks for.
    pub fn question(&self) -> (u32, String) {
        readable(&self.0);
        let mut buffer = [0; 4096];
        let got = socket::receive(&self.0, &mut buffer, false).expect("a question");
        let Question { id, about, .. } = fleetgate_wire::decode(&buffer[..got.len]).expect("a question");
        match about {
            About::Host { name, .. } => (id, name.into_string().expect("text")),
            other => panic!("{other:?}"),
        }
    }
    /// Answers.
    pub fn answer(&self, id: u32, found: Found) {
        socket::send(&self.0, &fleetgate_wire::encode(&Answer { id, found }), &[]).expect("answering");
    }
    /// Answers with addresses.
    pub fn host(&self, id: u32, addresses: Vec<Endpoint>) {
        self.answer(id, Found::Host { addresses });
    }
}

/// Addresses behind a device that nobody reads from: a connect there neither succeeds nor fails.
pub const HOLE: &str = include_str!("../scripts/hole.sh");
