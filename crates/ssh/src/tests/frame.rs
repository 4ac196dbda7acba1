//! The frame of a key exchange, as a process that is root reads it from one that is not trusted.

use super::pair::{give, host_key, offer, take};
use crate::Connection;
use crate::codec::Malformed;
use crate::event::{Event, Exchange};
use crate::kex::Method;
use crate::kex::exchange::FRAME_MAX;
use crate::settings::Settings;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a server asks to be signed.
fn exchange(method: Method) -> Box<Exchange> {
    let settings = Arc::new(Settings {
        kex: vec![method],
        host_keys: vec![offer(&host_key())],
        ..Settings::default()
    });
    let mut client = Connection::client(settings.clone());
    let mut server = Connection::server(settings, [0x5a; 16]);
    let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
    loop {
        take(&mut client, &mut up);
        give(&mut server, &mut up, usize::MAX);
        if let Some(Event::SignExchange(exchange)) = server.poll().unwrap() {
            return exchange;
        }
        take(&mut server, &mut down);
        give(&mut client, &mut down, usize::MAX);
        assert!(client.poll().unwrap().is_none());
    }
}

#[test]
fn an_exchange_is_read_as_it_was_written_and_has_one_form() {
    for method in Method::ALL {
        let exchange = exchange(method);
        assert_eq!(exchange.server_cookie(), Some([0x5a; 16]));
        let frame = exchange.encode();
        assert!(frame.len() < FRAME_MAX / 8, "{}", frame.len());
        let read = Exchange::decode(&frame).unwrap();
        assert_eq!(read, *exchange);
        assert_eq!(read.hash().unwrap().as_ref(), exchange.hash().unwrap().as_ref());
        for len in 0..frame.len() {
            assert!(
                Exchange::decode(&frame[..len]).is_err(),
                "{} cut at {len}",
                method.name()
            );
        }
        for at in 0..frame.len() {
            let mut altered = frame.to_vec();
            altered[at] ^= 0x81;
            if let Ok(read) = Exchange::decode(&altered) {
                assert_eq!(read.encode()[..], altered, "{} altered at {at}", method.name());
                assert_ne!(read.hash().unwrap().as_ref(), exchange.hash().unwrap().as_ref());
            }
        }
    }
}

#[test]
fn an_exchange_that_could_not_have_been_is_refused() {
    let good = *exchange(Method::EcdhP256);
    type Change = fn(&mut Exchange);
    let cases: [(Change, Malformed); 14] = [
        (|e| e.kex = "none".into(), Malformed::Invalid("kex")),
        (|e| e.kex = "curve25519-sha256".into(), Malformed::Invalid("kex")),
        (
            |e| e.host_key_algorithm = "rsa-sha2-512".into(),
            Malformed::Invalid("host key algorithm"),
        ),
        (
            |e| e.host_key_algorithm = "x".repeat(65),
            Malformed::Invalid("host key algorithm"),
        ),
        (
            |e| e.client_version = b"SSH-2.0-a\n".to_vec(),
            Malformed::Invalid("client version"),
        ),
        (
            |e| e.server_version = [b"SSH-2.0-".to_vec(), vec![b'a'; 246]].concat(),
            Malformed::Invalid("server version"),
        ),
        (|e| e.client_kexinit[0] = 21, Malformed::Invalid("message number")),
        (|e| e.server_kexinit.push(0), Malformed::Trailing),
        (
            |e| e.server_kexinit = vec![20; 33_000],
            Malformed::Invalid("server KEXINIT"),
        ),
        (|e| e.host_key = vec![0; 8193], Malformed::Invalid("host key")),
        (|e| e.client_share.push(0), Malformed::Invalid("share")),
        (
            |e| e.secret = [&[0, 0, 0, 33, 1][..], &[0; 32]].concat(),
            Malformed::Invalid("secret"),
        ),
        (
            |e| e.secret = vec![0, 0, 0, 2, 0, 1],
            Malformed::Invalid("secret"),
        ),
        (|e| e.secret = vec![0, 0, 0, 0], Malformed::Invalid("secret")),
    ];
    for (i, (change, error)) in cases.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(Exchange::decode(&bad.encode()), Err(error), "{i}");
    }
    assert_eq!(
        Exchange::decode(&vec![0; FRAME_MAX + 1]),
        Err(Malformed::Invalid("length"))
    );
    assert!(Exchange::decode(&good.encode()).is_ok(), "control");
}
