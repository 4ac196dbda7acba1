//! Files that a service believes: nobody but root and its own user may change them, and a secret is read by nobody else. It
//! changes no mode: who was too generous learns it, and what to do.

use crate::StartError;
use fleetgate_sys::process;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a file or directory can be believed, as sshd's StrictModes has it. What is not there is not refused.
pub fn unchanged(path: &Path) -> Result<(), StartError> {
    match std::fs::metadata(path) {
        Ok(about) => believed(path, &about, process::effective_uid()),
        Err(_) => Ok(()),
    }
}

/// Whether a secret's file is read by nobody but root and this user.
pub fn secret(path: &Path, about: &Metadata) -> Result<(), StartError> {
    let mode = about.mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(StartError(format!(
            "{}: others may read or change it (mode {mode:04o}), and it is a secret: chmod 600 {0}, and replace the key if \
             somebody did",
            path.display()
        ))),
    }
}

fn believed(path: &Path, about: &Metadata, own: u32) -> Result<(), StartError> {
    let (mode, path) = (about.mode() & 0o7777, path.display());
    if about.uid() != 0 && about.uid() != own {
        return Err(StartError(format!(
            "{path}: it belongs to the user {}, who may change it: chown {own} {path}",
            about.uid()
        )));
    }
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(StartError(format!(
            "{path}: others may change it (mode {mode:04o}): chmod go-w {path}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_may_change_or_a_secret_that_they_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("fleetgate-own-{}", std::process::id()));
        assert_eq!(unchanged(&path), Ok(()), "it is not there");
        std::fs::write(&path, "").expect("written");
        for (mode, is_believed, is_secret) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o644, true, false),
            (0o640, true, false),
            (0o664, false, false),
            (0o602, false, false),
            (0o666, false, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            let about = std::fs::metadata(&path).expect("there");
            assert_eq!(unchanged(&path).is_ok(), is_believed, "{mode:o}");
            assert_eq!(secret(&path, &about).is_ok(), is_secret, "{mode:o}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        let about = std::fs::metadata(&path).expect("there");
        let (own, other) = (about.uid(), about.uid() + 1);
        assert_eq!(believed(&path, &about, own), Ok(()));
        // Root's is everybody's to believe.
        assert_eq!(believed(&path, &about, other).is_ok(), own == 0);
        std::fs::remove_file(&path).expect("removed");
    }
}
