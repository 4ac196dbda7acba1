//! Any bytes as the words of a server, a proxy, an ssh-agent, an X11 client or the holder of the kept connection to the user's
//! client: no panic, nothing beyond the bounds, no invisible character on the terminal, and no host key trusted without the
//! signature of the cluster's authority.
#![no_main]

use fleetgate_client::fuzz::peers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let [reader, rest @ ..] = data {
        peers(*reader, rest);
    }
});
