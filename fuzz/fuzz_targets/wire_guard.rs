//! Any bytes as a request to the guardian or its reply: never a panic, and what is understood is written and understood
//! again as the same.
#![no_main]

use fleetgate_wire::guard::{Reply, Request};
use fleetgate_wire::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = decode::<Request>(data) {
        assert_eq!(encode(&request), data, "a frame has one form");
    }
    if let Ok(reply) = decode::<Reply>(data) {
        assert_eq!(encode(&reply), data, "a frame has one form");
    }
});
