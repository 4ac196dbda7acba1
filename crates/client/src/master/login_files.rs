//! Which login the files of a home hold, told without reading them: a later login, a renewal and a logout replace them.

use crate::profile::Home;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The files that a connection depends on: what the proxy believes, the login's keys, whom the login believes.
const FILES: [&str; 6] = [
    "tls.crt",
    "tls.key",
    "id",
    "id-cert.pub",
    "known_hosts",
    "state.json",
];

/// The login as its files were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginStamp([(u64, u64, i64, i64); FILES.len()]);

impl LoginStamp {
    /// As they are now: six calls, and no byte read.
    pub(super) fn of(home: &Home) -> io::Result<LoginStamp> {
        let mut stamp = [(0, 0, 0, 0); FILES.len()];
        for (file, stamp) in FILES.iter().zip(&mut stamp) {
            let status = std::fs::metadata(home.file(file))?;
            *stamp = (status.ino(), status.size(), status.mtime(), status.mtime_nsec());
        }
        Ok(LoginStamp(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn another_login_has_another_stamp() {
        let path = std::env::temp_dir().join(format!("fleetgate-stamp-{}", std::process::id()));
        let home = Home::find(path.to_str()).expect("a path");
        home.make().expect("made");
        assert!(LoginStamp::of(&home).is_err(), "no login");
        let write = |name: &str, text: &[u8]| files::write(&home.file(name), 0o600, text).expect("written");
        for file in FILES {
            write(file, b"one");
        }
        let one = LoginStamp::of(&home).expect("a login");
        assert_eq!(LoginStamp::of(&home).expect("the same"), one);
        for file in FILES {
            let before = LoginStamp::of(&home).expect("a login");
            // The same length: files are replaced, and not written over.
            write(file, b"two");
            assert_ne!(LoginStamp::of(&home).expect("another"), before, "{file}");
        }
        std::fs::remove_dir_all(home.path()).expect("removed");
    }
}
