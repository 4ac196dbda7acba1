//! Any bytes as a certificate's identity: never a panic, and what could be read has one form.
#![no_main]

use fleetgate_policy::cluster::Identity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(identity) = Identity::parse(data) {
        let bytes = identity.encode();
        assert_eq!(Identity::parse(&bytes), Ok(identity));
        // Fields that are not known here are the only difference, and they stand last.
        assert!(data.starts_with(&bytes));
    }
});
