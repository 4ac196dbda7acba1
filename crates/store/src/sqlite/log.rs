//! How much of the changes log is kept, and what is to be forgotten. The log itself is rows of the database.

use super::{KEPT_BYTES, rows};
use crate::{Revision, Update};
use rusqlite::Connection;
use std::collections::VecDeque;

/// The sizes of what the log holds, oldest first.
#[derive(Debug)]
pub struct Log {
    kept: VecDeque<(Revision, usize)>,
    bytes: usize,
    /// The most revisions.
    most: usize,
}

impl Log {
    /// What the database's log holds.
    pub fn load(database: &Connection, most: usize) -> rusqlite::Result<Log> {
        let kept: VecDeque<_> = rows::logged(database)?.into();
        let bytes = kept.iter().map(|(_, bytes)| bytes).sum();
        Ok(Log { kept, bytes, most })
    }

    /// The last revision that must go when `new` comes; `None` when all can stay.
    pub fn too_old(&self, new: &[Update]) -> Option<Revision> {
        let mut count = self.kept.len() + new.len();
        let mut bytes = self.bytes + new.iter().map(Update::bytes).sum::<usize>();
        let new = new.iter().map(|u| (u.revision, u.bytes()));
        let mut last = None;
        for (revision, size) in self.kept.iter().copied().chain(new) {
            if count <= self.most && bytes <= KEPT_BYTES {
                break;
            }
            count -= 1;
            bytes -= size;
            last = Some(revision);
        }
        last
    }

    /// That was committed.
    pub fn committed(&mut self, new: &[Update], too_old: Option<Revision>) {
        for update in new {
            self.bytes += update.bytes();
            self.kept.push_back((update.revision, update.bytes()));
        }
        while let Some(&(revision, bytes)) = self.kept.front()
            && Some(revision) <= too_old
        {
            self.kept.pop_front();
            self.bytes -= bytes;
        }
    }
}
