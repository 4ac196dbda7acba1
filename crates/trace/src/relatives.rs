//! Which tasks are wanted where the way to catch calls brings everybody's: what user notification does, as children carry
//! their parent's filter. Calls of the others are answered at once and reported to nobody.

use crate::catch::Event;
use crate::follow::{Follow, Kin, Wanted};
use std::collections::BTreeMap;

/// The tasks that are known.
pub struct Relatives {
    follow: Follow,
    /// A task's process.
    tasks: BTreeMap<i32, i32>,
    /// A process's generations from the first.
    levels: BTreeMap<i32, u32>,
    /// Calls that were answered at once.
    passed: u64,
}

impl Relatives {
    /// Nobody is known yet.
    #[must_use]
    pub fn new(follow: Follow) -> Relatives {
        Relatives {
            follow,
            tasks: BTreeMap::new(),
            levels: BTreeMap::new(),
            passed: 0,
        }
    }

    /// Calls of tasks that are not wanted.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Whether an event is of somebody who is wanted.
    pub fn wants(&mut self, event: &Event) -> bool {
        match event {
            Event::Began { tid, pid, by } => {
                let maker = self.tasks.get(by).copied().unwrap_or(*by);
                let level = match (self.levels.get(pid), self.levels.get(&maker)) {
                    (Some(level), _) => *level,
                    (None, Some(maker)) => maker + 1,
                    // The first one, or somebody whose maker was never seen: between them there is one at least.
                    (None, None) => u32::from(!self.levels.is_empty()),
                };
                self.levels.insert(*pid, level);
                self.tasks.insert(*tid, *pid);
                self.is_wanted(*tid)
            }
            Event::Enter(enter) => {
                let wanted = self.is_wanted(enter.tid);
                self.passed += u64::from(!wanted);
                wanted
            }
            Event::Leave { tid, .. } | Event::Signal { tid, .. } | Event::Stopped { tid, .. } => {
                self.is_wanted(*tid)
            }
            Event::Executed { pid, .. } => self.is_wanted(*pid),
            Event::Ended { tid, .. } => {
                let wanted = self.is_wanted(*tid);
                self.tasks.remove(tid);
                wanted
            }
        }
    }

    fn is_wanted(&self, tid: i32) -> bool {
        let pid = self.tasks.get(&tid).copied().unwrap_or(tid);
        let kin = Kin {
            level: self.levels.get(&pid).copied().unwrap_or(0),
            thread: pid != tid,
            program: None,
        };
        self.follow.wants(kin) == Wanted::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_wanted() {
        let family = [
            // The first, its thread, its child, its grandchild, and one whose maker nobody saw.
            (10, 10, 1),
            (11, 10, 10),
            (20, 20, 11),
            (30, 30, 20),
            (40, 40, 39),
        ];
        for (follow, wanted) in [
            (Follow::All, [true; 5]),
            (Follow::None, [true, false, false, false, false]),
            (Follow::Threads, [true, true, false, false, false]),
            (Follow::Levels(1), [true, true, true, false, true]),
        ] {
            let mut relatives = Relatives::new(follow.clone());
            for ((tid, pid, by), wanted) in family.into_iter().zip(wanted) {
                let event = Event::Began { tid, pid, by };
                assert_eq!(relatives.wants(&event), wanted, "{follow:?} {tid}");
                let left = Event::Leave { tid, result: 0 };
                assert_eq!(relatives.wants(&left), wanted, "{follow:?} {tid}");
            }
        }
    }
}
