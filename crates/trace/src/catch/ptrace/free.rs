//! Leaving unwanted tasks in peace.
//!
//! Without a filter that is all they need: one that can never be wanted is detached, one that may execute something wanted
//! runs from exec to exec.
//!
//! A filter is inherited, for good, and a task that it binds and nobody traces would be told ENOSYS. So it stays traced, and
//! the kernel is asked to suspend filters for it (`PTRACE_O_SUSPEND_SECCOMP`): no call of it stops. Its forks, execs and
//! signals still do: what it makes is bound too, and has to be traced from its birth on. This needs CAP_SYS_ADMIN, a tracer
//! without a filter, and it suspends whatever filters there are; so it is done only where ours is the only one, which is
//! looked at again at every stop. Anybody else is kept: its stops are answered at once.

use super::Ptrace;
use super::tasks::{Held, Inside, Watch};
use fleetgate_sys::Errno;
use fleetgate_sys::ptrace::{self, option};

impl Ptrace {
    /// A stopped task is not wanted: `for_good`, it and whatever it makes. It still stands, if it is still here.
    pub(super) fn free(&mut self, tid: i32, for_good: bool) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.inside = Inside::No;
        if self.filtered {
            let freed = self.suspend(tid);
            self.set(tid, freed);
            return;
        }
        task.watch = Watch::Free;
        self.counts.freed += 1;
        if for_good {
            let signal = match task.held {
                Held::Signal(signal) => signal,
                _ => 0,
            };
            let _ = ptrace::detach(tid, signal);
            self.tasks.remove(&tid);
        }
    }

    fn set(&mut self, tid: i32, freed: bool) {
        let watch = if freed { Watch::Free } else { Watch::Kept };
        self.counts.freed += u64::from(freed);
        self.counts.kept += u64::from(!freed);
        self.tasks.entry(tid).and_modify(|task| task.watch = watch);
    }

    /// Suspends the filter of a stopped task, where it is its only one. What a task makes has its options, this one too.
    fn suspend(&mut self, tid: i32) -> bool {
        if !self.may_suspend {
            return false;
        }
        let freed = match ptrace::has_filter(tid, 1) {
            Ok(true) => ptrace::set_options(tid, self.options).map(|()| false),
            Ok(false) => ptrace::set_options(tid, self.options | option::SUSPEND_SECCOMP).map(|()| true),
            Err(error) => Err(error),
        };
        // Whoever may not do it, or has a kernel that cannot, need not ask again.
        self.may_suspend = freed.is_ok() || freed == Err(Errno::ESRCH);
        freed.unwrap_or(false)
    }

    /// A free task has stopped: it may have given itself a filter since.
    pub(super) fn look_again(&mut self, tid: i32) {
        if !self.suspend(tid) {
            self.counts.freed -= 1;
            self.set(tid, false);
        }
    }

    /// A stopped task is wanted from here on, behind its exec.
    pub(super) fn bind(&mut self, tid: i32) {
        if self.filtered {
            let _ = ptrace::set_options(tid, self.options);
        }
        let inside = if self.filtered {
            Inside::No
        } else {
            Inside::Quietly
        };
        self.tasks
            .entry(tid)
            .and_modify(|task| (task.watch, task.inside) = (Watch::Yes, inside));
    }
}
