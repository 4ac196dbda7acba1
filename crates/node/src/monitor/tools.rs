//! What every part of the monitor may use in its turn. Each tool owns its own state; parts are handed all of them, and
//! nothing else of each other.

use super::audit::Audit;
use super::cluster::{Cluster, StateWriter};
use super::launches::Launches;
use super::metrics::Metrics;
use super::names::Names;
use super::seats::Words;
use super::steps::Steps;
use super::timers::Timers;
use super::wakes::{Key, Owner, Wakes};
use super::watching::Watching;
use crate::config::Config;
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Fd, process};
use std::collections::HashMap;
use std::sync::Arc;

/// The tools.
pub struct Tools {
    /// As it was last read.
    pub config: Arc<Config>,
    /// Without root: for its own user alone.
    pub user_mode: bool,
    /// PAM is used.
    pub pam: bool,
    /// The cluster that this machine joined.
    pub cluster: Option<Cluster>,
    /// Keeps its state for the next start.
    pub state_writer: Option<StateWriter>,
    /// The resolver's control socket, for PAM sessions and look-up sockets.
    pub resolver: Arc<Fd>,
    /// Descriptors.
    pub wakes: Wakes,
    /// Times.
    pub timers: Timers,
    /// Helpers on their way.
    pub launches: Launches,
    /// Names on their way.
    pub names: Names,
    /// Words to fronts, sent in this turn.
    pub words: Words,
    /// Helpers to wait for.
    pub reaper: Reaper,
    /// Sessions that are watched.
    pub watching: Watching,
    /// What happens is told here.
    pub audit: Audit,
    /// And counted here.
    pub metrics: Arc<Metrics>,
    /// And where time went, for those who ask.
    pub steps: Steps,
}

/// Waits for helpers that nobody else waits for, so that none stays a zombie.
#[derive(Debug, Default)]
pub struct Reaper {
    watched: HashMap<u64, Fd>,
    next: u64,
}

impl Reaper {
    /// Takes a process over.
    pub fn take(&mut self, pidfd: Fd, wakes: &Wakes) {
        self.next += 1;
        if wakes
            .watch(&pidfd, READ, Key::new(Owner::Reaper, self.next))
            .is_ok()
        {
            self.watched.insert(self.next, pidfd);
        }
    }

    /// It ended.
    pub fn ended(&mut self, id: u64) {
        if let Some(pidfd) = self.watched.remove(&id) {
            // Somebody else's child (PAM's) is not ours to wait for.
            let _ = process::wait(&pidfd, false);
        }
    }
}
