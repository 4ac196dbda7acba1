//! Any bytes as an authorized_keys and a principals file, as addresses, targets and a line for named commands: never a
//! panic, and every line that could not be read is named.
#![no_main]

use fleetgate_policy::address::{Networks, Sources};
use fleetgate_policy::commands::{Command, Commands, NamedCommand};
use fleetgate_policy::permits::Target;
use fleetgate_policy::{AccountName, Rule};
use fleetgate_ssh::key::{AuthorizedKeys, Claimant, KeyOrCertificate, Principals};
use libfuzzer_sys::fuzz_target;

const KEY: &[u8] = b"\0\0\0\x0bssh-ed25519\0\0\0\x20abcdefghijklmnopqrstuvwxyz012345";

fuzz_target!(|data: &[u8]| {
    let key = KeyOrCertificate::parse(KEY).expect("a key");
    let source = "192.0.2.1".parse().expect("an address");
    let claimant = Claimant {
        login: "alice",
        source,
        now: 1 << 30,
        skew: 60,
        utc_offset: -3600,
        environment: true,
    };
    // The options of a line for the key that asks, then the file as it is.
    let mut line = data.to_vec();
    line.extend_from_slice(b" ");
    line.extend_from_slice(key.key().line().as_bytes());
    for file in [&line[..], data] {
        if let Ok(keys) = AuthorizedKeys::parse(file, "keys") {
            assert!(
                keys.bad()
                    .iter()
                    .all(|bad| bad.number > 0 && !bad.reason.is_empty())
            );
            let _ = keys.find(&key, &claimant);
        }
    }
    let _ = Principals::parse(data, "principals");
    let _ = AccountName::parse(data);
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(list) = Sources::parse(text) {
            let _ = list.fit(source);
        }
        if let Ok(list) = Networks::parse(text) {
            let _ = list.contain(source);
        }
        let _ = Target::parse(text, false);
        let _ = Target::parse(text, true);
    }
    let mut commands = Commands::new();
    let echo = Command::define(
        &["/bin/echo", "{a}", "x{b}"],
        &[("a", "word", None), ("b", "path", Some("/"))],
    );
    commands.add("echo", echo.expect("a command")).expect("a list");
    let sent = [b"echo ", data].concat();
    if let Ok(NamedCommand { argv, .. }) = commands.find(&sent, &Rule::new("list")) {
        assert!(argv.len() == 3 && argv[0] == b"/bin/echo" && argv[1].first() != Some(&b'-'));
    }
});
