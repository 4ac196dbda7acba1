//! What is done together: the rows that change, the files that were written, and how all of it becomes lasting.

use super::Keeper;
use crate::catalogue::{Row, Sums};
use crate::directory;
use crate::entry::{Entry, Place};
use crate::error::Error;
use fleetgate_sys::Fd;
use fleetgate_sys::file::sync_data;
use std::collections::{BTreeSet, HashMap};
use tokio::sync::oneshot;

/// Who waits for something that is done or fails.
pub type Waiting = oneshot::Sender<Result<(), Error>>;

/// A batch.
#[derive(Default)]
pub struct Batch {
    changed: HashMap<[u8; 16], Row>,
    /// Files that were written.
    pub files: HashMap<[u8; 16], Fd>,
    /// Days in which a file was made.
    pub days: BTreeSet<String>,
    /// Those whose bytes are in the object store by now: their files go.
    pub moved: Vec<Entry>,
    /// Who waits for a removal, and how far it came.
    pub removals: Vec<(Result<(), Error>, Waiting)>,
}

impl Batch {
    /// How many rows change.
    pub fn len(&self) -> usize {
        self.changed.len()
    }

    /// A row as this batch leaves it.
    pub fn row(&self, session: &[u8; 16]) -> Option<&Row> {
        self.changed.get(session)
    }

    /// The row becomes this.
    pub fn change(&mut self, row: Row) {
        self.changed.insert(row.entry.session, row);
    }
}

impl Keeper {
    /// Makes all of it lasting. What could not be is named, with the reason; nothing of that counts as kept.
    pub(super) fn commit(&mut self, batch: &mut Batch) -> HashMap<[u8; 16], String> {
        let mut failed = HashMap::new();
        for (session, file) in std::mem::take(&mut batch.files) {
            if let Err(e) = sync_data(&file) {
                failed.insert(session, format!("auth's disk: {e}"));
            }
        }
        for day in &batch.days {
            if let Err(e) = directory::sync(&self.settings.directory.join(day)) {
                let of_day = batch.changed.values().filter(|row| row.entry.day == *day);
                failed.extend(of_day.map(|row| (row.entry.session, e.to_string())));
            }
        }
        batch.changed.retain(|session, _| !failed.contains_key(session));
        if !batch.changed.is_empty() {
            let before: Result<Vec<Option<Row>>, Error> = batch
                .changed
                .keys()
                .map(|session| self.catalogue.row(session))
                .collect();
            let written = before.and_then(|before| {
                self.catalogue.write(batch.changed.values())?;
                Ok(before)
            });
            match written {
                Ok(before) => {
                    before.iter().flatten().for_each(|row| self.sums.take(row));
                    batch.changed.values().for_each(|row| self.sums.put(row));
                    let moves = |row: &Row| row.entry.whole || row.removed > 0;
                    if batch.changed.values().any(moves) {
                        self.has_whole.notify_one();
                    }
                }
                Err(e) => {
                    tracing::error!("{e}");
                    failed.extend(batch.changed.keys().map(|session| (*session, e.to_string())));
                }
            }
        }
        // What these streams have in memory goes on behind what is not kept: they begin again at what is.
        for session in failed.keys() {
            self.streams.values_mut().for_each(|stream| stream.close(session));
        }
        failed
    }
}

impl Sums {
    fn put(&mut self, row: &Row) {
        self.change(row, u64::saturating_add);
    }

    fn take(&mut self, row: &Row) {
        self.change(row, u64::saturating_sub);
    }

    fn change(&mut self, row: &Row, by: impl Fn(u64, u64) -> u64) {
        if row.removed > 0 {
            return;
        }
        let (bytes, whole) = (row.entry.bytes, row.entry.whole);
        self.recordings = by(self.recordings, 1);
        self.bytes = by(self.bytes, bytes);
        self.unfinished = by(self.unfinished, u64::from(!whole));
        if whole && row.entry.place == Place::Directory {
            self.in_directory = by(self.in_directory, 1);
            self.in_directory_bytes = by(self.in_directory_bytes, bytes);
        }
    }
}
