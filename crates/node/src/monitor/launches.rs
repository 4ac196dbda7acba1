//! Launches on their way: submitted to the launch threads, each with the key of whoever waits for it. It starts nothing
//! by itself.

use super::containers::{Containers, Entry};
use super::wakes::Key;
use fleetgate_launch::pam::PamSession;
use fleetgate_launch::within_pam::{PamEntry, PamThreads};
use fleetgate_launch::{Completions, Launch, LaunchError, LaunchOutcome, LaunchThreads, Threads};
use fleetgate_seal::{FallbackChain, Source};
use fleetgate_sys::Fd;
use std::collections::HashMap;
use std::sync::Arc;

/// All of them.
pub struct Launches {
    threads: LaunchThreads,
    containers: Containers,
    pam: PamThreads<Key>,
    completions: Arc<Completions>,
    waiting: HashMap<u64, Key>,
    next: u64,
}

impl Launches {
    /// Launches from `chain`'s images, and in containers from those of `enter`.
    pub fn new(chain: Arc<FallbackChain>, enter: Source) -> Result<Launches, LaunchError> {
        Ok(Launches {
            pam: PamThreads::new(chain.clone()),
            threads: LaunchThreads::new(chain, Threads::default())?,
            containers: Containers::new(enter)?,
            completions: Completions::new()?,
            waiting: HashMap::new(),
            next: 0,
        })
    }

    /// Launches; `key`'s owner is told what came of it.
    pub fn submit(&mut self, launch: Launch, key: Key) -> Result<(), LaunchError> {
        self.next += 1;
        self.threads.submit(launch, self.completions.file(self.next))?;
        self.waiting.insert(self.next, key);
        Ok(())
    }

    /// The same in a container.
    pub fn submit_in_container(&mut self, entry: Entry, launch: Launch, key: Key) -> Result<(), LaunchError> {
        self.next += 1;
        let done = self.completions.file(self.next);
        self.containers.begin(entry, launch, done)?;
        self.waiting.insert(self.next, key);
        Ok(())
    }

    /// The same inside a PAM session, which `resolver` begins. So many of the order's variables come before PAM's.
    pub fn submit_in_pam(
        &mut self,
        resolver: Arc<Fd>,
        entry: PamEntry,
        launch: (Launch, usize),
        key: Key,
    ) -> Result<(), LaunchError> {
        self.next += 1;
        let done = self.completions.file(self.next);
        self.pam.begin(key, resolver, entry, launch, done)?;
        self.waiting.insert(self.next, key);
        Ok(())
    }

    /// The PAM session that this key's program was launched in.
    pub fn take_pam(&self, key: Key) -> Option<PamSession> {
        self.pam.take(&key)
    }

    /// The containers of this machine.
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    /// Readable when launches are done.
    pub fn bell(&self) -> &Fd {
        self.completions.bell()
    }

    /// Those that are done.
    pub fn take(&mut self) -> Vec<(Key, LaunchOutcome)> {
        let done = self.completions.take();
        done.into_iter()
            .filter_map(|(token, outcome)| Some((self.waiting.remove(&token)?, outcome)))
            .collect()
    }
}
