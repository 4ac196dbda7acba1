//! Bad input before the login, against a running node: whoever sends it loses his own connection, for a reason that he
//! is told and that is recorded; an honest session beside him goes on; memory, descriptors and processes are bounded and
//! come back to what they were.

use fleetgate_ssh::codec::Write as _;
use fleetgate_ssh::kex::Method;
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::{Errno, signals};
use fleetgate_tests::by_hand::{Client, Kind, Said, connect, disconnected, send};
use fleetgate_tests::honest::Honest;
use fleetgate_tests::login_world::sh;
use fleetgate_tests::peer::PORT;
use fleetgate_tests::service::{AUDIT, Manager, Service, audit, audited, forgiving};
use fleetgate_tests::weight::{Weight, settles};
use fleetgate_tests::world::wait_until;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// RFC 4253 §11.1.
const PROTOCOL_ERROR: u32 = 2;
const KEY_EXCHANGE_FAILED: u32 = 3;
const MAC_ERROR: u32 = 5;
const NO_SERVICE: u32 = 7;
const NO_VERSION: u32 = 8;
const BY_APPLICATION: u32 = 11;
const NO_MORE_METHODS: u32 = 14;

const VERSION: &[u8] = b"SSH-2.0-test\r\n";
/// Memory that allocators and caches may keep after an attack, in KB, of each part.
pub(super) const KEPT: u64 = 4096;

pub(super) fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\"]\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\n{more}"
    )
}

/// The audit log has a connection's end for this reason.
fn recorded(words: &str) {
    audited(&format!("a record of {words:?}"), |event| {
        event["event"] == "connection_ended"
            && event["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains(words))
    });
}

/// Packets without keys, behind a version line.
fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = VERSION.to_vec();
    for payload in payloads {
        let padding = 4 + (8 - (payload.len() + 9) % 8) % 8;
        out.put_u32((1 + payload.len() + padding) as u32);
        out.put_u8(padding as u8);
        out.put(payload);
        out.put(&vec![0; padding]);
    }
    out
}

/// A KEXINIT with these methods of key exchange.
fn kexinit(methods: &str) -> Vec<u8> {
    let mut payload = vec![20];
    payload.put(&[5; 16]);
    for names in [
        methods,
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
        payload.put_string(names);
    }
    payload.put(&[0; 5]);
    payload
}

#[test]
fn garbage_before_the_login() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut honest = Honest::new(&service);
    let before = Weight::of(&service);

    let ignore: &[u8] = &[2, 0, 0, 0, 0];
    let strict = kexinit("curve25519-sha256,kex-strict-c-v00@openssh.com");
    let lax = kexinit("curve25519-sha256");
    let mut zero_share = vec![30];
    zero_share.put_string([0; 32]);
    let raw = |bytes: &[u8]| [VERSION, bytes].concat();
    let message = |number: u8| packets(&[&[number, 0, 0, 0, 0]]);
    let many: Vec<&[u8]> = std::iter::once(&lax[..]).chain([ignore; 64]).collect();
    let rows: Vec<(Vec<u8>, u32, &str)> = vec![
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            PROTOCOL_ERROR,
            "does not speak SSH",
        ),
        (b"SSH-1.5-old\r\n".to_vec(), NO_VERSION, "SSH-1.5-old"),
        (vec![b'A'; 400], PROTOCOL_ERROR, "longer than 255 bytes"),
        (vec![0; 300], PROTOCOL_ERROR, "longer than 255 bytes"),
        (raw(&[0xff; 64]), PROTOCOL_ERROR, "a packet of 4294967295 bytes"),
        (raw(&[0; 64]), PROTOCOL_ERROR, "a packet of 0 bytes"),
        (raw(&[0, 0, 0x88, 0xbc, 4, 0, 0, 0]), PROTOCOL_ERROR, "35004"),
        (
            raw(&[0, 0, 0, 13, 4, 0, 0, 0]),
            PROTOCOL_ERROR,
            "a packet of 13 bytes",
        ),
        (
            packets(&[&lax[..lax.len() - 1]]),
            PROTOCOL_ERROR,
            "KEXINIT cannot be read",
        ),
        (
            packets(&[&kexinit("diffie-hellman-group1-sha1")]),
            KEY_EXCHANGE_FAILED,
            "in common",
        ),
        (
            message(5),
            PROTOCOL_ERROR,
            "message 5 came before there were keys",
        ),
        (
            message(90),
            PROTOCOL_ERROR,
            "message 90 came before there were keys",
        ),
        (
            message(250),
            PROTOCOL_ERROR,
            "message 250 came before there were keys",
        ),
        (packets(&[&[21]]), PROTOCOL_ERROR, "message 21 has no place"),
        (
            packets(&[&strict, &strict]),
            PROTOCOL_ERROR,
            "message 20 has no place",
        ),
        (
            packets(&[&strict, &zero_share]),
            KEY_EXCHANGE_FAILED,
            "client's share",
        ),
        // Terrapin: packets that an attacker puts in before the keys, to have others dropped unseen behind them.
        (
            packets(&[ignore, &strict]),
            PROTOCOL_ERROR,
            "not the first packet of a strict",
        ),
        (
            packets(&[&strict, ignore]),
            PROTOCOL_ERROR,
            "message 2 came during a strict",
        ),
        (packets(&many), PROTOCOL_ERROR, "too many packets"),
    ];
    for (bytes, reason, words) in rows {
        let told = send(&bytes);
        assert!(
            told.as_ref()
                .is_some_and(|(r, text)| *r == reason && text.contains(words)),
            "{words}: {told:?}"
        );
        recorded(words);
    }
    honest.answers();

    // The same, behind the first key exchange.
    type Does = fn(&mut Client);
    let rows: [(Does, u32, &str); 8] = [
        (
            |c| c.core.send_raw(&[90, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "message 90 came before the login",
        ),
        (
            |c| c.core.send_raw(&[50, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "message 50 has no place",
        ),
        (
            |c| c.core.send_raw(&[52]),
            PROTOCOL_ERROR,
            "message 52 has no place",
        ),
        (
            |c| c.core.send_raw(&[5, 0, 0, 0, 1, b'x']),
            NO_SERVICE,
            "there is no service \"x\"",
        ),
        (
            |c| c.core.send_raw(&[31, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "message 31 has no place",
        ),
        (
            |c| c.core.send_raw(&[20, 1, 2, 3]),
            PROTOCOL_ERROR,
            "KEXINIT cannot be read",
        ),
        (
            |c| c.core.send_raw(&[1, 0]),
            PROTOCOL_ERROR,
            "DISCONNECT cannot be read",
        ),
        (
            |c| (&c.socket).write_all(&[0x5a; 64]).expect("sent"),
            MAC_ERROR,
            "a packet was altered",
        ),
    ];
    for (does, reason, words) in rows {
        let mut client = Kind::mute().connect();
        client.until("keys", |c| c.said.contains(&Said::Established));
        assert!(client.pushes());
        does(&mut client);
        let told = client.ends();
        assert!(
            told.as_ref()
                .is_some_and(|(r, text)| *r == reason && text.contains(words)),
            "{words}: {told:?}"
        );
        recorded(words);
    }

    // A message that nobody knows ends nothing: it is answered, which the control is not.
    let mut client = Kind::mute().connect();
    client.until("keys", |c| c.said.contains(&Said::Established));
    for (number, answers) in [(2, 0), (250, 1)] {
        client.until("extensions", |c| c.core.info().extensions.ping);
        let packets = client.core.info().packets_in;
        client.core.send_raw(&[number, 0, 0, 0, 0]);
        client.core.send_raw(&[192, 0, 0, 0, 0]);
        client.until("PONG", |c| c.core.info().packets_in == packets + 1 + answers);
    }
    client.leaves();

    // Key exchanges without a login, and without end.
    let mut client = Kind::mute().connect();
    let mut done = 0;
    while client.end.is_none() {
        if client.core.info().exchanges > done {
            done = client.core.info().exchanges;
            assert!(done <= 8, "key exchanges before the login are bounded");
            client.core.rekey();
        }
        client.turn();
    }
    let told = client.ends();
    assert!(
        told.as_ref()
            .is_some_and(|(r, text)| *r == PROTOCOL_ERROR && text.contains("too many key exchanges")),
        "{told:?}"
    );

    // The first packet behind the keys, taken away by somebody in the middle.
    let mut client = Kind {
        truncated: true,
        ..Kind::honest("ada")
    }
    .connect();
    let told = client.ends();
    assert!(told.as_ref().is_some_and(|(r, _)| *r == MAC_ERROR), "{told:?}");

    // A wrong guess is honest.
    let mut kind = Kind::honest("ada");
    kind.core.first_share = fleetgate_ssh::settings::FirstShare::Guessed;
    kind.core.kex = vec![Method::EcdhP256, Method::Curve25519];
    let mut client = kind.connect();
    client.until("a login after a wrong guess", |c| {
        c.said.contains(&Said::LoggedIn)
    });
    client.leaves();
    honest.answers();
    settles("after garbage", &service, &before, KEPT);
}

#[test]
fn a_connection_cut_at_every_byte_of_handshake_and_login() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut honest = Honest::new(&service);
    // What an honest client sends up to its login.
    let whole = Client::login("ada");
    let all = whole.core.info().bytes_out as usize;
    assert!(whole.core.output().is_empty());
    whole.leaves();
    audited("ada's leaving", |e| {
        e["event"] == "connection_ended" && e["login"] == "ada"
    });
    let before = Weight::of(&service);
    for at in 0..all {
        let mut client = Kind {
            bytes: Some(at),
            ..Kind::honest("ada")
        }
        .connect();
        if at == 0 {
            client.socket.shutdown(Shutdown::Write).expect("connected");
        }
        let told = client.ends();
        assert_eq!(told, None, "cut at {at}: nobody is told");
        assert!(!client.said.contains(&Said::LoggedIn), "cut at {at}: in");
        if at % 100 == 0 {
            honest.answers();
        }
    }
    let logins = audit()
        .iter()
        .filter(|e| e["event"] == "login_accepted" && e["login"] == "ada")
        .count();
    assert_eq!(logins, 2, "the first one and the whole one");
    recorded("the peer closed the connection before it logged in");
    honest.answers();
    settles("after cuts", &service, &before, KEPT);
}

/// Reloads with another configuration.
fn reload(manager: &Manager, service: &Service, more: &str) {
    std::fs::write("/run/test/service.toml", forgiving(&configuration(more))).expect("write");
    service.signal(signals::HUP);
    manager.hear("RELOADING=1", service);
    manager.hear("READY=1", service);
}

#[test]
fn those_who_are_silent_too_many_or_guess() {
    let Some((_world, mut manager)) = Manager::in_world() else {
        return;
    };
    sh("for net in 1 2; do for host in 1 2; do ip addr add fd00:$net::$host/64 dev lo nodad; done; done");
    let v6 = |net: u8, host: u8, port| {
        let mut ip = [0; 16];
        (ip[0], ip[3], ip[15]) = (0xfd, net, host);
        Address::v6(ip, port)
    };
    manager.listen(v6(1, 1, PORT));
    let service = manager.start(&configuration("[limits]\ntries = 4\n"));
    let mut honest = Honest::new(&service);
    let before = Weight::of(&service);

    // Tries without end.
    for kind in [
        Kind {
            key: "stranger",
            ..Kind::honest("ada")
        },
        Kind::honest("nobody-of-this-name"),
    ] {
        let mut client = kind.connect();
        let mut asked = 0;
        while client.end.is_none() {
            let rejected = client.said.iter().filter(|s| **s == Said::Rejected).count();
            if rejected > asked {
                asked = rejected;
                assert!(asked <= 4, "tries are bounded");
                client.authenticate();
            }
            client.turn();
        }
        let told = client.ends();
        assert!(
            told.as_ref()
                .is_some_and(|(r, text)| *r == NO_MORE_METHODS && text.contains("too many tries")),
            "{told:?}"
        );
        audited("a refused login", |e| {
            e["event"] == "login_refused" && e["login"] == "ada"
        });
    }
    honest.answers();

    // More than may be, of one address and in sum.
    reload(
        &manager,
        &service,
        "[limits]\nunauthenticated = 20\nunauthenticated_per_source = 6\n",
    );
    let from = |ours: Address| {
        let theirs = match ours.is_v4() {
            true => Address::v4([127, 0, 0, 1], PORT),
            false => v6(1, 1, PORT),
        };
        let socket = net::tcp(&ours).expect("a socket");
        net::bind(&socket, &ours).expect("an address of loopback");
        match net::connect(&socket, &theirs) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(e) => panic!("{e}"),
        }
        socket.set_nonblocking(false).expect("a socket");
        let socket = TcpStream::from(OwnedFd::from(socket));
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time");
        socket
    };
    let v4 = |host| Address::v4([127, 0, 0, host], 0);
    let taken = |mut socket: TcpStream| {
        // Not yet connected, perhaps: a read waits for that too.
        let mut first = [0; 4];
        match socket.read(&mut first) {
            Ok(0) => None,
            Ok(_) => Some(socket),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(e) => panic!("neither taken nor refused: {e}"),
        }
    };
    let crowd: Vec<TcpStream> = (0..8).filter_map(|_| taken(from(v4(5)))).collect();
    assert_eq!(crowd.len(), 6, "of one address");
    drop(crowd);
    settles("after one address", &service, &before, KEPT);
    let mut held = Vec::new();
    // Of version 6 a /64 is one source. Nobody has more than his share, so nobody is refused early.
    for (source, tries, room) in [
        (v6(1, 1, 0), 3, 3),
        (v6(1, 2, 0), 2, 2),
        (v6(2, 1, 0), 5, 5),
        (v4(2), 5, 5),
        (v4(3), 5, 5),
        // All places are taken, and this one would have more than anybody.
        (v4(3), 3, 0),
    ] {
        let room_for: Vec<TcpStream> = (0..tries).filter_map(|_| taken(from(source))).collect();
        assert_eq!(room_for.len(), room, "{source:?}");
        held.extend(room_for);
    }
    for words in ["(limits.unauthenticated_per_source)", "(limits.unauthenticated)"] {
        audited("a refusal", |e| {
            e["event"] == "connection_refused" && e["reason"].as_str().is_some_and(|r| r.contains(words))
        });
    }
    honest.answers();
    // Another one has the place of one of them.
    let again = taken(from(v4(4)));
    assert!(again.is_some());
    recorded("its place went to another source");
    drop((held, again));
    settles("after a crowd", &service, &before, KEPT);

    // Silence, at each step of the way.
    reload(&manager, &service, "[limits]\nlogin_grace = \"2s\"\n");
    let strict = kexinit("curve25519-sha256,kex-strict-c-v00@openssh.com");
    let whole = packets(&[&strict]);
    let mut silent: Vec<TcpStream> = [&[][..], VERSION, &whole[..whole.len() / 2], &whole]
        .into_iter()
        .map(|bytes| {
            let mut socket = connect();
            socket.write_all(bytes).expect("sent");
            socket
        })
        .collect();
    let mut mute = Kind::mute().connect();
    let _ = mute.pushes();
    for socket in &mut silent {
        let told = disconnected(socket);
        assert_eq!(
            told,
            Some((BY_APPLICATION, "the time to log in is over".to_owned()))
        );
    }
    assert_eq!(
        mute.ends(),
        Some((BY_APPLICATION, "the time to log in is over".to_owned()))
    );
    recorded("the time to log in is over");
    honest.answers();
    reload(&manager, &service, "");
    Client::login("bea").leaves();
    settles("after silence", &service, &before, KEPT);
}

#[test]
fn a_thousand_connections_come_and_go() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut honest = Honest::new(&service);
    let lax = packets(&[&kexinit("curve25519-sha256")]);
    let hundred = |bytes: &[u8]| -> Vec<TcpStream> {
        let mut all: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
        for socket in &mut all {
            socket.write_all(bytes).expect("sent");
            socket.read_exact(&mut [0; 4]).expect("the server's version line");
        }
        all
    };
    // The first hundred show what the parts keep.
    drop(hundred(&lax));
    let settled = || {
        audit()
            .iter()
            .filter(|e| e["event"] == "connection_ended")
            .count()
    };
    wait_until("a hundred ends", || settled() >= 100);
    let before = Weight::of(&service);
    for round in 0..10 {
        // Half of them hold back the end of a long packet.
        let long = [VERSION, &[0, 0, 0x3f, 0xfc, 4], &[20; 12_000]].concat();
        let all = hundred(if round % 2 == 0 { &long } else { &lax });
        Weight::of(&service).is_bounded("a hundred at once", &before, [4096, 100 * 64, 0]);
        honest.answers();
        drop(all);
    }
    wait_until("all ends", || settled() >= 1100);
    honest.answers();
    settles("after a thousand", &service, &before, KEPT);
}
