//! Peers that break the protocol: each ends its own connection, with a reason that the peer is told.

use super::pair::{Pair, host_key, offer};
use crate::Connection;
use crate::codec::Write as _;
use crate::event::{End, Reason};
use crate::kex::Method;
use crate::kex::kexinit;
use crate::message::{
    CHANNEL_OPEN, DEBUG, EXT_INFO, IGNORE, KEX_INIT, KEX_REPLY, KEXINIT, NEWKEYS, PING, SERVICE_REQUEST,
    UNIMPLEMENTED, USERAUTH_REQUEST,
};
use crate::settings::Role;
use crate::settings::Settings;
use crate::transport::{Outbox as _, Outgoing};
use std::sync::Arc;

const VERSION: &[u8] = b"SSH-2.0-test\r\n";

fn server() -> Connection {
    let settings = Settings {
        host_keys: vec![offer(&host_key())],
        ..Settings::default()
    };
    Connection::server(Arc::new(settings), [1; 16])
}

/// Gives it all to a connection, which has to end by it.
fn end(connection: &mut Connection, bytes: &[u8]) -> Option<End> {
    let mut rest = bytes;
    loop {
        match connection.poll() {
            Ok(Some(_)) => {}
            Ok(None) if rest.is_empty() => return None,
            Ok(None) => {
                let room = connection.room(1);
                let n = room.len().min(rest.len());
                room[..n].copy_from_slice(&rest[..n]);
                connection.received(n);
                rest = &rest[n..];
            }
            Err(end) => {
                assert_eq!(
                    connection.poll().unwrap_err(),
                    end,
                    "it stays ended, for the same reason"
                );
                return Some(end);
            }
        }
    }
}

/// Packets without keys, behind a version line.
fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = Outgoing::new(1 << 20);
    out.raw(VERSION);
    for payload in payloads {
        out.now(payload);
    }
    out.unsent().to_vec()
}

fn kexinit(strict: bool) -> Vec<u8> {
    let settings = Settings {
        kex: vec![Method::Curve25519],
        strict,
        ..Settings::default()
    };
    kexinit::write(&settings, Role::Client, [5; 16], true, false)
}

/// A KEXINIT with ten name-lists, of which some are not what the server has.
fn lists(change: &[(usize, &str)]) -> Vec<u8> {
    let mut names = [
        "curve25519-sha256",
        "ssh-ed25519",
        "aes128-ctr",
        "aes128-gcm@openssh.com",
        "hmac-sha2-256-etm@openssh.com",
        "",
        "none",
        "none",
        "",
        "",
    ];
    for &(i, name) in change {
        names[i] = name;
    }
    let mut payload = vec![KEXINIT];
    payload.put(&[0; 16]);
    for name in names {
        payload.put_string(name);
    }
    payload.put(&[0; 5]);
    payload
}

#[test]
fn garbage_before_there_are_keys() {
    use Reason::{KeyExchangeFailed, ProtocolError, VersionNotSupported};
    let ignore: &[u8] = &[IGNORE, 0, 0, 0, 0];
    let (strict, lax) = (kexinit(true), kexinit(false));
    let mut long = lists(&[]);
    long.truncate(long.len() - 5);
    long.put(&[0; 6]);
    let huge = "x".repeat(33_000);
    let mut share = vec![KEX_INIT];
    share.put_string([0; 32]);
    let mut short_share = vec![KEX_INIT];
    short_share.put_string([9; 31]);
    let raw = |bytes: &[u8]| [VERSION, bytes].concat();
    let many: Vec<&[u8]> = std::iter::once(&lax[..]).chain([ignore; 64]).collect();
    let message = |number: u8| packets(&[&[number, 0, 0, 0, 0]]);
    let cases: Vec<(&str, Vec<u8>, Reason, &str)> = vec![
        (
            "http",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            ProtocolError,
            "does not speak SSH: GET / HTTP/1.1",
        ),
        (
            "ssh 1",
            b"SSH-1.5-old\r\n".to_vec(),
            VersionNotSupported,
            "SSH-1.5-old",
        ),
        (
            "ssh 1.99",
            b"SSH-1.99-client\r\n".to_vec(),
            VersionNotSupported,
            "SSH-1.99",
        ),
        (
            "no end of line",
            vec![b'A'; 400],
            ProtocolError,
            "longer than 255 bytes",
        ),
        (
            "long line",
            [b"SSH-2.0-".to_vec(), vec![b'a'; 250], b"\r\n".to_vec()].concat(),
            ProtocolError,
            "longer than 255",
        ),
        (
            "control",
            b"SSH-2.0-a\x1b[2J\r\n".to_vec(),
            ProtocolError,
            "not printable",
        ),
        ("zeros", vec![0; 300], ProtocolError, "longer than 255"),
        ("length -1", raw(&[0xff; 64]), ProtocolError, "4294967295 bytes"),
        ("length 0", raw(&[0; 64]), ProtocolError, "packet of 0 bytes"),
        (
            "length 35004",
            raw(&[0, 0, 0x88, 0xbc, 4, 0, 0, 0]),
            ProtocolError,
            "35004",
        ),
        (
            "length off the block",
            raw(&[0, 0, 0, 13, 4, 0, 0, 0]),
            ProtocolError,
            "13",
        ),
        (
            "padding 3",
            raw(&[0, 0, 0, 12, 3, IGNORE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ProtocolError,
            "padding",
        ),
        (
            "all padding",
            raw(&[0, 0, 0, 12, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ProtocolError,
            "padding",
        ),
        (
            "more padding",
            raw(&[0, 0, 0, 12, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ProtocolError,
            "padding",
        ),
        (
            "kexinit cut",
            packets(&[&lax[..lax.len() - 1]]),
            ProtocolError,
            "KEXINIT cannot be read",
        ),
        (
            "kexinit longer",
            packets(&[&long]),
            ProtocolError,
            "goes on after its last field",
        ),
        (
            "kexinit huge",
            packets(&[&lists(&[(8, &huge)])]),
            ProtocolError,
            "KEXINIT of 33",
        ),
        (
            "no kex",
            packets(&[&lists(&[(0, "diffie-hellman-group1-sha1")])]),
            KeyExchangeFailed,
            "no key exchange method in common; the peer offers diffie-hellman-group1-sha1",
        ),
        (
            "only markers",
            packets(&[&lists(&[(0, "ext-info-c,kex-strict-c-v00@openssh.com")])]),
            KeyExchangeFailed,
            "no key exchange method",
        ),
        (
            "no host key",
            packets(&[&lists(&[(1, "ssh-dss")])]),
            KeyExchangeFailed,
            "no host key algorithm in common",
        ),
        (
            "no cipher",
            packets(&[&lists(&[(2, "3des-cbc")])]),
            KeyExchangeFailed,
            "no cipher in common; the peer offers 3des-cbc",
        ),
        (
            "no mac",
            packets(&[&lists(&[(4, "hmac-md5")])]),
            KeyExchangeFailed,
            "no MAC in common; the peer offers hmac-md5",
        ),
        (
            "no compression",
            packets(&[&lists(&[(7, "zlib")])]),
            KeyExchangeFailed,
            "no compression in common",
        ),
        (
            "service first",
            message(SERVICE_REQUEST),
            ProtocolError,
            "message 5 came before there were keys",
        ),
        (
            "login first",
            message(USERAUTH_REQUEST),
            ProtocolError,
            "message 50 came before",
        ),
        (
            "channel first",
            message(CHANNEL_OPEN),
            ProtocolError,
            "message 90 came before",
        ),
        (
            "extensions first",
            message(EXT_INFO),
            ProtocolError,
            "message 7 came before",
        ),
        (
            "ping first",
            message(PING),
            ProtocolError,
            "message 192 came before",
        ),
        (
            "unknown first",
            message(250),
            ProtocolError,
            "message 250 came before",
        ),
        (
            "share first",
            packets(&[&share]),
            ProtocolError,
            "message 30 has no place",
        ),
        (
            "newkeys first",
            packets(&[&[NEWKEYS]]),
            ProtocolError,
            "message 21 has no place",
        ),
        (
            "ignore first, strict",
            packets(&[ignore, &strict]),
            ProtocolError,
            "not the first packet of a strict",
        ),
        (
            "ignore then, strict",
            packets(&[&strict, ignore]),
            ProtocolError,
            "message 2 came during a strict",
        ),
        (
            "debug then, strict",
            packets(&[&strict, &[DEBUG, 0, 0, 0, 0, 0, 0, 0, 0, 0]]),
            ProtocolError,
            "message 4 came during a strict",
        ),
        (
            "unimplemented then, strict",
            packets(&[&strict, &[UNIMPLEMENTED, 0, 0, 0, 0]]),
            ProtocolError,
            "message 3 came during a strict",
        ),
        ("many ignores", packets(&many), ProtocolError, "too many packets"),
        (
            "two kexinits",
            packets(&[&strict, &strict]),
            ProtocolError,
            "message 20 has no place",
        ),
        (
            "a server's reply",
            packets(&[&strict, &[KEX_REPLY]]),
            ProtocolError,
            "message 31 has no place",
        ),
        (
            "newkeys early",
            packets(&[&strict, &[NEWKEYS]]),
            ProtocolError,
            "message 21 has no place",
        ),
        (
            "newkeys with more",
            packets(&[&strict, &[NEWKEYS, 0]]),
            ProtocolError,
            "NEWKEYS cannot be read",
        ),
        (
            "zero share",
            packets(&[&strict, &share]),
            KeyExchangeFailed,
            "client's share",
        ),
        (
            "short share",
            packets(&[&strict, &short_share]),
            KeyExchangeFailed,
            "client's share",
        ),
        (
            "half a share",
            packets(&[&strict, &share[..9]]),
            ProtocolError,
            "KEX_ECDH_INIT cannot be read",
        ),
    ];
    for (name, bytes, reason, text) in cases {
        let mut server = server();
        let Some(End::Ours { reason: r, text: t }) = end(&mut server, &bytes) else {
            panic!("{name}: it does not end by us");
        };
        assert_eq!(r, reason, "{name}: {t}");
        assert!(t.contains(text), "{name}: {t}");
        let told = t.as_bytes();
        assert!(
            server.output().windows(told.len()).any(|w| w == told),
            "{name}: the peer is told {t}"
        );
    }
    // The control: packets made the same way are taken.
    for bytes in [packets(&[ignore, &lax, ignore]), packets(&[&strict])] {
        assert_eq!(end(&mut server(), &bytes), None);
    }
}

#[test]
fn what_a_server_may_say_before_its_version_line() {
    let client = || Connection::client(Arc::new(Settings::default()));
    let greeting = b"Welcome\r\nto this machine\n\r\nSSH-2.0-x\r\n";
    assert_eq!(end(&mut client(), greeting), None);
    assert_eq!(end(&mut client(), b"SSH-1.99-x\r\n"), None);
    for (bytes, text) in [
        (b"line\r\n".repeat(20_000), "too much"),
        (vec![b'x'; 70_000], "too much"),
        (b"SSH-3.0-x\r\n".to_vec(), "another protocol version"),
    ] {
        let end = end(&mut client(), &bytes).unwrap();
        assert!(end.to_string().contains(text), "{end}");
    }
}

#[test]
fn unknown_messages_are_answered_and_others_dropped() {
    let (mut pair, ours, _) = Pair::open(Settings::default(), Settings::default());
    for number in [8, 19, 128, 191, 194, 255] {
        let before = pair.client.info().packets_in;
        pair.client.link.out.packet(|p| p.put_u8(number));
        pair.run();
        assert_eq!(pair.client.info().packets_in, before + 1, "{number} is answered");
    }
    for message in [IGNORE, DEBUG, UNIMPLEMENTED] {
        let before = pair.client.info().packets_in;
        pair.client.link.out.packet(|p| p.put_u8(message));
        pair.run();
        assert_eq!(pair.client.info().packets_in, before, "{message} is not");
    }
    super::pair::send(&mut pair, false, ours, b"on");
    pair.run();
    assert_eq!(pair.server_told.data, b"on", "it goes on");
}

/// As asyncssh has it, which goes on with its data while it asks for new keys.
#[test]
fn data_may_come_during_a_later_key_exchange() {
    let (mut pair, ours, theirs) = Pair::open(Settings::default(), Settings::default());
    pair.client.rekey();
    let mut data = vec![94];
    data.put_u32(theirs.0);
    data.put_string(b"late");
    pair.client.link.out.now(&data);
    pair.run();
    assert!(pair.server_told.end.is_none(), "{:?}", pair.server_told.end);
    assert_eq!(pair.server_told.data, b"late");
    assert_eq!(pair.server.info().exchanges, 2);
    super::pair::send(&mut pair, false, ours, b"on");
    pair.run();
    assert_eq!(pair.server_told.data, b"lateon", "it goes on");
}

#[test]
fn messages_out_of_place_after_the_login() {
    for (payload, text) in [
        (&[NEWKEYS][..], "message 21 has no place"),
        (&[KEX_INIT, 0, 0, 0, 0], "message 30 has no place"),
        (&[KEXINIT, 0], "KEXINIT cannot be read"),
        (&[EXT_INFO, 0xff, 0, 0, 0], "EXT_INFO cannot be read"),
        (&[EXT_INFO, 0, 0, 0, 1, 0, 0, 0, 9], "EXT_INFO cannot be read"),
        (&[PING, 1], "PING cannot be read"),
        (&[1, 0], "DISCONNECT cannot be read"),
    ] {
        let (mut pair, ..) = Pair::open(Settings::default(), Settings::default());
        pair.client.link.out.packet(|p| p.put(payload));
        pair.run();
        let end = pair.server_told.end.unwrap();
        assert!(end.to_string().contains(text), "{end}");
        let Some(End::Theirs { reason: 2, text }) = pair.client_told.end else {
            panic!("the client is told: {:?}", pair.client_told.end);
        };
        assert_eq!(text, end.to_string());
    }
    // During a key exchange whose KEXINIT the peer has sent.
    let (mut pair, ..) = Pair::open(Settings::default(), Settings::default());
    pair.client.rekey();
    pair.client.link.out.now(&[PING, 0, 0, 0, 0]);
    pair.run();
    let end = pair.server_told.end.unwrap();
    assert!(end.to_string().contains("message 192 came during"), "{end}");
}

#[test]
fn a_disconnect_is_told_and_printable() {
    let (mut pair, ..) = Pair::open(Settings::default(), Settings::default());
    pair.client
        .disconnect(Reason::ByApplication, "good\x1bbye\n\u{202e}\u{200b}");
    pair.run();
    assert_eq!(
        pair.server_told.end,
        Some(End::Theirs {
            reason: 11,
            text: "good?bye???".into()
        })
    );
    assert_eq!(
        pair.client.poll().unwrap_err().to_string(),
        "good\x1bbye\n\u{202e}\u{200b}"
    );
}

#[test]
fn key_exchanges_before_the_login_are_counted() {
    for login in [false, true] {
        let mut pair = Pair::new(Settings::default(), Settings::default());
        pair.login = login;
        pair.run();
        for _ in 0..20 {
            pair.client.rekey();
            pair.run();
        }
        if login {
            assert_eq!(pair.server.info().exchanges, 21, "control: after it they are not");
        } else {
            assert_eq!(pair.server_told.signed, 8);
            let end = pair.server_told.end.unwrap().to_string();
            assert_eq!(end, "too many key exchanges before the login");
        }
    }
}
