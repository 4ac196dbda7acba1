//! New tasks. The kernel tells of one twice, in any order: its maker stops, and it stops itself. Whichever comes first, it
//! stands still until both are known, and if its maker never tells (it was killed, or a program set `CLONE_PTRACE` itself),
//! `/proc` does.

use super::Ptrace;
use super::attach::give_back;
use super::tasks::{Held, Inside, Task, Watch};
use crate::catch::{Event, proc};
use crate::follow::{Kin, Wanted};
use fleetgate_sys::ptrace::{self, option};
use std::os::unix::ffi::OsStringExt;

impl Ptrace {
    /// A task has made another one, and goes on.
    pub(super) fn made(&mut self, by: i32) -> Option<Event> {
        let made = ptrace::message(by);
        let maker = *self.tasks.get(&by)?;
        self.resume(by, 0);
        let tid = i32::try_from(made.ok()?).ok()?;
        if let Some(late) = self.untold.iter().position(|untold| *untold == tid) {
            self.untold.remove(late);
            return None;
        }
        match self.tasks.get(&tid) {
            Some(task) if !matches!(task.watch, Watch::Early | Watch::Expected) => return None,
            _ => {}
        }
        let thread = ptrace::is_thread_of(tid, maker.pid);
        self.inherit(by, tid);
        let early = self.tasks.get(&tid).filter(|task| task.watch == Watch::Early);
        let held = early.map(|task| task.held);
        let task = Task {
            pid: if thread { maker.pid } else { tid },
            by,
            level: maker.level.saturating_add(u32::from(!thread)),
            watch: Watch::Expected,
            inside: Inside::No,
            held: Held::No,
        };
        self.tasks.insert(tid, task);
        let held = held?;
        self.early -= 1;
        self.arrived(tid, held)
    }

    /// A task of which nobody has told.
    pub(super) fn stranger(&mut self, tid: i32, held: Held) -> Option<Event> {
        let task = Task {
            watch: Watch::Early,
            held,
            ..Task::first(tid)
        };
        self.tasks.insert(tid, task);
        self.early += 1;
        if self.options & option::FORK == 0 {
            self.adopt();
        }
        None
    }

    /// Takes in whoever stands still without anybody having told of it.
    pub(super) fn adopt(&mut self) {
        let is_early = |(tid, task): (&i32, &Task)| (task.watch == Watch::Early).then_some((*tid, task.held));
        let early: Vec<_> = self.tasks.iter().filter_map(is_early).collect();
        self.early = 0;
        for (tid, held) in early {
            let status = proc::status(tid).unwrap_or_default();
            let pid = proc::field(&status, "Tgid:").unwrap_or(tid);
            let thread = pid != tid;
            let by = if thread {
                Some(pid)
            } else {
                proc::field(&status, "PPid:")
            };
            let level = by.and_then(|by| self.tasks.get(&by)).map_or(0, |task| task.level);
            let task = Task {
                pid,
                by: by.unwrap_or(0),
                level: level.saturating_add(u32::from(!thread)),
                watch: Watch::Expected,
                ..Task::first(pid)
            };
            self.tasks.insert(tid, task);
            self.will_be_told(tid);
            let event = self.arrived(tid, held);
            self.queue.extend(event);
        }
    }

    /// A task that was told of stops for the first time.
    pub(super) fn arrived(&mut self, tid: i32, held: Held) -> Option<Event> {
        self.counts.tasks += 1;
        let task = self.tasks.get_mut(&tid)?;
        (task.held, task.watch) = (held, Watch::Yes);
        let (pid, by) = (task.pid, task.by);
        if by == 0 && held == Held::Plain {
            give_back(tid);
        }
        if !self.changed.is_empty() {
            self.put_back(tid);
        }
        match self.wants(tid) {
            Wanted::Yes => return Some(Event::Began { tid, pid, by }),
            Wanted::Never => self.free(tid, true),
            Wanted::NotYet => self.free(tid, false),
        }
        self.release(tid);
        None
    }

    /// Whether a task is wanted, as it is now.
    pub(super) fn wants(&self, tid: i32) -> Wanted {
        let Some(task) = self.tasks.get(&tid) else {
            return Wanted::Yes;
        };
        let program = self.follow.asks_for_program().then(|| {
            let link = std::fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
            link.into_os_string().into_vec()
        });
        self.follow.wants(Kin {
            level: task.level,
            // One that was there before was attached to because it is wanted.
            thread: task.pid != tid && task.by != 0,
            program: program.as_deref(),
        })
    }

    /// A task runs another program: whether it is wanted can have changed.
    pub(super) fn decide_again(&mut self, pid: i32, former: i32, freed: bool) -> Option<Event> {
        let task = *self.tasks.get(&pid)?;
        let executed = Event::Executed { pid, former };
        let by_program = self.follow.asks_for_program();
        let wanted = if by_program {
            self.wants(pid) == Wanted::Yes
        } else {
            task.watch == Watch::Yes
        };
        match (task.watch == Watch::Yes, wanted) {
            (true, true) => {
                if freed {
                    self.bind(pid);
                }
                return Some(executed);
            }
            (true, false) => {
                self.free(pid, false);
                let end = crate::catch::End::Left;
                self.queue.push_back(Event::Ended { tid: pid, end });
                return Some(executed);
            }
            (false, true) => {
                self.bind(pid);
                self.queue.push_back(executed);
                let (tid, by) = (pid, task.by);
                return Some(Event::Began { tid, pid, by });
            }
            (false, false) => {}
        }
        self.release(pid);
        None
    }
}
