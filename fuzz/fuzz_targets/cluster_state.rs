//! Any bytes as the cluster's state, a lock or a sign of freshness: never a panic, and what could be read comes back.
#![no_main]

use fleetgate_policy::cluster::{Fresh, Lock, State};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = State::parse_json(data) {
        assert_eq!(State::parse_json(&state.to_json()), Ok(state));
    }
    if let Ok(lock) = Lock::parse_json(data) {
        assert_eq!(Lock::parse_json(lock.to_json().as_bytes()), Ok(lock));
    }
    if let Ok(fresh) = Fresh::parse_json(data) {
        assert_eq!(Fresh::parse_json(&fresh.to_json()), Ok(fresh));
    }
});
