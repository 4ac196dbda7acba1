//! Any bytes, or a good state with some bytes altered, as a connection that moves here: never a panic, and what is
//! understood has one form, can go on and can move on.
#![no_main]

use fleetgate_fuzz::{Pair, act, alter, pump, settings};
use fleetgate_ssh::Connection;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static GOOD: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let good = GOOD.get_or_init(|| {
        let Pair { sender, fuzzed } = Pair::logged_in(true);
        [
            sender.freeze().expect("it may move").to_vec(),
            fuzzed.freeze().expect("it may move").to_vec(),
        ]
    });
    let state = alter(data, good);
    let Ok(connection) = Connection::thaw(&state, settings()) else {
        return;
    };
    let frozen = connection.freeze().expect("it may move");
    assert_eq!(frozen[..], state, "a state has one form");
    let mut connection = Connection::thaw(&frozen, settings()).expect("what was written is read");
    for what in 0..16 {
        pump(&mut connection, &[], usize::MAX);
        act(&mut connection, what);
    }
});
