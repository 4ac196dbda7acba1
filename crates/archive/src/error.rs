//! Why an archive does not do what it was asked for: the thing, the reason, the remedy.

use crate::entry::Entry;
use std::fmt;
use std::path::PathBuf;

/// How many recordings are named where one was meant.
pub const NAMED: usize = 3;

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No recording has such an id.
    Missing(String),
    /// Several ids begin so: some of them.
    Several(String, Vec<String>),
    /// Several machines brought a recording of a session with this id: some of them.
    SeveralMakers(String, Vec<String>),
    /// What was given cannot begin an id.
    NoId(String),
    /// A file or directory: why.
    Io(PathBuf, String),
    /// The catalogue: why.
    Catalogue(PathBuf, String),
    /// The directory is open to others, or in use.
    Unfit(PathBuf, String),
    /// The object store: why.
    Store(String),
    /// The service ends.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(id) => write!(
                f,
                "the cluster has no recording with the id {id}: `fleetgate sessions ls --recorded` lists those that it has"
            ),
            Error::Several(id, ids) => write!(
                f,
                "{id} begins the ids of several recordings ({}): give more of it",
                ids.join(", ")
            ),
            Error::SeveralMakers(id, makers) => write!(
                f,
                "there are recordings of several machines that say they are of the session {id} ({}): say with --node NAME which \
                 one. At most one of them is right: the audit log has on which node the session began",
                makers.join(", ")
            ),
            Error::NoId(text) => write!(
                f,
                "{text:?} begins no id of a session: an id has 32 hexadecimal digits, and the first 8 are mostly enough"
            ),
            Error::Io(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Catalogue(path, why) => write!(
                f,
                "the catalogue of recordings {}: {why}; if it is damaged, stop auth and remove it: it is made anew from the files",
                path.display()
            ),
            Error::Unfit(path, why) => write!(f, "the directory of recordings {}: {why}", path.display()),
            Error::Store(why) => write!(f, "the object store of recordings: {why}"),
            Error::Closed => f.write_str("the service stops"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Of several recordings whose ids begin so.
    pub fn several<'a>(prefix: &str, all: impl Iterator<Item = &'a Entry>) -> Error {
        let all: Vec<&Entry> = all.take(NAMED).collect();
        match all.first() {
            Some(first) if all.iter().all(|entry| entry.session == first.session) => {
                Error::SeveralMakers(first.id(), all.iter().map(|entry| entry.source.clone()).collect())
            }
            _ => {
                let mut ids: Vec<String> = all.iter().map(|entry| entry.id()).collect();
                ids.dedup();
                Error::Several(prefix.to_owned(), ids)
            }
        }
    }
}
