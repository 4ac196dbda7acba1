//! Key exchanges around a login, moment by moment. A server begins none of its own before the login is over and the
//! connection has moved, because OpenSSH's client ends at the KEXINIT of one; a client may begin one at any time.

use super::moving::moved;
use super::pair::{Pair, send, take};
use crate::auth::Request;
use crate::event::{AuthAnswer, ChannelKind};
use crate::settings::{Rekey, Settings};
use std::time::Duration;

/// Moments of a login, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// The first keys count, nothing was asked for.
    Established,
    /// The server accepted the service, and did not read the first request.
    ServiceAccepted,
    /// The server decides about the first request.
    Deciding,
    /// The client read that the first request is refused.
    Rejected,
    /// The client read the questions of the second.
    Questioned,
    /// The server decides about the answers.
    DecidingAnswers,
    /// The server said yes and sent nothing yet.
    Accepted,
    /// The yes is sent. The connection has not moved.
    AcceptedAndSent,
}

const MOMENTS: [Moment; 8] = [
    Moment::Established,
    Moment::ServiceAccepted,
    Moment::Deciding,
    Moment::Rejected,
    Moment::Questioned,
    Moment::DecidingAnswers,
    Moment::Accepted,
    Moment::AcceptedAndSent,
];

/// Goes through a login with one refusal and one question, to the hand-over; `at` is called at each moment.
fn log_in(pair: &mut Pair, mut at: impl FnMut(&mut Pair, Moment)) {
    let request = Request::keyboard_interactive(b"ann", "");
    pair.login = false;
    pair.decides = false;
    pair.run();
    assert!(pair.client_told.established);
    at(pair, Moment::Established);

    pair.client.authenticate(&request);
    // Byte by byte, until the server's answer to the first of the two messages is there.
    pair.piece = 1;
    while pair.server.link.info.packets_in < 4 && pair.step() {}
    at(pair, Moment::ServiceAccepted);
    pair.piece = usize::MAX;
    pair.run();
    assert_eq!(pair.server_told.login_requests, 1, "{:?}", pair.server_told.end);
    at(pair, Moment::Deciding);

    pair.server.answer_auth(AuthAnswer::Reject {
        methods: vec!["keyboard-interactive".into()],
        partial: false,
    });
    pair.run();
    assert_eq!(pair.client_told.rejected, 1, "{:?}", pair.client_told.end);
    at(pair, Moment::Rejected);

    pair.client.authenticate(&request);
    pair.run();
    pair.server.answer_auth(AuthAnswer::Ask {
        name: Vec::new(),
        instruction: Vec::new(),
        prompts: vec![(b"Word: ".to_vec(), false)],
    });
    pair.run();
    assert_eq!(pair.client_told.questions, 1, "{:?}", pair.client_told.end);
    at(pair, Moment::Questioned);

    pair.client.answer_prompts(&[b"swordfish"]);
    pair.run();
    assert_eq!(pair.server_told.login_requests, 3, "{:?}", pair.server_told.end);
    at(pair, Moment::DecidingAnswers);

    pair.server.answer_auth(AuthAnswer::Accept);
    at(pair, Moment::Accepted);
    take(&mut pair.server, &mut pair.to_client);
    at(pair, Moment::AcceptedAndSent);
}

/// A channel opens, and bytes go both ways.
fn goes_on(pair: &mut Pair, what: &str) {
    pair.run();
    assert!(pair.client_told.logged_in, "{what}: {:?}", pair.client_told.end);
    let ours = pair.client.open(&ChannelKind::Session).expect("logged in");
    pair.run();
    let theirs = pair.server_told.opened.pop_front();
    let theirs = theirs.unwrap_or_else(|| panic!("{what}: no channel: {:?}", pair.server_told.end));
    send(pair, false, ours, b"up");
    send(pair, true, theirs, b"down");
    pair.run();
    assert_eq!(pair.server_told.data, b"up", "{what}");
    assert_eq!(pair.client_told.data, b"down", "{what}");
    let ends = (&pair.client_told.end, &pair.server_told.end);
    assert_eq!(ends, (&None, &None), "{what}");
    assert_eq!(pair.client.session_id(), pair.server.session_id(), "{what}");
}

fn settings(rekey: Rekey) -> Settings {
    Settings {
        rekey,
        ..Settings::default()
    }
}

#[test]
fn a_server_whose_exchange_is_due_begins_it_after_the_login() {
    let never = Rekey::default();
    for (due, rekey) in [
        ("by bytes", Rekey { bytes: 16, ..never }),
        ("by more bytes", Rekey { bytes: 512, ..never }),
        ("by packets", Rekey { packets: 1, ..never }),
        (
            "by time",
            Rekey {
                time: Duration::from_secs(2),
                ..never
            },
        ),
    ] {
        for moves in [true, false] {
            let mut pair = Pair::new(Settings::default(), settings(rekey));
            if moves {
                pair.server.will_move();
            }
            let mut now = Duration::ZERO;
            log_in(&mut pair, |pair, moment| {
                let what = format!("{due}, moves: {moves}, {moment:?}");
                if !moves && matches!(moment, Moment::Accepted | Moment::AcceptedAndSent) {
                    return;
                }
                now += Duration::from_secs(10);
                pair.server.tick(now);
                assert!(
                    pair.server.deadline().is_none_or(|d| d > now),
                    "{what}: no busy loop"
                );
                let decides = matches!(moment, Moment::Deciding | Moment::DecidingAnswers);
                if moment != Moment::Accepted && !decides {
                    pair.run();
                }
                assert!(
                    pair.server.link.kex.idle(),
                    "{what}: the server began an exchange"
                );
                assert!(pair.client.link.kex.idle(), "{what}: the client saw one");
                assert_eq!(pair.server.info().exchanges, 1, "{what}");
            });
            let what = format!("{due}, moves: {moves}");
            if moves {
                assert!(pair.server.may_move(), "{what}");
                pair.server = moved(pair.server);
            }
            // The new place has a clock of its own; the age of the keys came along.
            pair.server.tick(now);
            goes_on(&mut pair, &what);
            assert!(pair.server.info().exchanges > 1, "{what}: it was due");
        }
    }
}

#[test]
fn a_client_may_begin_an_exchange_at_every_moment() {
    for chosen in MOMENTS {
        for moves in [true, false] {
            for read_ahead in [true, false] {
                let what = format!("{chosen:?}, moves: {moves}, read ahead: {read_ahead}");
                let mut pair = Pair::new(Settings::default(), Settings::default());
                if moves {
                    pair.server.will_move();
                }
                log_in(&mut pair, |pair, moment| {
                    if moment == chosen {
                        pair.client.rekey();
                        take(&mut pair.client, &mut pair.to_server);
                        if read_ahead {
                            read_all(pair);
                        }
                    }
                });
                if moves {
                    assert!(pair.server.may_move(), "{what}");
                    pair.server = moved(pair.server);
                }
                goes_on(&mut pair, &what);
                assert_eq!(pair.server.info().exchanges, 2, "{what}");
            }
        }
    }
}

#[test]
fn both_exchanges_meet_at_the_hand_over() {
    let rekey = Rekey {
        bytes: 16,
        ..Rekey::default()
    };
    for chosen in MOMENTS {
        let mut pair = Pair::new(Settings::default(), settings(rekey));
        pair.server.will_move();
        log_in(&mut pair, |pair, moment| {
            if moment == chosen {
                pair.client.rekey();
                take(&mut pair.client, &mut pair.to_server);
            }
        });
        assert!(pair.server.may_move(), "{chosen:?}");
        pair.server = moved(pair.server);
        goes_on(&mut pair, &format!("{chosen:?}"));
    }
}

#[test]
fn a_server_asked_for_new_keys_before_the_login_begins_none() {
    for chosen in MOMENTS {
        let mut pair = Pair::new(Settings::default(), Settings::default());
        pair.server.will_move();
        log_in(&mut pair, |pair, moment| {
            if moment == chosen {
                pair.server.rekey();
            }
            assert!(pair.server.link.kex.idle(), "{chosen:?} {moment:?}");
        });
        pair.server = moved(pair.server);
        goes_on(&mut pair, &format!("{chosen:?}"));
    }
}

#[test]
fn numbers_of_packets_end_a_connection_that_does_not_log_in() {
    let mut pair = Pair::new(Settings::default(), Settings::default());
    pair.login = false;
    pair.run();
    pair.server.link.inbox.packets = (1 << 31) - 1;
    pair.client.send_raw(&[crate::message::IGNORE, 0, 0, 0, 0]);
    pair.run();
    let end = pair.server_told.end.as_ref().expect("it ended").to_string();
    assert!(end.contains("too many packets"), "{end}");
}

/// The server's owner reads more than it needs to.
fn read_all(pair: &mut Pair) {
    let room = pair.server.room(pair.to_server.len());
    let n = room.len().min(pair.to_server.len());
    for slot in &mut room[..n] {
        *slot = pair
            .to_server
            .pop_front()
            .expect("no more is taken than there is");
    }
    pair.server.received(n);
}
