//! Finding the program that a name means, as a shell does it. It starts nothing; what is found here can still be refused by
//! the kernel.

use crate::TraceError;
use fleetgate_sys::Errno;
use std::ffi::CString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where a program is looked for when nobody says where.
pub const PATH: &[u8] = b"/usr/local/bin:/bin:/usr/bin";

/// The program's path. A name with a slash is one already; others are looked for in the directories of `path`, of which an
/// empty one means the working directory.
///
/// # Errors
/// A sentence: which program, and what is wrong with it.
pub fn find(name: &[u8], path: Option<&[u8]>) -> Result<CString, TraceError> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let refused = |at: &Path, why: &str| TraceError(format!("cannot execute {}: {why}", at.display()));
    let to = |at: &Path| {
        CString::new(at.as_os_str().as_bytes())
            .map_err(|_| TraceError(format!("cannot execute {shown:?}: it has a zero byte")))
    };
    if name.is_empty() {
        return Err(TraceError("cannot execute a program without a name".to_owned()));
    }
    if name.contains(&b'/') {
        let at = at(name);
        return match why_not(&at) {
            Some(why) => Err(refused(&at, why)),
            None => to(&at),
        };
    }
    let mut nearly = None;
    for directory in path.unwrap_or(PATH).split(|b| *b == b':') {
        let at = match directory {
            b"" => at(b"./").join(self::at(name)),
            directory => self::at(directory).join(self::at(name)),
        };
        match why_not(&at) {
            None => return to(&at),
            Some(why) if why != Errno::ENOENT.text() && why != Errno::ENOTDIR.text() => {
                nearly.get_or_insert_with(|| refused(&at, why));
            }
            Some(_) => {}
        }
    }
    Err(nearly.unwrap_or_else(|| {
        TraceError(format!("cannot execute {shown}: no directory of PATH has a program of this name; give its path, as in ./{shown}"))
    }))
}

fn at(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// What is wrong with a file as a program. Whether this very user may execute it only the kernel knows for sure.
fn why_not(at: &Path) -> Option<&'static str> {
    let look = |meta: Metadata| {
        if meta.is_dir() {
            Some("it is a directory")
        } else if meta.permissions().mode() & 0o111 == 0 {
            Some("nobody may execute it; chmod +x would allow it")
        } else {
            None
        }
    };
    match fs::metadata(at) {
        Ok(meta) => look(meta),
        Err(error) => Some(Errno::from(error).text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it_and_what_is_wrong_is_said() {
        let root = std::env::temp_dir().join(format!("fleetgate-find-{}", std::process::id()));
        let place = |name: &str, mode| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(&path, "#!/bin/sh\n").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        };
        place("one/plain", 0o644);
        place("two/plain", 0o755);
        place("two/hidden", 0o600);
        place("two/directory/x", 0o755);
        let path = format!("{0}/none:{0}/one:{0}/two", root.display());
        for (name, found) in [
            ("plain", Ok("two/plain")),
            ("hidden", Err("two/hidden: nobody may execute it")),
            ("directory", Err("two/directory: it is a directory")),
            ("absent", Err("cannot execute absent: no directory of PATH has")),
            ("ROOT/two/plain", Ok("two/plain")),
            ("ROOT/one/plain", Err("one/plain: nobody may execute it")),
            ("ROOT/one/absent", Err("one/absent: No such file or directory")),
            ("ROOT/two/plain/x", Err("two/plain/x: Not a directory")),
            ("", Err("without a name")),
        ] {
            let name = name.replace("ROOT", &root.display().to_string());
            match (find(name.as_bytes(), Some(path.as_bytes())), found) {
                (Ok(at), Ok(wanted)) => assert_eq!(at.to_bytes(), root.join(wanted).as_os_str().as_bytes()),
                (Err(said), Err(wanted)) => assert!(said.to_string().contains(wanted), "{name}: {said}"),
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(
            find(b"sh", None).map(|at| at.to_bytes().to_vec()),
            Ok(b"/bin/sh".to_vec())
        );
        fs::remove_dir_all(&root).expect("removed");
    }
}
