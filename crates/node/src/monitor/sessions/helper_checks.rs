//! Checks that a shell's helper makes itself, for file transfer and for commands that run as another account: is the login let in
//! now, and may the directory that the user is confined to be trusted.

use fleetgate_orders::SessionRefusal;
use fleetgate_policy::Grant;
use fleetgate_sys::clock;
use fleetgate_wire::common::Account;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// As `exec` looks for them.
const NOLOGIN: [&str; 2] = ["/etc/nologin", "/run/nologin"];

/// Whether `account` is in use on `today` (days since 1970). `expiry`: PAM does not look at that.
pub fn account_in_use(account: &Account, expiry: bool, today: i64) -> Result<(), SessionRefusal> {
    let there = |path: &&str| std::fs::symlink_metadata(path).is_ok();
    if account.ids.uid != 0
        && let Some(path) = NOLOGIN.iter().find(|path| there(path))
    {
        return Err(SessionRefusal::new(format!("logins are switched off by {path}")));
    }
    let Some(ageing) = account.ageing.as_ref().filter(|_| expiry) else {
        return Ok(());
    };
    // shadow(5): the day of expiry itself still counts, as in sshd.
    if ageing.expires >= 0 && ageing.expires < today {
        return Err(SessionRefusal::new("the account has expired"));
    }
    let last = ageing.last_change.saturating_add(ageing.max_days);
    let too_old = ageing.last_change > 0 && ageing.max_days >= 0 && last < today;
    if ageing.last_change == 0 || too_old {
        return Err(SessionRefusal::new(
            "the password has expired: log in with a terminal and change it",
        ));
    }
    Ok(())
}

/// The same where no shell of the account's is begun, in which an expired password could be changed.
pub fn account_in_use_without_shell(grant: &Grant, account: &Account) -> Result<(), SessionRefusal> {
    if grant.must_change_password {
        return Err(SessionRefusal::new(
            "the password has expired: change it in a shell",
        ));
    }
    account_in_use(account, true, clock::wall().sec.div_euclid(86_400))
}

/// Whether a directory may be a root: it and all above it are root's, and nobody else may write there. Else who may could
/// put files where setuid programs look for them (sshd's rule).
pub fn safe_root(path: &CStr) -> Result<(), SessionRefusal> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let refuse = |at: &Path, why: &str| {
        tracing::error!("sftp_chroot {}: {} {why}", path.display(), at.display());
        Err(SessionRefusal::new(
            "the directory for file transfer is not set up; the host's log says why",
        ))
    };
    if !path.is_absolute() {
        return refuse(path, "is not an absolute path");
    }
    for at in path.ancestors() {
        match std::fs::metadata(at) {
            Err(e) => return refuse(at, &format!("cannot be looked at: {e}")),
            Ok(meta) if !meta.is_dir() => return refuse(at, "is no directory"),
            Ok(meta) if meta.uid() != 0 || meta.mode() & 0o022 != 0 => {
                return refuse(
                    at,
                    "belongs to somebody else than root, or others may write there",
                );
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
