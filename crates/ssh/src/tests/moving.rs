//! A connection that goes on in another process.

use super::pair::{Pair, give, host_key, offer, send, take};
use crate::Connection;
use crate::cipher::{Cipher, Mac};
use crate::event::{AuthAnswer, ChannelKind, Event};
use crate::info::ConnectionInfo;
use crate::settings::Settings;
use std::sync::Arc;
use std::time::Duration;

fn settings(cipher: Cipher, mac: Mac, strict: bool) -> Settings {
    Settings {
        ciphers: vec![cipher],
        macs: vec![mac],
        strict,
        host_keys: vec![offer(&host_key())],
        ..Settings::default()
    }
}

pub(super) fn moved(connection: Connection) -> Connection {
    assert!(connection.may_move());
    let settings = connection.settings().clone();
    let facts = ConnectionInfo {
        offered: None,
        share_held: None,
        ..connection.info().clone()
    };
    let session_id = connection.session_id().map(<[u8]>::to_vec);
    let thawed = Connection::thaw(&connection.freeze().expect("it may move"), settings).unwrap();
    assert_eq!(thawed.info(), &facts);
    assert_eq!(thawed.session_id(), session_id.as_deref());
    thawed
}

#[test]
fn both_sides_move_and_go_on() {
    for cipher in Cipher::ALL {
        for mac in Mac::ALL {
            for strict in [true, false] {
                let what = format!("{} {} {strict}", cipher.name(), mac.name());
                let both = || settings(cipher, mac, strict);
                let mut pair = Pair::new(both(), both());
                pair.run();
                assert!(pair.client_told.logged_in, "{what}");
                // Twice: the second state is made from one that was moved.
                for _ in 0..2 {
                    pair.client = moved(pair.client);
                    pair.server = moved(pair.server);
                }
                let ours = pair.client.open(&ChannelKind::Session).unwrap();
                pair.run();
                let theirs = pair.server_told.opened.pop_front().unwrap();
                for exchanges in 1..4 {
                    send(&mut pair, false, ours, b"up");
                    send(&mut pair, true, theirs, b"down");
                    pair.run();
                    assert_eq!(pair.server.info().exchanges, exchanges, "{what}");
                    // A moved server has no cookie: it asks for one, whoever begins.
                    if exchanges == 1 {
                        pair.client.rekey();
                    } else {
                        pair.server.rekey();
                    }
                    pair.run();
                    assert_eq!(pair.server_told.cookies, 1, "{what}");
                }
                assert_eq!(pair.server_told.data, b"upupup", "{what}");
                assert_eq!(pair.client_told.data, b"downdowndown", "{what}");
                assert_eq!(
                    (&pair.client_told.end, &pair.server_told.end),
                    (&None, &None),
                    "{what}"
                );
                assert_eq!(pair.client_told.host_keys, 1, "{what}");
            }
        }
    }
}

#[test]
fn a_moved_server_that_wants_new_keys_asks_for_a_cookie() {
    let both = || settings(Cipher::Aes128Gcm, Mac::HmacSha256Etm, true);
    let mut pair = Pair::new(both(), both());
    pair.run();
    pair.server = moved(pair.server);
    pair.server.rekey();
    pair.run();
    assert_eq!((pair.server_told.cookies, pair.server.info().exchanges), (1, 2));
}

#[test]
fn what_was_not_read_and_not_sent_goes_along() {
    let both = || settings(Cipher::ChaCha20Poly1305, Mac::HmacSha256Etm, true);
    let mut pair = Pair::new(both(), both());
    pair.ahead = true;
    // Until the server is asked about the login. The client's channel stands behind that, unread.
    let mut asked = false;
    while !asked {
        pair.tell_client();
        take(&mut pair.client, &mut pair.to_server);
        give(&mut pair.server, &mut pair.to_server, usize::MAX);
        give(&mut pair.client, &mut pair.to_client, usize::MAX);
        let mut hash = None;
        while let Some(event) = pair.server.poll().unwrap() {
            match event {
                Event::SignExchange(exchange) => hash = exchange.hash(),
                Event::Auth(_) => asked = true,
                _ => {}
            }
        }
        if let Some(hash) = hash {
            pair.server
                .signed(&super::pair::sign(&host_key(), hash.as_ref()), [9; 16]);
        }
        take(&mut pair.server, &mut pair.to_client);
    }
    assert!(!pair.server.may_move(), "not before the login");
    pair.server.answer_auth(AuthAnswer::Accept);
    assert!(!pair.server.link.inbox.unread().is_empty());
    assert!(!pair.server.output().is_empty());
    pair.server = moved(pair.server);
    pair.run();
    assert!(pair.client_told.logged_in);
    assert_eq!(pair.server_told.opened.len(), 1);
    assert_eq!(pair.client_told.opened.len(), 1);
    assert!(!pair.server.may_move(), "not with a channel open");
}

#[test]
fn nothing_moves_during_a_key_exchange() {
    let both = || settings(Cipher::Aes128Gcm, Mac::HmacSha256Etm, true);
    let mut pair = Pair::new(both(), both());
    assert!(!pair.client.may_move());
    pair.run();
    assert!(pair.client.may_move() && pair.server.may_move());
    pair.client.rekey();
    assert!(!pair.client.may_move());
    while pair.step() {
        assert!(!(pair.client.may_move() && pair.client.info().exchanges == 1));
    }
    assert!(pair.client.may_move() && pair.server.may_move());
}

#[test]
fn the_age_of_keys_goes_along() {
    let both = || settings(Cipher::Aes128Gcm, Mac::HmacSha256Etm, true);
    let mut pair = Pair::new(both(), both());
    pair.run();
    pair.client.tick(Duration::from_secs(50));
    pair.client.tick(Duration::from_secs(1050));
    pair.client = moved(pair.client);
    // Another clock.
    pair.client.tick(Duration::from_secs(9000));
    assert_eq!(
        pair.client.deadline(),
        Some(Duration::from_secs(9000 - 1000 + 3600))
    );
}

#[test]
fn a_damaged_state_is_refused_or_understood() {
    for mac in Mac::ALL {
        let both = || settings(Cipher::Aes256Ctr, mac, true);
        let mut pair = Pair::new(both(), both());
        pair.run();
        let settings: Arc<Settings> = pair.server.settings().clone();
        let state = pair.server.freeze().expect("it may move");
        assert!(Connection::thaw(&state, settings.clone()).is_ok(), "control");
        for len in 0..state.len() {
            assert!(
                Connection::thaw(&state[..len], settings.clone()).is_err(),
                "cut at {len}"
            );
        }
        let mut longer = state.to_vec();
        longer.push(0);
        assert!(Connection::thaw(&longer, settings.clone()).is_err());
        for at in 0..state.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = state.to_vec();
                damaged[at] = value;
                // Understood or not, it is no reason to panic; and what is understood can be asked.
                if let Ok(mut connection) = Connection::thaw(&damaged, settings.clone()) {
                    let _ = connection.poll().map(|e| e.is_some());
                }
            }
        }
        assert!(
            Connection::thaw(&vec![0; crate::state::STATE_MAX + 1], settings).is_err(),
            "too long"
        );
    }
}
