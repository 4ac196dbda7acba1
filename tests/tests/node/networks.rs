//! Sockets as a front asks for them: opened as the user by a helper that starts with the first request, within the grant.

use fleetgate_node::config::Config;
use fleetgate_policy::{Permits, Rule, permits::Target};
use fleetgate_sys::{Fd, process};
use fleetgate_tests::needs_root;
use fleetgate_tests::node_desk::{CONNECTION, Desk, command};
use fleetgate_tests::orders::{read_all, wait_for};
use fleetgate_wire::Reason;
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::ProcessEnd;
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

fn connect(port: u16) -> What {
    What::Connect {
        host: c"127.0.0.1".into(),
        port,
        timeout_ms: 1,
    }
}

fn stream(mut fds: Vec<Fd>) -> TcpStream {
    let socket = fds.pop().expect("a socket");
    assert!(fds.is_empty());
    let socket = TcpStream::from(std::os::fd::OwnedFd::from(socket));
    socket.set_nonblocking(false).expect("waiting");
    socket
}

fn failure(done: Done) -> (Reason, String) {
    match done {
        Done::Failed { failure } => (failure.reason, failure.subject.to_string_lossy().into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sockets_are_opened_within_the_grant() {
    needs_root!("sessions of another user");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("its address").port();
    let mut permits = Permits::all();
    let target = Target::parse(&format!("127.0.0.1:{port}"), false).expect("a target");
    permits.only_connect(vec![target], &Rule::new("permitopen"));
    let mut desk = Desk::with(Config::default(), permits);
    for _ in 0..2 {
        let ticket = desk.ask(connect(port));
        let (done, fds) = desk.socket(ticket);
        assert!(matches!(done, Done::Connected { .. }), "{done:?}");
        let (mut ours, mut theirs) = (stream(fds), listener.accept().expect("accepted").0);
        ours.write_all(b"hello").expect("sent");
        drop(ours);
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).expect("heard");
        assert_eq!(heard, "hello");
    }
    let ticket = desk.ask(connect(port.wrapping_add(1)));
    let (reason, why) = failure(desk.socket(ticket).0);
    assert_eq!(reason, Reason::Denied);
    assert!(why.ends_with("is not allowed by permitopen"), "{why}");
    let log = desk.close();
    assert_eq!(
        log.iter().filter(|v| v["event"] == "denied").count(),
        1,
        "{log:?}"
    );
}

#[test]
fn what_listens_hands_over_connections_until_it_is_cancelled() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let accept = What::Accept {
        host: c"".into(),
        port: 0,
        backlog: 1,
    };
    let listening = desk.ask(accept);
    let (done, fds) = desk.socket(listening);
    let Done::Listening { local } = done else {
        panic!("{done:?}")
    };
    // Not on all addresses, whatever was asked for: gateway_ports is off.
    assert!(fds.is_empty() && !local.is_empty());
    let loopback = |a: &[u8; 16]| std::net::Ipv6Addr::from(*a).to_canonical().is_loopback();
    assert!(local.iter().all(|end| loopback(&end.address)), "{local:?}");
    let port = local[0].port;
    for _ in 0..2 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let (done, fds) = desk.socket(listening);
        assert!(matches!(done, Done::Accepted { .. }), "{done:?}");
        let mut socket = stream(fds);
        client.write_all(b"x").expect("sent");
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("heard");
        assert_eq!(&byte, b"x");
    }
    let cancel = desk.ask(What::Cancel { of: listening });
    assert_eq!(desk.socket(cancel).0, Done::Cancelled);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let again = desk.ask(What::Cancel { of: listening });
    assert_eq!(failure(desk.socket(again).0).0, Reason::Missing);
    let log = desk.close();
    let on = log.iter().find(|v| v["event"] == "listening").expect("told of");
    assert!(
        on["on"]
            .as_str()
            .is_some_and(|on| on.contains(&format!("127.0.0.1:{port}"))),
        "{on}"
    );
}

#[test]
fn listeners_are_bounded() {
    needs_root!("sessions of another user");
    let mut config = Config::default();
    config.limits.listeners = 2;
    let mut desk = Desk::with(config, Permits::all());
    for _ in 0..2 {
        let ticket = desk.ask(What::AgentSocket);
        assert!(matches!(desk.socket(ticket).0, Done::UnixListening { .. }));
    }
    let ticket = desk.ask(What::AgentSocket);
    let refused = failure(desk.socket(ticket).0);
    let why = "a connection has at most 2 listeners (limits.listeners)".to_owned();
    assert_eq!(refused, (Reason::TooMany, why));
}

#[test]
fn a_forwarded_agent_reaches_the_session_and_is_the_users() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let ticket = desk.ask(What::AgentSocket);
    let (done, fds) = desk.socket(ticket);
    let Done::UnixListening { path } = done else {
        panic!("{done:?}")
    };
    assert_eq!(fds.len(), 1);
    let path = path.to_string_lossy().into_owned();
    let meta = std::fs::metadata(&path).expect("the socket");
    assert_eq!((meta.uid(), meta.permissions().mode() & 0o077), (54321, 0));
    let mut start = command("echo $SSH_AUTH_SOCK");
    start.agent = Some(ticket);
    let (session, mut pipes) = desk.started(start);
    assert_eq!(read_all(pipes.swap_remove(1)), format!("{path}\n"));
    assert_eq!(
        desk.ended(session),
        ProcessEnd {
            status: 0,
            signalled: false,
            core: false
        }
    );
    let mut start = command("true");
    start.agent = Some(999);
    let refused = desk.start(start);
    assert_eq!(desk.refused(refused), "there is no agent to forward");
    let client = UnixStream::connect(&path).expect("connected");
    wait_for(&fds[0], fleetgate_sys::poll::READ);
    let listener = UnixListener::from(std::os::fd::OwnedFd::from(
        fds.into_iter().next().expect("a listener"),
    ));
    listener.accept().expect("accepted");
    drop(client);
    desk.close();
    // The helper removes what it made when its socket ends.
    while std::path::Path::new(&path).exists() {
        std::thread::yield_now();
    }
}

#[test]
fn a_helper_that_dies_takes_nothing_with_it() {
    needs_root!("sessions of another user");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = listener.local_addr().expect("its address").port();
    let mut desk = Desk::new();
    let ticket = desk.ask(connect(port));
    assert!(matches!(desk.socket(ticket).0, Done::Connected { .. }));
    let pid = desk.networks.helper_of(CONNECTION).expect("a helper");
    process::signal(&process::pidfd_open(pid).expect("it runs"), process::SIGKILL).expect("killed");
    desk.until(|desk| desk.networks.helper_of(CONNECTION).is_none());
    let ticket = desk.ask(connect(port));
    assert!(matches!(desk.socket(ticket).0, Done::Connected { .. }));
    assert_ne!(desk.networks.helper_of(CONNECTION), Some(pid));
    let log = desk.close();
    let died = log
        .iter()
        .find(|v| v["event"] == "process_died")
        .expect("told of");
    assert_eq!(
        (&died["process"], &died["pid"]),
        (&"networking".into(), &pid.into())
    );
}

#[test]
fn x11_has_its_display_and_its_cookie_before_the_session_starts() {
    needs_root!("sessions of another user");
    // What stands for xauth says where it ran and what it read, and is told nothing in its arguments.
    let script = format!("/var/tmp/fleetgate-xauth-{}", std::process::id());
    let log = format!("{script}.log");
    let text = format!("#!/bin/sh\n{{ id -u; echo \"$@\"; cat; }} > {log}\n");
    std::fs::write(&script, text).expect("a script");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("chmod");
    std::fs::write(&log, "").expect("its log");
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o666)).expect("chmod");
    let config = Config {
        xauth: script.clone().into(),
        ..Config::default()
    };
    let mut desk = Desk::with(config, Permits::all());
    let ticket = desk.ask(What::X11Display {
        first: 0,
        last: 1,
        any_address: true,
    });
    let (done, fds) = desk.socket(ticket);
    let Done::Display { number } = done else {
        panic!("{done:?}")
    };
    assert!(number >= 10 && !fds.is_empty());
    let mut start = command(&format!("cat {log}; echo $DISPLAY"));
    start.x11 = Some(fleetgate_wire::node::front::X11 {
        display: ticket,
        protocol: b"MIT-MAGIC-COOKIE-1".to_vec(),
        cookie: b"00ff".to_vec(),
        screen: 0,
    });
    let (session, mut pipes) = desk.started(start.clone());
    let wanted = format!(
        "54321\n-q -\nremove unix:{number}.0\nadd unix:{number}.0 MIT-MAGIC-COOKIE-1 00ff\nlocalhost:{number}.0\n"
    );
    assert_eq!(read_all(pipes.swap_remove(1)), wanted);
    assert_eq!(desk.ended(session).status, 0);
    // Without xauth the session starts all the same.
    let gone = CString::new(script).expect("a path");
    std::fs::remove_file(gone.to_str().expect("text")).expect("removed");
    let (session, mut pipes) = desk.started(start);
    assert!(read_all(pipes.swap_remove(1)).ends_with(&format!("localhost:{number}.0\n")));
    assert_eq!(desk.ended(session).status, 0);
    std::fs::remove_file(log).expect("removed");
}
