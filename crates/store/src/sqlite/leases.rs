//! Who has until when. Deadlines are in memory alone, so keeping a lease alive writes nothing; a store that was closed
//! gives each its whole time again. It deletes nothing itself.

use crate::LeaseId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The leases of an open store.
#[derive(Debug, Default)]
pub struct Leases {
    live: HashMap<LeaseId, Lease>,
    deadlines: BTreeSet<(Duration, LeaseId)>,
    /// Past their time, with keys that are not deleted yet.
    ended: BTreeSet<LeaseId>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl: Duration,
    until: Duration,
}

impl Leases {
    /// A lease's time begins.
    pub fn begin(&mut self, lease: LeaseId, ttl: Duration, now: Duration) {
        let until = now.saturating_add(ttl);
        self.live.insert(lease, Lease { ttl, until });
        self.deadlines.insert((until, lease));
    }

    /// It begins anew; `false` when it has ended.
    pub fn keep_alive(&mut self, lease: LeaseId, now: Duration) -> bool {
        let Some(found) = self.live.get_mut(&lease) else {
            return false;
        };
        self.deadlines.remove(&(found.until, lease));
        found.until = now.saturating_add(found.ttl);
        self.deadlines.insert((found.until, lease));
        true
    }

    /// Whether it has not ended.
    pub fn is_live(&self, lease: LeaseId) -> bool {
        self.live.contains_key(&lease)
    }

    /// Those whose time is over are so from now on.
    pub fn pass(&mut self, now: Duration) {
        while let Some(&(until, lease)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            self.live.remove(&lease);
            self.ended.insert(lease);
        }
    }

    /// Those that have ended and are to be deleted, at most `most` of them.
    pub fn ended(&self, most: usize) -> impl Iterator<Item = LeaseId> {
        self.ended.iter().copied().take(most)
    }

    /// It and its keys are deleted.
    pub fn deleted(&mut self, lease: LeaseId) {
        self.ended.remove(&lease);
        if let Some(found) = self.live.remove(&lease) {
            self.deadlines.remove(&(found.until, lease));
        }
    }

    /// When the next one ends.
    pub fn next(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.live.len() + self.ended.len()
    }
}
