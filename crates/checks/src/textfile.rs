//! The page of metrics as a file, for node_exporter's textfile collector: replaced as a whole, and for its group to read. It
//! makes no page.

use fleetgate_client::stderr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The collector reads as its own user, by the directory's group.
const MODE: u32 = 0o640;

/// The file.
pub struct Textfile {
    path: PathBuf,
    /// It was said that it cannot be written.
    has_complained: bool,
}

impl Textfile {
    /// The one at this path.
    #[must_use]
    pub fn new(path: &Path) -> Textfile {
        Textfile {
            path: path.to_owned(),
            has_complained: false,
        }
    }

    /// Writes the page. That it cannot be written is said once, until it can.
    pub fn write(&mut self, page: &str) -> bool {
        let written = replace(&self.path, page.as_bytes());
        if let Err(e) = &written
            && !self.has_complained
        {
            stderr::line(format_args!(
                "{}: {e}; the textfile is not written until that has changed",
                self.path.display()
            ));
        }
        self.has_complained = written.is_err();
        written.is_ok()
    }
}

/// A file beside the old one, with a name that no collector reads (`*.prom`), put into its place. After a crash of the machine
/// the next check writes it anew, so nothing waits for the disk.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new{}", fleetgate_sys::process::id()));
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // Made new: a link that somebody put there is not followed.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&new)?;
    let written = file
        .write_all(bytes)
        // Whatever the umask is.
        .and_then(|()| file.set_permissions(Permissions::from_mode(MODE)))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_textfile_is_replaced_whole_with_its_mode() {
        let place = std::env::temp_dir().join(format!("fleetgate-textfile-{}", std::process::id()));
        fs::create_dir_all(&place).expect("made");
        let path = place.join("checks.prom");
        // Where the new file is made, somebody put a link to another one.
        let link = place.join(format!("checks.prom.new{}", std::process::id()));
        fs::write(place.join("other"), "mine").expect("written");
        std::os::unix::fs::symlink(place.join("other"), &link).expect("linked");
        let mut textfile = Textfile::new(&path);
        for page in ["first\n", "second\n"] {
            assert!(textfile.write(page));
            assert_eq!(fs::read_to_string(&path).expect("read"), page);
            assert_eq!(
                fs::metadata(&path).expect("there").permissions().mode() & 0o777,
                MODE
            );
        }
        assert_eq!(fs::read_to_string(place.join("other")).expect("read"), "mine");
        assert_eq!(
            fs::read_dir(&place).expect("read").count(),
            2,
            "nothing is left beside it"
        );
        assert!(!Textfile::new(&place.join("none/checks.prom")).write("x"));
        fs::remove_dir_all(&place).expect("removed");
    }
}
