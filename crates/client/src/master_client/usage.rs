//! How much a connection of the master is used, and until when it is kept.

use super::ALWAYS;
use fleetgate_wire::master::ConnectionStatus;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much a connection is used.
#[derive(Debug)]
pub(crate) struct Usage {
    uses: Cell<u32>,
    /// Since when nobody uses it.
    idle_since: Cell<Instant>,
    made: Instant,
    /// For how long it is kept without a use.
    keep: Cell<Duration>,
    /// Hears of the end of each use.
    changed: Rc<Notify>,
}

/// One use, until it is dropped.
pub(crate) struct Use(Rc<Usage>);

impl Usage {
    pub(crate) fn new(keep: Duration, changed: &Rc<Notify>) -> Rc<Usage> {
        let now = Instant::now();
        Rc::new(Usage {
            uses: Cell::new(0),
            idle_since: Cell::new(now),
            made: now,
            keep: Cell::new(keep),
            changed: changed.clone(),
        })
    }

    pub(crate) fn begin(self: &Rc<Usage>, keep: Duration) -> Use {
        self.uses.set(self.uses.get() + 1);
        // A user in between does not end what is wanted for always.
        if !self.is_for_always() {
            self.keep.set(keep);
        }
        Use(self.clone())
    }

    /// How many use it.
    pub(crate) fn uses(&self) -> u32 {
        self.uses.get()
    }

    /// For how long it is kept without a use.
    pub(crate) fn keep(&self) -> Duration {
        self.keep.get()
    }

    /// Whoever waits for changes looks again.
    pub(crate) fn tell_change(&self) {
        self.changed.notify_one();
    }

    /// Whether it is kept for as long as the login lasts.
    pub(crate) fn is_for_always(&self) -> bool {
        self.keep.get() == ALWAYS
    }

    /// Until when it is kept, if nobody uses it. None: for longer than anybody waits.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        (self.uses.get() == 0 && !self.is_for_always()).then(|| self.idle_since.get() + self.keep.get())
    }

    pub(crate) fn status(&self, name: String) -> ConnectionStatus {
        let idle = match self.uses.get() {
            0 => self.idle_since.get().elapsed().as_secs(),
            _ => 0,
        };
        ConnectionStatus {
            name: name.into_bytes(),
            uses: self.uses.get(),
            age: self.made.elapsed().as_secs(),
            idle,
            keep: u32::try_from(self.keep.get().as_secs()).unwrap_or(u32::MAX),
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.set(self.0.uses.get().saturating_sub(1));
        self.0.idle_since.set(Instant::now());
        self.0.changed.notify_one();
    }
}
