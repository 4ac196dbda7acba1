//! Windows: nobody sends more than the other has room for, adjustments come in lumps, and whoever waited for room is
//! told when there is some.

use super::{Side, confirmed, data, open};
use crate::channel::{Channels, MAX_GROWTH, Message, Role, START_WINDOW};
use crate::event::{ChannelId, ChannelKind, Stream};
use crate::settings::Limits;

#[test]
fn a_peer_sends_what_its_window_allows() {
    let mut s = Side::with_session();
    for _ in 0..3 {
        assert_eq!(s.get(data(0, &[0; 300])), "300 bytes on 0 Main");
    }
    assert_eq!(s.get(data(0, &[0; 100])), "100 bytes on 0 Main");
    assert_eq!(s.get(data(0, b"")), "-");
    assert_eq!(
        s.get(data(0, b"x")),
        "ProtocolError: 1 bytes of data on channel 0, whose window has 0"
    );
    let mut s = Side::with_session();
    assert_eq!(
        s.get(data(0, &[0; 301])),
        "ProtocolError: 301 bytes of data in one packet on channel 0, of 300 at most"
    );
}

#[test]
fn adjustments_come_in_lumps_of_half_a_window() {
    let mut s = Side::with_session();
    let mut adjusted = 0;
    for _ in 0..100 {
        assert_eq!(s.get(data(0, &[0; 100])), "100 bytes on 0 Main");
        s.consumed(0, 60);
        s.consumed(0, 40);
        for sent in s.sent() {
            assert_eq!(sent, "adjust 7 500");
            adjusted += 1;
        }
    }
    assert_eq!(adjusted, 20);
    // What was never sent cannot be consumed, however often an owner says so.
    s.consumed(0, usize::MAX);
    assert!(s.sent().is_empty());
}

#[test]
fn whoever_consumes_all_never_stalls_the_peer() {
    // Any split of what comes: the window is never empty while nothing is unread.
    let mut s = Side::with_session();
    let mut window = 1000;
    let mut x: u32 = 7;
    for _ in 0..10_000 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = 1 + (x >> 16) % 300;
        assert_eq!(
            s.get(data(0, &vec![0; n as usize])),
            format!("{n} bytes on 0 Main")
        );
        s.consumed(0, n as usize);
        window -= n;
        if let [adjusted] = &s.sent()[..] {
            let bytes: u32 = adjusted
                .strip_prefix("adjust 7 ")
                .expect("nothing else")
                .parse()
                .unwrap();
            window += bytes;
        }
        let ch = s.channels.get(0).expect("it is open");
        assert_eq!((ch.window, ch.window + ch.unread + ch.owed), (window, 1000));
        assert!(window > 500);
    }
}

#[test]
fn extended_data_of_another_type_is_read_by_nobody() {
    let mut s = Side::with_session();
    let mut payload = Vec::new();
    Message::Data {
        ours: 0,
        stream: Some(Stream::Stderr),
        bytes: &[0; 300],
    }
    .write(&mut payload);
    assert_eq!(s.get_bytes(&payload), "300 bytes on 0 Stderr");
    s.consumed(0, 300);
    payload[8] = 2;
    assert_eq!(s.get_bytes(&payload), "-");
    // It is given back all the same.
    assert_eq!(s.sent(), ["adjust 7 600"]);
}

#[test]
fn several_packets_are_filled_at_once() {
    let mut s = Side::with_session();
    let write = |s: &mut Side, max, want: usize| {
        let mut lens = Vec::new();
        let filled = s
            .channels
            .write_parts(ChannelId(0), Stream::Main, max, &mut s.out, |places| {
                lens = places.iter().map(|p| p.len()).collect();
                Ok::<_, ()>(want)
            });
        (lens, filled)
    };
    // Packets of 200, a window of 500: as many places as `max` needs, and no more sent than was filled.
    assert_eq!(write(&mut s, 250, 60), (vec![200, 50], Ok(60)));
    assert_eq!(s.sent(), ["60 bytes on 7"]);
    assert_eq!(write(&mut s, 9999, 250), (vec![200, 200, 40], Ok(250)));
    assert_eq!(s.sent(), ["200 bytes on 7", "50 bytes on 7"]);
    assert_eq!(s.writable(0), 190);
    assert_eq!(write(&mut s, 9999, 190), (vec![190], Ok(190)));
    assert_eq!((s.writable(0), write(&mut s, 9999, 0)), (0, (vec![], Ok(0))));
}

#[test]
fn we_send_what_the_peers_window_allows() {
    let mut s = Side::with_session();
    assert_eq!(s.writable(0), 200);
    // One packet each time it is filled, as many as fit when bytes are given.
    let filled = s
        .channels
        .write_with(ChannelId(0), Stream::Stderr, 1000, &mut s.out, |room| {
            room.fill(b'y');
            Ok::<_, ()>(room.len())
        });
    assert_eq!(filled, Ok(200));
    assert_eq!(s.write(0, 1000), 300);
    assert_eq!(s.sent(), ["200 bytes on 7", "200 bytes on 7", "100 bytes on 7"]);
    assert_eq!((s.writable(0), s.write(0, 1)), (0, 0));
    // A failed or empty fill sends nothing and takes nothing of the window.
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 10 }), "writable 0");
    let failed = s
        .channels
        .write_with(ChannelId(0), Stream::Main, 9, &mut s.out, |_| Err("EIO"));
    assert_eq!(failed, Err("EIO"));
    let empty = s
        .channels
        .write_with(ChannelId(0), Stream::Main, 9, &mut s.out, |_| Ok::<_, ()>(0));
    assert_eq!(empty, Ok(0));
    assert!(s.sent().is_empty());
    assert_eq!(s.writable(0), 10);
    // Nobody waits: no event.
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 10 }), "-");
    s.eof(0);
    assert_eq!((s.writable(0), s.write(0, 1)), (0, 0));
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 10 }), "-");
}

#[test]
fn a_window_that_overflows_ends_the_connection() {
    let mut s = Side::with_session();
    let most = u32::MAX - 500;
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: most }), "-");
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 0 }), "-");
    assert_eq!(
        s.get(Message::Adjust { ours: 0, bytes: 1 }),
        "ProtocolError: the window of channel 0 grows beyond 2^32 - 1"
    );
}

#[test]
fn a_peer_without_a_window_makes_us_hold_nothing() {
    for (window, max_packet) in [(0, 32768), (1 << 20, 0), (0, 0)] {
        let mut s = Side::server();
        s.get(Message::Open {
            theirs: 7,
            window,
            max_packet,
            kind: ChannelKind::Session,
        });
        s.accept(0);
        s.sent();
        for _ in 0..1000 {
            assert_eq!(s.write(0, 1 << 20), 0);
        }
        assert_eq!(s.out.waiting(), 0);
        assert_eq!(s.next(), "-");
    }
}

#[test]
fn who_waits_for_room_is_told_in_turn() {
    let mut s = Side::server().mirroring();
    for n in 0..3 {
        s.get(open(n, ChannelKind::Session));
        s.accept(n);
    }
    let far = s.open().expect("there is room for more");
    s.get(confirmed(far, 0));
    let all = [0, 1, 2, far];
    s.out.room = 0;
    for n in all {
        assert_eq!(s.write(n, 1), 0);
    }
    assert_eq!(s.next(), "-");
    // Room for one at a time, which each takes wholly and asks again: nobody is passed over.
    let mut told = Vec::new();
    for _ in 0..40 {
        s.out.room = 1;
        let event = s.next();
        let n: u32 = event
            .strip_prefix("writable ")
            .expect("somebody waits")
            .parse()
            .unwrap();
        assert_eq!(s.write(n, 2), 1);
        assert_eq!(s.next(), "-", "there is no room");
        told.push(n);
    }
    for round in told.chunks(4) {
        assert_eq!(round, all);
    }
    // Room, and an empty window: it is the window that is waited for, and the other way round.
    s.out.room = 1000;
    for _ in all {
        let event = s.next();
        let n: u32 = event
            .strip_prefix("writable ")
            .expect("somebody waits")
            .parse()
            .unwrap();
        s.write(n, 1000);
        assert_ne!(s.writable(0), 1000);
        s.out.room = 1000;
    }
    assert_eq!(s.next(), "-");
    assert_eq!(s.writable(0), 0);
    s.out.room = 0;
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 5 }), "-");
    s.out.room = 1000;
    assert_eq!(s.next(), "writable 0");
    assert_eq!(s.next(), "-");
}

/// A server with this window, and so many channels, each numbered as the client does.
fn wide(window: u32, channels: u32) -> Side {
    let mut s = Side::server();
    let limits = Limits {
        window,
        max_packet_data: 32 * 1024,
        ..Limits::default()
    };
    s.channels = Channels::new(Role::Server, &limits);
    for n in 0..channels {
        s.get(open(n, ChannelKind::Session));
        s.accept(n);
    }
    s.sent();
    s
}

/// Sends all that the window of a channel has; what it has then, when the owner has read `of` a hundred of it.
fn fill_and_read(s: &mut Side, n: u32, of: usize) -> u32 {
    let mut window = s.channels.get(n).expect("it is open").window as usize;
    let bytes = [0; 32 * 1024];
    let mut read = 0;
    while window > 0 {
        let part = window.min(bytes.len());
        s.get(data(n, &bytes[..part]));
        window -= part;
        read += part * of / 100;
    }
    s.consumed(n, read);
    s.channels.get(n).expect("it is open").window
}

#[test]
fn a_window_grows_while_the_owner_keeps_up() {
    let mut s = wide(1 << 20, 1);
    let start = START_WINDOW;
    for window in [start, 2 * start, 4 * start, 8 * start, 8 * start] {
        assert_eq!(s.channels.get(0).map(|ch| ch.window), Some(window));
        fill_and_read(&mut s, 0, 100);
    }
    // Not while it falls behind, and never beyond what the settings say.
    let mut s = wide(1 << 20, 1);
    assert_eq!(fill_and_read(&mut s, 0, 50), start / 2);
    assert_eq!(wide(1000, 1).channels.get(0).map(|ch| ch.window), Some(1000));
}

#[test]
fn all_windows_together_are_bounded() {
    let mut s = wide(2 << 20, 128);
    let whole = |s: &Side| -> u64 {
        let windows = (0..128).filter_map(|n| s.channels.get(n));
        windows.map(|ch| u64::from(ch.whole)).sum()
    };
    for _ in 0..5 {
        for n in 0..128 {
            fill_and_read(&mut s, n, 100);
        }
        let most = 128 * u64::from(START_WINDOW) + u64::from(MAX_GROWTH);
        assert_eq!(whole(&s), most);
    }
    // Every channel has its own all the same, and what is closed is there for the others.
    assert!((0..128).all(|n| s.channels.get(n).is_some_and(|ch| ch.window >= START_WINDOW)));
    for n in 0..127 {
        s.get(Message::Close(n));
    }
    for _ in 0..5 {
        fill_and_read(&mut s, 127, 100);
    }
    assert_eq!(s.channels.get(127).map(|ch| ch.whole), Some(2 << 20));
    s.get(Message::Close(127));
    assert_eq!(s.channels.growth, MAX_GROWTH);
}

#[test]
fn a_window_for_a_channel_that_has_closed_is_ignored() {
    let mut s = Side::server();
    s.get(open(0, ChannelKind::Session));
    s.accept(0);
    assert_eq!(s.get(Message::Close(0)), "closed 0");
    assert_eq!(s.get(Message::Adjust { ours: 0, bytes: 10 }), "-");
    assert_eq!(s.get(Message::Adjust { ours: 9, bytes: 10 }), "-");
    // Anything else on it still ends the connection.
    assert_eq!(
        s.get(Message::Eof(0)),
        "ProtocolError: EOF for channel 0, which does not exist"
    );
}
