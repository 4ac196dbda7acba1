//! Secrets of a check: each is a variable of the session, whose value stands in a file of the user's own. So it is on no command
//! line, neither here nor on the node, and in no line of the audit log.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fleetgate_sys::{file, process, tree};
use fleetgate_wire::master::Variable;
use fleetgate_wire::pam::wipe;

/// The most secrets of one check.
pub const MAX_SECRETS: usize = 16;
/// The longest value.
pub const MAX_SECRET: usize = 4096;

/// A secret that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The variable.
    pub name: String,
    /// The file with its value.
    pub file: Vec<u8>,
}

/// Values that were read; they are overwritten when they are dropped.
#[derive(Default)]
pub struct Values(Vec<Variable>);

impl Values {
    /// Reads each file. The error is what the monitoring is told, and has no value in it.
    pub fn read(secrets: &[Secret]) -> Result<Values, String> {
        let mut values = Values::default();
        for secret in secrets {
            let value = value(&secret.file).map_err(|why| {
                let file = String::from_utf8_lossy(&secret.file);
                format!("the secret {}: {file:?} {why}", secret.name)
            })?;
            let name = secret.name.clone().into_bytes();
            values.0.push(Variable { name, value });
        }
        Ok(values)
    }

    /// The variables.
    pub fn variables(&self) -> &[Variable] {
        &self.0
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        for variable in &mut self.0 {
            wipe(&mut variable.value);
        }
    }
}

/// Whether it is a variable's name that a secret can have: none of the node's own.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&name.len())
        && name.bytes().all(fits)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with("FLEETGATE_")
}

fn value(path: &[u8]) -> Result<Vec<u8>, String> {
    let path = CString::new(path).map_err(|_| String::from("is no path"))?;
    // A pipe at the path would hold the check up.
    let fd = file::openat(
        file::CWD,
        &path,
        file::flags::O_RDONLY | file::flags::O_NONBLOCK,
        0,
    )
    .map_err(|e| format!("cannot be read: {e}"))?;
    let status = tree::stat_open(fd.raw()).map_err(|e| format!("cannot be read: {e}"))?;
    if !status.is_file() {
        return Err("is no regular file".into());
    }
    if ![0, process::effective_uid()].contains(&status.uid) {
        return Err(format!("belongs to the user with id {}, not to you", status.uid));
    }
    if status.mode & 0o077 != 0 {
        return Err(format!(
            "has mode {:04o}, so others can read it: run chmod 0600 on it",
            status.mode & 0o777
        ));
    }
    // With room for all of it from the start: a buffer that grows leaves a copy behind.
    let mut value = alloc::vec![0; MAX_SECRET + 2];
    let mut len = 0;
    loop {
        match file::read_at(fd.raw(), &mut value[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) => {
                wipe(&mut value);
                return Err(format!("cannot be read: {e}"));
            }
        }
        if len == value.len() {
            break;
        }
    }
    value.truncate(len);
    if value.last() == Some(&b'\n') {
        value.pop();
    }
    let wrong = if value.is_empty() {
        "is empty"
    } else if value.len() > MAX_SECRET {
        "has more than 4096 bytes"
    } else if value.contains(&0) || core::str::from_utf8(&value).is_err() {
        "is no text: zero bytes or no UTF-8"
    } else {
        return Ok(value);
    };
    wipe(&mut value);
    Err(wrong.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::string::ToString;

    #[test]
    fn values_come_from_files_of_the_users_own() {
        let path = std::env::temp_dir().join(format!("fleetgate-secret-{}", std::process::id()));
        let secret = || Secret {
            name: "DB_PASSWORD".to_string(),
            file: path.as_os_str().as_bytes().to_vec(),
        };
        let said = |content: &[u8], mode: u32| {
            std::fs::write(&path, content).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
            Values::read(&[secret()]).map(|values| values.variables()[0].value.clone())
        };
        assert_eq!(said(b"correct horse\n", 0o600), Ok(b"correct horse".to_vec()));
        assert_eq!(said(b"two\nlines\n\n", 0o400), Ok(b"two\nlines\n".to_vec()));
        let longest = [b'x'; MAX_SECRET];
        assert_eq!(said(&longest, 0o600), Ok(longest.to_vec()));
        for (content, mode, why) in [
            (&b"correct horse\n"[..], 0o640, "has mode 0640"),
            (b"correct horse\n", 0o604, "has mode 0604"),
            (b"\n", 0o600, "is empty"),
            (b"", 0o600, "is empty"),
            (&[b'x'; MAX_SECRET + 1], 0o600, "more than 4096 bytes"),
            (&[b'x'; 3 * MAX_SECRET], 0o600, "more than 4096 bytes"),
            (b"correct\0horse", 0o600, "is no text"),
            (b"correct \xff", 0o600, "is no text"),
        ] {
            let words = said(content, mode).expect_err(why);
            assert!(words.contains(why) && words.contains("DB_PASSWORD"), "{words}");
            assert!(!words.contains("correct"), "{words}");
        }
        std::fs::remove_file(&path).expect("removed");
        for wrong in ["/nonexistent/secret", "/proc", "/dev/null"] {
            let file = wrong.as_bytes().to_vec();
            let name = "A".to_string();
            assert!(Values::read(&[Secret { name, file }]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_those_of_variables() {
        for name in ["A", "DB_PASSWORD", "_x1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1A", "A=B", "A B", "A-B", "FLEETGATE_USER", "Ä"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
