//! Any bytes as a networking helper's request or answer: never a panic, never more memory than the frame is long,
//! and what is understood is written and understood again as the same.
#![no_main]

use fleetgate_wire::net::{Request, Response};
use fleetgate_wire::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = decode::<Request>(data) {
        assert_eq!(encode(&request), data, "a frame has one form");
    }
    if let Ok(response) = decode::<Response>(data) {
        assert_eq!(encode(&response), data, "a frame has one form");
    }
});
