//! The cluster's state: keys and values with one revision over all of them, and SQLite behind it.
//!
//! [`Store`] is what auth is written against: get, put, compare-and-set, transactions, ranges, watches, leases. It is
//! etcd's model, so that etcd can stand behind it: keys are bytes under prefixes (`/nodes/web1`), every change gets the
//! next revision of the whole store, changes that were made together share one. [`sqlite::Sqlite`] is the store of a
//! single machine; an [`Address`] opens it, so that its users know only the trait.
//!
//! To keep a copy of a prefix: read it ([`all`]), then [`Store::watch`] it after the revision that the
//! range was read at. Whoever is told [`Error::Compacted`] does both again. Nothing is ever left out in silence.
//!
//! It knows nothing of users, nodes or roles, keeps no secret better than its file's mode does, and no SQL leaves it.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod address;
mod clock;
mod entry;
mod error;
mod key;
pub mod sqlite;
mod step;
mod store;
mod watch;

pub use address::{Address, Existing};
pub use clock::{Clock, MachineClock};
pub use entry::{Change, Entry, LeaseId, Page, Range, Revision, Update};
pub use error::Error;
pub use key::{Key, Prefix, Value};
pub use step::{Conflict, Expect, Outcome, Step, Then};
pub use store::{Answer, Store, all};
pub use watch::{Feed, Watch};

/// The longest key or prefix, in bytes.
pub const MAX_KEY: usize = 1024;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// The most entries of one page of a range.
pub const MAX_PAGE: usize = 10_000;
/// The most bytes of keys and values in one page of a range; the first entry is always there.
pub const MAX_PAGE_BYTES: usize = 16 << 20;
/// The most steps of one transaction, as in etcd.
pub const MAX_STEPS: usize = 128;
/// The most bytes of keys and values in one transaction.
pub const MAX_TRANSACTION_BYTES: usize = 2 << 20;
/// The most watches at once.
pub const MAX_WATCHES: usize = 1024;
/// The most updates that wait in one watch; one more and it is told that it fell behind.
pub const MAX_WAITING_UPDATES: usize = 1024;
/// The most bytes of keys and values that wait in one watch.
pub const MAX_WAITING_UPDATE_BYTES: usize = 16 << 20;
/// The most leases at once.
pub const MAX_LEASES: usize = 32_768;
/// The most keys under one lease.
pub const MAX_LEASE_KEYS: usize = 1024;
/// The shortest time to live of a lease, in seconds.
pub const MIN_TTL_SECONDS: u64 = 1;
/// The longest time to live of a lease, in seconds: a year.
pub const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;

#[cfg(test)]
mod tests;
