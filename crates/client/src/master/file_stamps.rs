//! Whether files are still what they were, told without reading them: which login a home holds, which a later login, a renewal
//! and a logout replace, and what is known of a server.

use crate::profile::Home;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The files that a connection depends on: what the proxy believes, the login's keys, whom the login believes.
const FILES: [&str; 6] = [
    "tls.crt",
    "tls.key",
    "id",
    "id-cert.pub",
    "known_hosts",
    "state.json",
];

/// A file as it was at one moment: another one has other numbers, and one that was written over another time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileStamp(u64, u64, i64, i64);

/// The login as its files were at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginStamp([FileStamp; FILES.len()]);

impl FileStamp {
    /// As it is now.
    pub(super) fn of(path: &Path) -> io::Result<FileStamp> {
        let status = std::fs::metadata(path)?;
        Ok(FileStamp(
            status.ino(),
            status.size(),
            status.mtime(),
            status.mtime_nsec(),
        ))
    }
}

impl LoginStamp {
    /// As they are now: six calls, and no byte read.
    pub(super) fn of(home: &Home) -> io::Result<LoginStamp> {
        let mut stamp = [FileStamp::default(); FILES.len()];
        for (file, stamp) in FILES.iter().zip(&mut stamp) {
            *stamp = FileStamp::of(&home.file(file))?;
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
