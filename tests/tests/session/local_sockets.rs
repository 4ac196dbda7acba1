//! The networking helper's unix-domain, agent and display sockets.

use fleetgate_sys::{Errno, Fd};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::networking::*;
use fleetgate_wire::Reason;
use fleetgate_wire::net::{Done, What};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// By then every copy of a closed descriptor is gone.
const CLOSED_BY: Duration = Duration::from_secs(10);

#[test]
fn unix_sockets_with_the_users_rights() {
    needs_root!("sessions of another user");
    let (user, root) = (Start::user().net(), Start::root().net());
    let dir = Folder::owned(0o700, 0);
    let path = dir.join("server");
    let server = UnixListener::bind(&path).expect("listening");
    let refused = user.failure(unix_connect(&path));
    assert_eq!(
        (refused.reason, Errno(refused.errno)),
        (Reason::Denied, Errno::EACCES)
    );
    assert!(refused.subject.to_bytes().ends_with(path.as_os_str().as_bytes()));
    let refused = user.failure(unix_listen(&dir.join("mine"), 0o177, false));
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
        root.failure(unix_connect(&dir.join("nobody"))).reason,
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
    needs_root!("sessions of another user");
    let net = Start::user().net();
    let dir = Folder::owned(0o755, NOBODY);
    for (umask, mode) in [(0o177, 0o600), (0o111, 0o666), (0o007, 0o770)] {
        let path = dir.join("listener");
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
    let file = dir.join("file");
    std::fs::write(&file, "precious").expect("write");
    std::os::unix::fs::chown(&file, Some(NOBODY), None).expect("chown");
    assert_eq!(
        Errno(net.failure(unix_listen(&file, 0, true)).errno),
        Errno::EADDRINUSE
    );
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "precious");
    let last = dir.join("last");
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
    needs_root!("sessions of another user");
    let net = Start::user().net();
    let dir = Folder::owned(0o755, NOBODY);
    let path = dir.join("listener");
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
    needs_root!("sessions of another user");
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
fn a_real_agent_answers_over_a_forwarded_socket() {
    needs_root!("sessions of another user");
    let dir = Folder::owned(0o700, 0);
    let (key, agent) = (dir.join("key"), dir.join("agent"));
    let run = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(args).env("SSH_AUTH_SOCK", &agent);
        let out = command.output().expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    run(
        "ssh-keygen",
        &[
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "a-forwarded-key",
            "-f",
            &text(&key),
        ],
    );
    // It says where it listens when it does.
    let mut real = std::process::Command::new("ssh-agent")
        .args(["-D", "-a", &text(&agent)])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("ssh-agent runs");
    let mut line = String::new();
    let mut said = BufReader::new(real.stdout.take().expect("its output"));
    said.read_line(&mut line).expect("its first line");
    assert!(line.contains("SSH_AUTH_SOCK"), "{line}");
    run("ssh-add", &["-q", &text(&key)]);

    let net = Start::user().net();
    let (done, mut fds) = net.call(What::AgentSocket);
    let Done::UnixListening { path } = done else {
        panic!("{done:?}");
    };
    let server = UnixListener::from(OwnedFd::from(fds.remove(0)));
    server.set_nonblocking(false).expect("blocking");
    // The user's program on this side, the real agent on the other, the channel between them played here.
    let asks = std::process::Command::new("ssh-add")
        .arg("-l")
        .env("SSH_AUTH_SOCK", path.to_str().expect("text"))
        .uid(NOBODY)
        .gid(NOBODY)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("ssh-add runs");
    let (user, _) = server.accept().expect("accept");
    let there = UnixStream::connect(&agent).expect("connect");
    let (mut from, mut to) = (user.try_clone().expect("dup"), there.try_clone().expect("dup"));
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut &there, &mut &user);
    up.join().expect("copied");
    let listed = asks.wait_with_output().expect("it ends");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("a-forwarded-key"), "{listed}");
    real.kill().expect("kill");
    real.wait().expect("reaped");
    net.stop();
}

#[test]
fn displays_are_the_first_free_ones() {
    needs_root!("sessions of another user");
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
    // A test beside this one that is just starting a program has a copy of what was closed, until that program runs.
    let freed = |first, any_address| {
        let end = Instant::now() + CLOSED_BY;
        loop {
            let (done, fds) = display(first, first, any_address);
            if !matches!(done, Done::Failed { .. }) || Instant::now() > end {
                return (done, fds);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let (done, fds) = freed(11, true);
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
    assert_eq!(freed(10, false).0, Done::Display { number: 10 });
    net.stop();
}

#[test]
fn without_version_6_the_other_serves() {
    needs_root!("sessions of another user");
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
