//! Any bytes as a signature block, and as a signature by `ssh-keygen -Y`: never a panic, and one signature has one form.
#![no_main]

use fleetgate_record::signature::{self, LastKey};
use fleetgate_ssh::sshsig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let chain = [3; 32];
    let decode = |bytes: &[u8]| signature::decode(bytes, &[7; 16], |_| Some(chain), &mut LastKey::default());
    // The head of one, with a signature in either form.
    let head = |form: u8| [&[form, 9, 0, 0, 0, 0, 0, 0, 0, 4][..], b"then", data].concat();
    for bytes in [data, &head(0), &head(1), &head(2)] {
        if let Ok((statement, signature)) = decode(bytes) {
            assert_eq!(signature::encode(&statement, &signature), bytes);
            assert_eq!(signature::covers(bytes), Some(statement.blocks));
            let _ = sshsig::verify(&signature, signature::NAMESPACE, statement.text().as_bytes());
        }
        assert!(sshsig::verify(bytes, signature::NAMESPACE, b"nobody signed this").is_err());
    }
});
