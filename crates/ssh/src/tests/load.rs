//! Keys that are replaced while data flows both ways, and what is bounded while a peer does not read.

use super::pair::{Pair, take};
use crate::cipher::Cipher;
use crate::codec::Write as _;
use crate::event::{End, Stream};
use crate::link::ANSWERS_MAX;
use crate::message::{IGNORE, PING};
use crate::settings::{Keepalive, Rekey, Settings};
use crate::transport::Outbox as _;
use std::time::Duration;

/// So much goes each way.
const MUCH: usize = 600_000;

fn often(bytes: u64, packets: u64) -> Settings {
    Settings {
        rekey: Rekey {
            bytes,
            packets,
            time: Duration::from_secs(3600),
        },
        ..Settings::default()
    }
}

#[test]
fn keys_are_replaced_under_load() {
    let plenty = || often(1 << 40, 1 << 31);
    for (client, server, piece) in [
        (often(100_000, 1 << 31), plenty(), usize::MAX),
        (plenty(), often(100_000, 1 << 31), 10_000),
        (often(90_000, 1 << 31), often(90_000, 1 << 31), 3_000),
        (often(1 << 40, 9), often(1 << 40, 7), 50_000),
        (often(1 << 40, 9), plenty(), 777),
    ] {
        for strict in [true, false] {
            let (client, server) = (
                Settings {
                    strict,
                    ..client.clone()
                },
                Settings {
                    strict,
                    ..server.clone()
                },
            );
            let what = format!("{:?} {:?} {piece} {strict}", client.rekey, server.rekey);
            let (mut pair, ours, theirs) = Pair::open(client, server);
            pair.piece = piece;
            let bytes: Vec<u8> = (0..MUCH).map(|i| (i * 7 + i / 251) as u8).collect();
            let (mut up, mut down) = (0, 0);
            while up < MUCH || down < MUCH {
                let wrote = pair
                    .client
                    .write(ours, Stream::Main, &bytes[up..MUCH.min(up + 30_000)]);
                up += wrote;
                let n = pair
                    .server
                    .write(theirs, Stream::Main, &bytes[down..MUCH.min(down + 20_000)]);
                down += n;
                assert!(
                    pair.step() || wrote + n > 0,
                    "{what}: there is a way on at {up}, {down}"
                );
            }
            pair.run();
            assert_eq!(
                (pair.client_told.end.as_ref(), pair.server_told.end.as_ref()),
                (None, None)
            );
            assert!(pair.server_told.data == bytes, "{what}: what the client sent");
            assert!(pair.client_told.data == bytes, "{what}: what the server sent");
            let exchanges = pair.client.info().exchanges;
            assert!(exchanges > 2, "{what}: {exchanges} exchanges");
            assert_eq!(exchanges, pair.server.info().exchanges, "{what}");
        }
    }
}

#[test]
fn keys_are_replaced_by_time() {
    let (mut pair, ours, _) = Pair::open(Settings::default(), Settings::default());
    pair.client.tick(Duration::from_secs(100));
    assert_eq!(pair.client.deadline(), Some(Duration::from_secs(3700)));
    pair.client.tick(Duration::from_secs(3699));
    pair.run();
    assert_eq!(pair.server.info().exchanges, 1);
    pair.client.tick(Duration::from_secs(3700));
    assert_eq!(
        pair.client.write(ours, Stream::Main, b"x"),
        0,
        "data waits for the new keys"
    );
    pair.run();
    assert_eq!(pair.server.info().exchanges, 2);
    assert_eq!(pair.client.deadline(), Some(Duration::from_secs(7300)));
}

#[test]
fn a_silent_peer_is_asked_and_given_up() {
    let keepalive = Some(Keepalive {
        after: Duration::from_secs(10),
        unanswered: 2,
    });
    let settings = || Settings {
        keepalive,
        ..Settings::default()
    };
    for ping in [true, false] {
        let (mut pair, ..) = Pair::open(settings(), settings());
        pair.client.link.info.extensions.ping = ping;
        pair.client.tick(Duration::from_secs(0));
        assert_eq!(pair.client.deadline(), Some(Duration::from_secs(10)));
        pair.client.tick(Duration::from_secs(10));
        pair.run();
        assert_eq!(pair.client_told.alive, 1, "by ping: {ping}");
        // From here on the server says nothing.
        for second in [20, 30, 40, 50] {
            pair.client.tick(Duration::from_secs(second));
            take(&mut pair.client, &mut pair.to_server);
        }
        let end = pair.client.poll().unwrap_err();
        assert_eq!(
            end.to_string(),
            "the peer does not answer; it was asked 2 times",
            "{ping}"
        );
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_read() {
    let (mut pair, ..) = Pair::open(Settings::default(), Settings::default());
    let most = pair.server.settings().limits.max_buffered + ANSWERS_MAX + 70_000;
    let mut fed = 0;
    // PINGs, of which each asks for as many bytes in answer.
    while pair.server.wants_input() {
        for _ in 0..8 {
            pair.client.link.out.packet(|p| {
                p.put_u8(PING);
                p.put_string([7; 1000]);
            });
        }
        take(&mut pair.client, &mut pair.to_server);
        fed += super::pair::give(&mut pair.server, &mut pair.to_server, usize::MAX) as usize;
        assert!(pair.server.poll().unwrap().is_none());
        assert!(pair.server.output().len() < most, "after {fed} rounds");
    }
    // Whoever goes on reading for it all the same is given no more room than two buffers and a packet.
    let mut held = 0;
    for turn in 1.. {
        let n = pair.server.room(1 << 20).len();
        if n == 0 {
            break;
        }
        // Not always all of it, so that little room is left at some time.
        let n = if turn % 8 == 0 { n } else { n.min(10_000) };
        pair.server.received(n);
        held += n;
        assert!(held < 1 << 20, "room ends");
    }
    assert!(pair.server.poll().unwrap().is_none());
    // The control: it goes on where its output is read. (What was "received" above is no packet, so it ends there.)
    pair.server.sent(pair.server.output().len());
    assert!(matches!(pair.server.poll(), Err(End::Ours { .. })));
}

#[test]
fn what_waits_for_a_key_exchange_is_bounded() {
    let (mut pair, ..) = Pair::open(Settings::default(), Settings::default());
    pair.server.rekey();
    // The client never answers the server's KEXINIT, and has it make answers.
    let end = loop {
        pair.client.link.out.packet(|p| {
            p.put_u8(PING);
            p.put_string([7; 1000]);
        });
        take(&mut pair.client, &mut pair.to_server);
        super::pair::give(&mut pair.server, &mut pair.to_server, usize::MAX);
        let n = pair.server.output().len();
        pair.server.sent(n);
        if let Err(end) = pair.server.poll() {
            break end;
        }
        assert!(pair.server.link.out.held() < 400_000);
    };
    assert!(end.to_string().contains("too much waits"), "{end}");
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    let (mut pair, ours, _) = Pair::open(Settings::default(), Settings::default());
    pair.client.write(ours, Stream::Main, &[1; 5000]);
    assert!(pair.client.link.out.holds_a_buffer(), "control");
    pair.run();
    for side in [&pair.client, &pair.server] {
        assert!(!side.link.out.holds_a_buffer());
        assert!(!side.link.inbox.holds_a_buffer());
    }
}

#[test]
fn large_and_small_packets_of_every_cipher() {
    for cipher in Cipher::ALL {
        let settings = || Settings {
            ciphers: vec![cipher],
            ..Settings::default()
        };
        let (mut pair, ..) = Pair::open(settings(), settings());
        // Largest: a payload that makes the length field the largest that is taken, whatever the block.
        for len in (0..70).chain([262_000, 262_100]) {
            pair.client.link.out.packet(|p| {
                p.put_u8(IGNORE);
                p.put_string(vec![3; len]);
            });
            pair.client.link.out.packet(|p| {
                p.put_u8(PING);
                p.put_string(vec![4; len.min(1000)]);
            });
            let alive = pair.client_told.alive;
            pair.run();
            assert_eq!(
                pair.client_told.alive,
                alive + 1,
                "{} {len} {:?}",
                cipher.name(),
                pair.server_told.end
            );
        }
        pair.client.link.out.packet(|p| {
            p.put_u8(IGNORE);
            p.put_string(vec![3; 262_144]);
        });
        pair.run();
        assert!(pair.server_told.end.is_some(), "{}: one too large", cipher.name());
    }
}
