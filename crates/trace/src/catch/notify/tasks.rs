//! Which tasks were met already. A number that comes back after its task has ended is not told apart.

use crate::catch::{Event, proc};
use std::collections::HashSet;

/// Tasks by number: as many as there are numbers.
#[derive(Default)]
pub(super) struct Tasks(HashSet<i32>);

impl Tasks {
    /// One that is told of already.
    pub(super) fn add(&mut self, tid: i32) {
        self.0.insert(tid);
    }

    /// What there is to tell of a task that makes a call.
    pub(super) fn meet(&mut self, tid: i32) -> Option<Event> {
        if !self.0.insert(tid) {
            return None;
        }
        let (pid, parent) = proc::status(tid)
            .and_then(|status| family(&status))
            .unwrap_or((tid, 0));
        // The process is told of once, by its first task; who made a thread, nobody knows.
        let by = if self.0.insert(pid) || pid == tid {
            parent
        } else {
            pid
        };
        Some(Event::Began { tid, pid, by })
    }
}

/// Process and parent.
fn family(status: &str) -> Option<(i32, i32)> {
    Some((proc::field(status, "Tgid:")?, proc::field(status, "PPid:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_told_of_once_with_its_process() {
        let own = std::process::id() as i32;
        let parent = std::os::unix::process::parent_id() as i32;
        let mut tasks = Tasks::default();
        let began = Event::Began {
            tid: own,
            pid: own,
            by: parent,
        };
        assert_eq!(tasks.meet(own), Some(began));
        assert_eq!(tasks.meet(own), None);
        // Nobody has this number: it is its own process, for all that is known.
        let gone = Event::Began {
            tid: i32::MAX,
            pid: i32::MAX,
            by: 0,
        };
        assert_eq!(tasks.meet(i32::MAX), Some(gone));
        assert_eq!(family("Tgid:\t7\nPPid:\t3\n"), Some((7, 3)));
        assert_eq!(family("Tgid:\t7\n"), None);
    }
}
