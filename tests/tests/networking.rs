//! The networking helper over real sockets: what it opens, as whom, in which namespace, what it refuses, and what
//! is left when it ends. Every test has its own helper; those that need ports or addresses of their own have a
//! network namespace of their own too.
#![forbid(unsafe_code)]

use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, poll, process, socket};
use fleetgate_tests::{helper, is_root, skip};
use fleetgate_wire::common::{Endpoint, Ids};
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::net::{Done, HELPER, MAX_KEPT, Networking, Request, Response, What};
use fleetgate_wire::order::{Order, Role, Work};
use fleetgate_wire::{Failure, Reason, Reply};
use std::cell::Cell;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// How long anything may take before a test gives up; no test waits for it to pass.
const BOUND_MS: u32 = 60_000;
const NOBODY: u32 = 65_534;

/// A running helper, seen from the launching side.
struct Net {
    control: Fd,
    child: fleetgate_sys::spawn::Child,
    last: Cell<u32>,
}

/// How a helper is started.
struct Start {
    uid: u32,
    max_pending: u32,
    resolver: Option<Fd>,
    /// A network namespace of its own: the shell commands that furnish it.
    world: Option<&'static str>,
    /// The process whose network namespace it joins.
    join: Option<i32>,
}

impl Start {
    fn user() -> Start {
        Start {
            uid: NOBODY,
            max_pending: 16,
            resolver: None,
            world: None,
            join: None,
        }
    }
    fn root() -> Start {
        Start {
            uid: 0,
            ..Start::user()
        }
    }
    fn order(&self) -> Order {
        Order {
            work: Work::Networking(Networking {
                ids: ids(self.uid),
                max_pending: self.max_pending,
            }),
            roles: self.resolver.iter().map(|_| Role::Resolver).collect(),
        }
    }
    /// Starts it and waits for Ready.
    fn net(self) -> Net {
        let order = self.order();
        let resolver: Vec<i32> = self.resolver.iter().map(Fd::raw).collect();
        let net = self.launch(&fleetgate_wire::encode(&order), &resolver);
        let (frame, _) = net.frame().expect("the helper's first word");
        assert_eq!(fleetgate_wire::decode(&frame), Ok(Reply::Ready));
        net
    }
    /// Starts it with `frame` as its order.
    fn launch(&self, frame: &[u8], fds: &[i32]) -> Net {
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
    fn ask(&self, what: What) -> u32 {
        let id = self.last.get() + 1;
        self.last.set(id);
        self.send(&fleetgate_wire::encode(&Request { id, what }), &[]);
        id
    }
    fn send(&self, frame: &[u8], fds: &[i32]) {
        socket::send(&self.control, frame, fds).expect("sending to the helper");
    }
    /// The next frame, or `None` at the end.
    fn frame(&self) -> Option<(Vec<u8>, Vec<Fd>)> {
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
    fn answer(&self) -> (u32, Done, Vec<Fd>) {
        let (frame, fds) = self.frame().expect("an answer");
        let Response { id, done } = fleetgate_wire::decode(&frame).expect("a response");
        (id, done, fds)
    }
    /// Asks and waits for the answer to just that.
    fn call(&self, what: What) -> (Done, Vec<Fd>) {
        let id = self.ask(what);
        let (answered, done, fds) = self.answer();
        assert_eq!(answered, id, "{done:?}");
        (done, fds)
    }
    /// Asks for what must fail.
    fn failure(&self, what: What) -> Failure {
        match self.call(what) {
            (Done::Failed { failure }, fds) => {
                assert!(fds.is_empty());
                failure
            }
            other => panic!("it did not fail: {other:?}"),
        }
    }
    /// How many descriptors it has, once it has closed those of its last answer: it does one thing at a time.
    fn descriptors(&self) -> usize {
        self.failure(What::Cancel { of: u32::MAX });
        std::fs::read_dir(format!("/proc/{}/fd", self.child.pid))
            .expect("its descriptors")
            .count()
    }
    fn status(&self, field: &str) -> String {
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
    /// Waits for its end; the exit.
    fn end(&self) -> process::Exit {
        readable(&self.child.pidfd);
        process::wait(&self.child.pidfd, true)
            .expect("wait")
            .expect("it ended")
    }
    fn stop(self) {
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

fn readable(fd: &Fd) {
    let mut watch = [poll::Watch::new(fd.raw(), poll::READ)];
    assert_eq!(poll::poll(&mut watch, Some(BOUND_MS)), Ok(1), "nothing came");
}

fn ids(uid: u32) -> Ids {
    Ids {
        uid,
        gid: uid,
        groups: vec![uid],
    }
}

fn c(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).expect("no zero byte")
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// The number in `284 kB`.
fn kilobytes(text: &str) -> u64 {
    let number = text.split(' ').next().expect("a word");
    number.parse().expect("a number")
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

fn connect(host: &str, port: u16) -> What {
    What::Connect {
        host: c(host),
        port,
        timeout_ms: BOUND_MS,
    }
}

fn listen(host: &str, port: u16) -> What {
    What::Listen {
        host: c(host),
        port,
        backlog: 0,
    }
}

fn keep(host: &str, port: u16) -> What {
    What::Accept {
        host: c(host),
        port,
        backlog: 4096,
    }
}

fn unix_connect(path: &Path) -> What {
    What::ConnectUnix {
        path: c(path.as_os_str().as_bytes()),
        timeout_ms: BOUND_MS,
    }
}

fn unix_listen(path: &Path, umask: u32, unlink_first: bool) -> What {
    What::ListenUnix {
        path: c(path.as_os_str().as_bytes()),
        umask,
        unlink_first,
        backlog: 0,
    }
}

fn address(e: &Endpoint) -> SocketAddr {
    let ip = Ipv6Addr::from(e.address);
    SocketAddr::new(ip.to_ipv4_mapped().map_or(ip.into(), Into::into), e.port)
}

fn endpoint(ip: impl Into<std::net::IpAddr>, port: u16) -> Endpoint {
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
fn listeners(done: &Done, fds: Vec<Fd>) -> Vec<(TcpListener, SocketAddr)> {
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

fn stream((done, mut fds): (Done, Vec<Fd>)) -> TcpStream {
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
fn talk(a: &mut (impl Read + Write), b: &mut (impl Read + Write)) {
    let mut got = [0; 5];
    a.write_all(b"hello").expect("write");
    b.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"hello");
    b.write_all(b"there").expect("write");
    a.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"there");
}

/// A directory of the test's own, removed at its end.
struct Dir(PathBuf);
impl Dir {
    fn new(mode: u32, owner: u32) -> Dir {
        let name = format!(
            "/tmp/fleetgate-networking-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = PathBuf::from(name.replace(['(', ')'], ""));
        std::fs::create_dir(&path).expect("mkdir");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        std::os::unix::fs::chown(&path, Some(owner), Some(owner)).expect("chown");
        Dir(path)
    }
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

macro_rules! needs_root {
    () => {
        if !is_root() {
            return skip("needs root to become another user");
        }
    };
}

#[test]
fn runs_as_the_user_and_nothing_more() {
    needs_root!();
    let net = Start::user().net();
    // The drop comes before Ready, which was read.
    assert_eq!(net.status("Uid"), "65534 65534 65534 65534");
    assert_eq!(net.status("Gid"), "65534 65534 65534 65534");
    assert_eq!(net.status("Groups"), "65534");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(net.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(net.status("NoNewPrivs"), "1");
    // Not dumpable: its files in /proc are root's, so the user cannot reach its descriptors.
    let fds = std::fs::metadata(format!("/proc/{}/fd", net.child.pid)).expect("fd");
    assert_eq!(fds.uid(), 0);
    // 0, 1, 2 and the control socket.
    assert_eq!(net.descriptors(), 4);
    net.stop();
}

#[test]
fn connects_over_both_versions() {
    needs_root!();
    let net = Start::user().net();
    for host in ["127.0.0.1", "::1"] {
        let server = TcpListener::bind((host, 0)).expect("listening");
        let port = server.local_addr().expect("bound").port();
        let (done, fds) = net.call(connect(host, port));
        let Done::Connected { peer: Some(peer) } = &done else {
            panic!("{done:?}");
        };
        assert_eq!(address(peer), server.local_addr().expect("bound"));
        talk(&mut stream((done, fds)), &mut server.accept().expect("accept").0);
        // And when nobody listens there any more.
        drop(server);
        let failure = net.failure(connect(host, port));
        assert_eq!(Errno(failure.errno), Errno::ECONNREFUSED);
        let subject = failure.subject.to_str().expect("text").to_owned();
        assert!(
            subject.contains(host) && subject.contains(&port.to_string()),
            "{subject}"
        );
    }
    // `localhost` needs no resolver, and the loopback that listens is found.
    let server = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = server.local_addr().expect("bound").port();
    stream(net.call(connect("localhost", port)));
    net.stop();
}

#[test]
fn listens_on_one_both_or_all_addresses() {
    needs_root!();
    let net = Start::user().net();
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    let one = listeners(&done, fds);
    assert_eq!(one.len(), 1);
    talk(
        &mut TcpStream::connect(one[0].1).expect("connect"),
        &mut one[0].0.accept().expect("accept").0,
    );

    let (done, fds) = net.call(listen("localhost", 0));
    let both = listeners(&done, fds);
    let ips: Vec<std::net::IpAddr> = both.iter().map(|l| l.1.ip()).collect();
    let loopbacks: [std::net::IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
    assert_eq!(ips, loopbacks);
    assert_eq!(both[0].1.port(), both[1].1.port());
    for (listener, at) in &both {
        talk(
            &mut TcpStream::connect(at).expect("connect"),
            &mut listener.accept().expect("accept").0,
        );
    }
    // The number is taken now: a second one gets neither of the two.
    let failure = net.failure(listen("localhost", both[0].1.port()));
    assert_eq!(Errno(failure.errno), Errno::EADDRINUSE);

    for any in ["", "*"] {
        let (done, fds) = net.call(listen(any, 0));
        let all = listeners(&done, fds);
        let ips: Vec<_> = all.iter().map(|l| l.1.ip().is_unspecified()).collect();
        assert_eq!(ips, [true, true]);
        assert_eq!(all[0].1.port(), all[1].1.port());
    }
    net.stop();
}

#[test]
fn half_a_listener_is_none() {
    needs_root!();
    let net = Start::user().net();
    // Somebody has one of the two loopbacks at this port: nothing listens on the other one either.
    let taken = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = taken.local_addr().expect("bound").port();
    let failure = net.failure(listen("localhost", port));
    assert_eq!(Errno(failure.errno), Errno::EADDRINUSE);
    assert_eq!(net.descriptors(), 4);
    drop(taken);
    let (done, fds) = net.call(listen("localhost", port));
    assert_eq!(listeners(&done, fds).len(), 2);
    net.stop();
}

#[test]
fn binds_without_listening() {
    needs_root!();
    let net = Start::user().net();
    let (done, fds) = net.call(What::Bind {
        host: c("127.0.0.1"),
        port: 0,
    });
    let bound = listeners(&done, fds);
    assert_eq!(
        TcpStream::connect(bound[0].1).expect_err("not listening").kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    net.stop();
}

#[test]
fn accepts_and_hands_over_until_cancelled() {
    needs_root!();
    let net = Start::user().net();
    let id = net.ask(keep("localhost", 0));
    let (_, done, fds) = net.answer();
    let Done::Listening { local } = done else {
        panic!("{done:?}");
    };
    assert!(fds.is_empty(), "the helper keeps the sockets");
    for (index, at) in local.iter().enumerate() {
        let mut client = TcpStream::connect(address(at)).expect("connect");
        let (answered, done, fds) = net.answer();
        assert_eq!(answered, id);
        let Done::Accepted { peer, local } = &done else {
            panic!("{done:?}");
        };
        assert_eq!(
            (address(peer), usize::from(*local)),
            (client.local_addr().expect("bound"), index)
        );
        talk(&mut client, &mut stream((done, fds)));
    }
    assert_eq!(net.call(What::Cancel { of: id }).0, Done::Cancelled);
    for at in &local {
        assert!(TcpStream::connect(address(at)).is_err());
    }
    assert_eq!(net.failure(What::Cancel { of: id }).reason, Reason::Missing);
    assert_eq!(net.descriptors(), 4);
    net.stop();
}

#[test]
fn privileged_ports_are_the_kernels_business() {
    needs_root!();
    let user = Start {
        world: Some(""),
        ..Start::user()
    }
    .net();
    let root = Start {
        join: Some(user.child.pid),
        ..Start::root()
    }
    .net();
    let failure = user.failure(listen("127.0.0.1", 80));
    assert_eq!(
        (failure.reason, Errno(failure.errno)),
        (Reason::Denied, Errno::EACCES)
    );
    let (done, fds) = root.call(listen("127.0.0.1", 80));
    assert_eq!(listeners(&done, fds).len(), 1);
    user.stop();
    root.stop();
}

#[test]
fn opens_sockets_in_the_namespace_it_was_launched_in() {
    needs_root!();
    let inside = Start {
        world: Some(""),
        ..Start::user()
    }
    .net();
    let (done, fds) = inside.call(listen("127.0.0.1", 0));
    let server = listeners(&done, fds);
    let port = server[0].1.port();
    // Another helper of that namespace reaches it; one outside, asked the same, finds nobody.
    let beside = Start {
        join: Some(inside.child.pid),
        ..Start::user()
    }
    .net();
    let mut client = stream(beside.call(connect("127.0.0.1", port)));
    talk(&mut client, &mut server[0].0.accept().expect("accept").0);
    let outside = Start::user().net();
    assert_eq!(
        Errno(outside.failure(connect("127.0.0.1", port)).errno),
        Errno::ECONNREFUSED
    );
    for net in [inside, beside, outside] {
        net.stop();
    }
}

/// The resolver's part, played by the test.
struct Stub(Fd);
impl Stub {
    fn new() -> (Stub, Fd) {
        let (ours, theirs) = socket::pair().expect("socketpair");
        (Stub(ours), theirs)
    }
    fn question(&self) -> (u32, String) {
        readable(&self.0);
        let mut buffer = [0; 4096];
        let got = socket::receive(&self.0, &mut buffer, false).expect("a question");
        let Question { id, about, .. } = fleetgate_wire::decode(&buffer[..got.len]).expect("a question");
        match about {
            About::Host { name, .. } => (id, name.into_string().expect("text")),
            other => panic!("{other:?}"),
        }
    }
    fn answer(&self, id: u32, found: Found) {
        socket::send(&self.0, &fleetgate_wire::encode(&Answer { id, found }), &[]).expect("answering");
    }
    fn host(&self, id: u32, addresses: Vec<Endpoint>) {
        self.answer(id, Found::Host { addresses });
    }
}

#[test]
fn a_slow_name_keeps_nobody_waiting() {
    needs_root!();
    let (stub, theirs) = Stub::new();
    let net = Start {
        resolver: Some(theirs),
        ..Start::user()
    }
    .net();
    let server = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = server.local_addr().expect("bound").port();
    let slow = net.ask(connect("slow.test", port));
    let (asked_slow, name) = stub.question();
    assert_eq!(name, "slow.test");
    // While that question stands open: an address, another name, a listener.
    stream(net.call(connect("127.0.0.1", port)));
    let fast = net.ask(connect("fast.test", port));
    let (asked_fast, name) = stub.question();
    assert_eq!(name, "fast.test");
    stub.host(asked_fast, vec![endpoint(Ipv4Addr::LOCALHOST, 1)]);
    let (id, done, fds) = net.answer();
    assert_eq!(id, fast);
    // The port is the request's, whatever the resolver says.
    assert_eq!(
        done,
        Done::Connected {
            peer: Some(endpoint(Ipv4Addr::LOCALHOST, port))
        }
    );
    drop(stream((done, fds)));
    let listening = net.ask(listen("here.test", 0));
    let (asked, _) = stub.question();
    stub.host(
        asked,
        vec![endpoint(Ipv4Addr::LOCALHOST, 0), endpoint(Ipv6Addr::LOCALHOST, 0)],
    );
    let (id, done, fds) = net.answer();
    assert_eq!(id, listening);
    assert_eq!(listeners(&done, fds).len(), 2);
    // Cancelled, its late answer does nothing; one for a question nobody asked neither.
    assert_eq!(net.call(What::Cancel { of: slow }).0, Done::Cancelled);
    stub.host(asked_slow, vec![endpoint(Ipv4Addr::LOCALHOST, 0)]);
    stub.answer(4_000_000, Found::Unknown);
    stream(net.call(connect("127.0.0.1", port)));
    net.stop();
}

#[test]
fn what_the_resolver_says_comes_back() {
    needs_root!();
    let (stub, theirs) = Stub::new();
    let net = Start {
        resolver: Some(theirs),
        ..Start::user()
    }
    .net();
    let cases = [
        (Found::Unknown, Reason::UnknownName),
        (Found::Host { addresses: vec![] }, Reason::UnknownName),
        (Found::TimedOut, Reason::TimedOut),
        (Found::Failed { why: c("SERVFAIL") }, Reason::System),
        (Found::Group { gid: 1 }, Reason::System),
        // Beyond what is read: that question alone is lost.
        (
            Found::Host {
                addresses: vec![endpoint(Ipv4Addr::LOCALHOST, 0); 2000],
            },
            Reason::System,
        ),
    ];
    for (found, reason) in cases {
        let id = net.ask(connect("name.test", 9));
        let (asked, _) = stub.question();
        stub.answer(asked, found.clone());
        let (answered, done, _) = net.answer();
        assert_eq!(answered, id);
        match done {
            Done::Failed { failure } => assert_eq!(failure.reason, reason, "{failure:?}"),
            other => panic!("{other:?}"),
        }
    }
    // No answer at all, until the request's time is over.
    let failure = net.failure(What::Connect {
        host: c("never.test"),
        port: 9,
        timeout_ms: 50,
    });
    assert_eq!(
        (failure.reason, Errno(failure.errno)),
        (Reason::TimedOut, Errno::ETIMEDOUT)
    );
    stub.question();
    // It dies: open questions fail, later ones too, addresses go on.
    let open = net.ask(connect("name.test", 9));
    stub.question();
    drop(stub);
    let (answered, done, _) = net.answer();
    assert_eq!(answered, open);
    assert!(
        matches!(&done, Done::Failed { failure } if Errno(failure.errno) == Errno::EPIPE),
        "{done:?}"
    );
    assert_eq!(Errno(net.failure(connect("name.test", 9)).errno), Errno::EPIPE);
    let server = TcpListener::bind("127.0.0.1:0").expect("listening");
    stream(net.call(connect("127.0.0.1", server.local_addr().expect("bound").port())));
    net.stop();
}

#[test]
fn names_without_a_resolver_are_refused() {
    needs_root!();
    let net = Start::user().net();
    assert_eq!(net.failure(connect("name.test", 9)).reason, Reason::Unsupported);
    net.stop();
}

/// Addresses behind a device that nobody reads from: a connect there neither succeeds nor fails.
const HOLE: &str = "ip tuntap add dev hole mode tun
    ip addr add 192.0.2.1/24 dev hole
    ip addr add 2001:db8::1/64 dev hole nodad
    ip link set hole up";

#[test]
fn every_address_gets_its_turn() {
    needs_root!();
    let (stub, theirs) = Stub::new();
    let net = Start {
        world: Some(HOLE),
        resolver: Some(theirs),
        ..Start::user()
    }
    .net();
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    let server = listeners(&done, fds);
    let port = server[0].1.port();
    let here = endpoint(Ipv4Addr::LOCALHOST, port);
    let hole6: Ipv6Addr = "2001:db8::77".parse().expect("address");
    let lists = [
        // The first refuses at once, the first does not answer, two do not, one cannot even be reached.
        vec![endpoint(Ipv6Addr::LOCALHOST, 0), here.clone()],
        vec![endpoint(hole6, 0), here.clone()],
        vec![
            endpoint(Ipv4Addr::new(192, 0, 2, 77), 0),
            endpoint(hole6, 0),
            here.clone(),
        ],
        vec![endpoint(Ipv4Addr::new(198, 51, 100, 1), 0), here.clone()],
    ];
    for list in lists {
        net.ask(What::Connect {
            host: c("many.test"),
            port,
            timeout_ms: 6_000,
        });
        let (asked, _) = stub.question();
        stub.host(asked, list);
        let (_, done, fds) = net.answer();
        assert_eq!(
            done,
            Done::Connected {
                peer: Some(here.clone())
            }
        );
        stream((done, fds));
        server[0].0.accept().expect("accept");
    }
    // All refuse: what the one that was reached said.
    net.ask(connect("none.test", 9));
    let (asked, _) = stub.question();
    stub.host(
        asked,
        vec![
            endpoint(Ipv4Addr::new(198, 51, 100, 1), 0),
            endpoint(Ipv4Addr::LOCALHOST, 0),
        ],
    );
    let (_, done, _) = net.answer();
    assert!(
        matches!(&done, Done::Failed { failure } if Errno(failure.errno) == Errno::ECONNREFUSED),
        "{done:?}"
    );
    // Nobody answers: the time is over, and no socket is left.
    let failure = net.failure(What::Connect {
        host: c("192.0.2.77"),
        port: 9,
        timeout_ms: 50,
    });
    assert_eq!(
        (failure.reason, Errno(failure.errno)),
        (Reason::TimedOut, Errno::ETIMEDOUT)
    );
    assert_eq!(net.descriptors(), 5);
    net.stop();
}

#[test]
fn a_connect_under_way_can_be_cancelled() {
    needs_root!();
    let net = Start {
        world: Some(HOLE),
        ..Start::user()
    }
    .net();
    let id = net.ask(connect("192.0.2.77", 9));
    let cancel = net.ask(What::Cancel { of: id });
    assert_eq!(net.answer().0, cancel);
    assert_eq!(net.descriptors(), 4);
    net.stop();
}

#[test]
fn more_than_may_wait_are_refused() {
    needs_root!();
    let net = Start {
        world: Some(HOLE),
        max_pending: 3,
        ..Start::user()
    }
    .net();
    let waiting: Vec<u32> = (0..3).map(|_| net.ask(connect("192.0.2.77", 9))).collect();
    assert_eq!(net.failure(connect("192.0.2.77", 9)).reason, Reason::TooMany);
    assert_eq!(net.call(What::Cancel { of: waiting[1] }).0, Done::Cancelled);
    // There is room for one again.
    let again = net.ask(connect("192.0.2.77", 9));
    assert_eq!(net.call(What::Cancel { of: again }).0, Done::Cancelled);
    net.stop();
}

#[test]
fn what_is_kept_is_bounded() {
    needs_root!();
    let net = Start::user().net();
    for _ in 0..MAX_KEPT {
        assert!(matches!(net.call(keep("127.0.0.1", 0)).0, Done::Listening { .. }));
    }
    assert_eq!(net.failure(keep("127.0.0.1", 0)).reason, Reason::TooMany);
    assert_eq!(net.failure(What::AgentSocket).reason, Reason::TooMany);
    assert_eq!(net.call(What::Cancel { of: 1 }).0, Done::Cancelled);
    assert!(matches!(net.call(keep("127.0.0.1", 0)).0, Done::Listening { .. }));
    net.stop();
}

#[test]
fn unix_sockets_with_the_users_rights() {
    needs_root!();
    let (user, root) = (Start::user().net(), Start::root().net());
    let dir = Dir::new(0o700, 0);
    let path = dir.at("server");
    let server = UnixListener::bind(&path).expect("listening");
    let refused = user.failure(unix_connect(&path));
    assert_eq!(
        (refused.reason, Errno(refused.errno)),
        (Reason::Denied, Errno::EACCES)
    );
    assert!(refused.subject.to_bytes().ends_with(path.as_os_str().as_bytes()));
    let refused = user.failure(unix_listen(&dir.at("mine"), 0o177, false));
    assert_eq!(
        (refused.reason, Errno(refused.errno)),
        (Reason::Denied, Errno::EACCES)
    );
    let (done, mut fds) = root.call(unix_connect(&path));
    assert_eq!(done, Done::Connected { peer: None });
    let mut client = UnixStream::from(OwnedFd::from(fds.remove(0)));
    client.set_nonblocking(false).expect("blocking");
    talk(&mut client, &mut server.accept().expect("accept").0);
    assert_eq!(
        root.failure(unix_connect(&dir.at("nobody"))).reason,
        Reason::Missing
    );
    drop(server);
    assert_eq!(
        Errno(root.failure(unix_connect(&path)).errno),
        Errno::ECONNREFUSED
    );
    user.stop();
    root.stop();
}

#[test]
fn unix_listeners_have_their_mode_and_leave_nothing() {
    needs_root!();
    let net = Start::user().net();
    let dir = Dir::new(0o755, NOBODY);
    for (umask, mode) in [(0o177, 0o600), (0o111, 0o666), (0o007, 0o770)] {
        let path = dir.at("listener");
        let id = net.ask(unix_listen(&path, umask, false));
        let (_, done, mut fds) = net.answer();
        assert_eq!(
            done,
            Done::UnixListening {
                path: c(path.as_os_str().as_bytes())
            }
        );
        let found = std::fs::symlink_metadata(&path).expect("the socket");
        assert!(found.file_type().is_socket());
        assert_eq!((found.mode() & 0o7777, found.uid()), (mode, NOBODY));
        let server = UnixListener::from(OwnedFd::from(fds.remove(0)));
        server.set_nonblocking(false).expect("blocking");
        talk(
            &mut UnixStream::connect(&path).expect("connect"),
            &mut server.accept().expect("accept").0,
        );
        // A second one: taken. With unlink_first: replaced, and the first one's end removes nothing of it.
        assert_eq!(
            Errno(net.failure(unix_listen(&path, umask, false)).errno),
            Errno::EADDRINUSE
        );
        let second = net.ask(unix_listen(&path, umask, true));
        assert!(matches!(net.answer().1, Done::UnixListening { .. }));
        assert_eq!(net.call(What::Cancel { of: id }).0, Done::Cancelled);
        assert!(path.exists(), "the second one's file");
        assert_eq!(net.call(What::Cancel { of: second }).0, Done::Cancelled);
        assert!(!path.exists(), "its file");
    }
    // Never a file of another kind.
    let file = dir.at("file");
    std::fs::write(&file, "precious").expect("write");
    std::os::unix::fs::chown(&file, Some(NOBODY), None).expect("chown");
    assert_eq!(
        Errno(net.failure(unix_listen(&file, 0, true)).errno),
        Errno::EADDRINUSE
    );
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "precious");
    let last = dir.at("last");
    assert!(matches!(
        net.call(unix_listen(&last, 0, false)).0,
        Done::UnixListening { .. }
    ));
    assert!(last.exists());
    net.stop();
    assert!(!last.exists(), "removed at the end");
}

#[test]
fn a_full_listener_is_knocked_at_again() {
    needs_root!();
    let net = Start::user().net();
    let dir = Dir::new(0o755, NOBODY);
    let path = dir.at("listener");
    let (_, mut fds) = net.call(What::ListenUnix {
        path: c(path.as_os_str().as_bytes()),
        umask: 0,
        unlink_first: false,
        backlog: 1,
    });
    let server = UnixListener::from(OwnedFd::from(fds.remove(0)));
    server.set_nonblocking(false).expect("blocking");
    // Fills the queue.
    let mut queued = 0;
    let waiting = loop {
        let id = net.ask(What::ConnectUnix {
            path: c(path.as_os_str().as_bytes()),
            timeout_ms: BOUND_MS,
        });
        let other = net.ask(What::Cancel { of: 4_000_000 });
        let (answered, done, _) = net.answer();
        if answered == other {
            break id;
        }
        assert!(matches!(done, Done::Connected { .. }), "{done:?}");
        assert_eq!(net.answer().0, other);
        queued += 1;
    };
    assert!((1..10).contains(&queued), "{queued}");
    let short = net.ask(What::ConnectUnix {
        path: c(path.as_os_str().as_bytes()),
        timeout_ms: 50,
    });
    let (answered, done, _) = net.answer();
    assert_eq!(answered, short);
    assert!(
        matches!(&done, Done::Failed { failure } if failure.reason == Reason::TimedOut),
        "{done:?}"
    );
    server.accept().expect("accept");
    let (answered, done, _) = net.answer();
    assert_eq!((answered, done), (waiting, Done::Connected { peer: None }));
    net.stop();
}

#[test]
fn agent_sockets_are_private() {
    needs_root!();
    let net = Start::user().net();
    let other = Start {
        uid: 65_533,
        ..Start::user()
    }
    .net();
    let mut paths = Vec::new();
    for _ in 0..2 {
        let (done, mut fds) = net.call(What::AgentSocket);
        let Done::UnixListening { path } = done else {
            panic!("{done:?}");
        };
        let path = PathBuf::from(path.into_string().expect("text"));
        let dir = path.parent().expect("a directory").to_owned();
        assert_eq!(
            path.file_name().and_then(|n| n.to_str()),
            Some(format!("agent.{}", net.child.pid).as_str())
        );
        let name = dir.file_name().and_then(|n| n.to_str()).expect("text").to_owned();
        assert!(
            dir.starts_with("/tmp") && name.starts_with("ssh-") && name.len() == 14,
            "{name}"
        );
        let (found, socket) = (
            std::fs::metadata(&dir).expect("dir"),
            std::fs::metadata(&path).expect("socket"),
        );
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o700, NOBODY));
        assert_eq!((socket.mode() & 0o7777, socket.uid()), (0o600, NOBODY));
        let server = UnixListener::from(OwnedFd::from(fds.remove(0)));
        server.set_nonblocking(false).expect("blocking");
        talk(
            &mut UnixStream::connect(&path).expect("connect"),
            &mut server.accept().expect("accept").0,
        );
        assert_eq!(Errno(other.failure(unix_connect(&path)).errno), Errno::EACCES);
        paths.push(dir);
    }
    assert_ne!(paths[0], paths[1]);
    assert_eq!(net.call(What::Cancel { of: 1 }).0, Done::Cancelled);
    assert!(!paths[0].exists() && paths[1].exists());
    net.stop();
    assert!(!paths[1].exists());
    other.stop();
}

#[test]
fn displays_are_the_first_free_ones() {
    needs_root!();
    let net = Start {
        world: Some(""),
        ..Start::user()
    }
    .net();
    let display = |first, last, any_address| {
        net.call(What::X11Display {
            first,
            last,
            any_address,
        })
    };
    // Somebody has number 10 on one of the two loopbacks only.
    let (done, fds) = net.call(listen("127.0.0.1", 6010));
    let taken = listeners(&done, fds);
    let (done, fds) = display(10, 1009, false);
    assert_eq!((done, fds.len()), (Done::Display { number: 11 }, 2));
    let bound = |fd: Fd| TcpListener::from(OwnedFd::from(fd)).local_addr().expect("bound");
    let at: Vec<SocketAddr> = fds.into_iter().map(bound).collect();
    assert_eq!(
        at,
        [
            "[::1]:6011".parse().expect("address"),
            "127.0.0.1:6011".parse::<SocketAddr>().expect("address")
        ]
    );
    let (done, fds) = display(11, 1009, true);
    assert_eq!(done, Done::Display { number: 11 });
    assert!(fds.into_iter().all(|fd| bound(fd).ip().is_unspecified()));
    let failure = net.failure(What::X11Display {
        first: 10,
        last: 10,
        any_address: false,
    });
    assert_eq!(Errno(failure.errno), Errno::EADDRINUSE);
    for (first, last) in [(11, 10), (0, 1000), (59_000, 59_536)] {
        assert_eq!(
            net.failure(What::X11Display {
                first,
                last,
                any_address: false
            })
            .reason,
            Reason::BadRequest
        );
    }
    drop(taken);
    assert_eq!(display(10, 10, false).0, Done::Display { number: 10 });
    net.stop();
}

#[test]
fn without_version_6_the_other_serves() {
    needs_root!();
    let off = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
    let net = Start {
        world: Some(off),
        ..Start::user()
    }
    .net();
    let (done, fds) = net.call(listen("localhost", 0));
    let only = listeners(&done, fds);
    assert_eq!((only.len(), only[0].1.ip()), (1, Ipv4Addr::LOCALHOST.into()));
    stream(net.call(connect("localhost", only[0].1.port())));
    let (done, fds) = net.call(What::X11Display {
        first: 10,
        last: 20,
        any_address: false,
    });
    assert_eq!((done, fds.len()), (Done::Display { number: 10 }, 1));
    // Asked for by its address it is an error.
    assert_eq!(Errno(net.failure(listen("::1", 0)).errno), Errno::EADDRNOTAVAIL);
    net.stop();
}

#[test]
fn bad_requests_are_answered_and_it_goes_on() {
    needs_root!();
    let net = Start::user().net();
    let long = "/".repeat(108);
    let cases = [
        (connect("", 1), Reason::BadRequest),
        (connect("127.0.0.1", 0), Reason::BadRequest),
        (connect("a b", 1), Reason::BadRequest),
        (connect(&"a".repeat(256), 1), Reason::BadRequest),
        (
            What::Connect {
                host: c("127.0.0.1"),
                port: 1,
                timeout_ms: 0,
            },
            Reason::BadRequest,
        ),
        (
            What::Connect {
                host: c("127.0.0.1"),
                port: 1,
                timeout_ms: 600_001,
            },
            Reason::BadRequest,
        ),
        (connect("fe80::1%nowhere0", 1), Reason::Missing),
        (unix_connect(Path::new("relative")), Reason::BadRequest),
        (unix_connect(Path::new("")), Reason::BadRequest),
        (unix_connect(Path::new(&long)), Reason::TooLarge),
        (unix_listen(Path::new("relative"), 0, true), Reason::BadRequest),
        (
            unix_listen(Path::new("/tmp/x"), 0o1000, false),
            Reason::BadRequest,
        ),
    ];
    for (what, reason) in cases {
        let failure = net.failure(what.clone());
        assert_eq!(failure.reason, reason, "{what:?}: {failure:?}");
        assert!(!failure.subject.is_empty());
    }
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    assert_eq!(listeners(&done, fds).len(), 1);
    net.stop();
}

#[test]
fn garbage_ends_it_with_a_reason() {
    needs_root!();
    let good = fleetgate_wire::encode(&Request {
        id: 7,
        what: listen("127.0.0.1", 0),
    });
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame
    };
    let cases: Vec<(&str, Vec<u8>, Vec<i32>)> = vec![
        ("truncated", with(&|f| f.truncate(f.len() - 1)), vec![]),
        ("trailing", with(&|f| f.push(0)), vec![]),
        ("no frame", with(&|f| f[0] = b'x'), vec![]),
        ("another version", with(&|f| f[2] += 1), vec![]),
        ("unknown", with(&|f| f[7] = 200), vec![]),
        ("oversized", vec![b'f'; 2000], vec![]),
        ("a descriptor", good.clone(), vec![null.as_raw_fd()]),
        ("number 0", with(&|f| f[3] = 0), vec![]),
    ];
    let refused = |net: &Net, name: &str| {
        let (id, done, _) = net.answer();
        assert_eq!(id, HELPER, "{name}: {done:?}");
        assert!(
            matches!(&done, Done::Failed { failure } if failure.reason == Reason::BadOrder),
            "{name}: {done:?}"
        );
        assert_eq!(net.end(), process::Exit::Code(1), "{name}");
    };
    for (name, frame, fds) in cases {
        let net = Start::user().net();
        net.send(&frame, &fds);
        refused(&net, name);
    }
    // A number that is in use; the same frame before it is a request like any other.
    let net = Start::user().net();
    let kept = fleetgate_wire::encode(&Request {
        id: 7,
        what: keep("127.0.0.1", 0),
    });
    net.send(&kept, &[]);
    assert!(matches!(net.answer(), (7, Done::Listening { .. }, _)));
    net.send(&good, &[]);
    refused(&net, "a number in use");
}

#[test]
fn orders_that_cannot_be_served_are_refused() {
    needs_root!();
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let order = |max_pending, roles: Vec<Role>| Order {
        work: Work::Networking(Networking {
            ids: ids(NOBODY),
            max_pending,
        }),
        roles,
    };
    let fd = vec![null.as_raw_fd()];
    let cases = [
        (order(0, vec![]), vec![], Reason::BadOrder),
        (order(1025, vec![]), vec![], Reason::BadOrder),
        (order(1, vec![Role::Stdin]), fd.clone(), Reason::BadDescriptors),
        (order(1, vec![Role::Resolver]), vec![], Reason::BadDescriptors),
        (order(1, vec![]), fd, Reason::BadDescriptors),
    ];
    for (order, fds, reason) in cases {
        let net = Start::user().launch(&fleetgate_wire::encode(&order), &fds);
        let (frame, _) = net.frame().expect("a word");
        match fleetgate_wire::decode(&frame).expect("a reply") {
            Reply::Failed { failure } => assert_eq!(failure.reason, reason, "{failure:?}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(net.end(), process::Exit::Code(1));
    }
}

#[test]
fn thousands_of_requests_leave_nothing_behind() {
    needs_root!();
    let net = Start::user().net();
    let server = TcpListener::bind("127.0.0.1:0").expect("listening");
    let port = server.local_addr().expect("bound").port();
    let round = |n: usize| {
        for _ in 0..n {
            drop(stream(net.call(connect("127.0.0.1", port))));
            server.accept().expect("accept");
            net.failure(unix_connect(Path::new("/nowhere/at/all")));
            let (done, fds) = net.call(listen("127.0.0.1", 0));
            listeners(&done, fds);
        }
    };
    round(100);
    let (descriptors, memory) = (net.descriptors(), net.status("RssAnon"));
    round(2000);
    assert_eq!(net.descriptors(), descriptors);
    // A block left behind by each of the 6000 requests would be 190 KB or more.
    assert!(kilobytes(&net.status("RssAnon")) <= kilobytes(&memory) + 100);
    net.stop();
}

#[test]
fn who_does_not_read_gets_no_more_than_a_socket_full() {
    needs_root!();
    let net = Start {
        world: Some(""),
        ..Start::user()
    }
    .net();
    let id = net.ask(keep("127.0.0.1", 0));
    let (_, done, _) = net.answer();
    let Done::Listening { local } = done else {
        panic!("{done:?}");
    };
    // The clients stand in the same namespace, so a second helper opens them.
    let clients = Start {
        join: Some(net.child.pid),
        ..Start::user()
    }
    .net();
    let (before, memory) = (net.descriptors(), net.status("RssAnon"));
    const CLIENTS: usize = 700;
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        held.push(stream(clients.call(connect("127.0.0.1", local[0].port))));
    }
    // One connection may wait inside; the rest are in the kernel's queues, bounded by socket and backlog.
    let held_inside = std::fs::read_dir(format!("/proc/{}/fd", net.child.pid))
        .expect("its descriptors")
        .count();
    assert!(held_inside <= before + 1, "{held_inside}");
    assert!(kilobytes(&net.status("RssAnon")) <= kilobytes(&memory) + 16);
    // Where they wait: the listener's queue (its rx_queue) is not empty.
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", net.child.pid)).expect("its sockets");
    let listener = format!("0100007F:{:04X} 00000000:0000 0A", local[0].port);
    let line = table
        .lines()
        .find(|l| l.contains(&listener))
        .expect("the listener");
    let queue = line
        .split([' ', ':'])
        .filter(|w| !w.is_empty())
        .nth(7)
        .expect("rx_queue");
    assert_ne!(u32::from_str_radix(queue, 16), Ok(0), "{line}");
    // A request that is sent now is served when there is room for its answer.
    let asked = net.ask(listen("127.0.0.1", 0));
    let (mut accepted, mut answered) = (0, false);
    while accepted < CLIENTS || !answered {
        let (answer, done, fds) = net.answer();
        match done {
            Done::Accepted { .. } if answer == id => accepted += fds.len(),
            Done::Listening { .. } if answer == asked => answered = true,
            other => panic!("{other:?}"),
        }
    }
    clients.stop();
    net.stop();
}

#[test]
fn no_descriptors_left_is_an_answer() {
    needs_root!();
    // 0 to 3 are taken, so there is room for two.
    let world = "ip tuntap add dev hole mode tun
        ip addr add 192.0.2.1/24 dev hole
        ip link set hole up
        ulimit -n 6";
    let net = Start {
        world: Some(world),
        ..Start::user()
    }
    .net();
    let id = net.ask(keep("127.0.0.1", 0));
    let (_, done, _) = net.answer();
    let Done::Listening { local } = done else {
        panic!("{done:?}");
    };
    let stuck = net.ask(connect("192.0.2.77", 9));
    assert_eq!(Errno(net.failure(listen("127.0.0.1", 0)).errno), Errno::EMFILE);
    // A connection that cannot be taken now is taken when there is a descriptor again.
    let clients = Start {
        join: Some(net.child.pid),
        ..Start::user()
    }
    .net();
    let client = stream(clients.call(connect("127.0.0.1", local[0].port)));
    assert_eq!(net.call(What::Cancel { of: stuck }).0, Done::Cancelled);
    let (answered, done, fds) = net.answer();
    assert_eq!((answered, fds.len()), (id, 1));
    let Done::Accepted { peer, .. } = done else {
        panic!("{done:?}");
    };
    assert_eq!(address(&peer), client.local_addr().expect("bound"));
    let (done, fds) = net.call(listen("127.0.0.1", 0));
    assert_eq!(listeners(&done, fds).len(), 1);
    clients.stop();
    net.stop();
}

#[test]
fn the_sockets_end_is_its_end() {
    needs_root!();
    let net = Start::user().net();
    let (done, _) = net.call(What::AgentSocket);
    let Done::UnixListening { path } = done else {
        panic!("{done:?}");
    };
    let path = PathBuf::from(path.into_string().expect("text"));
    assert!(path.exists());
    let Net { control, child, .. } = net;
    drop(control);
    readable(&child.pidfd);
    assert_eq!(
        process::wait(&child.pidfd, true),
        Ok(Some(process::Exit::Code(0)))
    );
    assert!(!path.exists() && !path.parent().expect("a directory").exists());
}

const CHILD: &str = "FLEETGATE_TEST_LAUNCHING_SIDE";

#[test]
fn killing_the_launching_side_removes_the_files() {
    needs_root!();
    if std::env::var_os(CHILD).is_some() {
        return launching_side();
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "killing_the_launching_side_removes_the_files",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the launching side");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let said = lines
        .map(|l| l.expect("a line"))
        .find_map(|l| l.split_once("SAID ").map(|(_, said)| said.to_owned()))
        .expect("what it has");
    let mut words = said.split(' ');
    let pid: i32 = words
        .next()
        .and_then(|w| w.parse().ok())
        .expect("the helper's number");
    let paths: Vec<PathBuf> = words.map(PathBuf::from).collect();
    assert_eq!(paths.len(), 2);
    assert!(paths.iter().all(|p| p.exists()));
    let helper = process::pidfd_open(pid).expect("it runs");
    child.kill().expect("kill");
    child.wait().expect("reaped");
    readable(&helper);
    assert!(paths.iter().all(|p| !p.exists()), "{paths:?}");
    assert!(!paths[0].parent().expect("a directory").exists());
    let _ = std::fs::remove_dir_all(paths[1].parent().expect("a directory"));
}

/// Plays the launching side until killed.
fn launching_side() {
    let net = Start::user().net();
    let dir = Dir::new(0o755, NOBODY);
    let mut said = net.child.pid.to_string();
    for what in [What::AgentSocket, unix_listen(&dir.at("listener"), 0o177, false)] {
        let (done, _) = net.call(what);
        let Done::UnixListening { path } = done else {
            panic!("{done:?}");
        };
        said += &format!(" {}", path.to_str().expect("text"));
    }
    println!("SAID {said}");
    let _ = std::io::stdin().read(&mut [0]);
}
