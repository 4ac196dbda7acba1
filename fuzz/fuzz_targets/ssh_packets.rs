//! Any payloads under good keys: a client that logged in sends them to a server, or a server to its client, whose owner
//! does what comes to the fuzzer's mind. Never a panic, and what waits is bounded.
#![no_main]

use fleetgate_fuzz::{Pair, act};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let mut pair = Pair::logged_in(kind & 1 != 0);
    if kind & 2 != 0 {
        pair.fuzzed.rekey();
    }
    let mut rest = rest;
    while let Some((&[high, low, what], more)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([high & 0x0f, low])).min(more.len());
        let (payload, more) = more.split_at(len);
        rest = more;
        if !payload.is_empty() {
            pair.sender.send_raw(payload);
        }
        pair.exchange();
        act(&mut pair.fuzzed, what);
    }
    pair.exchange();
});
