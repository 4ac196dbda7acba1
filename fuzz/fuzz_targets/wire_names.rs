//! Any bytes as a question to the resolver or its answer: never a panic, never more memory than the frame is long,
//! and what is understood is written and understood again as the same.
#![no_main]

use fleetgate_wire::names::{Answer, Question};
use fleetgate_wire::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(question) = decode::<Question>(data) {
        assert_eq!(encode(&question), data, "a frame has one form");
    }
    if let Ok(answer) = decode::<Answer>(data) {
        assert_eq!(encode(&answer), data, "a frame has one form");
    }
});
