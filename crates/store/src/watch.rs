//! A watch: updates in order, bounded, and its end said aloud. It never skips one.

use crate::{Error, MAX_WAITING_UPDATE_BYTES, MAX_WAITING_UPDATES, Prefix, Revision, Update};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Changes under a prefix as they happen.
#[derive(Debug)]
pub struct Watch {
    updates: mpsc::Receiver<Update>,
    shared: Arc<Shared>,
    seen: Revision,
}

/// The store's end of a [`Watch`].
#[derive(Debug)]
pub struct Feed {
    updates: mpsc::Sender<Update>,
    shared: Arc<Shared>,
    prefix: Prefix,
}

#[derive(Debug, Default)]
struct Shared {
    /// The bytes that wait.
    waiting: AtomicUsize,
    /// The feed ended because there was no room.
    behind: AtomicBool,
}

impl Watch {
    /// A watch on `prefix` that begins after `after`, and what feeds it.
    pub fn new(prefix: Prefix, after: Revision) -> (Feed, Watch) {
        let (sender, updates) = mpsc::channel(MAX_WAITING_UPDATES);
        let shared = Arc::new(Shared::default());
        let feed = Feed {
            updates: sender,
            shared: shared.clone(),
            prefix,
        };
        let watch = Watch {
            updates,
            shared,
            seen: after,
        };
        (feed, watch)
    }

    /// The next update. [`Error::Compacted`]: more happened than was waited for, read the range again;
    /// [`Error::Closed`]: the store is. After an error there is never another update. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Update, Error> {
        match self.updates.recv().await {
            Some(update) => {
                self.shared.waiting.fetch_sub(update.bytes(), Ordering::AcqRel);
                self.seen = update.revision;
                Ok(update)
            }
            None if self.shared.behind.load(Ordering::Acquire) => Err(Error::Compacted(self.seen)),
            None => Err(Error::Closed),
        }
    }

    /// The revision of the last update that [`Watch::next`] gave, or the one that it began after.
    pub fn seen(&self) -> Revision {
        self.seen
    }
}

impl Feed {
    /// Passes on what of `update` is under the watch's prefix. `false`: nobody watches any more, or the watch has fallen
    /// behind and was told; the feed is of no more use. Updates come in the order of their revisions.
    pub fn send(&self, update: &Update) -> bool {
        let Some(part) = update.under(&self.prefix) else {
            return !self.updates.is_closed();
        };
        let bytes = part.bytes();
        let before = self.shared.waiting.fetch_add(bytes, Ordering::AcqRel);
        // One update always fits, however large.
        let fits = before == 0 || before + bytes <= MAX_WAITING_UPDATE_BYTES;
        if fits && self.updates.try_send(part).is_ok() {
            return true;
        }
        // Before the sender is dropped, by which the watch sees its end.
        self.shared.behind.store(true, Ordering::Release);
        false
    }

    /// Whether nobody watches any more.
    pub fn is_closed(&self) -> bool {
        self.updates.is_closed()
    }
}
