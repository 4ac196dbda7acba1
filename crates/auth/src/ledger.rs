//! Changing the state: a change is planned on the copy in memory, done by the store in one transaction if nothing of what
//! it was planned on has changed, together with the audit event that tells of it, and answered when the copy has it too.
//! What a change means is its owner's business.

use crate::audit::{Batch, Event, Line, Log, event};
use crate::cache::{self, StateCache, Stored};
use crate::clock::Clock;
use crate::documents::{Document, Serial};
use crate::error::{Refused, Result};
use crate::metrics::Counts;
use crate::secret::fresh_id;
use fleetgate_store::{
    Error as StoreError, Key, MAX_PAGE, Outcome, Prefix, Range, Revision, Step, Store, Update, Watch, all,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::sync::watch;

/// How often a change is planned anew because others came first.
const TRIES: usize = 16;
/// The most events that wait for the audit log; more, and nothing is changed until it can be written again.
pub const MAX_OUTBOX: usize = 10_000;
/// How many of them go into one transaction of the audit log.
const TOGETHER: usize = 64;
/// How long the outbox waits when the audit log could not be written, and the copy when the store could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// The state, as the service changes it.
#[derive(Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
    cache: Arc<RwLock<StateCache>>,
    seen: watch::Receiver<Revision>,
    clock: Arc<dyn Clock>,
    audit: Log,
    events: Arc<AtomicU64>,
    counts: Arc<Counts>,
}

/// What keeps the copy up to date; it runs beside the service.
pub struct Follower {
    store: Arc<dyn Store>,
    cache: Arc<RwLock<StateCache>>,
    seen: watch::Sender<Revision>,
    watch: Watch,
}

/// A change that was planned.
pub struct Plan<T> {
    steps: Vec<Step>,
    events: Vec<Event>,
    pub(crate) answer: T,
}

impl<T> Plan<T> {
    /// Nothing yet, and what is answered when it is done.
    pub fn new(answer: T) -> Plan<T> {
        Plan {
            steps: Vec::new(),
            events: Vec::new(),
            answer,
        }
    }

    /// A step more.
    pub fn step(mut self, step: Step) -> Plan<T> {
        self.steps.push(step);
        self
    }

    /// Steps more.
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Plan<T> {
        self.steps.extend(steps);
        self
    }

    /// What the audit log says about it.
    pub fn event(mut self, event: Event) -> Plan<T> {
        self.events.push(event);
        self
    }

    /// It changes the signed state: the state's number grows, and of two such changes at once the second is planned anew.
    pub fn publish(self, cache: &StateCache, now_ms: u64) -> Plan<T> {
        let stored = cache.serial.as_ref();
        let serial = Serial {
            serial: cache.next_serial(now_ms),
        };
        self.step(cache::replace(
            cache::key(&["serial"]),
            stored.map(|s| s.revision),
            &serial,
        ))
    }
}

impl Ledger {
    /// Reads the store.
    pub async fn open(
        store: Arc<dyn Store>,
        audit: Log,
        clock: Arc<dyn Clock>,
    ) -> Result<(Ledger, Follower)> {
        let (cache, watch) = load(&*store).await?;
        let (told, seen) = watch::channel(cache.revision);
        let cache = Arc::new(RwLock::new(cache));
        let follower = Follower {
            store: store.clone(),
            cache: cache.clone(),
            seen: told,
            watch,
        };
        let ledger = Ledger {
            store,
            cache,
            seen,
            clock,
            audit,
            events: Arc::new(AtomicU64::new(0)),
            counts: Arc::default(),
        };
        Ok((ledger, follower))
    }

    /// The copy. Not to be held while waiting for anything.
    pub fn cache(&self) -> RwLockReadGuard<'_, StateCache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a test believe that the store holds something else.
    #[cfg(test)]
    pub fn pretend(&self, change: impl FnOnce(&mut StateCache)) {
        change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The audit log.
    pub fn audit(&self) -> &Log {
        &self.audit
    }

    /// What happened, counted.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether the store answers.
    pub(crate) async fn probe(&self) -> Result<()> {
        let first = Range::prefix(&Prefix::everything()).limit(1);
        self.store.range(first).await?;
        Ok(())
    }

    /// The time, in seconds.
    pub fn now(&self) -> u64 {
        self.clock.seconds()
    }

    /// The time, in milliseconds.
    pub fn millis(&self) -> u64 {
        self.clock.millis()
    }

    /// Milliseconds since boot, for spans that nobody lengthens by setting the clock.
    pub fn uptime(&self) -> u64 {
        self.clock.uptime()
    }

    /// Every revision that the copy reaches.
    pub fn seen(&self) -> watch::Receiver<Revision> {
        self.seen.clone()
    }

    /// A document that is not in the copy.
    pub async fn secret<T: Document>(&self, key: &Key) -> Result<Option<Stored<T>>> {
        let Some(entry) = self.store.get(key).await? else {
            return Ok(None);
        };
        let document = T::read(&entry.value).map_err(|_| {
            Refused::unavailable(format!(
                "what the store holds at {key} cannot be read; restore a backup"
            ))
        })?;
        Ok(Some(Stored {
            revision: entry.revision,
            document,
        }))
    }

    /// Plans a change and does it, again when something that it was planned on has changed.
    pub async fn change<T>(&self, mut plan: impl FnMut(&StateCache) -> Result<Plan<T>>) -> Result<T> {
        for _ in 0..TRIES {
            let planned = {
                let cache = self.cache();
                if cache.outbox.len() >= MAX_OUTBOX {
                    return Err(Refused::unavailable(format!(
                        "{MAX_OUTBOX} events wait for the audit log {}, which cannot be written: nothing is changed \
                         until it can; see the log of the service",
                        self.audit.path().display()
                    )));
                }
                plan(&cache)?
            };
            match self.commit(planned.steps, planned.events).await? {
                Outcome::Done(revision) => {
                    self.reach(revision).await?;
                    return Ok(planned.answer);
                }
                Outcome::Conflict(_) => self.catch_up().await?,
            }
        }
        Err(Refused::busy(
            "others change the same thing all the time; try again",
        ))
    }

    /// Does steps that depend on what was read outside of the copy; false: something had changed, nothing was done.
    pub async fn attempt(&self, steps: Vec<Step>, events: Vec<Event>) -> Result<bool> {
        match self.commit(steps, events).await? {
            Outcome::Done(revision) => {
                self.reach(revision).await?;
                Ok(true)
            }
            Outcome::Conflict(_) => {
                self.catch_up().await?;
                Ok(false)
            }
        }
    }

    /// Puts an event into the audit log that goes with no change.
    pub async fn tell(&self, event: Event) -> Result<()> {
        let name = event.name();
        let line = line(event, Some(fresh_id()?), self.clock.millis());
        let batch = Batch {
            source: "auth".to_string(),
            log: String::new(),
            offset: 0,
            lines: vec![line],
        };
        self.audit.write(batch).await?;
        self.counts.event(name);
        Ok(())
    }

    async fn commit(&self, mut steps: Vec<Step>, events: Vec<Event>) -> Result<Outcome> {
        let now = self.clock.millis();
        let names: Vec<&str> = events.iter().map(Event::name).collect();
        for event in events {
            // In the order in which they happened, also those of one millisecond.
            let number = self.events.fetch_add(1, Ordering::Relaxed);
            let id = format!("{now:015}-{number:010}-{}", fresh_id()?);
            let line = line(event, Some(id.clone()), now);
            let stored = serde_json::to_vec(&Stowed::from(&line)).unwrap_or_default();
            steps.push(cache::create(cache::key(&["outbox", &id]), &stored));
        }
        let outcome = self.store.transact(steps).await?;
        if matches!(outcome, Outcome::Done(_)) {
            names.into_iter().for_each(|name| self.counts.event(name));
        }
        Ok(outcome)
    }

    /// Until the copy has this revision.
    async fn reach(&self, revision: Revision) -> Result<()> {
        let mut seen = self.seen.clone();
        let reached = seen.wait_for(|at| *at >= revision).await;
        reached.map(drop).map_err(|_| StoreError::Closed.into())
    }

    /// Until the copy has what the store has now.
    async fn catch_up(&self) -> Result<()> {
        let page = self
            .store
            .range(Range::prefix(&Prefix::everything()).limit(1))
            .await?;
        self.reach(page.revision).await
    }

    /// Moves events into the audit log, for as long as there is one; runs beside the service.
    pub async fn post(&self) {
        let mut seen = self.seen.clone();
        loop {
            match self.post_once().await {
                Ok(true) => continue,
                Ok(false) => {
                    if seen.changed().await.is_err() {
                        return;
                    }
                }
                Err(refused) => {
                    tracing::error!("events wait for the audit log: {refused}");
                    tokio::time::sleep(AGAIN).await;
                    if seen.has_changed().is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Moves some; false: there are none.
    pub async fn post_once(&self) -> Result<bool> {
        let waiting: Vec<(String, Revision, Vec<u8>)> = {
            let cache = self.cache();
            let first = cache.outbox.iter().take(TOGETHER);
            first
                .map(|(id, stored)| (id.clone(), stored.revision, stored.document.clone()))
                .collect()
        };
        if waiting.is_empty() {
            return Ok(false);
        }
        let lines = waiting.iter().map(|(id, _, stowed)| unstow(id, stowed));
        let batch = Batch {
            source: "auth".to_string(),
            log: String::new(),
            offset: 0,
            lines: lines.collect(),
        };
        self.audit.write(batch).await?;
        let steps = waiting
            .iter()
            .map(|(id, _, _)| Step::delete(cache::key(&["outbox", id])))
            .collect();
        if let Outcome::Done(revision) = self.store.transact(steps).await? {
            self.reach(revision).await?;
        }
        Ok(true)
    }
}

impl Follower {
    /// Keeps the copy up to date until the store is closed.
    pub async fn run(mut self) {
        while let Some(update) = self.next().await {
            self.take(&update);
        }
    }

    /// The next update. None: the store is closed.
    async fn next(&mut self) -> Option<Update> {
        loop {
            match self.watch.next().await {
                Ok(update) => return Some(update),
                Err(StoreError::Closed) => return None,
                // It fell behind: after an error a watch has no more updates.
                Err(_) => self.reload().await?,
            }
        }
    }

    /// Reads the store anew, as often as that takes. None: it is closed.
    async fn reload(&mut self) -> Option<()> {
        loop {
            match load(&*self.store).await {
                Ok((cache, watch)) => {
                    let revision = cache.revision;
                    *self.cache.write().unwrap_or_else(PoisonError::into_inner) = cache;
                    self.watch = watch;
                    self.seen.send_replace(revision);
                    return Some(());
                }
                Err(refused) if refused == StoreError::Closed.into() => return None,
                Err(refused) => {
                    tracing::error!("the store cannot be read again: {refused}");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn take(&self, update: &Update) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = cache.apply(update) {
            tracing::error!("{why}");
        }
        drop(cache);
        self.seen.send_replace(update.revision);
    }
}

async fn load(store: &dyn Store) -> Result<(StateCache, Watch)> {
    let everything = Prefix::everything();
    let (entries, revision) = all(store, &everything).await?;
    let watch = store.watch(everything, revision).await?;
    let cache = StateCache::read(&entries, revision).map_err(Refused::unavailable)?;
    const { assert!(TOGETHER <= MAX_PAGE) };
    Ok((cache, watch))
}

/// An audit line as the outbox holds it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Stowed {
    time: u64,
    event: String,
    user: Option<String>,
    node: Option<String>,
    text: String,
}

impl From<&Line> for Stowed {
    fn from(line: &Line) -> Stowed {
        Stowed {
            time: line.time,
            event: line.event.clone(),
            user: line.user.clone(),
            node: line.node.clone(),
            text: line.text.clone(),
        }
    }
}

fn unstow(id: &str, bytes: &[u8]) -> Line {
    let stowed = serde_json::from_slice(bytes).unwrap_or_else(|_| Stowed {
        time: 0,
        event: "unreadable".to_string(),
        user: None,
        node: None,
        text: Event::new(event::UNREADABLE, 0).with("origin", id).line(),
    });
    Line {
        end: 0,
        origin: Some(id.to_string()),
        time: stowed.time,
        event: stowed.event,
        of: None,
        user: stowed.user,
        node: stowed.node,
        text: stowed.text,
    }
}

fn line(event: Event, origin: Option<String>, now: u64) -> Line {
    let (name, user, node) = event.about();
    Line {
        end: 0,
        origin,
        time: now,
        event: name,
        of: None,
        user,
        node,
        text: event.line(),
    }
}
