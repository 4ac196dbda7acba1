//! Any bytes as what a receiver of audit events answered: never a panic, and no events that were thrown away where it does not say so.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let rejected = fleetgate_export::rejected(data);
    let word = b"rejectedLogRecords";
    // JSON may spell a name by escapes.
    let says_so = data.windows(word.len()).any(|w| w == word) || data.contains(&b'\\');
    assert!(rejected == 0 || says_so);
});
