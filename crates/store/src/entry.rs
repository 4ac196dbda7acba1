//! What is in the store, and what becomes of it: entries, changes, pages of a range.

use crate::{Error, Key, MAX_PAGE, Prefix, Value};
use std::fmt;

/// A number that grows by one with every change of the store. Changes made together share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A lease's number; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// The revision that it was last changed at.
    pub revision: Revision,
    /// The lease that it ends with.
    pub lease: Option<LeaseId>,
}

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made or replaced.
    Put(Entry),
    /// It was removed.
    Delete(Key),
}

/// What changed at one revision, as far as a watch asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The revision.
    pub revision: Revision,
    /// At least one change; each key once.
    pub changes: Vec<Change>,
}

/// A part of the keys, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key that may be in it.
    pub(crate) from: Vec<u8>,
    /// The first key behind it; `None`: to the last.
    pub(crate) to: Option<Vec<u8>>,
    /// Only keys behind this one.
    pub(crate) after: Option<Key>,
    pub(crate) limit: usize,
}

/// A page of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The entries, in the order of their keys.
    pub entries: Vec<Entry>,
    /// The store's revision when they were read, all in one moment. A watch after it misses nothing.
    pub revision: Revision,
    /// There are more behind the last entry.
    pub more: bool,
}

impl Range {
    /// The keys under a prefix.
    pub fn prefix(prefix: &Prefix) -> Range {
        Range {
            from: prefix.as_bytes().to_vec(),
            to: prefix.end(),
            after: None,
            limit: MAX_PAGE,
        }
    }

    /// The keys from `from` to before `to`.
    pub fn between(from: &Key, to: &Key) -> Range {
        Range {
            from: from.as_bytes().to_vec(),
            to: Some(to.as_bytes().to_vec()),
            after: None,
            limit: MAX_PAGE,
        }
    }

    /// Only what stands behind `key`: the last of the page before.
    pub fn after(mut self, key: Key) -> Range {
        self.after = Some(key);
        self
    }

    /// At most so many entries; [`MAX_PAGE`] unless told, and never more.
    pub fn limit(mut self, limit: usize) -> Range {
        self.limit = limit;
        self
    }

    /// Refuses a page that no store gives.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.limit {
            1..=MAX_PAGE => Ok(()),
            other => Err(Error::PageLimit(other)),
        }
    }
}

impl Change {
    /// The key.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Delete(key) => key,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Change::Put(entry) => entry.bytes(),
            Change::Delete(key) => key.as_bytes().len(),
        }
    }
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.value.len()
    }
}

impl Update {
    /// The part of it that a watch on `prefix` is told; `None` when there is none.
    pub fn under(&self, prefix: &Prefix) -> Option<Update> {
        let changes: Vec<Change> = self
            .changes
            .iter()
            .filter(|c| prefix.holds(c.key()))
            .cloned()
            .collect();
        (!changes.is_empty()).then_some(Update {
            revision: self.revision,
            changes,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.changes.iter().map(Change::bytes).sum()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
