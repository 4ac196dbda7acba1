//! Requests and their answers: in order for each channel and for the connection, whatever order the owner has.

use super::{Side, open, other, request};
use crate::channel::Message;
use crate::event::{ChannelKind, Global, Request};

fn forward(port: u32) -> Message<'static> {
    Message::Global {
        request: Global::TcpipForward {
            host: Vec::new(),
            port,
        },
        want_reply: true,
    }
}

#[test]
fn answers_go_out_in_the_order_of_the_requests() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut s = Side::with_session();
        for _ in 0..3 {
            s.get(request(0, Request::Shell));
        }
        let mut given = [false; 3];
        let mut sent = 0;
        for which in order {
            s.answer(which, which != 1);
            given[which] = true;
            // As many as there are without a gap, and each once.
            let ready = given.iter().take_while(|&&g| g).count();
            let wanted: Vec<_> = (sent..ready).map(|i| format!("reply 7 {}", i != 1)).collect();
            assert_eq!(s.sent(), wanted);
            sent = ready;
            s.answer(which, true);
            assert!(s.sent().is_empty(), "an answer counts once");
        }
        assert_eq!(s.channels.in_flight, 0);
    }
}

#[test]
fn one_channels_answers_do_not_wait_for_anothers() {
    let mut s = Side::with_session();
    s.get(open(8, ChannelKind::Session));
    s.accept(1);
    s.get(request(0, Request::Shell));
    s.get(request(1, Request::Shell));
    s.get(forward(80));
    s.sent();
    s.channels.answer_global(s.replies[2], None, &mut s.out);
    s.answer(1, true);
    s.answer(0, false);
    assert_eq!(s.sent(), ["global refused", "reply 8 true", "reply 7 false"]);
    // An answer to a channel's request is none to the connection's.
    s.get(forward(80));
    s.answer(3, true);
    s.channels.answer_global(s.replies[0], None, &mut s.out);
    assert!(s.sent().is_empty());
}

#[test]
fn an_answer_to_a_channel_that_is_gone_reaches_no_other() {
    let mut s = Side::with_session();
    s.get(request(0, Request::Shell));
    s.get(Message::Close(0));
    s.get(open(8, ChannelKind::Session));
    s.accept(0);
    s.get(request(0, Request::Shell));
    s.sent();
    s.answer(0, true);
    assert!(s.sent().is_empty());
    s.answer(1, true);
    assert_eq!(s.sent(), ["reply 8 true"]);
}

#[test]
fn global_answers_keep_their_order_and_their_fields() {
    let mut s = Side::server();
    for port in [0, 80, 81] {
        s.get(forward(port));
    }
    s.channels.answer_global(s.replies[2], None, &mut s.out);
    s.channels.answer_global(s.replies[1], Some(b""), &mut s.out);
    assert!(s.sent().is_empty());
    s.channels
        .answer_global(s.replies[0], Some(&[0, 0, 31, 144]), &mut s.out);
    assert_eq!(
        s.sent(),
        ["global done [0, 0, 31, 144]", "global done []", "global refused"]
    );
    assert!(s.channels.idle());
}

#[test]
fn a_request_that_wants_no_answer_gets_none() {
    let mut s = Side::with_session();
    let quiet = Message::Request {
        ours: 0,
        request: Request::Signal {
            name: b"INT".to_vec(),
        },
        want_reply: false,
    };
    assert!(s.get(quiet).starts_with("request 0 Signal"));
    assert!(s.replies.is_empty());
    s.close(0);
    assert_eq!(s.sent(), ["eof 7", "close 7"]);
}

#[test]
fn keepalives_are_answered_in_their_turn() {
    let keepalive = || Message::Global {
        request: Global::Other {
            name: b"keepalive@openssh.com".to_vec(),
            payload: Vec::new(),
        },
        want_reply: true,
    };
    let mut s = Side::with_session();
    assert_eq!(s.get(keepalive()), "-");
    assert_eq!(s.get(request(0, other("keepalive@openssh.com"))), "-");
    assert_eq!(s.sent(), ["global refused", "reply 7 false"]);
    s.get(forward(0));
    s.get(request(0, Request::Shell));
    s.get(keepalive());
    s.get(request(0, other("keepalive@openssh.com")));
    assert!(s.sent().is_empty());
    s.channels.answer_global(s.replies[0], Some(b""), &mut s.out);
    s.answer(1, true);
    assert_eq!(
        s.sent(),
        [
            "global done []",
            "global refused",
            "reply 7 true",
            "reply 7 false"
        ]
    );
}

#[test]
fn our_own_requests_are_answered_to_whoever_asked() {
    let mut s = Side::client();
    let forward = Global::TcpipForward {
        host: Vec::new(),
        port: 0,
    };
    s.channels.global(&forward, true, &mut s.out);
    s.channels.keepalive(&mut s.out);
    s.channels.global(&Global::NoMoreSessions, false, &mut s.out);
    s.channels.global(&forward, true, &mut s.out);
    assert_eq!(s.sent().len(), 4);
    assert_eq!(s.get(Message::GlobalDone(&[1])), "global replied Some([1])");
    assert_eq!(s.get(Message::GlobalRefused), "alive");
    assert_eq!(s.get(Message::GlobalRefused), "global replied None");
    assert_eq!(
        s.get(Message::GlobalRefused),
        "ProtocolError: a reply to no global request"
    );
}
