//! Any bytes from a peer that nobody knows yet, in pieces of any size, to a server or a client: never a panic, an end
//! that stays, output and input that are bounded.
#![no_main]

use fleetgate_fuzz::{pump, settings};
use fleetgate_ssh::Connection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [kind, piece, rest @ ..] = data else { return };
    let mut connection = match kind & 1 {
        0 => Connection::server(settings(), [1; 16]),
        _ => Connection::client(settings()),
    };
    let version: &[u8] = if kind & 2 == 0 { b"SSH-2.0-fuzz\r\n" } else { b"" };
    pump(&mut connection, version, usize::MAX);
    pump(&mut connection, rest, usize::from(*piece) * 16 + 1);
});
