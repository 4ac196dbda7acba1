//! Files of the state directory, read and written as root where root starts the proxy: no link leads elsewhere, and a
//! file is written whole or not at all.

use fleetgate_sys::file::flags::{O_NOFOLLOW, O_NONBLOCK};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The directory of recordings, below the state directory.
pub(crate) const RECORDINGS: &str = "recordings";

/// Reads a file of the state directory, as root where root starts the proxy: what a link there leads to may be somebody
/// else's, and a pipe is waited for.
pub(crate) fn read(path: &Path, most: usize) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    is_own(&file)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(std::io::Error::other(format!("longer than {most} bytes")));
    }
    Ok(bytes)
}

/// Refuses what is no file, or has another name elsewhere.
fn is_own(file: &File) -> Result<(), std::io::Error> {
    let about = file.metadata()?;
    match about.is_file() && about.nlink() <= 1 {
        true => Ok(()),
        false => Err(std::io::Error::other(
            "it is no file of the proxy's own: remove it",
        )),
    }
}

/// Whole or not at all, also when the machine stops in between.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let new = path.with_extension("new");
    let write = || {
        // Emptied only when it is seen that it is the proxy's own: a link there may lead to somebody else's.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(&new)?;
        is_own(&file)?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // The name is on the disk when the directory is.
        path.parent()
            .map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A proxy that was taken over may put what it likes where the next one begins as root.
    #[test]
    fn what_is_in_the_state_directory_leads_to_no_other_file() {
        let place = std::env::temp_dir().join(format!("fleetgate-proxy-links-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let (own, other) = (place.join("own"), place.join("other"));
        fs::write(&other, "somebody else's").unwrap();
        fs::write(&own, "own").unwrap();
        assert_eq!(read(&own, 1 << 20).unwrap(), b"own", "the control");
        for (name, made) in [
            ("link", symlink(&other, place.join("link"))),
            ("name", fs::hard_link(&other, place.join("name"))),
        ] {
            made.unwrap();
            assert!(read(&place.join(name), 1 << 20).is_err(), "{name}");
        }
        // A pipe without a writer would be waited for.
        let pipe = place.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success() && read(&pipe, 1 << 20).is_err());
        let new = place.join("own.new");
        for is_link in [true, false] {
            match is_link {
                true => symlink(&other, &new).unwrap(),
                false => fs::hard_link(&other, &new).unwrap(),
            }
            assert!(replace(&own, b"newer").is_err());
            assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
            fs::remove_file(&new).unwrap();
        }
        fs::write(&new, "what a crash has left, and longer").unwrap();
        replace(&own, b"newer").unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"newer");
        fs::remove_dir_all(&place).unwrap();
    }
}
