//! Any bytes, or a good frame with some bytes altered, as a key exchange that is to be signed, which a process that is
//! root reads: never a panic, and what is understood has this one form.
#![no_main]

use fleetgate_fuzz::{alter, exchange};
use fleetgate_ssh::event::Exchange;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static GOOD: OnceLock<[Vec<u8>; 1]> = OnceLock::new();
    let frame = alter(data, GOOD.get_or_init(|| [exchange().encode().to_vec()]));
    if let Ok(exchange) = Exchange::decode(&frame) {
        assert_eq!(exchange.encode()[..], frame, "a frame has one form");
        assert!(exchange.hash().is_some());
        assert!(exchange.server_cookie().is_some());
    }
});
