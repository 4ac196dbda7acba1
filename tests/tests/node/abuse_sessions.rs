//! Bad input after the login, against a running node: whoever is in and asks for too much, or breaks the protocol, loses
//! his own connection or is refused; an honest session of another login goes on; memory, descriptors and processes are
//! bounded and come back to what they were.

use fleetgate_ssh::channel::Message;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Global, Pty, Request, Stream, WindowSize};
use fleetgate_tests::by_hand::{Client, Kind, Said};
use fleetgate_tests::honest::Honest;
use fleetgate_tests::peer::World;
use fleetgate_tests::service::{AUDIT, Manager, Service, audit, audited};
use fleetgate_tests::weight::{Weight, settles};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::io::Write;
use std::time::Instant;

/// RFC 4253 §11.1.
const PROTOCOL_ERROR: u32 = 2;
const MAC_ERROR: u32 = 5;
const BY_APPLICATION: u32 = 11;
/// RFC 4254 §5.1.
const CONNECT_FAILED: u32 = 2;
const SHORTAGE: u32 = 4;

/// Memory that allocators and caches may keep after an attack, in KB, of each part.
const KEPT: u64 = 4096;
/// What one client may make his front hold, in KB: the windows of its channels and the buffers of its connection.
const OF_A_FRONT: u64 = 40 << 10;
/// What he may make the monitor hold, in KB.
const OF_THE_MONITOR: u64 = 4096;

/// A node in a world of its own; None without root.
fn node() -> Option<(World, Manager, Service, Honest)> {
    let (world, manager) = Manager::in_world()?;
    let service = manager.start(&format!(
        "host_keys = [\"/run/test/host_ed25519\"]\nx11_forwarding = true\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\n"
    ));
    let honest = Honest::new(&service);
    Some((world, manager, service, honest))
}

/// A client of ada's with a session in which nothing runs; its number is 0.
fn with_session() -> Client {
    let mut client = Client::login("ada");
    let channel = client.session();
    assert_eq!(channel.0, 0);
    client
}

fn data(bytes: &[u8]) -> Message<'_> {
    Message::Data {
        ours: 0,
        stream: Some(Stream::Main),
        bytes,
    }
}

#[test]
fn garbage_after_the_login() {
    let Some((_world, _manager, service, mut honest)) = node() else {
        return;
    };
    let before = Weight::of(&service);
    type Does = fn(&mut Client);
    let rows: [(Does, u32, &str); 15] = [
        (
            |c| c.core.send_raw(&[94, 0, 0, 0, 99, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "does not exist",
        ),
        (|c| c.core.send_raw(&[98]), PROTOCOL_ERROR, "cannot be read"),
        (
            |c| c.core.send_raw(&[94, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
            PROTOCOL_ERROR,
            "cannot be read",
        ),
        (
            |c| c.core.send_raw(&[99, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "to no request",
        ),
        (|c| c.core.send_raw(&[91, 0, 0, 0, 0]), PROTOCOL_ERROR, ""),
        (
            |c| c.core.send_raw(&[61, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "message 61 has no place",
        ),
        (
            |c| c.core.send_raw(&[31, 0, 0, 0, 0]),
            PROTOCOL_ERROR,
            "message 31 has no place",
        ),
        (
            |c| c.core.send_raw(&[20, 0, 0]),
            PROTOCOL_ERROR,
            "KEXINIT cannot be read",
        ),
        (
            |c| {
                c.says(&Message::Adjust {
                    ours: 0,
                    bytes: u32::MAX,
                })
            },
            PROTOCOL_ERROR,
            "grows beyond 2^32 - 1",
        ),
        (|c| c.says(&data(&[0; 40_000])), PROTOCOL_ERROR, ""),
        (
            |c| (0..5).for_each(|_| c.says(&data(&[0; 32_000]))),
            PROTOCOL_ERROR,
            "",
        ),
        (
            |c| {
                c.says(&Message::Eof(0));
                c.says(&data(b"late"));
            },
            PROTOCOL_ERROR,
            "after its EOF",
        ),
        (
            |c| {
                c.core.global(&Global::NoMoreSessions, false);
                let _ = c.core.open(&ChannelKind::Session);
            },
            PROTOCOL_ERROR,
            "after no-more-sessions",
        ),
        (
            |c| c.core.send_raw(&[0x5a; 300_000]),
            MAC_ERROR,
            "length is out of bounds",
        ),
        (
            |c| {
                assert!(c.pushes());
                (&c.socket).write_all(&[0x5a; 64]).expect("sent");
            },
            MAC_ERROR,
            "a packet was altered",
        ),
    ];
    for (n, (does, reason, words)) in rows.into_iter().enumerate() {
        let mut client = with_session();
        does(&mut client);
        let told = client.ends();
        assert!(
            told.as_ref()
                .is_some_and(|(r, text)| *r == reason && text.contains(words)),
            "row {n}, {words}: {told:?}"
        );
        let words = told.expect("asked above").1;
        audited("the reason's record", |event| {
            event["event"] == "connection_ended"
                && event["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.contains(&words))
        });
    }
    honest.answers();

    // What is only out of date, or unknown, ends nothing.
    let mut client = with_session();
    let channel = ChannelId(0);
    client.core.send_raw(&[50, 0, 0, 0, 3, b'a', b'd', b'a']);
    client.core.send_raw(&[250, 1, 2, 3]);
    assert!(!client.asks(
        channel,
        Request::Signal {
            name: b"TERM".to_vec()
        }
    ));
    client.exec(channel, "exec cat");
    for late in [
        Request::Shell,
        Request::Exec {
            command: b"true".to_vec(),
        },
        Request::Subsystem {
            name: b"sftp".to_vec(),
        },
        Request::Env {
            name: b"LANG".to_vec(),
            value: b"C".to_vec(),
        },
        Request::Other {
            name: b"nobody@knows".to_vec(),
            payload: vec![0xff; 1000],
        },
        Request::Signal {
            name: vec![b'X'; 1000],
        },
    ] {
        assert!(!client.asks(channel, late.clone()), "{late:?}");
    }
    assert!(!client.asks_for(Global::Other {
        name: b"nobody@knows".to_vec(),
        payload: vec![7; 9]
    }));
    client.echoes(channel, "goes on\n");
    client.leaves();
    honest.answers();
    settles("after garbage", &service, &before, KEPT);
}

#[test]
fn too_much_of_everything() {
    let Some((_world, _manager, service, mut honest)) = node() else {
        return;
    };
    let before = Weight::of(&service);
    let bounded = |what| Weight::of(&service).is_bounded(what, &before, [OF_THE_MONITOR, KEPT, OF_A_FRONT]);

    // Channels, by somebody who reads the answers.
    let mut client = Client::login("ada");
    for _ in 0..2000 {
        client
            .core
            .open(&ChannelKind::Session)
            .expect("its own bound is higher");
    }
    let answers = |c: &Client, refused: bool| {
        let is = |s: &&Said| match s {
            Said::Opened(_) => !refused,
            Said::OpenFailed(_, reason) => refused && *reason == SHORTAGE,
            _ => false,
        };
        c.said.iter().filter(is).count()
    };
    client.until("2000 answers", |c| answers(c, false) + answers(c, true) >= 2000);
    assert_eq!(answers(&client, false), 256, "limits.channels");
    bounded("as many channels as may be");
    client.leaves();
    honest.answers();

    // By somebody who does not.
    let mut client = Client::login("ada");
    client.deaf = true;
    let mut number = 0;
    while number < 1_000_000 {
        for _ in 0..1000 {
            client.says(&Message::Open {
                theirs: number,
                window: u32::MAX,
                max_packet: u32::MAX,
                kind: ChannelKind::Session,
            });
            number += 1;
        }
        if !client.pushes() {
            break;
        }
    }
    bounded("a million channels");
    drop(client);
    honest.answers();

    // Requests, by the thousand, that all want an answer.
    let mut client = with_session();
    let channel = ChannelId(0);
    for _ in 0..5000 {
        let request = Request::WindowChange(WindowSize::default());
        client.core.request(channel, &request, true);
    }
    client.until("5000 answers", |c| c.replies(channel).len() == 5000);
    // An environment beyond all bounds: what fits is taken, the rest refused, and the program runs.
    let variable = |len| Request::Env {
        name: b"LC_X".to_vec(),
        value: vec![b'x'; len],
    };
    assert!(!client.asks(channel, variable(40_000)));
    for _ in 0..300 {
        client.core.request(channel, &variable(1), true);
    }
    client.until("300 answers", |c| c.replies(channel).len() >= 5301);
    let taken = client.replies(channel)[5001..]
        .iter()
        .filter(|done| **done)
        .count();
    assert_eq!(taken, 256);
    let pty = |modes: Vec<u8>, term: usize| {
        let most = u32::MAX;
        Request::Pty(Pty {
            term: vec![b't'; term],
            size: WindowSize {
                columns: most,
                rows: most,
                width: most,
                height: most,
            },
            modes,
        })
    };
    assert!(!client.asks(channel, pty(vec![0xff; 5000], 5)));
    assert!(!client.asks(channel, pty(Vec::new(), 5000)));
    let garbage: Vec<u8> = (0..1000u32).map(|n| ((n * 7919) >> 3) as u8).collect();
    assert!(client.asks(channel, pty(garbage, 5)));
    let x11 = |cookie: Vec<u8>| Request::X11 {
        single: false,
        protocol: b"\0\xff\n".to_vec(),
        cookie,
        screen: u32::MAX,
    };
    assert!(!client.asks(channel, x11(vec![b'0'; 5000])));
    let _ = client.asks(channel, x11(b"'; rm \0".to_vec()));
    let command = b"echo in".to_vec();
    let _ = client.asks(channel, Request::Exec { command });
    client.until("its end", |c| c.said.contains(&Said::Closed(0)));
    assert_eq!(client.prints("echo in"), "in\n", "the next session is as any");

    // Ways to nowhere.
    let tcp = |host: &[u8], port| ChannelKind::DirectTcpip {
        host: host.to_vec(),
        port,
        origin: vec![0xff; 300],
        origin_port: u32::MAX,
    };
    let unix = |len| ChannelKind::DirectStreamlocal {
        path: vec![b'/'; len],
    };
    for kind in [
        tcp(b"127.0.0.1", 1),
        tcp(b"127.0.0.1", 70_000),
        tcp(b"", 22),
        tcp(&[b'x'; 5000], 22),
        tcp(b"\0\xff", 22),
        unix(0),
        unix(500),
        ChannelKind::DirectStreamlocal {
            path: b"/run/nobody".to_vec(),
        },
        ChannelKind::Other {
            name: vec![b'?'; 500],
            payload: vec![1; 500],
        },
    ] {
        let refused = client.opens(&kind);
        assert!(
            refused.is_err_and(|r| (1..=3).contains(&r)),
            "{kind:?}: {refused:?}"
        );
    }
    assert_eq!(client.opens(&tcp(b"127.0.0.1", 1)), Err(CONNECT_FAILED));

    client.leaves();

    // Displays for sessions that come and go: none is left behind.
    let mut client = Client::login("ada");
    for n in 0..40 {
        let channel = client.session();
        let cookie = b"00112233445566778899aabbccddeeff".to_vec();
        let asked = Request::X11 {
            single: false,
            protocol: b"MIT-MAGIC-COOKIE-1".to_vec(),
            cookie,
            screen: 0,
        };
        assert!(client.asks(channel, asked), "display {n}");
        client.core.close(channel);
        client.until("its end", |c| c.said.contains(&Said::Closed(channel.0)));
    }

    // Listeners beyond the bound.
    let listen = || Global::TcpipForward {
        host: b"127.0.0.1".to_vec(),
        port: 0,
    };
    let listening = (0..40).filter(|_| client.asks_for(listen())).count();
    assert_eq!(listening, 32, "limits.listeners");
    bounded("listeners");
    client.leaves();
    honest.answers();
    settles("after too much of everything", &service, &before, KEPT);
}

#[test]
fn floods_that_nobody_reads() {
    let Some((_world, _manager, service, mut honest)) = node() else {
        return;
    };
    let before = Weight::of(&service);
    let bounded = |what| Weight::of(&service).is_bounded(what, &before, [OF_THE_MONITOR, KEPT, OF_A_FRONT]);

    // Input to a program that does not read it, beside a channel of the same connection.
    let mut client = Client::login("ada");
    let (stuck, cat) = (client.session(), client.session());
    client.exec(stuck, "exec sleep 1000");
    client.exec(cat, "exec cat");
    let mut taken = 0;
    loop {
        let n = client.core.write(stuck, Stream::Main, &[b'x'; 30_000]);
        taken += n;
        if n == 0 {
            assert!(client.pushes());
            // Whatever window there is was told before this answer.
            client.echoes(cat, "beside it\n");
            if client.core.writable(stuck) == 0 {
                break;
            }
        }
    }
    assert!(
        taken <= 3 << 20,
        "{taken} bytes taken for a program that reads none"
    );
    for _ in 0..100 {
        client.echoes(cat, "beside it\n");
    }
    bounded("input that is not read");
    client.core.request(
        stuck,
        &Request::Signal {
            name: b"KILL".to_vec(),
        },
        false,
    );
    client.until("its end", |c| c.said.contains(&Said::Closed(stuck.0)));
    client.leaves();
    honest.answers();

    // Output to a client that opens no window, and to one that reads nothing at all.
    for deaf in [false, true] {
        let mut kind = Kind::honest("ada");
        if !deaf {
            kind.core.limits.window = 0;
        }
        let mut client = kind.connect();
        client.until("the login", |c| c.said.contains(&Said::LoggedIn));
        let channel = client.session();
        client.hoards = true;
        client.exec(channel, "exec cat /dev/zero");
        client.deaf = deaf;
        client.turn();
        for _ in 0..20 {
            honest.answers();
        }
        bounded("output that is not read");
        drop(client);
        honest.answers();
    }
    wait_until("ada's programs end with their pipes", || {
        Weight::of(&service).processes <= before.processes
    });

    // Key exchanges without end: 128 at once, and then one in 40 ms.
    let mut client = Client::login("ada");
    let began = Instant::now();
    let mut done = client.core.info().exchanges;
    while done < 150 {
        client.core.rekey();
        client.until("an exchange", |c| c.core.info().exchanges > done);
        done = client.core.info().exchanges;
        if done.is_multiple_of(50) {
            honest.answers();
        }
    }
    let allowed = 128 + began.elapsed().as_millis() / 40 + 1;
    assert!(
        u128::from(done) <= allowed,
        "{done} exchanges, and {allowed} may be"
    );
    // It was only slowed down.
    assert_eq!(client.prints("echo in"), "in\n");
    // Proofs of host keys without end.
    let asks = |c: &mut Client| {
        c.asks_for(Global::ProveHostKeys {
            keys: vec![c.host_key()],
        })
    };
    let proven = (0..140).filter(|_| asks(&mut client)).count();
    assert_eq!(proven, 128);
    client.leaves();
    honest.answers();
    assert_eq!(Client::login("bea").prints("echo in"), "in\n");
    settles("after floods", &service, &before, KEPT);
}

#[test]
fn refusals_without_end_are_some_lines_and_a_count() {
    let Some((_world, _manager, _service, mut honest)) = node() else {
        return;
    };
    let of = |event: &str, connection: &Value| {
        let all = audit().into_iter();
        let is = |line: &Value| line["event"] == event && line["connection"] == *connection;
        all.filter(is).collect::<Vec<_>>()
    };
    let mut client = Client::login("ada");
    let cat = client.session();
    client.exec(cat, "exec cat");
    client.echoes(cat, "it runs\n");
    let signal = |name: String| Request::Signal { name: name.into() };
    client.core.request(cat, &signal("NO0".to_owned()), false);
    client.echoes(cat, "beside it\n");
    let first = audited("the first refusal", |line| {
        line["event"] == "denied" && line["what"].as_str().is_some_and(|what| what.contains("NO0"))
    });
    let number = first["connection"].clone();
    for n in 0..20_000 {
        client.core.request(cat, &signal(format!("NO{n}")), false);
        if n % 100 == 0 {
            client.echoes(cat, "beside it\n");
        }
    }
    for _ in 0..200 {
        let channel = client.session();
        let name = b"nothing".to_vec();
        assert!(!client.asks(channel, Request::Subsystem { name }));
        client.core.close(channel);
        client.until("its end", |c| c.said.contains(&Said::Closed(channel.0)));
    }
    honest.answers();
    client.leaves();
    audited("the end", |line| {
        line["event"] == "connection_ended" && line["connection"] == number
    });
    let denied = of("denied", &number);
    assert_eq!(
        denied.len(),
        101,
        "those that are told, and the count of the others"
    );
    let count = denied[100]["what"].as_str().expect("a text");
    assert!(count.starts_with("20101 further refusals"), "{count}");
    assert!(of("audit_lost", &Value::Null).is_empty());
}

#[test]
fn a_connection_that_is_cut_takes_only_its_own() {
    let Some((_world, _manager, service, mut honest)) = node() else {
        return;
    };
    let before = Weight::of(&service);
    let mut beside = Client::login("ada");
    let cat = beside.session();
    beside.exec(cat, "exec cat");
    for running in ["exec cat", "exec cat /dev/zero", "exec sleep 0", "exit 3"] {
        let mut client = with_session();
        let command = running.as_bytes().to_vec();
        client
            .core
            .request(ChannelId(0), &Request::Exec { command }, true);
        client.core.request(ChannelId(0), &Request::Shell, true);
        client.turn();
        // The last half of a packet never comes.
        let half = client.core.output().len() / 2;
        let _ = (&client.socket).write_all(&client.core.output()[..half]);
        drop(client);
        beside.echoes(cat, "beside it\n");
    }
    honest.answers();
    beside.leaves();
    settles("after cuts", &service, &before, KEPT);
}

/// A disconnect by the node itself is no reason for a client to be believed: its words are kept out of the log's lines.
#[test]
fn the_last_words_of_a_client_are_printable_in_the_record() {
    let Some((_world, _manager, service, mut honest)) = node() else {
        return;
    };
    let mut client = Client::login("ada");
    let mut payload = vec![1];
    payload.extend(BY_APPLICATION.to_be_bytes());
    let words = b"bye\x1b[2J\n{\"event\":\"forged\"}";
    payload.extend((words.len() as u32).to_be_bytes());
    payload.extend(words);
    payload.extend([0; 4]);
    client.core.send_raw(&payload);
    assert_eq!(client.ends(), None);
    let record = audited("the record", |e| {
        e["event"] == "connection_ended" && e["reason"].as_str().is_some_and(|r| r.contains("bye"))
    });
    let reason = record["reason"].as_str().expect("text");
    assert!(reason.chars().all(|c| !c.is_control()), "{reason:?}");
    assert!(!service.log().contains('\x1b'));
    honest.answers();
}
