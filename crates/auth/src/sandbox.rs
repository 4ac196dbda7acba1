//! What the auth service gives up before it opens its state: all files but those in its directory, the capabilities that it
//! does not need, cores that would hold keys, and the system calls that no service makes. Nothing is taken back. It looks no
//! names up, so it reads nothing of the system's either.

use crate::error::{Refused, Result};
use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::{Errno, credentials, landlock, seccomp};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is kept of root: a port that is below 1024.
const KEPT: u32 = credentials::LOW_PORTS;

/// Confines this process, which is an auth service with its state in `directory` and nothing else, and has one thread. What
/// this kernel has not is told in the log; what it has and fails is an error.
pub fn enter(directory: &Path) -> Result<()> {
    let at = |step: &'static str| {
        move |errno: Errno| Refused::unavailable(format!("the sandbox cannot be made: {step}: {errno}"))
    };
    const NONE: Limit = Limit { soft: 0, hard: 0 };
    // It could not be made from inside.
    if let Err(e) = std::fs::symlink_metadata(directory) {
        return Err(Refused::unavailable(format!(
            "the state directory {}: {e}; `fleetgate init` makes one",
            directory.display()
        )));
    }
    seed_sqlite()?;
    process::set_limit(numbers::RLIMIT_CORE, NONE).map_err(at("setting limits"))?;
    credentials::set_no_new_privileges().map_err(at("no_new_privs"))?;
    let own = CString::new(directory.as_os_str().as_bytes())
        .map_err(|_| Refused::invalid(format!("{}: a zero byte in a path", directory.display())))?;
    match landlock::deny_files_but(&[], &[&own]) {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "without landlock (Linux 5.13, and `landlock` in lsm=): auth's user alone keeps it from files"
        ),
        Err(e) if landlock::is_missing(e) => {
            tracing::warn!("without landlock: auth's user alone keeps it from files")
        }
        Err(e) => return Err(at("landlock")(e)),
    }
    let permitted = credentials::permitted_capabilities().map_err(at("reading capabilities"))?;
    let kept: &[u32] = if permitted & 1 << KEPT != 0 { &[KEPT] } else { &[] };
    credentials::keep_capabilities(kept).map_err(at("giving up capabilities"))?;
    credentials::set_dumpable(false).map_err(at("not being dumpable"))?;
    match seccomp::serve_only() {
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            tracing::warn!("without a filter on system calls: this kernel has no seccomp");
            Ok(())
        }
        other => other.map_err(at("seccomp")),
    }
}

/// SQLite reads /dev/urandom once, when it first wants a random number; afterwards it would make do with the time.
fn seed_sqlite() -> Result<()> {
    let drawn = rusqlite::Connection::open_in_memory()
        .and_then(|db| db.query_row("SELECT random()", [], |row| row.get::<_, i64>(0)));
    match drawn {
        Ok(_) => Ok(()),
        Err(e) => Err(Refused::unavailable(format!("SQLite does not start: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// In a thread of its own, which alone is confined by landlock, capabilities and the filter.
    #[test]
    fn files_of_others_are_out_of_reach() {
        if landlock::version() == 0 {
            eprintln!("skipped: this kernel has no landlock");
            assert!(
                std::env::var_os("CI").is_none_or(|v| v != "true"),
                "CI must not skip"
            );
            return;
        }
        let place = std::env::temp_dir().join(format!("fleetgate-auth-sandbox-{}", std::process::id()));
        let own = place.join("own");
        fs::create_dir_all(&own).expect("made");
        let tries = {
            let (place, own) = (place.clone(), own.clone());
            move || {
                [
                    fs::write(own.join("new"), "x").is_ok(),
                    fs::read(own.join("new")).is_ok(),
                    fs::write(place.join("other"), "x").is_ok(),
                    fs::read("/etc/passwd").is_ok(),
                    fs::read_dir("/run").is_ok(),
                    fs::read("/proc/self/environ").is_ok(),
                ]
            }
        };
        assert_eq!(tries(), [true; 6]);
        let confined = std::thread::spawn(move || {
            enter(&own).expect("this kernel has it");
            tries()
        });
        let found = confined.join().expect("it ends");
        fs::remove_dir_all(&place).expect("removed");
        assert_eq!(found, [true, true, false, false, false, false]);
        let missing = enter(Path::new("/nowhere/at/all"))
            .expect_err("there is none")
            .words;
        assert!(missing.contains("fleetgate init"), "{missing}");
    }
}
