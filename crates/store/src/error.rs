//! Why the store did not do something: the thing, the reason, the remedy. It never shows a value.

use crate::{
    Address, Key, LeaseId, MAX_KEY, MAX_LEASE_KEYS, MAX_LEASES, MAX_PAGE, MAX_STEPS, MAX_TRANSACTION_BYTES,
    MAX_TTL_SECONDS, MAX_VALUE, MAX_WATCHES, MIN_TTL_SECONDS, Revision,
};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why the store did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No address of a state, and why.
    Address(String, &'static str),
    /// A key that is empty or too long.
    KeyLength(usize),
    /// A value that is too long.
    ValueLength(usize),
    /// A transaction of too many steps or bytes.
    TransactionSize {
        /// Its steps.
        steps: usize,
        /// The bytes of its keys and values.
        bytes: usize,
    },
    /// A transaction that names a key twice.
    SameKeyTwice(Key),
    /// A page of no or too many entries.
    PageLimit(usize),
    /// A lease of too short or too long a time.
    TimeToLive(Duration),
    /// The lease has ended, or there never was one.
    NoLease(LeaseId),
    /// A lease with too many keys.
    LeaseFull(LeaseId),
    /// Too many leases.
    Leases,
    /// Too many watches.
    Watches,
    /// Changes after this revision are not known any more, or came faster than they were read.
    Compacted(Revision),
    /// A revision that the store has not reached.
    Future {
        /// What was asked for.
        asked: Revision,
        /// The store's revision.
        now: Revision,
    },
    /// Too many requests wait.
    Busy,
    /// The store was closed.
    Closed,
    /// The directory is not one to keep secrets in.
    Directory(PathBuf, String),
    /// A file is not one to keep secrets in.
    File(PathBuf, String),
    /// Another process has it open.
    Locked(PathBuf),
    /// It was written by a newer version.
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        version: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// A database, but another program's.
    Foreign(PathBuf),
    /// What is in the file makes no sense.
    Corrupt(PathBuf, String),
    /// No room.
    DiskFull(PathBuf),
    /// It may not be written.
    ReadOnly(PathBuf),
    /// Would be written over.
    Exists(PathBuf),
    /// The machine said no.
    Io(PathBuf, String),
    /// A fault of the store's own.
    Broken(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Address(text, why) => write!(
                f,
                "the state's address `{text}` {why}; write {}, or a path alone",
                Address::forms()
            ),
            Error::KeyLength(len) => write!(
                f,
                "a key of {len} bytes: a key has 1 to {MAX_KEY}; use a shorter name"
            ),
            Error::ValueLength(len) => {
                write!(
                    f,
                    "a value of {len} bytes: a value has at most {MAX_VALUE}; store less in one entry"
                )
            }
            Error::TransactionSize { steps, bytes } => write!(
                f,
                "a transaction of {steps} steps and {bytes} bytes: it has at most {MAX_STEPS} steps and \
                 {MAX_TRANSACTION_BYTES} bytes; make several of it"
            ),
            Error::SameKeyTwice(key) => {
                write!(
                    f,
                    "{key} is in a transaction twice; what it becomes can be said once"
                )
            }
            Error::PageLimit(limit) => {
                write!(
                    f,
                    "a page of {limit} entries: it has 1 to {MAX_PAGE}; read page by page"
                )
            }
            Error::TimeToLive(ttl) => write!(
                f,
                "a lease of {} s: it lasts {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}",
                ttl.as_secs_f64()
            ),
            Error::NoLease(lease) => write!(
                f,
                "lease {lease} has ended; grant a new one and put its keys again"
            ),
            Error::LeaseFull(lease) => {
                write!(
                    f,
                    "lease {lease} has {MAX_LEASE_KEYS} keys, which is the most; grant another one"
                )
            }
            Error::Leases => write!(
                f,
                "there are {MAX_LEASES} leases, which is the most; wait until some end"
            ),
            Error::Watches => write!(
                f,
                "there are {MAX_WATCHES} watches, which is the most; close some"
            ),
            Error::Compacted(revision) => write!(
                f,
                "the changes after revision {revision} are not all kept any more; read the range again and watch after \
                 its revision"
            ),
            Error::Future { asked, now } => write!(
                f,
                "revision {asked} was asked for and the store is at {now}: was an older backup restored? Read the range \
                 again and watch after its revision"
            ),
            Error::Busy => write!(f, "too many requests wait for the store; try again in a moment"),
            Error::Closed => write!(f, "the store is closed; nothing more is done"),
            Error::Directory(path, why) => write!(f, "the store's directory {} {why}", path.display()),
            Error::File(path, why) => write!(f, "the store's file {} {why}", path.display()),
            Error::Locked(path) => {
                write!(
                    f,
                    "the store {} is open in another process; stop that first",
                    path.display()
                )
            }
            Error::Newer { path, version, known } => write!(
                f,
                "the store {} has format {version}, written by a newer fleetgate; this one knows formats up to {known}: \
                 update it",
                path.display()
            ),
            Error::Foreign(path) => write!(
                f,
                "{} is no store of fleetgate's, or is damaged; give the path of one, or put a backup in its place with \
                 `fleetgate restore BACKUP --replace`",
                path.display()
            ),
            Error::Corrupt(path, why) => write!(
                f,
                "the store {} is damaged: {why}; stop everything that uses it and put a backup in its place with \
                 `fleetgate restore BACKUP --replace`",
                path.display()
            ),
            Error::DiskFull(path) => write!(
                f,
                "the disk that holds the store {} is full: nothing was changed, reading goes on; make room and try again",
                path.display()
            ),
            Error::ReadOnly(path) => write!(
                f,
                "the store {} may not be written: nothing was changed, reading goes on; make the file and its file \
                 system writable and try again",
                path.display()
            ),
            Error::Exists(path) => {
                write!(
                    f,
                    "{} exists already, and nothing was changed; `fleetgate restore BACKUP --replace` puts a backup in its \
                     place",
                    path.display()
                )
            }
            Error::Io(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Broken(what) => write!(f, "a fault of the store's own: {what}; please report it"),
        }
    }
}

impl std::error::Error for Error {}
