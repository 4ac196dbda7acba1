//! What one request does inside a transaction. Everything is checked before the first row is written, so a request that
//! is refused has changed nothing and the others of its group go on. It answers nobody: that is for after the commit.

use super::leases::Leases;
use super::rows;
use crate::{
    Change, Conflict, Entry, Error, Expect, LeaseId, MAX_LEASE_KEYS, MAX_LEASES, Outcome, Revision, Step,
    Then, Update,
};
use rusqlite::Connection;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Where an answer goes.
pub type To<T> = oneshot::Sender<Result<T, Error>>;

/// A request that may change something.
#[derive(Debug)]
pub enum Work {
    /// These steps, or none.
    Transact(Vec<Step>),
    /// A new lease of so many seconds.
    Grant(u64),
    /// The end of a lease that is live.
    Revoke(LeaseId),
    /// The end of a lease whose time is over.
    Expire(LeaseId),
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// Of a transaction.
    Outcome(Outcome),
    /// The new lease.
    Granted(LeaseId),
    /// The lease has ended.
    Ended,
}

/// Why it was not done.
#[derive(Debug)]
pub enum Fault {
    /// This request alone is not done.
    Refused(Error),
    /// The database failed: nothing of the transaction stands.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Database(error)
    }
}

/// A transaction that is being made: what is true once it is committed.
pub struct Group<'a> {
    /// The database, inside the transaction.
    pub database: &'a Connection,
    /// The leases before it.
    pub leases: &'a Leases,
    /// The revision so far.
    pub revision: Revision,
    /// What watches are told.
    pub updates: Vec<Update>,
    /// New leases, and their seconds.
    pub granted: Vec<(LeaseId, u64)>,
    /// Leases that are gone.
    pub ended: Vec<LeaseId>,
}

impl Group<'_> {
    /// Does one request.
    pub fn perform(&mut self, work: &Work) -> Result<Done, Fault> {
        match work {
            Work::Transact(steps) => self.transact(steps).map(Done::Outcome),
            Work::Grant(seconds) => self.grant(*seconds),
            Work::Revoke(lease) if !self.is_live(*lease) => Err(Fault::Refused(Error::NoLease(*lease))),
            Work::Revoke(lease) | Work::Expire(lease) => self.end(*lease),
        }
    }

    fn transact(&mut self, steps: &[Step]) -> Result<Outcome, Fault> {
        for (number, step) in steps.iter().enumerate() {
            if step.expect == Expect::Anything {
                continue;
            }
            let found = rows::entry(self.database, &step.key)?;
            let as_expected = match step.expect {
                Expect::Anything => true,
                Expect::Absent => found.is_none(),
                Expect::At(revision) => found.as_ref().is_some_and(|e| e.revision == revision),
            };
            if !as_expected {
                return Ok(Outcome::Conflict(Conflict { step: number, found }));
            }
        }
        self.check_leases(steps)?;
        let revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::new();
        for step in steps {
            match &step.then {
                Then::Put { value, lease } => {
                    let entry = Entry {
                        key: step.key.clone(),
                        value: value.clone(),
                        revision,
                        lease: *lease,
                    };
                    rows::put(self.database, &entry)?;
                    changes.push(Change::Put(entry));
                }
                Then::Delete => {
                    if rows::delete(self.database, &step.key)? {
                        changes.push(Change::Delete(step.key.clone()));
                    }
                }
                Then::Keep => {}
            }
        }
        self.changed(changes)?;
        Ok(Outcome::Done(self.revision))
    }

    fn grant(&mut self, seconds: u64) -> Result<Done, Fault> {
        if self.leases.count() + self.granted.len() >= MAX_LEASES {
            return Err(Fault::Refused(Error::Leases));
        }
        let lease = rows::grant(self.database, seconds)?;
        self.granted.push((lease, seconds));
        Ok(Done::Granted(lease))
    }

    fn end(&mut self, lease: LeaseId) -> Result<Done, Fault> {
        let mut changes = Vec::new();
        for key in rows::keys_of(self.database, lease)? {
            rows::delete(self.database, &key)?;
            changes.push(Change::Delete(key));
        }
        rows::revoke(self.database, lease)?;
        self.changed(changes)?;
        self.ended.push(lease);
        Ok(Done::Ended)
    }

    /// Gives what changed the next revision.
    fn changed(&mut self, changes: Vec<Change>) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let update = Update {
            revision: Revision(self.revision.0 + 1),
            changes,
        };
        rows::log(self.database, &update)?;
        self.revision = update.revision;
        self.updates.push(update);
        Ok(())
    }

    fn is_live(&self, lease: LeaseId) -> bool {
        self.leases.is_live(lease) && !self.ended.contains(&lease)
    }

    /// Each lease that is named is live, and has room for its new keys.
    fn check_leases(&self, steps: &[Step]) -> Result<(), Fault> {
        let mut named: BTreeMap<LeaseId, usize> = BTreeMap::new();
        for step in steps {
            if let Then::Put {
                lease: Some(lease), ..
            } = step.then
            {
                let before = rows::entry(self.database, &step.key)?.and_then(|e| e.lease);
                *named.entry(lease).or_default() += usize::from(before != Some(lease));
            }
        }
        for (lease, new) in named {
            if !self.is_live(lease) {
                return Err(Fault::Refused(Error::NoLease(lease)));
            }
            if new > 0 && rows::count_of(self.database, lease)? + new > MAX_LEASE_KEYS {
                return Err(Fault::Refused(Error::LeaseFull(lease)));
            }
        }
        Ok(())
    }
}
