//! The directory and the files of a store: whose they are, who may read them, who holds them. It never opens the
//! database itself: closing any descriptor of it would give back SQLite's locks (fcntl(2), "lost locks").

use crate::Error;
use fleetgate_sys::file::flags::O_NOFOLLOW;
use fleetgate_sys::{Errno, Fd, lock, process};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The database's name.
const DATABASE: &str = "state.db";
/// The name of the file whose lock says that somebody has the store open.
const LOCK: &str = "state.lock";
/// Others' permissions.
const OTHERS: u32 = 0o077;

/// The directory of a store, its own and private.
#[derive(Clone, Debug)]
pub struct Place {
    directory: PathBuf,
}

/// The store is this process's while it lives.
#[derive(Debug)]
pub struct Held(Fd);

impl Place {
    /// The directory at `path`, made with mode 0700 when missing; refused when others could read or write it.
    pub fn new(path: &Path) -> Result<Place, Error> {
        if fs::symlink_metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            make(path).map_err(|e| said(path, "could not be made", e))?;
        }
        Place::existing(path)
    }

    /// The same where there is one.
    pub fn existing(path: &Path) -> Result<Place, Error> {
        let found = fs::symlink_metadata(path).map_err(|e| said(path, "could not be looked at", e))?;
        let refused = |why: String| Err(Error::Directory(path.to_owned(), why));
        if !found.is_dir() {
            return refused("is no directory (a link is none either); give the directory itself".to_owned());
        }
        match unsafe_for_secrets(path, &found, 0o700) {
            Some(why) => refused(why),
            None => Ok(Place {
                directory: path.to_owned(),
            }),
        }
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        database(&self.directory)
    }

    /// Takes the store for this process.
    pub fn hold(&self) -> Result<Held, Error> {
        let path = self.directory.join(LOCK);
        let opened = match private_file(&path, false) {
            // A lock needs no right to write.
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
                OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(&path)
            }
            other => other,
        };
        let file = opened.map_err(|e| said(&path, "could not be opened", e))?;
        let fd = Fd::from_raw(file.into_raw_fd());
        match lock::try_hold(&fd) {
            Ok(()) => Ok(Held(fd)),
            Err(Errno::EAGAIN) => Err(Error::Locked(self.database())),
            Err(e) => Err(Error::Io(path, format!("could not be locked: {e}"))),
        }
    }

    /// Makes the database's file with mode 0600 when there is none, so that SQLite never makes one by the umask, and
    /// refuses one that others can read. SQLite gives its -wal and -shm the same mode.
    pub fn prepare(&self) -> Result<(), Error> {
        let path = self.database();
        match private_file(&path, true) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(said(&path, "could not be made", e)),
        }
        self.check()
    }

    /// Refuses a database's file that others can read.
    pub fn check(&self) -> Result<(), Error> {
        let path = self.database();
        let found = fs::symlink_metadata(&path).map_err(|e| said(&path, "could not be looked at", e))?;
        if !found.is_file() {
            let why = "is no plain file; move it away".to_owned();
            return Err(Error::File(path, why));
        }
        match unsafe_for_secrets(&path, &found, 0o600) {
            Some(why) => Err(Error::File(path, why)),
            None => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A failure is no worse than the descriptor's end, which comes next.
        let _ = lock::let_go(&self.0);
    }
}

/// The database of a store in `directory`.
pub fn database(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}

/// Opens a file for this user alone, made when missing (`new`: only made), never through a link.
pub fn private_file(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(!new)
        .create_new(new)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(path)
}

/// The error of a file or directory that the machine said no about.
pub fn said(path: &Path, what: &str, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull => Error::DiskFull(path.to_owned()),
        ErrorKind::ReadOnlyFilesystem => Error::ReadOnly(path.to_owned()),
        _ => Error::Io(path.to_owned(), format!("{what}: {error}")),
    }
}

/// Makes the directory, and has its name on the disk: what is synchronised in it later would be nowhere without.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn unsafe_for_secrets(path: &Path, found: &Metadata, mode: u32) -> Option<String> {
    let us = process::effective_uid();
    if found.uid() != us {
        return Some(format!(
            "belongs to user {}, and this program runs as user {us}; run: chown {us} {}",
            found.uid(),
            path.display()
        ));
    }
    (found.mode() & OTHERS != 0).then(|| {
        format!(
            "has mode {:04o}: others could get at the cluster's keys; run: chmod {mode:04o} {}",
            found.mode() & 0o7777,
            path.display()
        )
    })
}
