//! Compare-and-set: what a key is expected to be, and what it becomes. It decides nothing about what is stored.

use crate::{Entry, Error, Key, LeaseId, MAX_STEPS, MAX_TRANSACTION_BYTES, Revision, Value};
use std::collections::HashSet;

/// One compare-and-set: if the key is as expected, it becomes something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The key.
    pub key: Key,
    /// What it must be.
    pub expect: Expect,
    /// What it becomes.
    pub then: Then,
}

/// What a key must be for a step to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever it is.
    Anything,
    /// It is not there.
    Absent,
    /// It was last changed at this revision.
    At(Revision),
}

/// What a key becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// It has this value, and ends with this lease, if any.
    Put {
        /// The value.
        value: Value,
        /// The lease that it ends with.
        lease: Option<LeaseId>,
    },
    /// It is not there.
    Delete,
    /// What it was: the step is a condition of the others.
    Keep,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a conflict means that nothing was done"]
pub enum Outcome {
    /// All of it was done, at this revision: that of the store, when there was nothing to change.
    Done(Revision),
    /// Nothing was done.
    Conflict(Conflict),
}

/// The first step whose key was not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Which step, from 0.
    pub step: usize,
    /// What its key is instead; `None` when it is not there.
    pub found: Option<Entry>,
}

impl Step {
    /// Puts `value`, whatever was there.
    pub fn put(key: Key, value: Value) -> Step {
        Step::new(key, Expect::Anything, Then::Put { value, lease: None })
    }

    /// Puts `value` where nothing is.
    pub fn create(key: Key, value: Value) -> Step {
        Step::new(key, Expect::Absent, Then::Put { value, lease: None })
    }

    /// Puts `value` in place of what was read at `revision`.
    pub fn replace(key: Key, revision: Revision, value: Value) -> Step {
        Step::new(key, Expect::At(revision), Then::Put { value, lease: None })
    }

    /// Removes the key, whatever it is, and if it is there.
    pub fn delete(key: Key) -> Step {
        Step::new(key, Expect::Anything, Then::Delete)
    }

    /// Removes what was read at `revision`.
    pub fn remove(key: Key, revision: Revision) -> Step {
        Step::new(key, Expect::At(revision), Then::Delete)
    }

    /// Changes nothing, but all steps depend on it.
    pub fn check(key: Key, expect: Expect) -> Step {
        Step::new(key, expect, Then::Keep)
    }

    /// The same, the value ending with `lease`.
    pub fn under(mut self, lease: LeaseId) -> Step {
        if let Then::Put { lease: place, .. } = &mut self.then {
            *place = Some(lease);
        }
        self
    }

    fn new(key: Key, expect: Expect, then: Then) -> Step {
        Step { key, expect, then }
    }

    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.then {
            Then::Put { value, .. } => value.len(),
            Then::Delete | Then::Keep => 0,
        };
        self.key.as_bytes().len() + value
    }
}

impl Outcome {
    /// The revision, or `conflict` made an error of the caller's.
    pub fn done<E>(self, conflict: impl FnOnce(Conflict) -> E) -> Result<Revision, E> {
        match self {
            Outcome::Done(revision) => Ok(revision),
            Outcome::Conflict(c) => Err(conflict(c)),
        }
    }
}

/// Refuses a transaction that no store takes.
pub(crate) fn check(steps: &[Step]) -> Result<(), Error> {
    let bytes = steps.iter().map(Step::bytes).sum();
    if steps.len() > MAX_STEPS || bytes > MAX_TRANSACTION_BYTES {
        return Err(Error::TransactionSize {
            steps: steps.len(),
            bytes,
        });
    }
    let mut seen = HashSet::new();
    match steps.iter().find(|step| !seen.insert(&step.key)) {
        Some(twice) => Err(Error::SameKeyTwice(twice.key.clone())),
        None => Ok(()),
    }
}
