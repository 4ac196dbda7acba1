//! Peers that want too much: what they make us remember is measured, and the connection ends with a reason.

use super::{LIMITS, Side, open, request};
use crate::channel::{MAX_HELD, MAX_REFUSALS, MAX_REQUESTS_OF_CHANNEL, Message};
use crate::event::{ChannelKind, Global, Request};

#[test]
fn a_million_channels() {
    // Whoever reads our refusals may go on for ever; nothing of it stays.
    let mut s = Side::server();
    let mut payload = Vec::new();
    open(0, ChannelKind::Session).write(&mut payload);
    for n in 0..1_000_000u32 {
        payload[12..16].copy_from_slice(&n.to_be_bytes());
        let event = s.channels.receive(&payload, &mut s.out);
        assert_eq!(matches!(event, Ok(Some(_))), n < 4);
        if n >= 4 {
            let refusal = s.out.packets.pop().expect("an open is answered");
            assert_eq!((refusal[0], &refusal[1..5]), (92, &n.to_be_bytes()[..]));
        }
        assert!(s.out.packets.is_empty());
    }
    assert_eq!(s.channels.len(), 4);
    // Whoever does not is ended, and what waits for it is bounded.
    s.out.room = 0;
    let mut n = 0;
    let end = loop {
        match s.get(open(n, ChannelKind::Session)) {
            event if event == "-" => n += 1,
            end => break end,
        }
    };
    assert_eq!(
        end,
        "ByApplication: 1024 refused channels, and no refusal was read"
    );
    assert!(n <= MAX_REFUSALS, "{n}");
    assert!(
        s.out.waiting() <= MAX_REFUSALS as usize * 64,
        "{}",
        s.out.waiting()
    );
}

#[test]
fn requests_in_flight_of_a_channel_are_bounded() {
    let mut s = Side::with_session();
    for _ in 0..MAX_REQUESTS_OF_CHANNEL {
        assert_eq!(s.get(request(0, Request::Shell)), "request 0 Shell");
    }
    // One that is answered makes room for one.
    s.answer(0, true);
    assert_eq!(s.get(request(0, Request::Shell)), "request 0 Shell");
    assert_eq!(
        s.get(request(0, Request::Shell)),
        "ByApplication: too many requests wait for their answer"
    );
}

#[test]
fn requests_in_flight_are_bounded_in_sum() {
    let forward = || Message::Global {
        request: Global::StreamlocalForward { path: Vec::new() },
        want_reply: true,
    };
    for last_is_global in [false, true] {
        let mut s = Side::with_session();
        s.get(open(8, ChannelKind::Session));
        s.accept(1);
        let most = LIMITS().max_requests_in_flight;
        for n in 0..most {
            match n % 4 {
                0 => s.get(forward()),
                n => s.get(request(n % 2, Request::Shell)),
            };
        }
        let last = if last_is_global {
            forward()
        } else {
            request(0, Request::Shell)
        };
        assert_eq!(
            s.get(last),
            "ByApplication: too many requests wait for their answer"
        );
        assert_eq!(s.channels.in_flight + s.channels.globals.len(), most as usize);
        // A closed channel's count no more.
        s.get(Message::Close(0));
        s.close(1);
        assert_eq!(s.channels.in_flight, 0);
    }
}

#[test]
fn what_is_held_for_channels_that_wait_is_bounded() {
    for size in [0, 1000, 100_000] {
        let mut s = Side::server().mirroring();
        for n in 0..4 {
            s.get(open(n, ChannelKind::Session));
        }
        let command = vec![b'x'; size];
        let mut n = 0;
        let end = loop {
            let exec = Request::Exec {
                command: command.clone(),
            };
            match s.get(request(n % 4, exec)) {
                event if event == "-" => n += 1,
                end => break end,
            }
            assert!(s.channels.held <= MAX_HELD);
        };
        assert_eq!(
            end,
            "ByApplication: more than 262144 bytes were said on channels that are not open yet"
        );
        assert!(n > 0);
        // It is given back, whatever becomes of them.
        s.refuse(0);
        s.close(1);
        s.accept(2);
        s.refuse(3);
        while s.next() != "-" {}
        s.close(2);
        assert_eq!(s.channels.held, 0);
    }
}

#[test]
fn an_idle_channel_is_small() {
    assert!(
        size_of::<crate::channel::one::Channel>() <= 128,
        "{}",
        size_of::<crate::channel::one::Channel>()
    );
}
