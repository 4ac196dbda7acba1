//! What the proxy gives up before it looks at a byte from the world: root, capabilities, all files but its own, and the
//! system calls that no service makes. It keeps the network, which it is there for. Nothing is taken back.

use crate::config::Config;
use crate::error::ServerError;
use crate::recorder::MAX_FILES;
use fleetgate_sys::dir::Entries;
use fleetgate_sys::file::flags::{O_DIRECTORY, O_NOFOLLOW, O_PATH, O_RDONLY};
use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::{Errno, credentials, file, service, tree};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whom it is where its system user is not there.
const NOBODY: (u32, u32) = (65534, 65534);
/// What name look-ups read, and the system's authorities: libraries, /etc, and where resolvers put their files.
const READ: [&std::ffi::CStr; 5] = [c"/etc", c"/usr", c"/lib", c"/lib64", c"/run"];
/// Files below the state directory that change hands with it: those of recordings (`SESSION.rec` and `.tail`, in directories
/// of days), and some more.
const STATE_FILES_MAX: usize = 3 * MAX_FILES as usize + 1024;

/// Confines this process, which has one thread; its listener and its log are open. From here on its state directory is the
/// working directory.
/// What this kernel has not is told in the log; what it has and fails is an error.
pub(crate) fn enter(config: &Config) -> Result<(), ServerError> {
    let refused = |failure: service::Failure| ServerError(failure.to_string());
    let at = |step, result| service::at(step, result).map_err(refused);
    let files = service::at("reading limits", process::limit(numbers::RLIMIT_NOFILE)).map_err(refused)?;
    let soft = files.hard;
    let raised = process::set_limit(numbers::RLIMIT_NOFILE, Limit { soft, ..files });
    at("raising the limit of descriptors", raised)?;
    service::forbid_cores().map_err(refused)?;
    let root = process::effective_uid() == 0;
    let (uid, gid) = system_user(&config.user);
    if root {
        give(&config.state_directory, uid, gid)?;
    }
    // Whoever it becomes may have no way through the directories above.
    std::env::set_current_dir(&config.state_directory)
        .map_err(|e| ServerError(format!("{}: {e}", config.state_directory.display())))?;
    if let Some(lack) = service::keep_files(&READ, &[c"."]).map_err(refused)? {
        tracing::warn!("{lack}: the proxy's user alone keeps it from files");
    }
    if root {
        at("giving up groups", credentials::set_groups(&[]))?;
        at("changing the group id", credentials::set_group_ids(gid))?;
        at("changing the user id", credentials::set_user_ids(uid))?;
    }
    at("giving up capabilities", credentials::drop_capabilities())?;
    if let Some(lack) = service::serve_only().map_err(refused)? {
        tracing::warn!("{lack}");
    }
    Ok(())
}

/// The state directory and what is in it become the proxy's user's. A proxy that drains may write there meanwhile, and may
/// be somebody else's by now: so each thing is held before it is looked at, no link is followed, and no file is given that
/// has another name, which may be anywhere.
fn give(path: &Path, uid: u32, gid: u32) -> Result<(), ServerError> {
    let failed = |why: &dyn std::fmt::Display| ServerError(format!("{}: {why}", path.display()));
    let open = |dir, name: &CStr, flags| file::openat(dir, name, flags, 0).map_err(|e| failed(&e));
    let text = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(&e))?;
    let mut waiting = vec![open(file::CWD, &text, O_RDONLY | O_DIRECTORY)?];
    let mut given = 0;
    while let Some(directory) = waiting.pop() {
        tree::set_owner_open(directory.raw(), uid, gid).map_err(|e| failed(&e))?;
        let mut entries = Entries::new(directory);
        while let Some(name) = entries.next_name().map_err(|e| failed(&e))?.map(CStr::to_owned) {
            if name.as_c_str() == c"." || name.as_c_str() == c".." {
                continue;
            }
            given += 1;
            if given > STATE_FILES_MAX {
                return Err(failed(
                    &"there is far more below the state directory than a proxy puts there",
                ));
            }
            let within = entries.directory().raw();
            let held = match file::openat(within, &name, O_PATH | O_NOFOLLOW, 0) {
                // Replaced a moment ago, by a proxy that drains.
                Err(Errno::ENOENT) => continue,
                held => held.map_err(|e| failed(&e))?,
            };
            let stat = tree::stat_open(held.raw()).map_err(|e| failed(&e))?;
            if stat.is_directory() {
                waiting.push(open(within, &name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)?);
            } else if stat.is_file() && (stat.uid, stat.gid) != (uid, gid) {
                if stat.links > 1 {
                    let name = name.to_string_lossy();
                    return Err(failed(&format!(
                        "the file {name} has another name elsewhere: remove one"
                    )));
                }
                tree::set_owner_held(held.raw(), uid, gid).map_err(|e| failed(&e))?;
            }
        }
    }
    Ok(())
}

/// Looked for in /etc/passwd alone: no directory has a say in who the proxy is.
fn system_user(name: &str) -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (user, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        (user == name).then(|| Some((uid.parse().ok()?, gid.parse().ok()?)))?
    });
    found.filter(|(uid, _)| *uid != 0).unwrap_or_else(|| {
        if process::effective_uid() == 0 {
            tracing::warn!(
                "there is no system user {name:?} (`useradd --system {name}` makes one): the proxy runs as nobody, which \
                 other programs may do too"
            );
        }
        NOBODY
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A proxy that drains and was taken over, beside one that begins as root.
    #[test]
    fn what_is_put_into_the_state_directory_gives_no_other_file_away() {
        if process::effective_uid() != 0 {
            return eprintln!("skipped: only root gives files away");
        }
        let place = std::env::temp_dir().join(format!("fleetgate-proxy-give-{}", process::id()));
        let _ = fs::remove_dir_all(&place);
        let (state, elsewhere) = (place.join("state"), place.join("elsewhere"));
        for path in [&state.join("audit/deep"), &elsewhere] {
            fs::create_dir_all(path).unwrap();
        }
        for n in 0..64 {
            fs::write(elsewhere.join(format!("shadow{n}")), "").unwrap();
            fs::write(state.join(format!("audit/{n}.jsonl")), "").unwrap();
        }
        symlink(&elsewhere, state.join("link")).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let path = |name| CString::new(state.join(name).as_os_str().as_bytes()).unwrap();
                let (audit, link) = (path("audit"), path("link"));
                while !ends.load(Relaxed) {
                    tree::exchange(&audit, &link).unwrap();
                }
                if state.join("link/deep").exists() {
                    tree::exchange(&audit, &link).unwrap();
                }
            });
            for _ in 0..2_000 {
                // What goes while it is looked at may be an error; it is no way out.
                let _ = give(&state, NOBODY.0, NOBODY.1);
            }
            ends.store(true, Relaxed);
        });
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!(owner(&elsewhere), 0);
        for entry in fs::read_dir(&elsewhere).unwrap() {
            assert_eq!(owner(&entry.unwrap().path()), 0);
        }
        give(&state, NOBODY.0, NOBODY.1).expect("nobody is at it");
        for own in ["", "audit", "audit/deep", "audit/0.jsonl"] {
            assert_eq!(owner(&state.join(own)), NOBODY.0, "{own:?}");
        }
        // A second name of somebody's file.
        fs::hard_link(elsewhere.join("shadow0"), state.join("name")).unwrap();
        assert!(give(&state, NOBODY.0, NOBODY.1).is_err());
        assert_eq!(owner(&elsewhere.join("shadow0")), 0);
        fs::remove_dir_all(&place).unwrap();
    }
}
