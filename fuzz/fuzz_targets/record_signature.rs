//! Any bytes as a signature block, and as a signature by `ssh-keygen -Y`: never a panic, and one text has one form.
#![no_main]

use fleetgate_record::signature;
use fleetgate_ssh::sshsig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = b"fleetgate recording\nsession 07070707070707070707070707070707\nblocks ";
    let mut whole = u32::try_from(text.len() + data.len())
        .unwrap_or(0)
        .to_le_bytes()
        .to_vec();
    whole.extend_from_slice(text);
    whole.extend_from_slice(data);
    for bytes in [data, &whole] {
        if let Ok((statement, signature)) = signature::decode(bytes) {
            assert_eq!(signature::encode(&statement, signature), bytes);
            let _ = sshsig::verify(signature, signature::NAMESPACE, statement.text().as_bytes());
        }
        assert!(sshsig::verify(bytes, signature::NAMESPACE, b"nobody signed this").is_err());
    }
});
