//! Opening and closing: numbers, what is said ahead, refusals, the order of the last messages.

use super::{LIMITS, Side, confirmed, data, open, other, request};
use crate::channel::{Channels, Message, Role};
use crate::event::{ChannelKind, Global, Request};

#[test]
fn a_session_from_open_to_close() {
    let mut s = Side::with_session();
    assert_eq!(
        s.get(request(
            0,
            Request::Exec {
                command: b"true".to_vec()
            }
        )),
        "request 0 exec 4"
    );
    s.answer(0, true);
    assert_eq!(s.get(Message::Eof(0)), "eof 0");
    assert_eq!(s.write(0, 10), 10);
    s.channels.request(
        crate::event::ChannelId(0),
        &Request::ExitStatus { code: 3 },
        false,
        &mut s.out,
    );
    s.close(0);
    assert_eq!(
        s.sent(),
        [
            "reply 7 true",
            "10 bytes on 7",
            "request 7 ExitStatus { code: 3 }",
            "eof 7",
            "close 7"
        ]
    );
    // The number is not free before the peer closed too.
    assert_eq!(s.get(open(8, ChannelKind::Session)), "open 1 Session");
    assert_eq!(s.get(Message::Close(0)), "closed 0");
    assert_eq!(s.get(open(9, ChannelKind::Session)), "open 0 Session");
    assert!(s.sent().is_empty(), "CLOSE is answered once");
}

#[test]
fn a_peers_close_is_answered_once_and_frees_the_number() {
    let mut s = Side::with_session();
    s.get(request(0, Request::Shell));
    assert_eq!(s.get(Message::Close(0)), "closed 0");
    assert_eq!(s.sent(), ["close 7"]);
    // Nothing of the channel is left: neither its answer, nor the right to say more.
    s.answer(0, true);
    s.close(0);
    s.eof(0);
    assert_eq!(s.write(0, 1), 0);
    assert!(s.sent().is_empty());
    assert_eq!(
        s.get(Message::Close(0)),
        "ProtocolError: CLOSE for channel 0, which does not exist"
    );
}

#[test]
fn a_close_that_is_answered_later_leaves_room_for_the_exit_status() {
    let mut s = Side::with_session();
    s.get(request(0, Request::Shell));
    s.answer(0, true);
    s.eof(0);
    s.channels.close_later(crate::event::ChannelId(0));
    s.sent();
    assert_eq!(s.get(Message::Close(0)), "leaving 0");
    assert_eq!(s.get(Message::Close(0)), "-", "told once");
    assert!(s.sent().is_empty());
    assert_eq!(s.write(0, 1), 0);
    // Its number is taken as long as that.
    assert_eq!(s.get(open(8, ChannelKind::Session)), "open 1 Session");
    s.channels.request(
        crate::event::ChannelId(0),
        &Request::ExitStatus { code: 3 },
        false,
        &mut s.out,
    );
    s.close(0);
    s.close(0);
    assert_eq!(s.sent(), ["request 7 ExitStatus { code: 3 }", "close 7"]);
    assert_eq!(s.next(), "closed 0");
    assert_eq!(s.next(), "-");
    assert_eq!(s.get(open(9, ChannelKind::Session)), "open 0 Session");
}

#[test]
fn an_exit_status_is_heard_behind_our_close() {
    let mut s = Side::with_session();
    s.close(0);
    assert_eq!(s.get(request(0, Request::Shell)), "-");
    let status = Message::Request {
        ours: 0,
        request: Request::ExitStatus { code: 3 },
        want_reply: false,
    };
    assert_eq!(s.get(status), "request 0 ExitStatus { code: 3 }");
    assert_eq!(s.get(Message::Close(0)), "closed 0");
}

#[test]
fn after_our_close_what_comes_is_dropped() {
    let mut s = Side::with_session();
    s.request(0, other("ours"));
    s.close(0);
    s.sent();
    for message in [
        data(0, b"late"),
        request(0, Request::Shell),
        request(0, other("keepalive@openssh.com")),
        Message::Adjust { ours: 0, bytes: 10 },
        Message::Reply { ours: 0, done: true },
        Message::Eof(0),
    ] {
        assert_eq!(s.get(message), "-");
    }
    s.close(0);
    s.eof(0);
    s.request(0, Request::Shell);
    assert_eq!(s.write(0, 1), 0);
    assert!(s.sent().is_empty());
    assert_eq!(s.get(Message::Close(0)), "closed 0");
}

#[test]
fn requests_that_were_not_answered_are_refused_before_close() {
    let mut s = Side::with_session();
    for _ in 0..3 {
        s.get(request(0, Request::Shell));
    }
    s.answer(1, true);
    assert!(s.sent().is_empty());
    s.close(0);
    assert_eq!(
        s.sent(),
        [
            "reply 7 false",
            "reply 7 true",
            "reply 7 false",
            "eof 7",
            "close 7"
        ]
    );
}

#[test]
fn a_refused_channel_leaves_nothing() {
    let mut s = Side::server();
    assert_eq!(s.get(open(7, ChannelKind::Agent)), "open 0 Agent");
    s.refuse(0);
    s.refuse(0);
    s.accept(0);
    assert_eq!(s.sent(), ["refused 7 1"]);
    assert!(s.channels.idle());
    assert_eq!(s.get(open(8, ChannelKind::Agent)), "open 0 Agent");
    s.close(0);
    assert_eq!(s.sent(), ["refused 8 1"]);
}

#[test]
fn what_is_said_before_the_channel_is_accepted_waits() {
    let mut s = Side::server().mirroring();
    assert_eq!(s.get(open(2, ChannelKind::Session)), "open 2 Session");
    for message in [
        request(
            2,
            Request::Exec {
                command: b"true".to_vec(),
            },
        ),
        Message::Eof(2),
        request(2, Request::EndOfWrite),
    ] {
        assert_eq!(s.get(message), "-");
    }
    assert_eq!(s.next(), "-");
    s.accept(2);
    assert_eq!(s.next(), "request 2 exec 4");
    assert_eq!(s.next(), "eof 2");
    assert_eq!(s.next(), "request 2 EndOfWrite");
    assert_eq!(s.next(), "-");
    s.answer(0, true);
    s.answer(1, true);
    assert_eq!(
        s.sent(),
        [
            "confirmed 2 as 2, window 1000, packets 300",
            "reply 2 true",
            "reply 2 true"
        ]
    );
    assert_eq!(s.channels.held, 0);
    assert_eq!(
        s.get(data(2, b"late")),
        "ProtocolError: data on channel 2 after its EOF"
    );
}

#[test]
fn what_is_said_ahead_to_a_refused_channel_is_ignored() {
    let mut s = Side::server().mirroring();
    s.get(open(2, ChannelKind::Session));
    s.refuse(2);
    assert_eq!(s.get(request(2, Request::Shell)), "-");
    assert_eq!(s.get(Message::Eof(2)), "-");
    // And the number can be had again.
    assert_eq!(s.get(open(2, ChannelKind::Session)), "open 2 Session");
    assert_eq!(s.sent(), ["refused 2 1"]);
    // Without the mirror nobody can have said it ahead.
    let mut s = Side::server();
    s.get(open(2, ChannelKind::Session));
    s.refuse(0);
    assert_eq!(
        s.get(request(0, Request::Shell)),
        "ProtocolError: a request for channel 0, which does not exist"
    );
}

#[test]
fn mirrored_numbers() {
    let mut s = Side::server().mirroring();
    assert_eq!(s.get(open(3, ChannelKind::Session)), "open 3 Session");
    assert_eq!(
        s.get(open(3, ChannelKind::Session)),
        "ProtocolError: channel 3 was opened twice"
    );
    // As many as may be, and none beyond: the table stays small.
    assert_eq!(s.get(open(4, ChannelKind::Session)), "-");
    assert_eq!(s.get(open(u32::MAX, ChannelKind::Session)), "-");
    assert_eq!(s.sent(), ["refused 4 4", "refused 4294967295 4"]);
    // Its own have the top bit.
    assert_eq!(s.open(), Some(1 << 31));
    assert_eq!(s.open(), Some(1 << 31 | 1));
    assert_eq!(s.get(confirmed(1 << 31, 0)), "opened 2147483648");
    assert_eq!(s.get(data(1 << 31, b"x")), "1 bytes on 2147483648 Main");
    s.close(1 << 31);
    assert_eq!(s.get(Message::Close(1 << 31)), "closed 2147483648");
    assert_eq!(s.open(), Some(1 << 31));
}

#[test]
fn a_client_speaks_ahead_where_it_knows_the_number() {
    let ahead = ["open 0", "request 0 Shell", "eof 0"];
    for (mirror, nth, wire) in [
        // The first channel of a server that counts from 0; the next one's number is not known.
        (false, 0, &ahead[..]),
        (false, 1, &["open 1"][..]),
        (true, 0, &ahead[..]),
        (true, 1, &["open 1", "request 1 Shell", "eof 1"][..]),
    ] {
        let mut s = Side::client();
        if mirror {
            s = s.mirroring();
        }
        for _ in 0..nth {
            s.open();
        }
        s.sent();
        let n = s.open().expect("there is room for more");
        s.request(n, Request::Shell);
        s.eof(n);
        assert_eq!(s.write(n, 1), 0, "no window is known");
        assert_eq!(s.sent(), wire);
        // What was not said ahead is said now.
        let theirs = if mirror || nth == 0 { n } else { 9 };
        assert_eq!(s.get(confirmed(n, theirs)), format!("opened {n}"));
        let held = if wire.len() == 1 {
            vec!["request 9 Shell", "eof 9"]
        } else {
            vec![]
        };
        assert_eq!(s.sent(), held);
        assert_eq!(
            s.get(Message::Reply { ours: n, done: true }),
            format!("replied {n} true")
        );
    }
}

#[test]
fn nothing_is_guessed_where_the_server_may_open_a_channel_first() {
    let mut s = Side::client();
    let forward = Global::StreamlocalForward { path: Vec::new() };
    s.channels.global(&forward, false, &mut s.out);
    s.open();
    s.eof(0);
    assert_eq!(s.sent()[1..], ["open 0"]);
    assert_eq!(s.get(confirmed(0, 1)), "opened 0");
    assert_eq!(s.sent(), ["eof 1"]);
}

#[test]
fn a_wrong_guess_ends_the_connection() {
    let mut s = Side::client();
    s.open();
    assert_eq!(
        s.get(confirmed(0, 2)),
        "ByApplication: the server calls channel 0 2, and other was said ahead"
    );
}

#[test]
fn a_channel_closed_before_it_is_confirmed() {
    let mut s = Side::client();
    s.open();
    let n = s.open().expect("there is room for more");
    s.close(n);
    assert_eq!(s.sent(), ["open 0", "open 1"]);
    assert_eq!(s.get(confirmed(n, 5)), "-");
    assert_eq!(s.sent(), ["eof 5", "close 5"]);
    assert_eq!(s.get(Message::Close(n)), "closed 1");
    assert_eq!(
        s.get(Message::Refused {
            ours: 0,
            reason: 4,
            text: b"no"
        }),
        "refused 0 4 no"
    );
    assert!(s.channels.idle());
}

#[test]
fn messages_out_of_place_end_the_connection() {
    for (message, why) in [
        (data(0, b"x"), "data for channel 0, which is not open yet"),
        (
            Message::Adjust { ours: 0, bytes: 1 },
            "a window for channel 0, which is not open yet",
        ),
        (
            Message::Reply { ours: 0, done: true },
            "a reply for channel 0, which is not open yet",
        ),
        (
            confirmed(0, 0),
            "an answer to opening channel 0, which nobody opens",
        ),
        (data(1, b"x"), "data for channel 1, which does not exist"),
        (Message::Eof(1), "EOF for channel 1, which does not exist"),
        (
            Message::Close(u32::MAX),
            "CLOSE for channel 4294967295, which does not exist",
        ),
        (
            confirmed(1, 0),
            "an answer to opening channel 1, which nobody opens",
        ),
        (
            Message::Refused {
                ours: 1,
                reason: 1,
                text: b"",
            },
            "an answer to opening channel 1, which nobody opens",
        ),
        (Message::GlobalRefused, "a reply to no global request"),
        (Message::GlobalDone(b""), "a reply to no global request"),
    ] {
        let mut s = Side::server();
        s.get(open(7, ChannelKind::Session));
        assert_eq!(s.get(message), format!("ProtocolError: {why}"));
    }
    // On an open one.
    let mut s = Side::with_session();
    assert_eq!(
        s.get(Message::Reply { ours: 0, done: true }),
        "ProtocolError: a reply on channel 0 to no request"
    );
    assert_eq!(
        s.get_bytes(&[93, 0, 0]),
        "ProtocolError: CHANNEL_WINDOW_ADJUST cannot be read: it ends inside its channel"
    );
    // A client cannot speak on a channel that it was not confirmed, either.
    let mut s = Side::client();
    s.open();
    assert_eq!(
        s.get(Message::Eof(0)),
        "ProtocolError: EOF for channel 0, which is not open yet"
    );
}

#[test]
fn sessions_come_from_clients_and_not_after_they_said_so() {
    let mut s = Side::client();
    assert_eq!(s.get(open(0, ChannelKind::Session)), "-");
    assert_eq!(s.sent(), ["refused 0 1"]);
    let mut s = Side::server();
    let last = Message::Global {
        request: Global::NoMoreSessions,
        want_reply: false,
    };
    assert_eq!(s.get(last), "global NoMoreSessions");
    assert_eq!(s.get(open(0, ChannelKind::Agent)), "open 0 Agent");
    assert_eq!(
        s.get(open(1, ChannelKind::Session)),
        "ProtocolError: a session was asked for after no-more-sessions"
    );
}

#[test]
fn an_idle_state_moves() {
    let mut s = Side::server().mirroring();
    s.get(Message::Global {
        request: Global::NoMoreSessions,
        want_reply: false,
    });
    let mut bytes = Vec::new();
    s.channels.encode(&mut bytes);
    s.channels = Channels::decode(&bytes, Role::Server, &LIMITS()).expect("what was encoded");
    assert_eq!(s.get(open(3, ChannelKind::Agent)), "open 3 Agent");
    assert!(!s.channels.idle());
    assert_eq!(
        s.get(open(1, ChannelKind::Session)),
        "ProtocolError: a session was asked for after no-more-sessions"
    );
    for bad in [&[][..], &[1], &[0, 0], &[2, 0], &[1, 16], &[1, 0, 0]] {
        assert!(Channels::decode(bad, Role::Server, &LIMITS()).is_err(), "{bad:?}");
    }
}
