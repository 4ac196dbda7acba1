//! Any text as a role file: never a panic, and what could be read is written so that it is read again.
#![no_main]

use fleetgate_policy::cluster::{Role, parse_roles, write_roles};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(roles) = parse_roles("fuzz.toml", text) {
        assert_eq!(
            parse_roles("fuzz.toml", &write_roles(&roles)).as_ref(),
            Ok(&roles)
        );
        for role in roles {
            assert_eq!(Role::parse_json(role.to_json().as_bytes()), Ok(role));
        }
    }
});
