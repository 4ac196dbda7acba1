//! Bytes that are altered, missing or cut off on their way, and a server that is not the one it says: nobody gets in.

use super::pair::{Pair, Tamper};
use crate::event::{End, Reason};
use crate::kex::Method;
use crate::settings::Settings;

#[test]
fn strict_key_exchange_can_be_required() {
    for (offered, ends) in [(true, false), (false, true)] {
        let client = Settings {
            strict: offered,
            ..Settings::default()
        };
        let server = Settings {
            strict_required: true,
            ..Settings::default()
        };
        let mut pair = Pair::new(client, server);
        pair.run();
        assert_eq!(pair.server_told.end.is_some(), ends);
    }
}

#[test]
fn a_cut_at_every_byte_lets_nobody_in() {
    for strict in [true, false] {
        let run = |tamper, piece| {
            let both = || Settings {
                kex: vec![Method::Curve25519],
                strict,
                ..Settings::default()
            };
            let mut pair = Pair::new(both(), both());
            (pair.tamper, pair.piece) = (tamper, piece);
            pair.run();
            pair
        };
        let whole = run(None, 1);
        assert!(whole.server_told.logged_in, "control: byte by byte");
        for at in 0..whole.sent_by_client {
            let pair = run(Some(Tamper::Cut(at)), usize::MAX);
            assert!(
                !pair.server_told.logged_in && !pair.client_told.logged_in,
                "cut at {at}"
            );
            assert_eq!(pair.server_told.end, None, "cut at {at}: it waits");
        }
    }
}

#[test]
fn a_flip_of_any_byte_lets_nobody_in() {
    let run = |tamper| {
        let both = || Settings {
            kex: vec![Method::Curve25519],
            // So that the guess is right, and no packet is skipped.
            host_key_algorithms: vec!["ssh-ed25519".into()],
            ..Settings::default()
        };
        let mut pair = Pair::new(both(), both());
        pair.tamper = tamper;
        pair.run();
        pair
    };
    let whole = run(None);
    assert!(whole.server_told.logged_in, "control");
    let (mut padding, mut altered) = (0, 0);
    for at in 0..whole.sent_by_client {
        let pair = run(Some(Tamper::Flip(at)));
        if pair.server_told.logged_in {
            // Padding of a packet without keys counts for nothing. Whatever does is in the exchange hash.
            assert_eq!(pair.server.session_id(), pair.client.session_id(), "{at}");
            padding += 1;
        }
        if let Some(End::Ours {
            reason: Reason::MacError,
            text,
        }) = pair.server_told.end
        {
            assert_eq!(
                text,
                "a packet was altered on its way, or its length is out of bounds"
            );
            altered += 1;
        }
    }
    assert!(padding <= 3 * 11, "{padding} bytes did not count");
    assert!(altered > 100, "{altered} were noticed by their MAC");
}

#[test]
fn a_missing_packet_is_noticed() {
    // CVE-2023-48795: packets put in before the keys must not make room for dropping ones after them.
    let (mut pair, ours, _) = Pair::open(Settings::default(), Settings::default());
    for n in 0..3 {
        pair.client.write(ours, crate::event::Stream::Main, &[n; 100]);
        if n == 1 {
            let len = pair.client.output().len();
            pair.client.sent(len);
        } else {
            super::pair::take(&mut pair.client, &mut pair.to_server);
        }
    }
    pair.run();
    assert_eq!(pair.server_told.data, [0; 100]);
    assert!(
        matches!(
            pair.server_told.end,
            Some(End::Ours {
                reason: Reason::MacError,
                ..
            })
        ),
        "{:?}",
        pair.server_told.end
    );
}

#[test]
fn a_host_key_that_is_not_trusted_or_a_wrong_signature() {
    for trusted in [true, false] {
        let mut pair = Pair::new(Settings::default(), Settings::default());
        pair.client_trusts = trusted;
        pair.server_lies = trusted;
        pair.run();
        let Some(End::Ours { reason, text }) = pair.client_told.end else {
            panic!("the client ends it");
        };
        if trusted {
            assert_eq!(reason, Reason::KeyExchangeFailed, "{text}");
            assert_eq!(pair.client_told.host_keys, 0, "nobody is asked about it");
        } else {
            assert_eq!(reason, Reason::HostKeyNotVerifiable, "{text}");
        }
        assert!(!pair.client_told.established);
        assert!(matches!(pair.server_told.end, Some(End::Theirs { .. })));
    }
}
