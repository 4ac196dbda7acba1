//! What the auth service gives up before it opens its state: all files but those in its directory, the capabilities that it
//! does not need, cores that would hold keys, and the system calls that no service makes. Nothing is taken back. It looks no
//! names up, so it reads nothing of the system's either, unless audit events go to a host that has to be looked up.

use crate::error::{Refused, Result};
use fleetgate_store::Address;
use fleetgate_sys::{credentials, service};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is kept of root: a port that is below 1024.
const KEPT: u32 = credentials::LOW_PORTS;
/// What name look-ups read: libraries, /etc, and where resolvers put their files. /etc as a whole, since its files are
/// replaced while the service runs.
const LOOK_UPS: [&CStr; 5] = [c"/etc", c"/usr", c"/lib", c"/lib64", c"/run"];

/// Confines this process, which is an auth service with its files in `directory`, its state at `state`, its recordings in `recordings` and
/// nothing else, and has one thread. What this kernel has not is told in the log; what it has and fails is an error. `looks_up`: names
/// have to be looked up.
pub fn enter(directory: &Path, state: &Address, recordings: &Path, looks_up: bool) -> Result<()> {
    let refused = |failure: service::Failure| Refused::unavailable(failure.to_string());
    let elsewhere = state.directory().filter(|at| !at.starts_with(directory));
    let recordings = Some(recordings).filter(|at| !at.starts_with(directory));
    if let Some(recordings) = recordings {
        let made = fleetgate_archive::prepare(recordings);
        made.map_err(|e| Refused::unavailable(e.to_string()))?;
    }
    let mut own = Vec::new();
    for directory in [Some(directory), elsewhere, recordings].into_iter().flatten() {
        // It could not be made from inside.
        if let Err(e) = std::fs::symlink_metadata(directory) {
            return Err(Refused::unavailable(format!(
                "the state directory {}: {e}; `fleetgate init` makes one",
                directory.display()
            )));
        }
        own.push(
            CString::new(directory.as_os_str().as_bytes())
                .map_err(|_| Refused::invalid(format!("{}: a zero byte in a path", directory.display())))?,
        );
    }
    let own: Vec<&CStr> = own.iter().map(CString::as_c_str).collect();
    seed_sqlite()?;
    service::forbid_cores().map_err(refused)?;
    let read: &[&CStr] = if looks_up { &LOOK_UPS } else { &[] };
    if let Some(lack) = service::keep_files(read, &own).map_err(refused)? {
        tracing::warn!("{lack}: auth's user alone keeps it from files");
    }
    let permitted =
        service::at("reading capabilities", credentials::permitted_capabilities()).map_err(refused)?;
    let kept: &[u32] = if permitted & 1 << KEPT != 0 { &[KEPT] } else { &[] };
    service::at("giving up capabilities", credentials::keep_capabilities(kept)).map_err(refused)?;
    if let Some(lack) = service::serve_only().map_err(refused)? {
        tracing::warn!("{lack}");
    }
    Ok(())
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
    use fleetgate_sys::file::flags::{O_RDWR, O_TMPFILE};
    use fleetgate_sys::{file, landlock};
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
        let elsewhere = place.join("recordings");
        fs::create_dir_all(&elsewhere).expect("made");
        let tries = {
            let (place, own, elsewhere) = (place.clone(), own.clone(), elsewhere.clone());
            move || {
                let nameless = CString::new(elsewhere.as_os_str().as_bytes()).expect("a path");
                let archive = fleetgate_archive::Archive::open(fleetgate_archive::Settings {
                    directory: elsewhere.clone(),
                    retention: fleetgate_archive::Retention::default(),
                    store: None,
                    now: std::sync::Arc::new(|| 0),
                });
                [
                    archive.is_ok(),
                    file::openat(file::CWD, &nameless, O_RDWR | O_TMPFILE, 0o600).is_ok(),
                    fs::write(own.join("new"), "x").is_ok(),
                    fs::read(own.join("new")).is_ok(),
                    fs::write(place.join("other"), "x").is_ok(),
                    fs::read("/etc/passwd").is_ok(),
                    fs::read_dir("/run").is_ok(),
                    fs::read("/proc/self/environ").is_ok(),
                ]
            }
        };
        assert_eq!(tries(), [true; 8]);
        let confined = std::thread::spawn(move || {
            enter(&own, &Address::in_directory(&own), &elsewhere, false).expect("this kernel has it");
            tries()
        });
        let found = confined.join().expect("it ends");
        fs::remove_dir_all(&place).expect("removed");
        assert_eq!(found, [true, true, true, true, false, false, false, false]);
        let (nowhere, here) = (Path::new("/nowhere/at/all"), std::env::temp_dir());
        for (directory, state) in [(nowhere, &*here), (&*here, nowhere)] {
            let missing = enter(directory, &Address::in_directory(state), directory, false)
                .expect_err("there is none")
                .words;
            assert!(missing.contains("fleetgate init"), "{missing}");
        }
    }
}
