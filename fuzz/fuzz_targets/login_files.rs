//! Any bytes as /etc/environment, as ~/.ssh/environment, as a pattern of names, and as a file of login records.
#![no_main]

use fleetgate_session::exec::environment::{Variables, etc_environment, matches, user_environment};
use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|data: &[u8]| {
    let mut variables = Variables::default();
    etc_environment(data, &mut variables);
    user_environment(data, &mut variables);
    for string in variables.strings() {
        assert!(string.to_bytes().contains(&b'='));
    }
    if let Some((at, rest)) = data.split_first() {
        let (pattern, text) = rest.split_at(usize::from(*at).min(rest.len()));
        matches(pattern, text);
    }
    let mut file = tempfile();
    file.write_all(data).expect("memory");
    let path = std::ffi::CString::new(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file)
    ));
    let records = fleetgate_logins::read(&path.expect("digits")).expect("a readable file");
    assert_eq!(records.len(), data.len() / fleetgate_logins::RECORD);
});

/// A file without a name.
fn tempfile() -> std::fs::File {
    fleetgate_sys::memfd::create(c"records", fleetgate_sys::memfd::Kind::Data)
        .expect("memory")
        .into()
}
