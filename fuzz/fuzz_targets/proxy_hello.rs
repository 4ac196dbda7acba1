//! Any bytes as the beginning of a connection: never a panic, the same answer for more bytes once there is one, and an end.
#![no_main]

use fleetgate_proxy::client_hello::{HELLO_MAX, ServerName, name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (mut room, mut more) = (Vec::new(), Vec::new());
    let half = name(&data[..data.len() / 2], &mut room);
    let whole = name(data, &mut more);
    if half != ServerName::More {
        assert_eq!(half, whole);
    }
    if data.len() >= HELLO_MAX {
        assert_ne!(whole, ServerName::More);
    }
});
