//! Any bytes as a private key file: never a panic, and whatever could be read signs for its own public half. The body
//! is wrapped as well, so that what stands within the base64 is reached.
#![no_main]

use base64ct::{Base64, Encoding};
use fleetgate_ssh::key::{PrivateKey, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let wrapped = format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        Base64::encode_string(data)
    );
    for file in [data, wrapped.as_bytes()] {
        let Ok(key) = PrivateKey::read(file, 0o600) else {
            continue;
        };
        for algorithm in key.algorithms() {
            // An RSA key whose parts do not belong together is seen when it signs.
            if let Ok(signature) = key.sign(algorithm, b"m") {
                assert!(verify(key.public(), algorithm, b"m", &signature).is_ok());
            }
        }
    }
});
