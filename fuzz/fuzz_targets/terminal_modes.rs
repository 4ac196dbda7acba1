//! Any bytes as a terminal's encoded modes: never a panic, and what is said twice is as said once.
#![no_main]

use fleetgate_sys::terminal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let plain = terminal::Modes::NONE;
    let once = plain.with_encoded(data);
    assert_eq!(once.with_encoded(data), once);
});
