//! Sockets for the client: where it wants to go, where it wants to be reached, its agent.

use crate::world::{Said, World};
use fleetgate_ssh::event::{ChannelKind, Global, Request, Stream};
use fleetgate_wire::node::FrontPermit;
use fleetgate_wire::node::front::{FromFront, RequestKind};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

fn direct(port: u16) -> ChannelKind {
    ChannelKind::DirectTcpip {
        host: b"127.0.0.1".to_vec(),
        port: port.into(),
        origin: b"127.0.0.1".to_vec(),
        origin_port: 1,
    }
}

#[test]
fn a_connection_goes_both_ways_and_closes_by_halves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let peer = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        let mut all = Vec::new();
        socket.read_to_end(&mut all).expect("the end comes");
        socket.write_all(&all).expect("it is still read");
        all.len()
    });
    let mut w = World::new();
    let c = w.login();
    let ch = w.clients[c].core.open(&direct(port)).expect("allowed");
    w.until(|w| w.clients[c].said.contains(&Said::Opened(ch.0)));
    w.write(c, ch, &vec![5; 3_000_000]);
    w.clients[c].core.eof(ch);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(peer.join().expect("it ends"), 3_000_000);
    assert_eq!(w.output(c, ch, Stream::Main).len(), 3_000_000);
    assert_eq!(
        w.clients[c].steps(ch),
        [Said::Opened(ch.0), Said::Eof(ch.0), Said::Closed(ch.0)]
    );
    let to = format!("127.0.0.1:{port}");
    let told = |t: &FromFront| matches!(t, FromFront::Forwarded { to: t, sent: 3_000_000, received: 3_000_000, .. } if t.to_bytes() == to.as_bytes());
    w.until(|w| w.told.iter().any(told));
}

#[test]
fn a_connection_on_to_an_ssh_server_is_marked_or_closed() {
    for (greeting, refuses, is_ssh) in [
        (&b"SSH-2.0-OpenSSH_10.0\r\n"[..], false, true),
        (b"SSH-2.0-OpenSSH_10.0\r\n", true, true),
        (b"220 mail.example ESMTP\r\n", true, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let peer = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("somebody comes");
            socket.write_all(greeting).expect("it is read");
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let mut w = World::new();
        if refuses {
            w.permits = w.permits.with(FrontPermit::NoOnwardSsh);
        }
        let c = w.login();
        let ch = w.clients[c].core.open(&direct(port)).expect("allowed");
        w.until(|w| w.clients[c].said.contains(&Said::Opened(ch.0)));
        let is_passed = !(is_ssh && refuses);
        if is_passed {
            w.until(|w| w.output(c, ch, Stream::Main) == greeting);
            w.clients[c].core.eof(ch);
        }
        w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
        peer.join().expect("it ends");
        assert_eq!(w.output(c, ch, Stream::Main).is_empty(), !is_passed);
        let told =
            |t: &FromFront| matches!(t, FromFront::Forwarded { onward_ssh, .. } if *onward_ssh == is_ssh);
        w.until(|w| w.told.iter().any(told));
        let denied = |t: &FromFront| matches!(t, FromFront::Denied { .. });
        assert_eq!(w.told.iter().any(denied), !is_passed);
    }
}

#[test]
fn what_was_sent_before_a_close_is_passed_on_however_slowly_it_is_taken() {
    const SENT: usize = 3_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (closed, read_on) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        read_on.recv().expect("the client has closed");
        let mut all = Vec::new();
        socket.read_to_end(&mut all).expect("the end comes");
        all.len()
    });
    let mut w = World::new();
    let c = w.login();
    let ch = w.clients[c].core.open(&direct(port)).expect("allowed");
    w.until(|w| w.clients[c].said.contains(&Said::Opened(ch.0)));
    // As much as goes while nobody reads: the last of it is the front's to keep.
    let mut sent = 0;
    while sent < SENT {
        let n = w.clients[c]
            .core
            .write(ch, Stream::Main, &vec![5; (SENT - sent).min(30_000)]);
        sent += n;
        if n == 0 {
            if w.clients[c].core.output().is_empty() {
                break;
            }
            w.step(20);
        }
    }
    w.clients[c].core.close(ch);
    w.until(|w| w.clients[c].core.output().is_empty());
    closed.send(()).expect("it waits");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert!(sent > 100_000, "{sent}");
    assert_eq!(peer.join().expect("it ends"), sent);
}

#[test]
fn what_cannot_be_reached_or_may_not_be_is_refused() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let local = ChannelKind::DirectStreamlocal {
        path: b"/some/socket".to_vec(),
    };
    let other = ChannelKind::Other {
        name: b"tun@openssh.com".to_vec(),
        payload: Vec::new(),
    };
    let all = FrontPermit::ConnectForward as u32;
    for (kind, without, reason, told) in [
        (direct(port), 0, 2, None),
        (
            direct(0x1_0000_u32 as u16),
            all,
            1,
            Some((RequestKind::ConnectTcp, "direct-tcpip to 127.0.0.1:0")),
        ),
        (local.clone(), 0, 2, None),
        (
            local,
            all,
            1,
            Some((RequestKind::ConnectUnix, "direct-streamlocal to /some/socket")),
        ),
        (other, 0, 3, None),
    ] {
        let mut w = World::new();
        w.permits.0 &= !without;
        let c = w.login();
        let ch = w.clients[c].core.open(&kind).expect("allowed");
        w.until(|w| w.clients[c].said.contains(&Said::OpenFailed(ch.0, reason)));
        if let Some((refused, told)) = told {
            let denied = |t: &FromFront| {
                matches!(t, FromFront::Denied { kind, what, .. }
                    if *kind == refused && what.to_bytes() == told.as_bytes())
            };
            w.until(|w| w.told.iter().any(denied));
        }
        let ch = w.exec(c, "echo alive");
        w.until(|w| w.output(c, ch, Stream::Main) == b"alive\n");
    }
}

#[test]
fn the_client_is_reached_through_a_port_of_ours_until_it_cancels() {
    let mut w = World::new();
    let c = w.login();
    let host = b"localhost".to_vec();
    let forward = Global::TcpipForward {
        host: host.clone(),
        port: 0,
    };
    w.clients[c].core.global(&forward, true);
    w.until(|w| {
        w.clients[c]
            .said
            .iter()
            .any(|s| matches!(s, Said::Global(true, _)))
    });
    let port = w.clients[c]
        .said
        .iter()
        .find_map(|s| match s {
            Said::Global(true, fields) => Some(u32::from_be_bytes(fields[..].try_into().expect("a port"))),
            _ => None,
        })
        .expect("answered");
    let mut socket = TcpStream::connect(("127.0.0.1", port as u16)).expect("it listens");
    socket.write_all(b"to the client").expect("sent");
    socket.shutdown(Shutdown::Write).expect("connected");
    w.until(|w| w.clients[c].said.iter().any(|s| matches!(s, Said::Eof(_))));
    let (ch, kind) = w.clients[c]
        .said
        .iter()
        .find_map(|s| match s {
            Said::Open(ch, kind) => Some((fleetgate_ssh::event::ChannelId(*ch), kind.clone())),
            _ => None,
        })
        .expect("opened");
    let expected = ChannelKind::ForwardedTcpip {
        host: host.clone(),
        port,
        origin: b"127.0.0.1".to_vec(),
        origin_port: 7,
    };
    assert_eq!(kind, expected);
    assert_eq!(w.output(c, ch, Stream::Main), b"to the client");
    w.write(c, ch, b"from the client");
    w.clients[c].core.eof(ch);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    let mut back = String::new();
    socket.read_to_string(&mut back).expect("the end comes");
    assert_eq!(back, "from the client");

    w.clients[c].said.clear();
    let cancel = Global::CancelTcpipForward { host, port };
    w.clients[c].core.global(&cancel, true);
    w.clients[c].core.global(&cancel, true);
    w.until(|w| {
        w.clients[c]
            .said
            .iter()
            .filter(|s| matches!(s, Said::Global(..)))
            .count()
            == 2
    });
    assert_eq!(
        w.clients[c].said,
        [Said::Global(true, Vec::new()), Said::Global(false, Vec::new())]
    );
    assert!(TcpStream::connect(("127.0.0.1", port as u16)).is_err());
}

#[test]
fn a_command_begins_once_what_was_asked_for_before_it_listens_or_cannot() {
    let tcp = Global::TcpipForward {
        host: b"localhost".to_vec(),
        port: 0,
    };
    // The monitor of these tests makes no such socket: it says that it cannot.
    let unix = Global::StreamlocalForward {
        path: b"/a/socket".to_vec(),
    };
    for forward in [tcp, unix] {
        let mut w = World::new();
        let c = w.login();
        let before = w.exec(c, "echo before");
        w.until(|w| w.output(c, before, Stream::Main) == b"before\n");
        w.unreachable = true;
        w.clients[c].core.global(&forward, true);
        let ch = w.exec(c, "echo behind");
        for _ in 0..20 {
            w.step(10);
        }
        assert_eq!(w.starts.len(), 1, "it does not listen yet");
        w.answer_sockets();
        w.until(|w| w.output(c, ch, Stream::Main) == b"behind\n");
        let answered = |w: &World| {
            w.clients[c]
                .said
                .iter()
                .position(|s| matches!(s, Said::Global(..)))
        };
        let began = |w: &World| {
            w.clients[c]
                .said
                .iter()
                .position(|s| *s == Said::Replied(ch.0, true))
        };
        assert!(answered(&w) < began(&w) && answered(&w).is_some());
    }
}

#[test]
fn remote_forwarding_needs_its_permit() {
    let mut w = World::new();
    w.permits.0 &= !(FrontPermit::ListenForward as u32);
    let c = w.login();
    let forward = Global::TcpipForward {
        host: Vec::new(),
        port: 0,
    };
    w.clients[c].core.global(&forward, true);
    w.until(|w| w.clients[c].said.contains(&Said::Global(false, Vec::new())));
    w.until(|w| w.told.iter().any(|t| matches!(t, FromFront::Denied { .. })));
}

#[test]
fn the_agent_is_reached_by_the_sessions_that_asked_for_it() {
    let mut w = World::new();
    let c = w.login();
    let mut tickets = Vec::new();
    for _ in 0..2 {
        let ch = w.session(c);
        let command = b"exec cat".to_vec();
        w.clients[c].core.request(ch, &Request::Agent, true);
        w.clients[c].core.request(ch, &Request::Exec { command }, true);
        w.until(|w| {
            w.clients[c]
                .steps(ch)
                .ends_with(&[Said::Replied(ch.0, true), Said::Replied(ch.0, true)])
        });
        tickets.push(w.starts.pop().expect("started").agent.expect("with an agent"));
    }
    assert_eq!(tickets[0], tickets[1], "one socket for both");
    let name = format!("worker-agent-{}-{}", std::process::id(), tickets[0]);
    let path = std::env::temp_dir().join(name);
    let mut socket = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    std::fs::remove_file(path).expect("ours");
    socket.write_all(b"a question").expect("sent");
    w.until(|w| {
        w.clients[c]
            .said
            .iter()
            .any(|s| matches!(s, Said::Data(_, _, b) if b == b"a question"))
    });
    let agent = w.clients[c].said.iter().find_map(|s| match s {
        Said::Open(ch, ChannelKind::Agent) => Some(fleetgate_ssh::event::ChannelId(*ch)),
        _ => None,
    });
    let agent = agent.expect("opened");
    w.write(c, agent, b"an answer");
    w.clients[c].core.close(agent);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(agent.0)));
    let mut back = String::new();
    socket.read_to_string(&mut back).expect("the end comes");
    assert_eq!(back, "an answer");
}
