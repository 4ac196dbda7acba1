//! The file that remembers a session's row between login and logout.

use crate::Error;
use fleetgate_sys::file::flags::O_NOFOLLOW;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// The longest file that is read; two numbers need far less.
const MAX_FILE: u64 = 64;
/// What it begins with.
const MARK: &str = "wtmpdb-row";

/// A row: its number, and the login's time, by which it is recognised should the number have been given anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number.
    pub id: i64,
    /// The login's time.
    pub at: u64,
}

/// The file.
pub struct State(PathBuf);

impl State {
    /// At `path`, which need not exist.
    pub fn at(path: PathBuf) -> State {
        State(path)
    }

    /// What it holds; `None` when it is not there.
    pub fn read(&self) -> Result<Option<Row>, Error> {
        let mut text = String::new();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW)
            .open(&self.0);
        match opened.and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidData => return Err(Error::BadState(self.0.clone())),
            Err(e) => return Err(Error::State(self.0.clone(), e)),
        }
        let mut words = text.strip_suffix('\n').unwrap_or_default().split(' ');
        let row = match (words.next(), words.next(), words.next(), words.next()) {
            (Some(MARK), Some(id), Some(at), None) => id.parse().ok().zip(at.parse().ok()),
            _ => None,
        };
        match row {
            Some((id, at)) => Ok(Some(Row { id, at })),
            None => Err(Error::BadState(self.0.clone())),
        }
    }

    /// Replaces it as a whole: never seen half written. Its directory is made, for root alone, when missing.
    pub fn write(&self, row: &Row) -> Result<(), Error> {
        let mut name = self.0.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = || {
            if let Some(directory) = self.0.parent() {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)?;
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(O_NOFOLLOW)
                .open(&new)?;
            file.write_all(format!("{MARK} {} {}\n", row.id, row.at).as_bytes())?;
            fs::rename(&new, &self.0)
        };
        written().map_err(|e| Error::State(self.0.clone(), e))
    }

    /// Removes it.
    pub fn remove(&self) -> Result<(), Error> {
        match fs::remove_file(&self.0) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::State(self.0.clone(), e)),
            _ => Ok(()),
        }
    }
}
