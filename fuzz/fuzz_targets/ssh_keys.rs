//! Any bytes as a key, a certificate, a signature and a login's claim: never a panic, one form per key, and nothing
//! that nobody signed holds.
#![no_main]

use fleetgate_ssh::key::{Algorithm, KeyOrCertificate, PublicKey, UserCheck, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(key) = PublicKey::parse(data) {
        assert_eq!(key.blob(), data, "a key has one form");
        assert_eq!(PublicKey::from_line(&key.line()), Ok(key));
    }
    let (blob, signature) = data.split_at(data.len() / 2);
    for blob in [data, blob] {
        let Ok(presented) = KeyOrCertificate::parse(blob) else {
            continue;
        };
        for algorithm in Algorithm::all() {
            assert!(verify(presented.key(), algorithm.name(), b"never signed", signature).is_err());
        }
        let KeyOrCertificate::Certificate(certificate) = presented else {
            continue;
        };
        assert_eq!(certificate.blob(), blob);
        let names: Vec<&str> = certificate.principals().iter().map(String::as_str).collect();
        let trusted = |_: &PublicKey| true;
        let source = "192.0.2.1".parse().expect("an address");
        let now = certificate.valid_after();
        let check = UserCheck {
            trusted: &trusted,
            principals: &names,
            now,
            skew: 60,
            source,
        };
        if certificate.check_user(&check).is_ok() {
            assert!(certificate.signature_holds().is_ok());
        }
        let _ = certificate.check_host("host", now, 0, |_| true);
    }
});
