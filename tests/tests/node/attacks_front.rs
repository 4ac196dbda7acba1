//! Whoever has taken over a front: what it may say to a real monitor, and what that comes to. The test sits in the seat
//! itself, without its sandbox. Every attack ends with an honest visitor who gets in over the lobby.

use fleetgate_ssh::codec::Write as _;
use fleetgate_ssh::key::{PublicKey, verify};
use fleetgate_sys::net;
use fleetgate_sys::poll::{PEER_CLOSED, Watch, poll};
use fleetgate_tests::taken::{Fate, SESSION, Scene, Stage, Want, command, front_tries, garbage};
use fleetgate_tests::world::PATIENCE_MS;
use fleetgate_wire::net::What;
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::front::{FromFront, RequestKind};
use fleetgate_wire::node::lobby::FromLobby;
use std::net::Shutdown;

#[test]
fn a_front_reaches_no_connection_but_its_own() {
    fn about(s: &Stage<'_>, connection: u64) -> Vec<FromFront> {
        let start = |ticket| FromFront::Start {
            connection,
            ticket,
            start: command("touch /run/test/taken"),
        };
        let network = |ticket, what| FromFront::Network {
            connection,
            ticket,
            what,
        };
        let blob = Blob {
            bytes: s.scene.key("host").blob().to_vec(),
        };
        vec![
            start(1),
            start(SESSION),
            network(2, What::AgentSocket),
            network(
                3,
                What::Connect {
                    host: c"127.0.0.1".into(),
                    port: s.node.address().port(),
                    timeout_ms: 1000,
                },
            ),
            network(4, What::Cancel { of: SESSION }),
            FromFront::Signal {
                connection,
                ticket: SESSION,
                name: c"KILL".into(),
            },
            FromFront::HangUp {
                connection,
                ticket: SESSION,
            },
            FromFront::Prove {
                connection,
                ticket: 5,
                keys: vec![blob],
            },
            FromFront::Sign {
                connection,
                exchange: s.bea.0.transcript.clone(),
            },
            FromFront::Denied {
                connection,
                kind: RequestKind::Shell,
                what: c"what the front says".into(),
            },
            FromFront::Forwarded {
                connection,
                ticket: 1,
                to: c"what the front says".into(),
                sent: 1,
                received: 1,
                onward_ssh: false,
            },
            FromFront::Closed {
                connection,
                why: c"what the front says".into(),
                received: 0,
                sent: 0,
            },
        ]
    }
    front_tries(&[
        (
            "words about another login's connection",
            |s| {
                for word in about(s, s.bea.1.number) {
                    s.front.seat.say(&word);
                }
            },
            Want::Nothing,
        ),
        (
            "a fresh exchange with another login's cookie",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                let (visit, _) = s.lobby.begin(arrival, s.bea.1.cookie);
                s.front.seat.say(&FromFront::Sign {
                    connection: s.bea.1.number,
                    exchange: visit.transcript,
                });
            },
            Want::Nothing,
        ),
        (
            "words about a connection in the lobby, and about none",
            |s| {
                for number in [s.witness.number, 0, 1 << 40, u64::MAX] {
                    for word in about(s, number) {
                        s.front.seat.say(&word);
                    }
                }
            },
            Want::Nothing,
        ),
        (
            "words about its own connection that was closed",
            |s| {
                let number = s.ada.1.number;
                s.ada.0.arrival.client.shutdown(Shutdown::Both).expect("open");
                net::shut(&s.ada.1.socket).expect("open");
                s.ended(number);
                for word in about(s, number) {
                    s.front.seat.say(&word);
                }
            },
            Want::Nothing,
        ),
        (
            "an order on a connection that its client has left, which the front does not tell",
            |s| {
                s.ada.0.arrival.client.shutdown(Shutdown::Both).expect("open");
                let mut watch = [Watch::new(s.ada.1.socket.raw(), PEER_CLOSED)];
                assert_eq!(poll(&mut watch, Some(PATIENCE_MS)), Ok(1));
                for word in about(s, s.ada.1.number) {
                    s.front.seat.say(&word);
                }
                s.ended(s.ada.1.number);
            },
            Want::Nothing,
        ),
        (
            "another login's cookie on its own connection",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                let (visit, _) = s.lobby.begin(arrival, s.bea.1.cookie);
                s.front.seat.say(&FromFront::Sign {
                    connection: s.ada.1.number,
                    exchange: visit.transcript,
                });
            },
            Want::Ends("cookie is not the one that was given"),
        ),
        (
            "the transcript that was signed at the beginning",
            |s| {
                s.front.seat.say(&FromFront::Sign {
                    connection: s.ada.1.number,
                    exchange: s.ada.0.transcript.clone(),
                });
            },
            Want::Ends("cookie is not the one that was given"),
        ),
        (
            "a hash",
            |s| {
                s.front.seat.say(&FromFront::Sign {
                    connection: s.ada.1.number,
                    exchange: vec![0xab; 32],
                });
            },
            Want::Ends("cannot be read"),
        ),
        (
            "a login",
            |s| {
                s.front.seat.say(&FromLobby::Auth {
                    connection: s.ada.1.number,
                    request: s.bea.0.request.clone(),
                });
            },
            Want::Ends("asked for what it may not"),
        ),
        (
            "a hand-over",
            |s| {
                s.front.seat.say(&FromLobby::HandOver {
                    connection: s.ada.1.number,
                    frozen: s.bea.0.frozen.clone(),
                });
            },
            Want::Ends("asked for what it may not"),
        ),
    ]);
}

#[test]
fn a_front_has_signed_what_belongs_to_its_connection_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let mut stage = Stage::set(&scene);
    let (number, cookie) = (stage.ada.1.number, stage.ada.1.cookie);
    let host = scene.key("host").blob().to_vec();
    let public = PublicKey::parse(&host).expect("a key");
    let proven = |session_id: &[u8], proof: &[u8]| {
        let mut message = Vec::new();
        message.put_string("hostkeys-prove-00@openssh.com");
        message.put_string(session_id);
        message.put_string(&host);
        verify(&public, "ssh-ed25519", &message, proof).is_ok()
    };
    // A later exchange is signed by its hash, and leaves the session's id what it was.
    let arrival = stage.lobby.arrive(&stage.node);
    let (_, exchange) = stage.lobby.begin(arrival, cookie);
    let signed = stage.front.sign(number, &exchange.encode());
    let (signature, next) = signed.expect("an honest exchange is signed");
    let hash = exchange.hash().expect("a method that we know");
    assert!(verify(&public, "ssh-ed25519", hash.as_ref(), &signature).is_ok());
    assert_ne!(next, cookie);
    let proofs = stage
        .front
        .prove(number, std::slice::from_ref(&host))
        .flatten()
        .expect("our own key");
    assert!(proven(&stage.ada.0.session_id, &proofs[0]));
    assert!(!proven(hash.as_ref(), &proofs[0]));
    assert!(!proven(&stage.bea.0.session_id, &proofs[0]));
    for keys in [
        vec![scene.key("stranger").blob().to_vec()],
        vec![host.clone(), scene.key("ada").blob().to_vec()],
        vec![Vec::new()],
        vec![hash.as_ref().to_vec()],
        vec![host.clone(); 1000],
    ] {
        assert_eq!(stage.front.prove(number, &keys), Some(None));
    }
    // And what a client may want is not without end.
    let asked = (1..1000).find(|_| stage.front.prove(number, std::slice::from_ref(&host)) == Some(None));
    assert!(asked.is_some_and(|n| n > 64), "{asked:?}");
    stage.after_front("signatures", Want::Nothing);
}

#[test]
fn the_end_of_a_connection_is_told_behind_the_start_of_its_session() {
    let Some(scene) = Scene::new() else { return };
    let mut stage = Stage::set(&scene);
    let number = stage.ada.1.number;
    // The account is known from here on: the next session is launched at once.
    assert_eq!(stage.front.run(number, 1, "echo on"), Ok("on\n".to_owned()));
    stage.front.seat.say(&FromFront::Start {
        connection: number,
        ticket: 2,
        start: command("exec true"),
    });
    stage.front.seat.say(&FromFront::Closed {
        connection: number,
        why: c"the client left".into(),
        received: 0,
        sent: 0,
    });
    stage.ended(number);
    let audit = stage.node.audit();
    let of_it = audit.iter().filter(|event| event["connection"] == number);
    let told: Vec<_> = of_it.filter_map(|event| event["event"].as_str()).collect();
    let is = |name: &str| told.iter().filter(|event| **event == name).count();
    assert_eq!(
        (is("session_started"), is("connection_ended")),
        (2, 1),
        "{told:?}"
    );
}

#[test]
fn garbage_ends_a_front_and_nobody_else() {
    let Some(scene) = Scene::new() else { return };
    let null = fleetgate_sys::Fd::from(std::fs::File::open("/dev/null").expect("/dev/null"));
    let good = FromFront::HangUp {
        connection: 1 << 40,
        ticket: 1,
    };
    for (what, frame, with_fd, why) in garbage(&good) {
        let stage = Stage::set(&scene);
        let fds: &[i32] = if with_fd { &[null.raw()] } else { &[] };
        stage.front.seat.send(&frame, fds);
        stage.after_front(what, Want::Ends(why));
    }
}

#[test]
fn floods_end_the_front_or_nobody() {
    front_tries(&[
        (
            "many orders about another's connection",
            |s| {
                let word = FromFront::Start {
                    connection: s.bea.1.number,
                    ticket: 1,
                    start: command("true"),
                };
                assert!((0..20_000).all(|_| s.front.seat.say(&word) == Fate::Stays));
            },
            Want::Nothing,
        ),
        (
            "questions whose answers it does not read",
            |s| {
                let word = FromFront::Prove {
                    connection: s.ada.1.number,
                    ticket: 1,
                    keys: Vec::new(),
                };
                assert!((0..1_000_000).any(|_| s.front.seat.say(&word) == Fate::Ended));
            },
            Want::Ends("does not read"),
        ),
    ]);
}

#[test]
fn the_same_account_by_another_key_is_another_login() {
    let Some(scene) = Scene::new() else { return };
    let mut stage = Stage::set(&scene);
    let other = scene.certified("other", "-V always:forever");
    let mut accepted = stage.lobby.let_in(&stage.node, &other, "ada");
    stage.lobby.hand_over(&accepted);
    let mut front = stage.node.front();
    let handed = front.handed_as(&mut accepted);
    stage.front.seat.say(&FromFront::Start {
        connection: handed.number,
        ticket: 1,
        start: command("true"),
    });
    stage.front.seat.say(&FromFront::Closed {
        connection: handed.number,
        why: c"I say so".into(),
        received: 0,
        sent: 0,
    });
    let words = stage.front.fence(stage.ada_too.1.number).expect("it stays");
    assert!(words.is_empty(), "{words:?}");
    let words = front.fence(handed.number).expect("it stays");
    assert!(words.is_empty(), "{words:?}");
    stage.after_front("words about the account's other login", Want::Nothing);
}
