//! What a lobby or a front that is taken over can do: each test sits in its seat and says what it likes. Every attack
//! has its positive control beside it: the honest word that the same seat is answered.
#![forbid(unsafe_code)]

use fleetgate_ssh::event::Exchange;
use fleetgate_sys::socket;
use fleetgate_tests::seats::{Node, OTHER, OTHER_ENDS, Taken, USER, command, login};
use fleetgate_tests::{is_root, skip};
use fleetgate_wire::encode;
use fleetgate_wire::node::front::{FromFront, ToFront};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{Blob, Connection, Verdict};
use std::io::Read;

/// The monitor took the attack for what it is: this lobby is over, the client's connection too, and the next lobby
/// serves honest people.
fn caught(node: &mut Node, mut lobby: Taken, what: &str) -> Taken {
    assert!(lobby.is_ended(), "{what}");
    drop(lobby);
    let mut lobby = node.lobby();
    let (_client, connection, cookie) = node.connect(&mut lobby);
    node.sign(&mut lobby, connection, cookie);
    lobby
}

#[test]
fn a_lobby_gets_no_signature_but_for_an_exchange_with_its_own_fresh_cookie() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    type Tweak = fn(&mut Exchange);
    let tweaks: [(&str, Tweak); 7] = [
        ("another cookie", |e| e.server_kexinit[1] ^= 1),
        ("another version", |e| e.server_version.push(b'x')),
        ("another host key", |e| {
            *e.host_key.last_mut().expect("it has bytes") ^= 1;
        }),
        ("a method that was not agreed on", |e| {
            e.kex = "ecdh-sha2-nistp256".to_owned();
        }),
        ("an algorithm that was not agreed on", |e| {
            e.host_key_algorithm = "rsa-sha2-512".to_owned();
        }),
        ("a share of another length", |e| e.client_share.push(0)),
        ("a secret in another form", |e| e.secret.insert(0, 0)),
    ];
    for (what, tweak) in tweaks {
        let (mut client, connection, cookie) = node.connect(&mut lobby);
        let mut exchange = node.exchange(cookie);
        tweak(&mut exchange);
        lobby.say(&FromLobby::Sign {
            connection,
            exchange: exchange.encode().to_vec(),
        });
        lobby = caught(&mut node, lobby, what);
        assert!(
            matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)),
            "{what}: closed"
        );
    }

    // An old transcript, and a cookie that was another connection's.
    let (_client, connection, cookie) = node.connect(&mut lobby);
    node.sign(&mut lobby, connection, cookie);
    lobby.say(&FromLobby::Sign {
        connection,
        exchange: node.exchange(cookie).encode().to_vec(),
    });
    lobby = caught(&mut node, lobby, "the same transcript again");
    let (_one, _, cookie) = node.connect(&mut lobby);
    let (_two, connection, _) = node.connect(&mut lobby);
    lobby.say(&FromLobby::Sign {
        connection,
        exchange: node.exchange(cookie).encode().to_vec(),
    });
    lobby = caught(&mut node, lobby, "another connection's cookie");

    // A hash of its choosing is no transcript; a connection that is not there is not answered.
    let (_client, connection, cookie) = node.connect(&mut lobby);
    lobby.say(&FromLobby::Sign {
        connection: connection + 1000,
        exchange: node.exchange(cookie).encode().to_vec(),
    });
    node.sign(&mut lobby, connection, cookie);
    assert!(!lobby.has_words(), "one answer, to the honest word");
    let (_client, connection, _) = node.connect(&mut lobby);
    lobby.say(&FromLobby::Sign {
        connection,
        exchange: vec![9; 32],
    });
    caught(&mut node, lobby, "a hash");
    assert!(node.audit().contains("asked for what it may not"));
}

#[test]
fn a_lobby_opens_nothing_without_a_login() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (_client, connection, cookie) = node.connect(&mut lobby);
    node.sign(&mut lobby, connection, cookie);
    lobby.say(&FromLobby::HandOver {
        connection,
        state: Vec::new(),
    });
    lobby = caught(&mut node, lobby, "handed over without a login");

    let (_client, connection, _) = node.connect(&mut lobby);
    lobby.say(&FromLobby::Auth {
        connection,
        request: login(&node.key, USER, b"an id of its own", None),
    });
    lobby = caught(&mut node, lobby, "a login before an exchange");

    // A login twice: the second request comes when the connection is a front's to be.
    let (_client, connection, cookie) = node.connect(&mut lobby);
    let (id, _) = node.sign(&mut lobby, connection, cookie);
    let request = login(&node.key, USER, &id, None);
    for _ in 0..2 {
        lobby.say(&FromLobby::Auth {
            connection,
            request: request.clone(),
        });
    }
    caught(&mut node, lobby, "a login after the login");
}

#[test]
fn a_login_is_for_its_session_its_account_and_its_host() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    // A signature of an earlier session, which the lobby has seen.
    let (_old, connection, cookie) = node.connect(&mut lobby);
    let (old_id, _) = node.sign(&mut lobby, connection, cookie);
    let replayed = login(&node.key, USER, &old_id, None);

    let (_client, connection, cookie) = node.connect(&mut lobby);
    let (id, _) = node.sign(&mut lobby, connection, cookie);
    assert_ne!(id, old_id);
    let host = node.settings.as_ref().expect("begun").host_keys[0].blob.clone();
    let ask = |lobby: &mut Taken, request: Vec<u8>| -> Verdict {
        lobby.say(&FromLobby::Auth { connection, request });
        lobby.verdict(connection)
    };
    let attacks = [
        ("a replayed signature", replayed),
        ("the other account's key", login(&node.other_key, USER, &id, None)),
        (
            "bound to another host",
            login(&node.key, USER, &id, Some(b"another host")),
        ),
    ];
    for (what, request) in attacks {
        match ask(&mut lobby, request) {
            Verdict::Rejected { partial: false, .. } => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    // The same key, for this session and this host.
    assert_eq!(
        ask(&mut lobby, login(&node.key, USER, &id, Some(&host))),
        Verdict::Accepted
    );

    // Another name on a connection that began with one ends it.
    let (_client, connection, cookie) = node.connect(&mut lobby);
    let (id, _) = node.sign(&mut lobby, connection, cookie);
    for (user, key) in [(OTHER, &node.key), (USER, &node.key)] {
        lobby.say(&FromLobby::Auth {
            connection,
            request: login(key, user, &id, None),
        });
        let verdict = lobby.verdict(connection);
        assert_ne!(verdict, Verdict::Accepted, "{user}");
        assert_eq!(
            matches!(verdict, Verdict::End { .. }),
            user == USER,
            "{verdict:?}"
        );
    }
}

/// A session ran to its end: the control of every attack on sessions.
fn runs(front: &mut Taken, connection: Connection, ticket: u32) {
    runs_to(front, connection, ticket, 7);
}

fn runs_to(front: &mut Taken, connection: Connection, ticket: u32, status: i32) {
    front.say(&FromFront::Start {
        connection,
        ticket,
        start: command("exit 7"),
    });
    // Held until it ended: what writes to nobody ends of that.
    let _fds = match front.hear::<ToFront>() {
        Some((ToFront::Started { ticket: t, .. }, fds)) if (t, fds.len()) == (ticket, 3) => fds,
        other => panic!("{other:?} instead of Started"),
    };
    match front.hear::<ToFront>() {
        Some((ToFront::Ended { ticket: t, ended, .. }, _)) => assert_eq!((t, ended.status), (ticket, status)),
        other => panic!("{other:?} instead of Ended"),
    }
}

#[test]
fn a_front_has_its_own_connections_and_no_others() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (_mine, mine, _, front) = node.enter(&mut lobby, USER, None);
    let mut front = front.expect("a new front");
    let (_theirs, theirs, cookie, victim) = node.enter(&mut lobby, OTHER, None);
    let mut victim = victim.expect("another login has another front");
    let (_waiting, waiting, waiting_cookie) = node.connect(&mut lobby);

    for connection in [theirs, waiting, theirs + 1000] {
        front.say(&FromFront::Start {
            connection,
            ticket: 1,
            start: command("touch /var/tmp/fleetgate-attacked"),
        });
        for cookie in [cookie, waiting_cookie] {
            front.say(&FromFront::Sign {
                connection,
                exchange: node.exchange(cookie).encode().to_vec(),
            });
        }
        front.say(&FromFront::Prove {
            connection,
            ticket: 2,
            keys: Vec::new(),
        });
        front.say(&FromFront::Closed {
            connection,
            why: c"because".into(),
            received: 0,
            sent: 0,
        });
    }
    // Its own is answered, and nothing else was: the next words are about it.
    runs(&mut front, mine, 3);
    assert!(!front.has_words());
    assert!(!victim.has_words());
    runs_to(&mut victim, theirs, 1, OTHER_ENDS);
    assert!(!std::path::Path::new("/var/tmp/fleetgate-attacked").exists());
    node.sign(&mut lobby, waiting, waiting_cookie);

    // A second connection of the same login comes to the same front; the other login's front knows nothing of it.
    let (_again, again, _, new) = node.enter(&mut lobby, USER, Some(&mut front));
    assert!(new.is_none());
    runs(&mut front, again, 1);
    assert!(!victim.has_words());
}

#[test]
fn a_grant_ends_with_its_connection() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (client, first, _, front) = node.enter(&mut lobby, USER, None);
    let mut front = front.expect("a new front");
    runs(&mut front, first, 1);
    let (_other, second, _, _) = node.enter(&mut lobby, USER, Some(&mut front));
    // A reset, which the monitor sees on its duplicate whoever else holds the socket.
    fleetgate_sys::net::shut(&std::os::fd::OwnedFd::from(client).into()).expect("shut");
    front.say(&FromFront::Closed {
        connection: first,
        why: c"done".into(),
        received: 1,
        sent: 2,
    });
    front.say(&FromFront::Start {
        connection: first,
        ticket: 2,
        start: command("exit 7"),
    });
    runs(&mut front, second, 1);
    assert!(!front.has_words(), "nothing was said of the first");
}

#[test]
fn a_grant_ends_with_its_time() {
    if !is_root() {
        return skip("the monitor is root");
    }
    // Two seconds from now, as `expiry-time` has it.
    let end = fleetgate_sys::clock::wall().sec + 2;
    let date = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{end}"), "+%Y%m%d%H%M%SZ"])
        .output()
        .expect("date");
    let date = String::from_utf8(date.stdout).expect("text");
    let mut node = Node::start(&format!("expiry-time=\"{}\"", date.trim()));
    let mut lobby = node.lobby();
    let (_client, connection, _, front) = node.enter(&mut lobby, USER, None);
    let mut front = front.expect("a new front");
    // It may start sessions until it may not, and from then on never again.
    let mut refused = 0;
    for ticket in 1.. {
        front.say(&FromFront::Start {
            connection,
            ticket,
            start: command("exit 7"),
        });
        match front.hear::<ToFront>() {
            Some((ToFront::Started { .. }, _)) if refused == 0 => {
                assert!(matches!(
                    front.hear::<ToFront>(),
                    Some((ToFront::Ended { .. }, _))
                ));
            }
            Some((ToFront::NotStarted { why, .. }, _)) => {
                assert!(why.to_string_lossy().contains("expired"), "{why:?}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        if refused == 3 {
            break;
        }
    }
}

#[test]
fn nothing_that_a_seat_is_sent_has_the_host_key_in_it() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (_client, connection, _, front) = node.enter(&mut lobby, USER, None);
    let mut front = front.expect("a new front");
    let ours = node.settings.as_ref().expect("begun").host_keys[0].blob.clone();
    for (keys, proven) in [
        (vec![ours.clone()], true),
        (vec![ours.clone(), b"another".to_vec()], false),
    ] {
        front.say(&FromFront::Prove {
            connection,
            ticket: 1,
            keys: keys.into_iter().map(|bytes| Blob { bytes }).collect(),
        });
        match front.hear::<ToFront>() {
            Some((ToFront::Proved { signatures, .. }, _)) => assert_eq!(signatures.is_some(), proven),
            other => panic!("{other:?} instead of Proved"),
        }
    }
    // The seed stands in the private half of the file, 64 bytes of seed and public key: the seed is what comes before.
    let text = String::from_utf8(node.host_key.clone()).expect("text");
    let public = &ours[ours.len() - 32..];
    let blob = unarmoured(&text);
    let seeds: Vec<&[u8]> = blob
        .windows(64)
        .filter(|w| &w[32..] == public)
        .map(|w| &w[..32])
        .collect();
    assert!(!seeds.is_empty(), "the file has the seed");
    for (heard, of) in [(&lobby.heard, "lobby"), (&front.heard, "front")] {
        assert!(
            heard.windows(32).any(|w| w == public),
            "{of}: the public key is there"
        );
        for seed in &seeds {
            assert!(!heard.windows(32).any(|w| w == *seed), "{of}");
        }
    }
}

/// The bytes of an OpenSSH private key file.
fn unarmoured(text: &str) -> Vec<u8> {
    let letters: Vec<u8> = text
        .lines()
        .filter(|l| !l.starts_with('-'))
        .flat_map(str::bytes)
        .filter(|b| *b != b'=')
        .collect();
    let value = |b: u8| match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for group in letters.chunks(4) {
        let bits = group
            .iter()
            .fold(0u32, |bits, b| bits << 6 | u32::from(value(*b)));
        let bits = bits << (6 * (4 - group.len()));
        out.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}

#[test]
fn garbage_ends_the_seat_that_sent_it_and_nobody_else() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (_victim, connection, _, victim) = node.enter(&mut lobby, OTHER, None);
    let mut victim = victim.expect("a front");
    let honest = encode(&FromLobby::Closed {
        connection: 77,
        why: c"x".into(),
    });
    let garbage: Vec<(Vec<u8>, bool)> = vec![
        (b"x".to_vec(), false),
        (vec![0xff; 60_000], false),
        (vec![0xff; 70_000], false),
        (honest[..honest.len() - 1].to_vec(), false),
        ([&honest[..], b"x"].concat(), false),
        (honest.clone(), true),
    ];
    let mut ticket = 0;
    for (frame, with_fd) in &garbage {
        let (ours, _theirs) = socket::pair().expect("a pair");
        let fds: &[i32] = if *with_fd { &[ours.raw()] } else { &[] };
        lobby.send(frame, fds);
        lobby = caught(&mut node, lobby, "garbage of a lobby");
        ticket += 1;
        runs_to(&mut victim, connection, ticket, OTHER_ENDS);
    }
    for (frame, with_fd) in &garbage {
        let (_client, _, _, front) = node.enter(&mut lobby, USER, None);
        let mut front = front.expect("a new front");
        let (ours, _theirs) = socket::pair().expect("a pair");
        let fds: &[i32] = if *with_fd { &[ours.raw()] } else { &[] };
        front.send(frame, fds);
        assert!(front.is_ended());
        ticket += 1;
        runs_to(&mut victim, connection, ticket, OTHER_ENDS);
    }
    // The honest word about nothing that is there is no crime.
    lobby.send(&honest, &[]);
    let (_client, connection, cookie) = node.connect(&mut lobby);
    node.sign(&mut lobby, connection, cookie);
    assert!(!lobby.has_words());
}

#[test]
fn a_lobby_that_dies_takes_those_before_their_login_and_nobody_else() {
    if !is_root() {
        return skip("the monitor is root");
    }
    let mut node = Node::start("");
    let mut lobby = node.lobby();
    let (_kept, kept, _, front) = node.enter(&mut lobby, USER, None);
    let mut front = front.expect("a front");
    let (mut waiting, _, _) = node.connect(&mut lobby);
    drop(lobby);
    assert!(matches!(waiting.read(&mut [0; 1]), Ok(0) | Err(_)), "closed");
    let mut lobby = node.lobby();
    runs(&mut front, kept, 1);
    let (mut theirs, _, _, _) = node.enter(&mut lobby, USER, Some(&mut front));
    drop(front);
    assert!(
        matches!(theirs.read(&mut [0; 1]), Ok(0) | Err(_)),
        "closed with its front"
    );
    let (_again, again, _, front) = node.enter(&mut lobby, USER, None);
    runs(&mut front.expect("a new front"), again, 1);
    assert!(!matches!(
        lobby.has_words().then(|| lobby.hear::<ToLobby>()),
        Some(Some(_))
    ));
    let audit = node.audit();
    assert!(
        audit.contains("the lobby ended") && audit.contains("its front ended"),
        "{audit}"
    );
}
