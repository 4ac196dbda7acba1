//! Whoever has taken over the lobby: what it may say to a real monitor, and what that comes to. The test sits in the
//! seat itself, without its sandbox. Every attack ends with an honest visitor who gets in over the same socket.

use fleetgate_node::config::Duration;
use fleetgate_ssh::event::Exchange;
use fleetgate_tests::taken::{
    Fate, Key, Node, Scene, Stage, Visit, Want, command, garbage, is_rejected, lobby_tries,
};
use fleetgate_wire::node::Verdict;
use fleetgate_wire::node::front::FromFront;
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use std::ffi::CString;
use std::io::Read;

#[test]
fn a_lobby_lets_nobody_in_whom_the_monitor_has_not_verified() {
    lobby_tries(&[
        (
            "handing over what nobody logged in to",
            |s| {
                let visit = s.lobby.establish(&s.node);
                s.lobby.seat.say(&FromLobby::HandOver {
                    connection: visit.arrival.number,
                    frozen: s.ada.0.frozen.clone(),
                });
            },
            Want::Ends("handed over without a login"),
        ),
        (
            "handing over what has not even keys",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                s.lobby.seat.say(&FromLobby::HandOver {
                    connection: arrival.number,
                    frozen: s.ada.0.frozen.clone(),
                });
            },
            Want::Ends("handed over without a login"),
        ),
        (
            "handing over a number that nobody has",
            |s| {
                for connection in [0, 1 << 40, u64::MAX] {
                    s.lobby.seat.say(&FromLobby::HandOver {
                        connection,
                        frozen: s.ada.0.frozen.clone(),
                    });
                }
            },
            Want::Nothing,
        ),
        (
            "handing over twice, and what was handed over to another",
            |s| {
                s.lobby.hand_over(&s.ada.0);
                s.lobby.hand_over(&s.bea.0);
            },
            Want::Nothing,
        ),
        (
            "a login before the first exchange",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                s.lobby.seat.say(&FromLobby::Auth {
                    connection: arrival.number,
                    request: s.key.request(&s.ada.0.session_id, "ada"),
                });
            },
            Want::Ends("before the first key exchange"),
        ),
        (
            "a signature over another connection's session, and one that was used",
            |s| {
                let other = s.lobby.establish(&s.node);
                let request = s.key.request(other.client.session_id().expect("keys"), "ada");
                let visit = s.lobby.establish(&s.node);
                for replayed in [&request, &s.ada.0.request, &s.bea.0.request] {
                    let fresh = s.lobby.establish(&s.node).arrival.number;
                    assert!(is_rejected(s.lobby.ask(fresh, replayed)));
                }
                // Where it belongs it is good.
                drop(visit);
                assert_eq!(
                    s.lobby.ask(other.arrival.number, &request),
                    Some(Verdict::Accepted { notes: Vec::new() })
                );
            },
            Want::Nothing,
        ),
        (
            "a key of somebody else's, and a name put in after the signature",
            |s| {
                let visit = s.lobby.establish(&s.node);
                let (number, id) = (visit.arrival.number, visit.client.session_id().expect("keys"));
                assert!(is_rejected(s.lobby.ask(number, &s.key.request(id, "bea"))));
                let visit = s.lobby.establish(&s.node);
                let (number, id) = (visit.arrival.number, visit.client.session_id().expect("keys"));
                let mut request = s.key.request(id, "ada");
                // The user's name is the first field: 5 bytes in.
                request[5..8].copy_from_slice(b"bea");
                assert!(is_rejected(s.lobby.ask(number, &request)));
                let stranger = s.scene.key("stranger").request(id, "bea");
                let next = s.lobby.establish(&s.node).arrival.number;
                assert!(is_rejected(s.lobby.ask(next, &stranger)));
            },
            Want::Nothing,
        ),
        (
            "a signature that is bound to another host",
            |s| {
                let visit = s.lobby.establish(&s.node);
                let (number, id) = (visit.arrival.number, visit.client.session_id().expect("keys"));
                let (other, own) = (s.scene.key("stranger"), s.scene.key("host"));
                let bound = s.key.bound_request(id, "ada", other.blob());
                assert!(is_rejected(s.lobby.ask(number, &bound)));
                let bound = s.key.bound_request(id, "ada", own.blob());
                assert_eq!(
                    s.lobby.ask(number, &bound),
                    Some(Verdict::Accepted { notes: Vec::new() })
                );
            },
            Want::Nothing,
        ),
        (
            "another name on the way",
            |s| {
                let visit = s.lobby.establish(&s.node);
                let (number, id) = (visit.arrival.number, visit.client.session_id().expect("keys"));
                assert!(is_rejected(s.lobby.ask(number, &s.key.request(id, "bea"))));
                let changed = s.lobby.ask(number, &s.key.request(id, "ada"));
                assert!(matches!(changed, Some(Verdict::End { .. })), "{changed:?}");
            },
            Want::Nothing,
        ),
        (
            "a second login on the connection",
            |s| {
                let accepted = s.lobby.let_in(&s.node, &s.key, "ada");
                s.lobby.seat.say(&FromLobby::Auth {
                    connection: accepted.arrival.number,
                    request: s.scene.key("bea").request(&accepted.session_id, "bea"),
                });
            },
            Want::Ends("a login request after the login"),
        ),
        (
            "requests before the last one is answered",
            |s| {
                // The first of a connection takes a moment: its key files are read. Where this thread is held up for
                // longer than that, between two words, the next connection shows it.
                let stranger = s.scene.key("stranger");
                let ended = (0..100).any(|_| {
                    let visit = s.lobby.establish(&s.node);
                    let id = visit.client.session_id().expect("keys");
                    let word = FromLobby::Auth {
                        connection: visit.arrival.number,
                        request: stranger.request(id, "ada"),
                    };
                    s.lobby.seat.say(&word);
                    s.lobby.seat.say(&word);
                    s.lobby.verdict(visit.arrival.number).is_none()
                });
                assert!(ended, "nobody minds");
            },
            Want::Ends("before the last one was answered"),
        ),
        (
            "a request after the login was ended",
            |s| {
                let auth = |visit: &Visit, key: &Key| FromLobby::Auth {
                    connection: visit.arrival.number,
                    request: key.request(visit.client.session_id().expect("keys"), "ada"),
                };
                let (over, other) = (s.lobby.establish(&s.node), s.lobby.establish(&s.node));
                let number = over.arrival.number;
                s.lobby.seat.say(&FromLobby::AuthInfo {
                    connection: number,
                    response: Vec::new(),
                });
                let verdict = s.lobby.verdict(number);
                assert!(matches!(verdict, Some(Verdict::End { .. })), "{verdict:?}");
                // The right key comes too late here, and not on another connection.
                s.lobby.seat.say(&auth(&over, &s.key));
                s.lobby.seat.say(&auth(&other, &s.key));
                let heard = s.lobby.seat.hear_until(|word, _| match word {
                    ToLobby::Verdict { connection, verdict } => Some((*connection, verdict.clone())),
                    _ => None,
                });
                let first = heard.map(|(_, verdict)| verdict);
                assert_eq!(
                    first,
                    Some((other.arrival.number, Verdict::Accepted { notes: Vec::new() }))
                );
            },
            Want::Nothing,
        ),
        (
            "words about what is a front's",
            |s| {
                let (number, transcript) = (s.bea.1.number, s.bea.0.transcript.clone());
                let cookie = s.bea.1.cookie;
                let arrival = s.lobby.arrive(&s.node);
                let (visit, _) = s.lobby.begin(arrival, cookie);
                for exchange in [transcript, visit.transcript] {
                    s.lobby.seat.say(&FromLobby::Sign {
                        connection: number,
                        exchange,
                    });
                }
                s.lobby.seat.say(&FromLobby::Auth {
                    connection: number,
                    request: s.bea.0.request.clone(),
                });
                s.lobby.seat.say(&FromLobby::AuthInfo {
                    connection: number,
                    response: Vec::new(),
                });
                s.lobby.seat.say(&FromLobby::Closed {
                    connection: number,
                    why: c"I say so".into(),
                });
            },
            Want::Nothing,
        ),
        (
            "an order for a session",
            |s| {
                s.lobby.seat.say(&FromFront::Start {
                    connection: s.ada.1.number,
                    ticket: 1,
                    start: command("true"),
                });
            },
            Want::Ends("asked for what it may not"),
        ),
    ]);
}

/// Has the lobby ask for a signature over an honest transcript after `change`.
fn sign_changed(s: &mut Stage<'_>, change: fn(&mut Exchange, &Stage<'_>)) {
    let arrival = s.lobby.arrive(&s.node);
    let cookie = arrival.cookie;
    let (visit, mut exchange) = s.lobby.begin(arrival, cookie);
    change(&mut exchange, s);
    s.lobby.seat.say(&FromLobby::Sign {
        connection: visit.arrival.number,
        exchange: exchange.encode().to_vec(),
    });
}

/// Has the lobby ask for a signature over these bytes.
fn sign_bytes(s: &mut Stage<'_>, bytes: &[u8]) {
    let arrival = s.lobby.arrive(&s.node);
    s.lobby.seat.say(&FromLobby::Sign {
        connection: arrival.number,
        exchange: bytes.to_vec(),
    });
}

#[test]
fn a_lobby_gets_no_signature_but_over_its_connections_own_fresh_exchange() {
    let cookie = Want::Ends("cookie is not the one that was given");
    let not_ours = Want::Ends("that is not ours");
    let unreadable = Want::Ends("cannot be read");
    lobby_tries(&[
        (
            "a cookie of its own making",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                let (visit, _) = s.lobby.begin(arrival, [7; 16]);
                s.lobby.seat.say(&FromLobby::Sign {
                    connection: visit.arrival.number,
                    exchange: visit.transcript,
                });
            },
            cookie,
        ),
        (
            "another connection's cookie",
            |s| {
                let (arrival, other) = (s.lobby.arrive(&s.node), s.lobby.arrive(&s.node));
                let (visit, _) = s.lobby.begin(arrival, other.cookie);
                s.lobby.seat.say(&FromLobby::Sign {
                    connection: visit.arrival.number,
                    exchange: visit.transcript,
                });
            },
            cookie,
        ),
        (
            "a transcript twice",
            |s| {
                let visit = s.lobby.establish(&s.node);
                s.lobby.seat.say(&FromLobby::Sign {
                    connection: visit.arrival.number,
                    exchange: visit.transcript,
                });
            },
            cookie,
        ),
        (
            "a transcript of a connection that was let in",
            |s| {
                let arrival = s.lobby.arrive(&s.node);
                s.lobby.seat.say(&FromLobby::Sign {
                    connection: arrival.number,
                    exchange: s.ada.0.transcript.clone(),
                });
            },
            cookie,
        ),
        (
            "a host key that is not ours",
            |s| sign_changed(s, |e, s| e.host_key = s.scene.key("stranger").blob().to_vec()),
            not_ours,
        ),
        (
            "another program's name",
            |s| sign_changed(s, |e, _| e.server_version = b"SSH-2.0-OpenSSH_10.0".to_vec()),
            not_ours,
        ),
        (
            "a method that the KEXINITs do not agree on",
            |s| sign_changed(s, |e, _| e.kex = "ecdh-sha2-nistp256".into()),
            unreadable,
        ),
        (
            "an algorithm that they do not agree on",
            |s| sign_changed(s, |e, _| e.host_key_algorithm = "rsa-sha2-512".into()),
            unreadable,
        ),
        (
            "a secret in another form",
            |s| sign_changed(s, |e, _| e.secret.insert(4, 0)),
            unreadable,
        ),
        (
            "a message in the place of a share",
            |s| sign_changed(s, |e, _| e.client_share.extend(b"and more")),
            unreadable,
        ),
        ("a hash", |s| sign_bytes(s, &[0xab; 32]), unreadable),
        ("nothing", |s| sign_bytes(s, &[]), unreadable),
        (
            "what hostkeys-prove would sign",
            |s| sign_bytes(s, b"\0\0\0\x1dhostkeys-prove-00@openssh.com"),
            unreadable,
        ),
    ]);
}

#[test]
fn garbage_ends_the_lobby_and_nobody_else() {
    let Some(scene) = Scene::new() else { return };
    let null = fleetgate_sys::Fd::from(std::fs::File::open("/dev/null").expect("/dev/null"));
    let good = FromLobby::Closed {
        connection: 1 << 40,
        why: c"gone".into(),
    };
    for (what, frame, with_fd, why) in garbage(&good) {
        let stage = Stage::set(&scene);
        let fds: &[i32] = if with_fd { &[null.raw()] } else { &[] };
        stage.lobby.seat.send(&frame, fds);
        stage.after_lobby(what, Want::Ends(why));
    }
}

#[test]
fn floods_end_the_lobby_or_nobody() {
    lobby_tries(&[
        (
            "many words about nobody",
            |s| {
                let word = FromLobby::Closed {
                    connection: 1 << 40,
                    why: c"gone".into(),
                };
                assert!((0..20_000).all(|_| s.lobby.seat.say(&word) == Fate::Stays));
            },
            Want::Nothing,
        ),
        (
            "questions before the last one is answered",
            |s| {
                let visit = s.lobby.establish(&s.node);
                let (number, id) = (visit.arrival.number, visit.client.session_id().expect("keys"));
                let request = s.scene.key("stranger").request(id, "ada");
                // A refusal is held back for a moment, and nothing more is asked meanwhile.
                assert!(is_rejected(s.lobby.ask(number, &request)));
                let word = FromLobby::Auth {
                    connection: number,
                    request,
                };
                assert!((0..1_000_000).any(|_| s.lobby.seat.say(&word) == Fate::Ended));
            },
            Want::Ends("it asked for what it may not"),
        ),
    ]);
}

#[test]
fn words_of_a_worker_forge_no_line_of_the_log() {
    lobby_tries(&[(
        "a reason of several lines",
        |s| {
            let forged = "gone\nFORGED a login login=root\r\u{1b}[2J";
            let arrival = s.lobby.arrive(&s.node);
            s.lobby.seat.say(&FromLobby::Closed {
                connection: arrival.number,
                why: CString::new(forged).expect("no zero"),
            });
            s.front.seat.say(&FromFront::Closed {
                connection: s.ada.1.number,
                why: CString::new(forged.repeat(1000)).expect("no zero"),
                received: 0,
                sent: 0,
            });
            s.ended(arrival.number);
            s.ended(s.ada.1.number);
            let log = s.node.log();
            assert_eq!(log.matches("connection ended: gone").count(), 2, "{log}");
            assert!(
                log.lines()
                    .all(|line| line.starts_with("20") && line.len() < 2000),
                "{log}"
            );
            assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{log}");
        },
        Want::Nothing,
    )]);
}

#[test]
fn a_lobby_that_keeps_a_login_to_itself_loses_it() {
    lobby_tries(&[(
        "a connection that is not handed over",
        |s| {
            let accepted = s.lobby.let_in(&s.node, &s.key, "ada");
            s.ended(accepted.arrival.number);
            s.lobby.hand_over(&accepted);
            let words = s.front.fence(s.ada_too.1.number).expect("the front stays");
            assert!(words.is_empty(), "{words:?}");
        },
        Want::Nothing,
    )]);
}

#[test]
fn seats_that_die_take_their_own_and_nobody_else() {
    let Some(scene) = Scene::new() else { return };
    let mut stage = Stage::set(&scene);
    stage.lobby.seat.hang_up();
    stage.ended(stage.witness.number);
    let mut rest = Vec::new();
    let closed = stage.witness.client.read_to_end(&mut rest);
    assert!(closed.is_ok() && rest.is_empty(), "{closed:?}");
    stage.after_lobby("a lobby that dies", Want::Ends("signal 9"));
    let stage = Stage::set(&scene);
    stage.front.seat.hang_up();
    stage.after_front("a front that dies", Want::Ends("signal 9"));
}

#[test]
fn whoever_the_lobby_keeps_waiting_is_out_in_time() {
    let Some(scene) = Scene::new() else { return };
    let mut config = scene.config();
    config.limits.login_grace = Duration::from_secs(1);
    let mut node = Node::start(config);
    let mut lobby = node.lobby();
    let mut visit = lobby.establish(&node);
    let mut rest = Vec::new();
    let closed = visit.arrival.client.read_to_end(&mut rest);
    assert!(closed.is_ok() && rest.is_empty(), "{closed:?}");
    node.audited("connection_ended", &["it did not log in in time"]);
    // A login that comes too late is nobody's.
    lobby.seat.say(&FromLobby::Auth {
        connection: visit.arrival.number,
        request: scene
            .key("ada")
            .request(visit.client.session_id().expect("keys"), "ada"),
    });
    let witness = lobby.arrive(&node);
    assert_eq!(lobby.fence(&witness).map(|words| words.len()), Some(0));
    assert_eq!(node.count("login_accepted"), 0);
}

#[test]
fn a_certificate_that_is_only_shown_tells_no_accounts_apart() {
    let Some(scene) = Scene::new() else { return };
    let mut config = scene.config();
    config.deny_users = vec!["bea".to_owned()];
    let mut node = Node::start(config);
    let mut lobby = node.lobby();
    let key = scene.certified("shown", "-n ada,bea,ghost -V always:forever");
    let mut answer = |key: &Key, user: &str, is_signed: bool| {
        let visit = lobby.establish(&node);
        let request = match is_signed {
            true => key.request(visit.client.session_id().expect("keys"), user),
            false => key.query(user),
        };
        lobby
            .ask(visit.arrival.number, &request)
            .expect("the lobby stays")
    };
    // One who may come in, one whom the lists refuse, and one who is not there.
    for user in ["ada", "bea", "ghost"] {
        assert_eq!(answer(&key, user, false), Verdict::KeyOk, "{user}");
    }
    let is_in = |verdict| matches!(verdict, Verdict::Accepted { .. });
    assert!(is_in(answer(&key, "ada", true)), "control");
    for user in ["bea", "ghost"] {
        assert!(is_rejected(Some(answer(&key, user, true))), "{user}");
    }
    // Of a key that no authority speaks for, the account's files would have to say something.
    assert_eq!(answer(&scene.key("ada"), "ada", false), Verdict::KeyOk, "control");
    for user in ["bea", "ghost"] {
        assert!(
            is_rejected(Some(answer(&scene.key("bea"), user, false))),
            "{user}"
        );
    }
}
