//! Any bytes as a revocation list: never a panic, and an answer for any key once it could be read.
#![no_main]

use fleetgate_ssh::key::{KeyOrCertificate, Krl};
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"\0\0\0\x0bssh-ed25519\0\0\0\x20abcdefghijklmnopqrstuvwxyz012345";

fuzz_target!(|data: &[u8]| {
    let key = KeyOrCertificate::parse(KEY).expect("a key");
    // With the magic and the header before it, so that the sections are reached.
    let mut whole = b"SSHKRL\n\0\0\0\0\x01".to_vec();
    whole.extend_from_slice(&[0; 24 + 8]);
    whole.extend_from_slice(data);
    for list in [data, &whole] {
        if let Ok(krl) = Krl::parse(list) {
            let _ = krl.revoked(&key);
        }
    }
});
