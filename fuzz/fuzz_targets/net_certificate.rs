//! Any bytes as a certificate, a key or the text of an invite: never a panic.
#![no_main]

use fleetgate_net::x509::{Certificate, PublicKey};
use fleetgate_net::{Pin, Ticket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(certificate) = Certificate::read(data) {
        let _ = (
            certificate.identity(),
            certificate.public_key(),
            certificate.pin(),
        );
        assert_eq!(certificate.der(), data);
    }
    if let Ok(key) = PublicKey::from_spki(data) {
        assert!(key.verify(data, data).is_err());
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(ticket) = text.parse::<Ticket>() {
            assert_eq!(ticket.text().as_str(), text.trim());
        }
        let _ = text.parse::<Pin>();
    }
});
