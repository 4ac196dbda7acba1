//! Files that nobody else may read, written so that a crash leaves the old or the new one. It removes nothing by itself.

use crate::error::ClientError;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// The longest file of ours that is read.
pub const MAX_FILE: u64 = 4 << 20;

/// Makes a directory that is its owner's alone; one that exists is made so.
pub fn private_directory(path: &Path) -> Result<(), ClientError> {
    let wrong = |e| ClientError::File(path.to_owned(), e);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(wrong)?;
    let meta = fs::metadata(path).map_err(wrong)?;
    let us = fleetgate_sys::process::effective_uid();
    if meta.uid() != us {
        return Err(ClientError::Broken(
            path.to_owned(),
            format!("belongs to the user with id {}, not to you ({us})", meta.uid()),
        ));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    Ok(())
}

/// Refuses a directory that others may write.
pub fn not_writable_by_others(path: &Path) -> Result<(), ClientError> {
    let Ok(meta) = fs::metadata(path) else {
        return Ok(());
    };
    let us = fleetgate_sys::process::effective_uid();
    if meta.uid() != us && meta.uid() != 0 {
        return Err(ClientError::Broken(
            path.to_owned(),
            format!(
                "belongs to the user with id {}, not to you ({us}): use a directory of your own",
                meta.uid()
            ),
        ));
    }
    match meta.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(ClientError::Broken(
            path.to_owned(),
            format!(
                "has mode {:04o}: others could change in it whom you believe; look at what is in it, then run: chmod 0700 {}",
                meta.mode() & 0o777,
                path.display()
            ),
        )),
    }
}

/// Writes a file of mode 0600 (or `mode`) beside the old one and puts it into its place.
pub fn write(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), ClientError> {
    replace(path, mode, bytes, File::sync_all)
}

/// The same without waiting for the disk, for what may be lost: after a power cut the file may be empty.
pub fn write_unsynced(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), ClientError> {
    replace(path, mode, bytes, |_| Ok(()))
}

fn replace(
    path: &Path,
    mode: u32,
    bytes: &[u8],
    settle: impl Fn(&File) -> io::Result<()>,
) -> Result<(), ClientError> {
    let wrong = |e| ClientError::File(path.to_owned(), e);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new{}", fleetgate_sys::process::id()));
    let new = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            settle(&file)
        })
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(wrong)
}

/// Reads a file, bounded.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, ClientError> {
    let wrong = |e| ClientError::File(path.to_owned(), e);
    let file = File::open(path).map_err(wrong)?;
    let size = file.metadata().map_err(wrong)?.len().min(MAX_FILE);
    // Large enough from the start: a buffer that grows leaves a copy of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(size as usize + 1));
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ClientError::Broken(
            path.to_owned(),
            format!("is larger than {MAX_FILE} bytes: it is none of fleetgate's files"),
        ));
    }
    Ok(bytes)
}

/// The same, of a secret that nobody else may read.
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, ClientError> {
    let mode = fs::metadata(path).map(|meta| meta.mode() & 0o777);
    if let Some(mode) = mode.ok().filter(|mode| mode & 0o077 != 0) {
        return Err(ClientError::Broken(
            path.to_owned(),
            format!(
                "has mode {mode:04o}: others could use it in your name; run: chmod 0600 {}",
                path.display()
            ),
        ));
    }
    read(path)
}

/// The same, as text.
pub fn read_text(path: &Path) -> Result<Zeroizing<String>, ClientError> {
    let bytes = read(path)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(ClientError::Broken(path.to_owned(), "is not text".to_owned())),
    }
}

/// The same, of a file that somebody named.
pub fn read_given(path: &Path) -> Result<Zeroizing<String>, ClientError> {
    read_text(path).map_err(|error| match error {
        ClientError::File(path, e) if e.kind() == std::io::ErrorKind::NotFound => {
            ClientError::Usage(format!(
                "there is no file {}: give the path of one that is there, or - for standard input",
                path.display()
            ))
        }
        other => other,
    })
}

/// Opens a file for its lock alone; one that is not there is made, and nothing is ever written to it.
pub fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Removes a file; one that is not there is removed already.
pub fn remove(path: &Path) -> Result<(), ClientError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ClientError::File(path.to_owned(), e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_their_owners_alone_and_replaced_whole() {
        let directory = std::env::temp_dir().join(format!("fleetgate-files-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("opened");
        private_directory(&directory).expect("closed");
        assert_eq!(fs::metadata(&directory).expect("there").mode() & 0o777, 0o700);
        let path = directory.join("secret");
        for text in ["first", "second"] {
            write(&path, 0o600, text.as_bytes()).expect("written");
            assert_eq!(read_text(&path).expect("read").as_str(), text);
            assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        }
        assert_eq!(
            fs::read_dir(&directory).expect("read").count(),
            1,
            "nothing is left beside it"
        );
        assert!(read_secret(&path).is_ok(), "control");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("opened");
        let error = read_secret(&path).expect_err("others may read it").to_string();
        assert!(
            error.contains("has mode 0640") && error.contains("chmod 0600"),
            "{error}"
        );
        let large = File::create(directory.join("large")).expect("made");
        large.set_len(MAX_FILE + 1).expect("grown");
        let error = read(&directory.join("large")).expect_err("too large").to_string();
        assert!(error.contains("larger than"), "{error}");
        large.set_len(MAX_FILE).expect("shrunk");
        assert!(read(&directory.join("large")).is_ok(), "control");
        remove(&path).expect("removed");
        remove(&path).expect("it was");
        fs::remove_dir_all(&directory).expect("removed");
    }
}
