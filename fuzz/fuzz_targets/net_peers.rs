//! Any bytes as what a peer shows and says before it is known who it is: certificate chains and names, TLS handshakes, shares of
//! the key exchange, a proxy's line, the answer of a collector. No panic, no endless wait, and no leaf believed that the
//! authority did not sign.
#![no_main]

use fleetgate_net::fuzz::peers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let [reader, rest @ ..] = data {
        peers(*reader, rest);
    }
});
