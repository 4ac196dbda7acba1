//! Tests of a token's signatures: what its flags say, and what is no signature of PROTOCOL.u2f. Each case stands beside
//! one that is right, by the same key.

use super::*;
use crate::codec::Write;
use crate::key::{KeyType, PrivateKey};

/// A key at hand that signs as a token does.
struct SoftToken {
    key: PrivateKey,
    kind: KeyType,
    public: PublicKey,
    application: Vec<u8>,
}

impl SoftToken {
    fn new(kind: KeyType, application: &[u8]) -> SoftToken {
        let (key, _) = PrivateKey::generate(kind, "").unwrap();
        let application = application.to_vec();
        let public = PublicKey::new(match key.public().parts() {
            Parts::Ed25519(k) => Parts::SkEd25519 {
                key: *k,
                application: application.clone(),
            },
            Parts::EcdsaP256(point) => Parts::SkEcdsaP256 {
                point: point.clone(),
                application: application.clone(),
            },
            _ => panic!("no token is of this type"),
        });
        SoftToken {
            key,
            kind,
            public,
            application,
        }
    }

    fn both(application: &[u8]) -> [SoftToken; 2] {
        [KeyType::Ed25519, KeyType::EcdsaP256].map(|kind| SoftToken::new(kind, application))
    }

    fn name(&self) -> &'static str {
        self.public.key_type().name()
    }

    /// The signature's body over these bytes.
    fn body(&self, message: &[u8]) -> Vec<u8> {
        let inner = self.key.sign(self.kind.name(), message).unwrap();
        let mut r = Reader::new(&inner);
        r.string("name").unwrap();
        r.string("signature").unwrap().to_vec()
    }

    /// What it signs for the message `m`.
    fn data(&self, flags: u8, counter: u32) -> Vec<u8> {
        token_message(&self.application, Some((flags, counter)), b"m")
    }

    fn blob(&self, body: &[u8], flags: u8, counter: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_string(self.name());
        out.put_string(body);
        out.put_u8(flags);
        out.put_u32(counter);
        out
    }

    fn sign(&self, flags: u8, counter: u32) -> Vec<u8> {
        self.blob(&self.body(&self.data(flags, counter)), flags, counter)
    }

    fn verify(&self, signature: &[u8], touch: Touch) -> Result<Token, BadSignature> {
        verify_touched(&self.public, self.name(), b"m", signature, touch)
            .map(|verified| verified.token.expect("it is a token's"))
    }
}

const BOTH: Touch = Touch {
    presence: true,
    verification: true,
};
const VERIFICATION: Touch = Touch {
    presence: false,
    verification: true,
};

#[test]
fn tokens_say_what_their_user_did() {
    for token in SoftToken::both(b"ssh:") {
        let again = PublicKey::parse(token.public.blob()).unwrap();
        assert_eq!(again, token.public);
        for (flags, touch, want) in [
            (0x01, Touch::REQUIRED, Ok((true, false))),
            (0x05, Touch::REQUIRED, Ok((true, true))),
            (0x05, BOTH, Ok((true, true))),
            (0x00, Touch::NONE, Ok((false, false))),
            (0x04, VERIFICATION, Ok((false, true))),
            (0x00, Touch::REQUIRED, Err(BadSignature::NotTouched)),
            (0x04, Touch::REQUIRED, Err(BadSignature::NotTouched)),
            (0x04, BOTH, Err(BadSignature::NotTouched)),
            (0x01, BOTH, Err(BadSignature::NotVerified)),
            (0x01, VERIFICATION, Err(BadSignature::NotVerified)),
            // Other bits neither add to these two nor take from them.
            (0x41, Touch::REQUIRED, Ok((true, false))),
            (0x81, Touch::REQUIRED, Ok((true, false))),
            (0xff, BOTH, Ok((true, true))),
            (0xfa, Touch::NONE, Ok((false, false))),
            (0x40, Touch::REQUIRED, Err(BadSignature::NotTouched)),
            (0x80, Touch::REQUIRED, Err(BadSignature::NotTouched)),
            (0xfe, Touch::REQUIRED, Err(BadSignature::NotTouched)),
            (0xfb, BOTH, Err(BadSignature::NotVerified)),
        ] {
            let said = token
                .verify(&token.sign(flags, 7), touch)
                .map(|t| (t.presence, t.verification));
            assert_eq!(said, want, "{} {flags:#x} {touch:?}", token.name());
        }
    }
}

#[test]
fn flags_and_counter_are_signed() {
    for token in SoftToken::both(b"ssh:") {
        let body = token.body(&token.data(0, 7));
        assert!(token.verify(&token.blob(&body, 0, 7), Touch::NONE).is_ok());
        for (flags, counter) in [(1, 7), (4, 7), (0x40, 7), (0x80, 7), (0, 6), (0, 8), (0, 7 << 24)] {
            let forged = token.blob(&body, flags, counter);
            assert_eq!(token.verify(&forged, Touch::NONE), Err(BadSignature::Wrong));
        }
    }
}

/// As sshd: no counter is remembered, so one that stands or goes back is no reason.
#[test]
fn every_counter_is_taken() {
    for token in SoftToken::both(b"ssh:") {
        for counter in [9, 9, 3, 0, u32::MAX] {
            let said = token.verify(&token.sign(1, counter), Touch::REQUIRED);
            assert_eq!(said.map(|t| t.counter), Ok(counter));
        }
    }
}

/// A browser's authenticator signs its extensions' data too (flag 0x80) and the new key's (0x40). The signature format has
/// no place for either, so such a signature is over other bytes than these.
#[test]
fn signatures_over_data_of_extensions_are_wrong() {
    for token in SoftToken::both(b"ssh:") {
        assert!(token.verify(&token.sign(0x81, 7), Touch::REQUIRED).is_ok());
        for (flags, more) in [
            (0x81, &[0xa0][..]),
            (0xc1, &[0; 16]),
            (0x81, b"\xa1\x6bcredProtect\x02"),
        ] {
            let plain = token.data(flags, 7);
            let (head, digest) = plain.split_at(37);
            let body = token.body(&[head, more, digest].concat());
            let signature = token.blob(&body, flags, 7);
            assert_eq!(
                token.verify(&signature, Touch::REQUIRED),
                Err(BadSignature::Wrong)
            );
        }
    }
}

#[test]
fn signatures_that_are_cut_or_longer_are_malformed() {
    for token in SoftToken::both(b"ssh:") {
        let right = token.sign(1, 7);
        assert!(token.verify(&right, Touch::REQUIRED).is_ok());
        // Without the counter's end, without the counter, without the flags, and every shorter one.
        for len in 0..right.len() {
            let said = token.verify(&right[..len], Touch::NONE);
            assert!(matches!(said, Err(BadSignature::Malformed(_))), "{len}: {said:?}");
        }
        for more in [&[0][..], &[0xa0], &[0, 0, 0, 0], &right] {
            let said = token.verify(&[&right[..], more].concat(), Touch::NONE);
            assert!(matches!(said, Err(BadSignature::Malformed(_))), "{said:?}");
        }
        // Flags and counter within the body, and a body of no length.
        let (head, tail) = right.split_at(right.len() - 5);
        let mut r = Reader::new(head);
        r.string("name").unwrap();
        let body = r.string("signature").unwrap();
        let mut inside = Vec::new();
        inside.put_string(token.name());
        inside.put_string([body, tail].concat());
        assert!(token.verify(&inside, Touch::NONE).is_err());
        assert!(token.verify(&token.blob(&[], 1, 7), Touch::NONE).is_err());
    }
}

#[test]
fn a_signature_for_another_application_is_wrong() {
    for mut token in SoftToken::both(b"ssh:other") {
        assert!(token.verify(&token.sign(1, 7), Touch::REQUIRED).is_ok());
        for application in [&b"ssh:"[..], b"", b"https://example.com", b"ssh:other "] {
            token.application = application.to_vec();
            let said = token.verify(&token.sign(1, 7), Touch::REQUIRED);
            assert_eq!(said, Err(BadSignature::Wrong));
        }
    }
}

/// The same key, once as a token's and once as a plain one: neither's signature does for the other.
#[test]
fn a_token_is_no_plain_key() {
    for token in SoftToken::both(b"ssh:") {
        let plain = token.key.sign(token.kind.name(), b"m").unwrap();
        let public = token.key.public();
        assert!(verify(public, token.kind.name(), b"m", &plain).is_ok());
        assert!(verify(public, token.name(), b"m", &token.sign(1, 7)).is_err());
        assert!(verify(public, token.kind.name(), b"m", &token.sign(1, 7)).is_err());
        assert!(token.verify(&plain, Touch::NONE).is_err());
        assert!(
            verify(&token.public, token.kind.name(), b"m", &plain).is_err(),
            "a plain signature by a token's key"
        );
        // The bytes that a token signs are not the message itself.
        let unhashed = token.blob(&token.body(b"m"), 1, 7);
        assert_eq!(token.verify(&unhashed, Touch::NONE), Err(BadSignature::Wrong));
    }
}

/// As sshd: a certificate holds however its authority's token was used.
#[test]
fn an_authority_need_not_touch() {
    for token in SoftToken::both(b"ssh:") {
        for flags in [0, 1, 5] {
            assert_eq!(verify_by_ca(&token.public, b"m", &token.sign(flags, 7)), Ok(()));
        }
        let forged = token.blob(&token.body(&token.data(0, 7)), 1, 7);
        assert_eq!(
            verify_by_ca(&token.public, b"m", &forged),
            Err(BadSignature::Wrong)
        );
    }
}
