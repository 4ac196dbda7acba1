//! How far a sink is: written by its task, read by the page of metrics. It waits for nobody.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// How far a sink is.
#[derive(Debug)]
pub struct Progress {
    name: String,
    kind: &'static str,
    acknowledged: AtomicI64,
    oldest: AtomicU64,
    events: AtomicU64,
    failures: AtomicU64,
    rejected: AtomicU64,
}

impl Progress {
    pub(crate) fn new(name: &str, kind: &'static str) -> Progress {
        Progress {
            name: name.to_owned(),
            kind,
            acknowledged: AtomicI64::new(0),
            oldest: AtomicU64::new(0),
            events: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }
    }

    /// The sink's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its events go out.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The number of the last event that its receiver has.
    #[must_use]
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged.load(Relaxed)
    }

    /// When the oldest event happened that it has not, in milliseconds since 1970; None: it has all.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        Some(self.oldest.load(Relaxed)).filter(|oldest| *oldest > 0)
    }

    /// Events that its receiver has acknowledged, since this process began. Those that went twice count twice.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// Batches that did not get there.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Events that the receiver took and threw away, by its own word.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }

    pub(crate) fn begin(&self, at: i64) {
        self.acknowledged.store(at, Relaxed);
    }

    pub(crate) fn waiting_since(&self, oldest: Option<u64>) {
        self.oldest.store(oldest.unwrap_or(0), Relaxed);
    }

    pub(crate) fn taken(&self, until: i64, count: u64) {
        self.acknowledged.store(until, Relaxed);
        self.events.fetch_add(count, Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn threw_away(&self, count: u64) {
        self.rejected.fetch_add(count, Relaxed);
    }
}
