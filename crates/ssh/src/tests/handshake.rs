//! Every combination of what can be agreed on, joined in memory: from the first byte to data both ways, and over a
//! change of keys.

use super::pair::{Pair, send};
use crate::cipher::{Cipher, Mac};
use crate::event::{End, Reason};
use crate::info::ServerOffer;
use crate::kex::Method;
use crate::key::Algorithm;
use crate::settings::{FirstShare, Settings};

/// How the client's guess turns out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Guess {
    None,
    Right,
    Wrong,
    /// No guess: the client knows from before what will be agreed on, though the server likes another method better.
    Known,
}

#[test]
fn every_method_cipher_and_mac_with_every_guess() {
    for method in Method::ALL {
        for cipher in Cipher::ALL {
            for mac in Mac::ALL {
                if cipher.authenticates() && mac != Mac::ALL[0] {
                    continue;
                }
                for guess in [Guess::None, Guess::Right, Guess::Wrong, Guess::Known] {
                    for strict in [true, false] {
                        works(method, cipher, mac, guess, strict);
                    }
                }
            }
        }
    }
}

fn works(method: Method, cipher: Cipher, mac: Mac, guess: Guess, strict: bool) {
    let what = format!(
        "{} {} {} {guess:?} strict: {strict}",
        method.name(),
        cipher.name(),
        mac.name()
    );
    // The client's first choice decides. A server that likes another one better makes the guess wrong (RFC 4253 §7),
    // whether or not the client's choice is agreed on.
    let other = Method::ALL.into_iter().find(|&m| m != method).unwrap();
    let both = Settings {
        ciphers: vec![cipher],
        macs: vec![mac],
        host_key_algorithms: vec!["ssh-ed25519".into()],
        ..Settings::default()
    };
    let client = Settings {
        kex: if matches!(guess, Guess::Wrong | Guess::Known) {
            vec![method, other]
        } else {
            vec![method]
        },
        first_share: match guess {
            Guess::None => FirstShare::Waits,
            Guess::Right | Guess::Wrong => FirstShare::Guessed,
            Guess::Known => FirstShare::Known(method),
        },
        strict,
        ..both.clone()
    };
    let server = Settings {
        kex: if matches!(guess, Guess::Wrong | Guess::Known) {
            vec![other, method]
        } else {
            vec![method]
        },
        ..both
    };
    let (mut pair, ours, theirs) = Pair::open(client, server);
    let chosen = pair.client.info().algorithms.clone().unwrap();
    assert_eq!((chosen.kex, chosen.cipher_in), (method, cipher), "{what}");
    assert_eq!(chosen.mac_out, (!cipher.authenticates()).then_some(mac), "{what}");
    assert_eq!(chosen.strict, strict, "{what}");
    let held = match guess {
        Guess::None => None,
        Guess::Wrong => Some(false),
        Guess::Right | Guess::Known => Some(true),
    };
    assert_eq!(pair.client.info().share_held, held, "{what}");
    assert_eq!(pair.client.session_id(), pair.server.session_id(), "{what}");
    for round in 0..2 {
        send(&mut pair, false, ours, b"from the client");
        send(&mut pair, true, theirs, b"from the server");
        pair.run();
        if round == 0 {
            pair.client.rekey();
            pair.server.rekey();
            pair.run();
            assert_eq!(pair.client.info().exchanges, 2, "{what}");
        }
    }
    assert_eq!(pair.server_told.data, b"from the clientfrom the client", "{what}");
    assert_eq!(pair.client_told.data, b"from the serverfrom the server", "{what}");
    assert_eq!(
        (&pair.client_told.end, &pair.server_told.end),
        (&None, &None),
        "{what}"
    );
    assert_eq!(
        pair.client_told.host_keys, 1,
        "{what}: the same key is asked about once"
    );
}

#[test]
fn a_client_that_knows_the_server_from_before_ends_where_the_server_has_changed() {
    let client = Settings {
        kex: vec![Method::MlKem768X25519, Method::Curve25519],
        first_share: FirstShare::Known(Method::Curve25519),
        host_key_algorithms: vec!["ssh-ed25519".into()],
        ..Settings::default()
    };
    for (kex, ends) in [
        (vec![Method::Curve25519, Method::MlKem768X25519], true),
        (vec![Method::MlKem768X25519], true),
        (vec![Method::EcdhP256, Method::Curve25519], false),
    ] {
        let server = Settings {
            kex: kex.clone(),
            ..Settings::default()
        };
        let mut pair = Pair::new(client.clone(), server);
        pair.run();
        let info = pair.client.info();
        assert_eq!(info.share_held, Some(!ends), "{kex:?}");
        assert_eq!(pair.client_told.established, !ends, "{kex:?}");
        // What the next connection needs is known then.
        let offered = ServerOffer {
            kex: kex.clone(),
            best_kex: kex.first().copied(),
            best_host_key: Algorithm::parse("ssh-ed25519"),
        };
        assert_eq!(info.offered.as_ref(), Some(&offered), "{kex:?}");
        let end = |end: &Option<End>| match end {
            Some(End::Ours { reason, .. }) => Some(*reason),
            _ => None,
        };
        let failed = ends.then_some(Reason::KeyExchangeFailed);
        assert_eq!(end(&pair.client_told.end), failed, "{kex:?}");
        assert_eq!(pair.server_told.login_requests, u32::from(!ends), "{kex:?}");
    }
}
