//! Whole recordings go from the directory to the object store, those that came first before the others; and what was removed
//! goes from there. A file is removed when the store has the recording, and the catalogue says so.
//!
//! One that fails is tried again later, and the next one has its turn. Two that fail one after the other are the store's
//! fault: then all wait, longer each time, and it begins with the oldest again.

use crate::Archive;
use crate::catalogue::Row;
use crate::counts::add;
use crate::entry::{Key, Place};
use crate::error::Error;
use crate::keeper::Work;
use crate::objects::Objects;
use crate::trouble;
use fleetgate_net::backoff::{Backoff, random};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Recordings that are looked for at once.
const MOST: usize = 64;
/// It is looked so often even if nothing says that there is something.
const LOOK: Duration = Duration::from_secs(60);
/// How long the store is left alone after a failure.
const STORE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// The same of one recording.
const RECORDING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3600));
/// The most recordings that wait for themselves alone; more of them are the store's fault.
const MAX_POSTPONED: usize = 1024;

/// Recordings that the store did not take, while it took others.
type Postponed = HashMap<Key, (Backoff, Instant)>;

impl Archive {
    /// Moves recordings for as long as this runs; at once over, where there is no store.
    pub async fn move_to_store(&self) {
        let Some(objects) = self.0.objects.clone() else {
            return std::future::pending().await;
        };
        let (mut store, mut postponed) = (STORE, Postponed::new());
        loop {
            let done = self.move_some(&objects, &mut postponed).await;
            let wait = match done {
                Ok(0) => LOOK,
                Ok(_) => {
                    store.worked();
                    trouble::clear(self.directory());
                    continue;
                }
                Err(why) => {
                    trouble::note(self.directory(), &why);
                    let wait = store.failed(random());
                    tracing::error!(
                        "{why}: recordings stay in the directory; tried again in {} s",
                        wait.as_secs().max(1)
                    );
                    // Whatever comes in meanwhile changes nothing about the store.
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            let due = postponed.values().map(|(_, due)| *due).min();
            let until = due.map_or(wait, |due| {
                due.saturating_duration_since(Instant::now()).min(wait)
            });
            let _ = tokio::time::timeout(until, self.0.has_whole.notified()).await;
        }
    }

    /// How many were moved or removed; an error: the store's.
    async fn move_some(&self, objects: &Objects, postponed: &mut Postponed) -> Result<usize, Error> {
        let mut done = 0;
        for row in self.catalogue(|c| c.to_unlink(Place::Objects, MOST)).await? {
            objects.remove(&row.entry).await?;
            self.changed(row, |row| row.is_gone = true).await?;
            done += 1;
        }
        let most = MOST + postponed.len();
        let rows = self.catalogue(move |c| c.to_move(most)).await?;
        // Those that were removed meanwhile wait for nothing.
        postponed.retain(|key, _| rows.iter().any(|row| row.entry.key() == *key));
        let mut last: Option<Key> = None;
        for row in rows {
            let key = row.entry.key();
            let now = Instant::now();
            if postponed.get(&key).is_some_and(|(_, due)| *due > now) {
                continue;
            }
            match objects.put(&self.0.settings.directory, &row.entry).await {
                Ok(()) => {
                    postponed.remove(&key);
                    trouble::clear(self.directory());
                    self.changed(row, |row| row.entry.place = Place::Objects).await?;
                    last = None;
                    done += 1;
                }
                Err(why) => {
                    add(&self.0.counts.store_failures, 1);
                    // Whether it is the store's fault, the next one shows. A file that is gone or cut is this machine's.
                    let is_of_store = matches!(why, Error::Store(_));
                    if is_of_store {
                        trouble::note(self.directory(), &why);
                    }
                    if let Some(before) = last.take_if(|_| is_of_store) {
                        postponed.remove(&before);
                        return Err(why);
                    }
                    if is_of_store && postponed.len() >= MAX_POSTPONED {
                        return Err(why);
                    }
                    tracing::warn!("the recording {}: {why}: it is tried again later", row.entry.id());
                    let (backoff, due) = postponed.entry(key.clone()).or_insert((RECORDING, now));
                    *due = now + backoff.failed(random());
                    last = is_of_store.then_some(key).or(last);
                }
            }
        }
        Ok(done)
    }

    /// Writes down what became of a recording, unless it has changed otherwise.
    async fn changed(&self, row: Row, change: impl FnOnce(&mut Row)) -> Result<(), Error> {
        let mut after = row;
        let was = after.entry.place;
        change(&mut after);
        let (key, now_at, is_gone) = (after.entry.key(), after.entry.place, after.is_gone);
        self.ask(|answer| Work::Moved {
            key,
            was,
            now_at,
            is_gone,
            answer,
        })
        .await?
    }
}
