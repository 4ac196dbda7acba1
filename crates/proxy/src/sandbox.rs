//! What the proxy gives up before it looks at a byte from the world: root, capabilities, all files but its own, and the
//! system calls that no service makes. It keeps the network, which it is there for. Nothing is taken back.

use crate::config::Config;
use crate::server::ServerError;
use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::{Errno, credentials, landlock, seccomp, tree};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whom it is where its system user is not there.
const NOBODY: (u32, u32) = (65534, 65534);
/// What name look-ups read, and the system's authorities: libraries, /etc, and where resolvers put their files.
const READ: [&std::ffi::CStr; 5] = [c"/etc", c"/usr", c"/lib", c"/lib64", c"/run"];
/// Files below the state directory that change hands with it.
const STATE_FILES_MAX: usize = 1024;

/// Confines this process, which has one thread; its listener and its log are open. From here on its state directory is the
/// working directory.
/// What this kernel has not is told in the log; what it has and fails is an error.
pub(crate) fn enter(config: &Config) -> Result<(), ServerError> {
    let at = |step: &'static str| {
        move |errno: Errno| ServerError(format!("the sandbox cannot be made: {step}: {errno}"))
    };
    const NONE: Limit = Limit { soft: 0, hard: 0 };
    let files = process::limit(numbers::RLIMIT_NOFILE).map_err(at("reading limits"))?;
    let soft = files.hard;
    process::set_limit(numbers::RLIMIT_NOFILE, Limit { soft, ..files })
        .map_err(at("raising the limit of descriptors"))?;
    // A core would hold keys.
    process::set_limit(numbers::RLIMIT_CORE, NONE).map_err(at("setting limits"))?;
    credentials::set_no_new_privileges().map_err(at("no_new_privs"))?;
    let root = process::effective_uid() == 0;
    let (uid, gid) = system_user(&config.user);
    if root {
        give(&config.state_directory, uid, gid)?;
    }
    // Whoever it becomes may have no way through the directories above.
    std::env::set_current_dir(&config.state_directory)
        .map_err(|e| ServerError(format!("{}: {e}", config.state_directory.display())))?;
    match landlock::deny_files_but(&READ, &[c"."]) {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "without landlock (Linux 5.13, and `landlock` in lsm=): the proxy's user alone keeps it from files"
        ),
        Err(e) if landlock::is_missing(e) => {
            tracing::warn!("without landlock: the proxy's user alone keeps it from files")
        }
        Err(e) => return Err(at("landlock")(e)),
    }
    if root {
        credentials::set_groups(&[]).map_err(at("giving up groups"))?;
        credentials::set_group_ids(gid).map_err(at("changing the group id"))?;
        credentials::set_user_ids(uid).map_err(at("changing the user id"))?;
    }
    credentials::drop_capabilities().map_err(at("giving up capabilities"))?;
    // After the ids: changing them may set the flag anew.
    credentials::set_dumpable(false).map_err(at("not being dumpable"))?;
    match seccomp::serve_only() {
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            tracing::warn!("without a filter on system calls: this kernel has no seccomp")
        }
        other => other.map_err(at("seccomp"))?,
    }
    Ok(())
}

/// The state directory and what is in it, without following a link, become the proxy's user's.
fn give(path: &Path, uid: u32, gid: u32) -> Result<(), ServerError> {
    let mut waiting = vec![path.to_owned()];
    let mut given = 0;
    while let Some(path) = waiting.pop() {
        let failed = |why: &dyn std::fmt::Display| ServerError(format!("{}: {why}", path.display()));
        given += 1;
        if given > STATE_FILES_MAX {
            return Err(failed(
                &"there is far more below the state directory than a proxy puts there",
            ));
        }
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(&e))?;
        tree::set_owner(&text, uid, gid, false).map_err(|e| failed(&e))?;
        let is_directory = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
        if is_directory {
            for entry in std::fs::read_dir(&path).map_err(|e| failed(&e))? {
                waiting.push(entry.map_err(|e| failed(&e))?.path());
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
