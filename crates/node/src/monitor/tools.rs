//! What every part of the monitor may use in its turn. Each tool owns its own state; parts are handed all of them. Where one
//! needs another part too, that stands in the function's arguments.

use super::audit::Audit;
use super::launches::Launches;
use super::metrics::Metrics;
use super::names::Names;
use super::spans::Spans;
use super::strangers::Strangers;
use super::timers::Timers;
use super::views::Views;
use super::wakes::{Key, Owner, Wakes};
use super::watcher::WatchedSessions;
use super::workers::Messages;
use crate::config::Config;
use crate::config::cluster::{Cluster, StateWriter};
use fleetgate_policy::pam_turns::Turns;
use fleetgate_recorder::recordings::Recordings;
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
    /// Who may talk to PAM now.
    pub pam_turns: Turns,
    /// Messages to fronts, sent in this turn.
    pub to_fronts: Messages,
    /// Helpers to wait for.
    pub zombies: ZombieCollector,
    /// Sessions that are watched.
    pub watching: WatchedSessions,
    /// Sessions that are recorded.
    pub recordings: Recordings,
    /// Sessions that others see.
    pub views: Views,
    /// Those who are not logged in.
    pub strangers: Strangers,
    /// What happens is told here.
    pub audit: Audit,
    /// And counted here.
    pub metrics: Arc<Metrics>,
    /// And where time went, for those who ask.
    pub spans: Spans,
}

/// Waits for helpers that nobody else waits for, so that none stays a zombie.
///
/// They have said all that they had to say and end in a moment. The monitor is not woken for that: it looks at each turn,
/// and its last turn is the one in which it rests. A helper that has not ended by then, or after some turns, is watched.
#[derive(Debug, Default)]
pub struct ZombieCollector {
    /// Each with how often it was looked at.
    ending: Vec<(Fd, u8)>,
    watched: HashMap<u64, Fd>,
    next: u64,
}

/// So often a helper is looked at.
const LOOKS: u8 = 8;

impl ZombieCollector {
    /// Takes a process over.
    pub fn take(&mut self, pidfd: Fd) {
        self.ending.push((pidfd, 0));
    }

    /// Whether there is one to look at.
    pub fn looks(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Looks at those that were to end; `last`: there may be no other turn for long.
    pub fn look(&mut self, last: bool, wakes: &Wakes) {
        for (pidfd, looks) in std::mem::take(&mut self.ending) {
            match process::wait(&pidfd, false) {
                Ok(None) if looks < LOOKS && !last => self.ending.push((pidfd, looks + 1)),
                Ok(None) => self.watch(pidfd, wakes),
                // It ended, or it is somebody else's child (PAM's), not ours to wait for.
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }

    fn watch(&mut self, pidfd: Fd, wakes: &Wakes) {
        self.next += 1;
        if wakes
            .watch(&pidfd, READ, Key::new(Owner::Zombies, self.next))
            .is_ok()
        {
            self.watched.insert(self.next, pidfd);
        }
    }

    /// It ended.
    pub fn ended(&mut self, id: u64) {
        if let Some(pidfd) = self.watched.remove(&id)
            && let Ok(None) = process::wait(&pidfd, false)
        {
            self.take(pidfd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn helpers_are_waited_for_by_looking_and_then_by_watching() {
        let mut wakes = Wakes::new().expect("epoll");
        let mut zombies = ZombieCollector::default();
        let mut keys = Vec::new();
        // Other tests may have it that children are not waited for: then it is gone at once.
        let runs = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            !status.is_empty() && !status.contains("State:\tZ")
        };
        // Where nobody is waited for it goes by itself, and a moment after its descriptor said so. What nobody waited for
        // stays.
        let is_gone = |pid: u32| {
            let ours = format!("PPid:\t{}\n", std::process::id());
            (0..10_000).any(|_| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let gone = !status.contains(&ours);
                if !gone {
                    std::thread::sleep(Duration::from_millis(1));
                }
                gone
            })
        };
        let start = |zombies: &mut ZombieCollector, script: &str| {
            #[expect(clippy::zombie_processes, reason = "the collector waits for it")]
            let child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
            let pidfd = process::pidfd_open(child.id() as i32).expect("it is ours");
            zombies.take(pidfd);
            child.id()
        };
        let quick = start(&mut zombies, "exit");
        while runs(quick) {
            std::thread::sleep(Duration::from_millis(1));
        }
        zombies.look(false, &wakes);
        assert!(is_gone(quick) && !zombies.looks() && zombies.watched.is_empty());
        // (turns until it is watched, the last of them is the one before a rest)
        for (turns, last) in [(usize::from(LOOKS) + 1, false), (1, true)] {
            let slow = start(&mut zombies, "sleep 0.3");
            for turn in 1..=turns {
                assert!(zombies.looks(), "turn {turn} of {turns}");
                zombies.look(last, &wakes);
            }
            assert!(!zombies.looks());
            keys.clear();
            wakes.wait(Some(10_000), &mut keys).expect("epoll");
            let [
                Key {
                    owner: Owner::Zombies,
                    id,
                },
            ] = keys[..]
            else {
                panic!("{keys:?}");
            };
            zombies.ended(id);
            assert!(is_gone(slow) && zombies.watched.is_empty());
        }
    }
}
