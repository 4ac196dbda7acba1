//! Where a state is: a scheme that names the backend, and a place that the backend understands. The table of the backends
//! is here, so no other crate names one.

use crate::sqlite::{self, Sqlite};
use crate::{Error, Revision, Store};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is done.
    Keep,
    /// It is replaced as a whole.
    Replace,
}

/// What a backend can do at a place. One row of [`BACKENDS`] is all that the rest of the program knows of it.
struct Backend {
    /// Before the colon of an address.
    scheme: &'static str,
    open: fn(&Path) -> Result<Arc<dyn Store>, Error>,
    exists: fn(&Path) -> bool,
    look: fn(&Path) -> Result<(), Error>,
    backup: fn(&Path, &Path, Existing) -> Result<Revision, Error>,
    restore: fn(&Path, &Path, Existing) -> Result<Revision, Error>,
    /// Whether the place is a directory of this machine, which a sandbox has to leave open.
    is_directory: bool,
}

/// Every backend; the first has the addresses without a scheme.
static BACKENDS: [Backend; 1] = [Backend {
    scheme: "sqlite",
    open: |place| Ok(Arc::new(Sqlite::open(place)?)),
    exists: sqlite::exists,
    look: sqlite::look,
    backup: sqlite::backup,
    restore: sqlite::restore,
    is_directory: true,
}];

/// Where a state is.
#[derive(Clone)]
pub struct Address {
    backend: &'static Backend,
    place: PathBuf,
}

impl Address {
    /// The state in a directory of this machine.
    pub fn in_directory(path: &Path) -> Address {
        Address {
            backend: &BACKENDS[0],
            place: path.to_owned(),
        }
    }

    /// Reads `sqlite:PATH`, or a path alone.
    pub fn parse(text: &str) -> Result<Address, Error> {
        let wrong = |why| Err(Error::Address(text.to_owned(), why));
        let (backend, place) = match text.split_once(':') {
            // A path may have a colon behind its first slash.
            Some((scheme, place)) if !scheme.contains('/') => {
                match BACKENDS.iter().find(|backend| backend.scheme == scheme) {
                    Some(backend) => (backend, place),
                    None => return wrong("names a kind of store that this program does not know"),
                }
            }
            _ => (&BACKENDS[0], text),
        };
        match place {
            "" => wrong("names no place"),
            _ => Ok(Address {
                backend,
                place: place.into(),
            }),
        }
    }

    /// Opens the store there, made when there is none.
    pub fn open(&self) -> Result<Arc<dyn Store>, Error> {
        (self.backend.open)(&self.place)
    }

    /// Whether there is a store; it is not opened.
    pub fn exists(&self) -> bool {
        (self.backend.exists)(&self.place)
    }

    /// Looks whether the store can be read, and is sound. It is not opened for writing, and nothing is mended.
    pub fn look(&self) -> Result<(), Error> {
        (self.backend.look)(&self.place)
    }

    /// Writes a copy of the whole store to the file `to`, and says which revision it is of.
    pub fn backup(&self, to: &Path, existing: Existing) -> Result<Revision, Error> {
        (self.backend.backup)(&self.place, to, existing)
    }

    /// Makes the backup in the file `from` the store, which must not be open, and says the revision that it begins at.
    pub fn restore(&self, from: &Path, existing: Existing) -> Result<Revision, Error> {
        (self.backend.restore)(from, &self.place, existing)
    }

    /// The directory of this machine that the store needs, if it needs one.
    pub fn directory(&self) -> Option<&Path> {
        self.backend.is_directory.then_some(&*self.place)
    }

    /// The addresses that [`Address::parse`] reads, for an error.
    pub(crate) fn forms() -> String {
        let forms = BACKENDS
            .iter()
            .map(|backend| format!("`{}:PATH`", backend.scheme));
        forms.collect::<Vec<_>>().join(", ")
    }
}

/// A directory as its path alone.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backend.is_directory {
            true => write!(f, "{}", self.place.display()),
            false => write!(f, "{}:{}", self.backend.scheme, self.place.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend.scheme, self.place.display())
    }
}
