//! The networking helper over real sockets: what it opens, as whom, in which namespace, and how it tries the
//! addresses of a name. Every test has its own helper; those that need ports or addresses of their own have a
//! network namespace of their own too.

use fleetgate_sys::Errno;
use fleetgate_tests::needs_root;
use fleetgate_tests::networking::*;
use fleetgate_wire::Reason;
use fleetgate_wire::names::Found;
use fleetgate_wire::net::{Done, MAX_KEPT_SOCKETS, What};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

#[test]
fn runs_as_the_user_and_nothing_more() {
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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

#[test]
fn a_slow_name_keeps_nobody_waiting() {
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
        (Found::Failed { why: c("SERVFAIL") }, Reason::UnknownName),
        (Found::Group { gid: 1 }, Reason::System),
        // Beyond what is read: that question alone is lost.
        (
            Found::Host {
                addresses: vec![endpoint(Ipv4Addr::LOCALHOST, 0); 2000],
            },
            Reason::UnknownName,
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
    needs_root!("sessions of another user");
    let net = Start::user().net();
    assert_eq!(net.failure(connect("name.test", 9)).reason, Reason::Unsupported);
    net.stop();
}

#[test]
fn every_address_gets_its_turn() {
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
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
    needs_root!("sessions of another user");
    let net = Start::user().net();
    for _ in 0..MAX_KEPT_SOCKETS {
        assert!(matches!(net.call(keep("127.0.0.1", 0)).0, Done::Listening { .. }));
    }
    assert_eq!(net.failure(keep("127.0.0.1", 0)).reason, Reason::TooMany);
    assert_eq!(net.failure(What::AgentSocket).reason, Reason::TooMany);
    assert_eq!(net.call(What::Cancel { of: 1 }).0, Done::Cancelled);
    assert!(matches!(net.call(keep("127.0.0.1", 0)).0, Done::Listening { .. }));
    net.stop();
}
