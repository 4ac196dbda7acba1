//! The file server packet by packet: garbage, handles, many requests in flight, large offsets, events.

use fleetgate_sys::process::Exit;
use fleetgate_tests::folder::Folder;
use fleetgate_tests::sftp::Field::{L, N, S};
use fleetgate_tests::sftp::{self, kind, s};
use fleetgate_wire::Reply;
use fleetgate_wire::sftp::Event;
use std::os::unix::fs::PermissionsExt;

const READ: u32 = 1;
const WRITE: u32 = 2;
const CREATE: u32 = 8;
const OK: u32 = 0;
const EOF: u32 = 1;
const MISSING: u32 = 2;
const FAILURE: u32 = 4;
const BAD: u32 = 5;
const UNSUPPORTED: u32 = 8;

#[test]
fn garbage_ends_the_session_and_nothing_else() {
    let scratch = Folder::new().with_mode(0o777);
    let cases: [(&str, &[u8], i32); 6] = [
        ("a request before INIT", &[0, 0, 0, 6, 17, 0, 0, 0, 1, 0], 255),
        ("a packet beyond the bound", &[0, 4, 0, 1, 5], 11),
        ("a packet of four billion bytes", &[0xff; 64], 11),
        ("no packet at all", &[0, 0, 0, 0], 255),
        ("half an id", &[0, 0, 0, 3, 1, 0, 0], 255),
        ("a text", b"GET / HTTP/1.1\r\n\r\n", 11),
    ];
    for (what, bytes, code) in cases {
        use std::io::Write;
        let mut served = sftp::serve(sftp::ours(&[]), &scratch);
        served.client.stream.write_all(bytes).unwrap();
        assert_eq!(served.client.receive(), None, "{what}");
        assert_eq!(served.end(), code, "{what}");
    }
    // Cut at every byte: the end of a session, not an error.
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let (_, packet) = served.client.packet(kind::STAT, &[s("x")]);
    drop(served);
    for end in 0..packet.len() {
        use std::io::Write;
        let mut served = sftp::serve(sftp::ours(&[]), &scratch);
        served.client.init();
        served
            .client
            .stream
            .write_all(&(packet.len() as u32).to_be_bytes())
            .unwrap();
        served.client.stream.write_all(&packet[..end]).unwrap();
        assert_eq!(served.end(), 0, "cut at {end}");
    }
}

#[test]
fn a_malformed_or_unknown_request_is_answered_and_the_session_goes_on() {
    let scratch = Folder::new().with_mode(0o777);
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let client = &mut served.client;
    client.init();
    for kind in 3..=20u8 {
        assert_eq!(client.ask(kind, &[N(100)]).status(), BAD, "type {kind}");
        assert_eq!(client.ask(kind, &[N(u32::MAX)]).status(), BAD, "type {kind}");
    }
    assert_eq!(client.ask(kind::STAT, &[S(b"a\0b")]).status(), BAD);
    assert_eq!(
        client.ask(kind::EXTENDED, &[s("copy-data"), s("x")]).status(),
        BAD
    );
    let odd = client.ask(
        kind::EXTENDED,
        &[s("users-groups-by-id@openssh.com"), s("abc"), s("")],
    );
    assert_eq!(odd.status(), BAD);
    for kind in [2, 21, 99, 101, 105, 201, 255] {
        assert_eq!(client.ask(kind, &[s("x")]).status(), UNSUPPORTED, "type {kind}");
    }
    assert_eq!(client.ask(kind::STAT, &[s(&"x/".repeat(100_000))]).status(), BAD);
    assert_eq!(
        client.ask(kind::REALPATH, &[s(&"x/".repeat(100_000))]).status(),
        BAD
    );
    assert_eq!(
        client.ask(kind::STAT, &[s("."), s("left over")]).kind,
        kind::ATTRS
    );
    assert_eq!(
        client
            .ask(kind::SETSTAT, &[s("."), N(0x8000_0000), N(1), s("a"), s("b")])
            .status(),
        OK
    );
    assert_eq!(served.end(), 0);
}

#[test]
fn a_thousand_handles_are_told_apart() {
    let scratch = Folder::new().with_mode(0o777);
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let client = &mut served.client;
    client.init();
    let limits = client.ask(kind::EXTENDED, &[s("limits@openssh.com")]);
    let limit = u64::from_be_bytes(limits.rest[24..32].try_into().unwrap());
    let many = 1000.min(limit as usize);
    let mut handles = Vec::new();
    for n in 0..many {
        let handle = client.open(&format!("f{n}"), READ | WRITE | CREATE).handle();
        let text = format!("I am {n}");
        assert_eq!(
            client.ask(kind::WRITE, &[S(&handle), L(0), s(&text)]).status(),
            OK
        );
        handles.push(handle);
    }
    for (n, handle) in handles.iter().enumerate() {
        let told = client.ask(kind::READ, &[S(handle), L(0), N(100)]);
        assert_eq!(told.data(), format!("I am {n}").as_bytes());
    }
    let old = handles.remove(7);
    assert_eq!(client.ask(kind::CLOSE, &[S(&old)]).status(), OK);
    let new = client.open("new", READ | CREATE).handle();
    assert_ne!(old, new);
    assert_eq!(client.ask(kind::READ, &[S(&old), L(0), N(1)]).status(), FAILURE);
    assert_eq!(client.ask(kind::READ, &[S(&new), L(0), N(1)]).status(), EOF);
    for made_up in [&b""[..], b"x", &[0; 4], &[0; 8], &[0xff; 8], &[7; 300]] {
        assert_eq!(
            client.ask(kind::READ, &[S(made_up), L(0), N(1)]).status(),
            FAILURE
        );
        assert_eq!(client.ask(kind::CLOSE, &[S(made_up)]).status(), MISSING);
    }
    assert_eq!(served.end(), 0);
}

#[test]
fn many_requests_in_flight_are_answered_in_order() {
    use std::io::Write;
    let scratch = Folder::new().with_mode(0o777);
    let content: Vec<u8> = (0..2_000_000u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(scratch.join("file"), &content).unwrap();
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let client = &mut served.client;
    client.init();
    let handle = client.open("file", READ).handle();
    let mut flight = Vec::new();
    let mut first = 0;
    for n in 0..64u64 {
        let (id, packet) = client.packet(kind::READ, &[S(&handle), L(n * 32_768), N(32_768)]);
        first = if n == 0 { id } else { first };
        flight.extend((packet.len() as u32).to_be_bytes());
        flight.extend(packet);
    }
    client.stream.write_all(&flight).unwrap();
    let mut got = Vec::new();
    for n in 0..64 {
        let answer = client.receive().unwrap();
        assert_eq!(answer.id, first + n);
        if answer.kind == kind::DATA {
            got.extend_from_slice(answer.data());
        } else {
            assert_eq!(answer.status(), EOF);
        }
    }
    assert!(got == content);
    assert_eq!(served.end(), 0);
}

/// A client that sends for a long time before it reads: answers wait, nothing is stuck, nothing is lost.
#[test]
fn a_client_that_does_not_read_yet_is_not_stuck() {
    use std::io::Write;
    let scratch = Folder::new().with_mode(0o777);
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let client = &mut served.client;
    client.init();
    let handle = client.open("file", READ | WRITE | CREATE).handle();
    let count = 20_000u64;
    for n in 0..count {
        let (_, packet) = client.packet(kind::WRITE, &[S(&handle), L(n * 8), S(&n.to_be_bytes())]);
        client.send(&packet);
    }
    for _ in 0..count {
        assert_eq!(client.receive().unwrap().status(), OK);
    }
    // And one that asks for much and reads late: the requests wait in the socket, so they are sent from the side.
    let mut flight = Vec::new();
    for _ in 0..2_000 {
        let (_, packet) = client.packet(kind::READ, &[S(&handle), L(0), N(160_000)]);
        flight.extend((packet.len() as u32).to_be_bytes());
        flight.extend(packet);
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&flight).unwrap());
    for _ in 0..2_000 {
        let answer = client.receive().unwrap();
        assert_eq!(answer.data().len(), 160_000);
        assert_eq!(answer.data()[159_992..], 19_999u64.to_be_bytes());
    }
    sending.join().unwrap();
    assert_eq!(served.end(), 0);
}

#[test]
fn offsets_beyond_four_gigabytes_leave_holes() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Folder::new().with_mode(0o777);
    let mut served = sftp::serve(sftp::ours(&[]), &scratch);
    let client = &mut served.client;
    client.init();
    let handle = client.open("big", READ | WRITE | CREATE).handle();
    let at = 5 << 30;
    assert_eq!(
        client
            .ask(kind::WRITE, &[S(&handle), L(at), s("far out")])
            .status(),
        OK
    );
    assert_eq!(
        client.ask(kind::READ, &[S(&handle), L(at + 4), N(100)]).data(),
        b"out"
    );
    assert_eq!(
        client.ask(kind::READ, &[S(&handle), L(at - 4), N(8)]).data(),
        b"\0\0\0\0far "
    );
    let meta = std::fs::metadata(scratch.join("big")).unwrap();
    assert_eq!(meta.size(), at + 7);
    assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
    assert_eq!(
        client
            .ask(kind::FSETSTAT, &[S(&handle), N(1), L(6 << 30)])
            .status(),
        OK
    );
    assert_eq!(std::fs::metadata(scratch.join("big")).unwrap().size(), 6 << 30);
    assert_eq!(served.end(), 0);
}

/// What the client holds open is closed, and its sums told, however the session ends.
#[test]
fn events_tell_what_was_done() {
    let scratch = Folder::new().with_mode(0o777);
    let mut order = sftp::order(&scratch);
    order.umask = Some(0o027);
    let mut ordered = sftp::give(order, None);
    let client = &mut ordered.client;
    client.init();
    let at = |name: &str| fleetgate_tests::orders::text(scratch.join(name));
    let handle = client.open("file", READ | WRITE | CREATE).handle();
    client.ask(kind::WRITE, &[S(&handle), L(0), s("hello, world")]);
    client.ask(kind::READ, &[S(&handle), L(0), N(5)]);
    client.ask(kind::FSETSTAT, &[S(&handle), N(4), N(0o600)]);
    client.ask(kind::CLOSE, &[S(&handle)]);
    client.open("missing", READ);
    client.ask(kind::MKDIR, &[s("dir"), N(0)]);
    client.ask(kind::OPENDIR, &[s("dir")]);
    client.ask(kind::RENAME, &[s("file"), s("dir/moved")]);
    client.ask(kind::RENAME, &[s("dir/moved"), s("dir")]);
    client.ask(kind::SYMLINK, &[s("dir/moved"), s("link")]);
    client.ask(
        kind::EXTENDED,
        &[s("hardlink@openssh.com"), s("dir/moved"), s("hard")],
    );
    client.ask(kind::SETSTAT, &[s("hard"), N(3), L(3), N(1), N(2)]);
    client.ask(kind::REMOVE, &[s("link")]);
    client.ask(kind::RMDIR, &[s("dir")]);
    let left_open = client.open("hard", READ).handle();
    client.ask(kind::READ, &[S(&left_open), L(0), N(100)]);
    ordered.client.close();
    let (open, missing, failed) = (READ | WRITE | CREATE, 2, 5);
    let expected = [
        Event::Opened {
            path: at("file"),
            flags: open,
            errno: 0,
        },
        Event::AttributesSet {
            path: at("file"),
            size: None,
            uid: None,
            gid: None,
            mode: Some(0o600),
            times: false,
            errno: 0,
        },
        Event::Closed {
            path: at("file"),
            read: 5,
            written: 12,
            flags: open,
        },
        Event::Opened {
            path: at("missing"),
            flags: READ,
            errno: missing,
        },
        Event::DirectoryMade {
            path: at("dir"),
            mode: 0o777,
            errno: 0,
        },
        Event::Listed {
            path: at("dir"),
            errno: 0,
        },
        Event::Renamed {
            from: at("file"),
            to: at("dir/moved"),
            errno: 0,
        },
        Event::Renamed {
            from: at("dir/moved"),
            to: at("dir"),
            errno: failed,
        },
        Event::Linked {
            target: c"dir/moved".into(),
            path: at("link"),
            symbolic: true,
            errno: 0,
        },
        Event::Linked {
            target: at("dir/moved"),
            path: at("hard"),
            symbolic: false,
            errno: 0,
        },
        Event::AttributesSet {
            path: at("hard"),
            size: Some(3),
            uid: Some(1),
            gid: Some(2),
            mode: None,
            times: false,
            errno: 0,
        },
        Event::Removed {
            path: at("link"),
            directory: false,
            errno: 0,
        },
        Event::Removed {
            path: at("dir"),
            directory: true,
            errno: failed,
        },
        Event::Opened {
            path: at("hard"),
            flags: READ,
            errno: 0,
        },
        Event::Closed {
            path: at("hard"),
            read: 3,
            written: 0,
            flags: READ,
        },
    ];
    for event in expected {
        assert_eq!(ordered.event(), event);
    }
    let mode = std::fs::metadata(scratch.join("dir"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o750, "the umask holds");
    assert_eq!(ordered.end(), (vec![Reply::Ready], Exit::Code(0)));
}

/// A listener that does not listen: nothing waits for it, and what it missed is counted.
#[test]
fn events_that_nobody_takes_are_counted_and_hold_nothing_up() {
    let scratch = Folder::new().with_mode(0o777);
    let mut ordered = sftp::give(sftp::order(&scratch), None);
    ordered.client.init();
    let rounds = 2_000;
    for _ in 0..rounds {
        assert_eq!(
            ordered.client.ask(kind::REMOVE, &[s("missing")]).status(),
            MISSING
        );
    }
    let (mut told, mut lost) = (0, 0);
    while told + lost < rounds {
        match ordered.event() {
            Event::Removed { .. } => told += 1,
            Event::Lost { count } => lost += count,
            other => panic!("{other:?}"),
        }
        if told + lost < rounds {
            let waiting = fleetgate_sys::poll::poll(
                &mut [fleetgate_sys::poll::Watch::new(
                    ordered.events.raw(),
                    fleetgate_sys::poll::READ,
                )],
                Some(0),
            );
            if waiting == Ok(0) {
                // All that fitted was read; the next event brings the count, and is one more.
                ordered.client.ask(kind::REMOVE, &[s("missing")]);
                match (ordered.event(), ordered.event()) {
                    (Event::Lost { count }, Event::Removed { .. }) => lost += count,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(
        told > 0 && lost > 0 && told + lost == rounds,
        "{told} told, {lost} lost"
    );
    // The listener goes: the transfer stays, and the last word counts.
    let ended = {
        let sftp::Ordered {
            mut client,
            helper,
            events,
        } = ordered;
        // Closed for its copies too: a child that another test begins at this moment has one until it becomes its program.
        fleetgate_sys::net::shut(&events).expect("shut down");
        drop(events);
        for _ in 0..3 {
            assert_eq!(client.ask(kind::REMOVE, &[s("missing")]).status(), MISSING);
        }
        client.close();
        while client.receive().is_some() {}
        (helper.replies(), helper.wait())
    };
    assert_eq!(ended.1, Exit::Code(0));
    match ended.0.as_slice() {
        [Reply::Ready, Reply::Failed { failure }] => {
            assert_eq!(failure.subject.to_str(), Ok("3 file events were not told"));
        }
        other => panic!("{other:?}"),
    }
}
