//! What is done together: the rows that change, the files that were written, and how all of it becomes lasting.

use super::Keeper;
use crate::catalogue::{Row, Sums};
use crate::directory;
use crate::entry::{Entry, Key, Place};
use crate::error::Error;
use fleetgate_sys::Fd;
use fleetgate_sys::file::sync_data;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use tokio::sync::oneshot;

/// Who waits for something that is done or fails.
pub type Waiting = oneshot::Sender<Result<(), Error>>;

/// A batch.
#[derive(Default)]
pub struct Batch {
    changed: HashMap<Key, Row>,
    /// Files that were written.
    pub files: HashMap<Key, Fd>,
    /// Directories of days in which a file was made.
    pub days: BTreeSet<PathBuf>,
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
    pub fn row(&self, key: &Key) -> Option<&Row> {
        self.changed.get(key)
    }

    /// Whether a row of this session changes, of any machine's recording.
    pub fn has_session(&self, session: &[u8; 16]) -> bool {
        self.changed.keys().any(|key| key.session == *session)
    }

    /// The row becomes this.
    pub fn change(&mut self, row: Row) {
        self.changed.insert(row.entry.key(), row);
    }
}

impl Keeper {
    /// Makes all of it lasting. What could not be is named, with the reason; nothing of that counts as kept.
    pub(super) fn commit(&mut self, batch: &mut Batch) -> HashMap<Key, String> {
        let mut failed = HashMap::new();
        for (key, file) in std::mem::take(&mut batch.files) {
            if let Err(e) = sync_data(&file) {
                failed.insert(key, format!("auth's disk: {e}"));
            }
        }
        for day in &batch.days {
            if let Err(e) = directory::sync(day) {
                let lies_there = |row: &&Row| directory::day(&self.settings.directory, &row.entry) == *day;
                let of_day = batch.changed.values().filter(lies_there);
                failed.extend(of_day.map(|row| (row.entry.key(), e.to_string())));
            }
        }
        batch.changed.retain(|key, _| !failed.contains_key(key));
        if !batch.changed.is_empty() {
            let before: Result<Vec<Option<Row>>, Error> =
                batch.changed.keys().map(|key| self.catalogue.row(key)).collect();
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
                    failed.extend(batch.changed.keys().map(|key| (key.clone(), e.to_string())));
                }
            }
        }
        // What these streams have in memory goes on behind what is not kept: they begin again at what is.
        for key in failed.keys() {
            self.streams.values_mut().for_each(|stream| stream.close(key));
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
