//! Any bytes as /etc/passwd, /etc/group and what a person typed: a stranger's files give an account within its bounds, or none.
#![no_main]

use fleetgate_enter::user::by_name;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: (&[u8], &[u8], &[u8])| {
    let (passwd, groups, typed) = parts;
    if let Ok(account) = by_name(passwd, groups, typed) {
        assert!(account.ids.uid != u32::MAX && account.ids.gid != u32::MAX);
        assert!(account.ids.groups.len() <= 1024);
        for path in [account.home, account.shell] {
            assert!(path.as_bytes().starts_with(b"/") && path.as_bytes().len() <= 4096);
        }
    }
});
