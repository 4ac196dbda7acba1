//! The thread that owns the connection which writes. What waits together is committed together, and each is answered
//! after that. It never answers for what is not durable, and never waits for who asks or watches.

use super::connect::Connected;
use super::leases::Leases;
use super::log::Log;
use super::reader::{Desk, locked};
use super::rows::{self, State};
use super::work::{Done, Fault, Group, To, Work};
use super::{MAX_GROUP, connect, fault};
use crate::{Clock, Error, Feed, LeaseId, MAX_WATCHES, Prefix, Revision, Watch};
use rusqlite::TransactionBehavior;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// When the deletion of ended leases is tried again after it failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How many ended leases one group deletes.
const MAX_EXPIRED: usize = 256;

/// What is asked of the writer.
#[derive(Debug)]
pub enum Ask {
    /// A change; its size counts against what may wait.
    Work(Work, usize, To<Done>),
    /// A lease's time begins anew.
    KeepAlive(LeaseId, To<()>),
    /// Updates under a prefix after a revision.
    Watch(Prefix, Revision, To<Watch>),
}

/// The thread's state.
pub struct Writer {
    path: PathBuf,
    /// `None` after the file could not be opened anew.
    connected: Option<Connected>,
    /// The readers' connections.
    desks: Vec<Desk>,
    clock: Arc<dyn Clock>,
    asks: Receiver<Ask>,
    /// The bytes of changes that wait.
    waiting: Arc<AtomicUsize>,
    state: State,
    log: Log,
    leases: Leases,
    feeds: Vec<Feed>,
    /// What the disk said last, if it was no.
    trouble: Option<Error>,
}

/// One change, and who waits for it: nobody, for a lease that ended by itself.
struct Job {
    work: Work,
    to: Option<To<Done>>,
}

impl Writer {
    /// Takes over a database whose tables are of this version.
    pub fn new(
        path: PathBuf,
        connected: Connected,
        desks: Vec<Desk>,
        clock: Arc<dyn Clock>,
        asks: Receiver<Ask>,
        waiting: Arc<AtomicUsize>,
        keep: usize,
    ) -> rusqlite::Result<Writer> {
        let database = &connected.database;
        let state = rows::state(database)?;
        let log = Log::load(database, keep)?;
        let mut leases = Leases::default();
        let now = clock.now();
        for (lease, seconds) in rows::leases(database)? {
            leases.begin(lease, Duration::from_secs(seconds), now);
        }
        Ok(Writer {
            path,
            connected: Some(connected),
            desks,
            clock,
            asks,
            waiting,
            state,
            log,
            leases,
            feeds: Vec::new(),
            trouble: None,
        })
    }

    /// Serves until nobody can ask any more.
    pub fn run(mut self) {
        while let Some(first) = self.wait() {
            self.leases.pass(self.clock.now());
            // While nothing can be written one is enough to find out whether it can again.
            let most = if self.trouble.is_some() { 1 } else { MAX_EXPIRED };
            let mut jobs: Vec<Job> = self.leases.ended(most).map(Job::expire).collect();
            let mut others = Vec::new();
            let more = std::iter::from_fn(|| self.asks.try_recv().ok());
            for ask in first.into_iter().chain(more).take(MAX_GROUP) {
                match ask {
                    Ask::Work(work, bytes, to) => {
                        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
                        jobs.push(Job { work, to: Some(to) });
                    }
                    other => others.push(other),
                }
            }
            self.commit(jobs);
            // After the commit: a watch that begins now reads from the log what was just written.
            for other in others {
                self.serve(other);
            }
        }
    }

    /// The next ask; `Some(None)` when a lease is over first; `None` at the end.
    fn wait(&self) -> Option<Option<Ask>> {
        let ended = self.leases.ended(1).next().is_some();
        let patience = match (ended, self.leases.next()) {
            (true, _) if self.trouble.is_some() => TRY_AGAIN,
            (true, _) => Duration::ZERO,
            (false, Some(until)) => until.saturating_sub(self.clock.now()),
            (false, None) => return self.asks.recv().ok().map(Some),
        };
        match self.asks.recv_timeout(patience) {
            Ok(ask) => Some(Some(ask)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Commits `jobs` together; when the database fails, each alone, so that one that cannot be written (too large for
    /// what room is left) is alone with its error.
    fn commit(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let error = match self.thaw().and_then(|()| self.attempt(&jobs)) {
            Ok(done) => {
                self.recovered();
                jobs.into_iter()
                    .zip(done)
                    .for_each(|(job, result)| job.answer(result));
                return;
            }
            Err(error) => error,
        };
        self.failed(&error);
        let alone = jobs.len() > 1;
        for job in jobs {
            let done = match alone {
                true => self.attempt(std::slice::from_ref(&job)),
                false => Err(error.clone()),
            };
            job.answer(done.and_then(|mut done| done.pop().unwrap_or(Err(Error::Closed))));
        }
    }

    /// One transaction. An error of the database leaves nothing of it, on disk or here.
    fn attempt(&mut self, jobs: &[Job]) -> Result<Vec<Result<Done, Error>>, Error> {
        let told = |e| fault::told(&self.path, &e);
        let connected = self.connected.as_mut().ok_or(Error::Closed)?;
        let work = connected
            .database
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(told)?;
        let mut group = Group {
            database: &work,
            leases: &self.leases,
            revision: self.state.revision,
            updates: Vec::new(),
            granted: Vec::new(),
            ended: Vec::new(),
        };
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            match group.perform(&job.work) {
                Ok(result) => done.push(Ok(result)),
                Err(Fault::Refused(error)) => done.push(Err(error)),
                Err(Fault::Database(error)) => return Err(told(error)),
            }
        }
        let Group {
            revision,
            updates,
            granted,
            ended,
            ..
        } = group;
        let too_old = self.log.too_old(&updates);
        let state = State {
            revision,
            compacted: too_old.unwrap_or(self.state.compacted),
        };
        if state != self.state {
            rows::set_state(&work, state).map_err(told)?;
        }
        if let Some(last) = too_old {
            rows::forget(&work, last).map_err(told)?;
        }
        work.commit().map_err(told)?;

        self.state = state;
        self.log.committed(&updates, too_old);
        let now = self.clock.now();
        for (lease, seconds) in granted {
            self.leases.begin(lease, Duration::from_secs(seconds), now);
        }
        for lease in ended {
            self.leases.deleted(lease);
        }
        for update in &updates {
            self.feeds.retain(|feed| feed.send(update));
        }
        Ok(done)
    }

    /// Opens a database anew that could not be written when it was opened; perhaps it can be by now. Nobody may have it
    /// open meanwhile: SQLite shares one index of the WAL in a process, and keeps it read-only as long as it is open.
    fn thaw(&mut self) -> Result<(), Error> {
        if let Some(connected) = &self.connected
            && connect::unwritable(&self.path, connected).is_none()
        {
            return Ok(());
        }
        let mut readers: Vec<_> = self.desks.iter().map(|desk| locked(desk)).collect();
        readers.iter_mut().for_each(|connected| **connected = None);
        self.connected = None;
        let told = |e| fault::told(&self.path, &e);
        let again = connect::open(&self.path).map_err(told)?;
        let unwritable = connect::unwritable(&self.path, &again);
        if unwritable.is_none() {
            connect::durable(&again.database).map_err(told)?;
        }
        self.connected = Some(again);
        unwritable.map_or(Ok(()), Err)
    }

    fn serve(&mut self, ask: Ask) {
        match ask {
            Ask::KeepAlive(lease, to) => {
                let kept = self.leases.keep_alive(lease, self.clock.now());
                let _ = to.send(kept.then_some(()).ok_or(Error::NoLease(lease)));
            }
            Ask::Watch(prefix, after, to) => {
                let watch = self.watch(prefix, after);
                // Whoever dropped the answer drops the watch, and its feed is found closed.
                let _ = to.send(watch);
            }
            Ask::Work(..) => {}
        }
    }

    fn watch(&mut self, prefix: Prefix, after: Revision) -> Result<Watch, Error> {
        self.feeds.retain(|feed| !feed.is_closed());
        if self.feeds.len() >= MAX_WATCHES {
            return Err(Error::Watches);
        }
        if after > self.state.revision {
            return Err(Error::Future {
                asked: after,
                now: self.state.revision,
            });
        }
        if after < self.state.compacted {
            return Err(Error::Compacted(after));
        }
        if self.connected.is_none() {
            self.thaw()?;
        }
        let connected = self.connected.as_ref().ok_or(Error::Closed)?;
        let (feed, watch) = Watch::new(prefix.clone(), after);
        let mut fits = true;
        rows::updates(&connected.database, &prefix, after, |update| {
            fits = feed.send(update);
            fits
        })
        .map_err(|e| fault::told(&self.path, &e))?;
        if !fits {
            return Err(Error::Compacted(after));
        }
        self.feeds.push(feed);
        Ok(watch)
    }

    fn failed(&mut self, error: &Error) {
        if self.trouble.as_ref() != Some(error) {
            // What is wrong with a file from the start is told by whoever opened it.
            if !matches!(error, Error::Foreign(_)) {
                tracing::error!("{error}");
            }
            self.trouble = Some(error.clone());
        }
    }

    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the store {} can be written again", self.path.display());
        }
    }
}

impl Job {
    fn expire(lease: LeaseId) -> Job {
        Job {
            work: Work::Expire(lease),
            to: None,
        }
    }

    fn answer(self, result: Result<Done, Error>) {
        if let Some(to) = self.to {
            // Who asked may be gone; what was done stays done.
            let _ = to.send(result);
        }
    }
}
