//! Launches on their way: submitted to the launch threads, each with the key of whoever waits for it. It starts nothing
//! by itself.

use super::containers::Containers;
use super::wakes::Key;
use fleetgate_launch::{Completions, Launch, LaunchError, LaunchOutcome, LaunchThreads, Threads};
use fleetgate_seal::{FallbackChain, Source};
use fleetgate_sys::Fd;
use fleetgate_wire::container::Window;
use std::collections::HashMap;
use std::sync::Arc;

/// All of them.
pub struct Launches {
    threads: LaunchThreads,
    containers: Containers,
    completions: Arc<Completions>,
    waiting: HashMap<u64, Key>,
    next: u64,
}

impl Launches {
    /// Launches from `chain`'s images, and in containers from those of `enter`.
    pub fn new(chain: Arc<FallbackChain>, enter: Source) -> Result<Launches, LaunchError> {
        Ok(Launches {
            threads: LaunchThreads::new(chain, Threads::default())?,
            containers: Containers::new(enter),
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

    /// The same in the container of this name.
    pub fn submit_in_container(
        &mut self,
        container: &str,
        window: Window,
        launch: Launch,
        key: Key,
    ) -> Result<(), LaunchError> {
        self.next += 1;
        let done = self.completions.file(self.next);
        self.containers.begin(container, window, launch, done)?;
        self.waiting.insert(self.next, key);
        Ok(())
    }

    /// For a launch that is made elsewhere (inside a PAM session, on a thread of its caller's): what to call with its
    /// outcome.
    pub fn elsewhere(&mut self, key: Key) -> impl FnOnce(LaunchOutcome) + Send + 'static {
        self.next += 1;
        self.waiting.insert(self.next, key);
        self.completions.file(self.next)
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
