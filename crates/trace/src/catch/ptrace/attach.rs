//! Attaching to what runs already, and leaving. No filter can be given to it from outside, so every call stops.
//!
//! To be traced a task has to be interrupted once, and to be left once more. The kernel makes most calls again by itself; of
//! those that answer EINTR instead (ptrace(2) counts it among its bugs) the ones that wait without end are made again here.
//! What is left is a wait with a time: it answers EINTR, as after a stop and SIGCONT.

use super::Ptrace;
use super::tasks::{Held, Task, Watch};
use crate::TraceError;
use crate::catch::inject::made_again;
use crate::catch::proc;
use crate::follow::Follow;
use fleetgate_sys::poll;
use fleetgate_sys::ptrace::{self, AT_CALL, Status, event};
use fleetgate_sys::{Errno, process};
use std::collections::HashSet;

/// How often new threads are looked for; a process that makes them all the time is caught up with by the kernel, which
/// brings those that a traced one makes.
const ROUNDS: usize = 100;
/// Milliseconds in which everybody stops who is to be left; one that stands in the kernel is let go by this process's end.
const LEAVING: u32 = 5000;

impl Ptrace {
    /// Attaches to processes, to all threads of each.
    ///
    /// # Errors
    /// A sentence: one of them cannot be traced. Those before are left again.
    pub fn attach(pids: &[i32], follow: Follow) -> Result<Ptrace, TraceError> {
        let options = Ptrace::options(&follow, false);
        let mut this = Ptrace::new(false, options, follow);
        for &pid in pids {
            if let Err(why) = this.attach_to(pid) {
                this.let_go();
                return Err(why.into());
            }
        }
        Ok(this)
    }

    fn attach_to(&mut self, pid: i32) -> Result<(), String> {
        if pid == process::id() {
            return Err(format!("cannot trace process {pid}: it is this one"));
        }
        self.seize(pid, pid).map_err(|error| refused(pid, error))?;
        for _ in 0..ROUNDS {
            let mut new = false;
            let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
                .map_err(|error| format!("cannot list the threads of process {pid}: {error}"))?;
            for thread in threads.flatten() {
                let Some(tid) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                if self.tasks.contains_key(&tid) {
                    continue;
                }
                // One that ended meanwhile, or that the kernel has brought as somebody's child.
                new |= self.seize(pid, tid).is_ok();
            }
            if !new {
                break;
            }
        }
        Ok(())
    }

    fn seize(&mut self, pid: i32, tid: i32) -> Result<(), Errno> {
        ptrace::seize(tid, self.options)?;
        ptrace::interrupt(tid)?;
        let task = Task {
            watch: Watch::Expected,
            ..Task::first(pid)
        };
        self.tasks.insert(tid, task);
        Ok(())
    }

    /// Detaches from everybody. What a filter binds is kept: without a tracer its calls would answer ENOSYS; it ends with
    /// this process.
    pub(super) fn let_go(&mut self) {
        if self.filtered {
            return;
        }
        self.left = true;
        self.queue.clear();
        let (mut waiting, mut left) = (HashSet::new(), HashSet::new());
        for (tid, task) in std::mem::take(&mut self.tasks) {
            let signal = match task.held {
                Held::Signal(signal) => signal,
                Held::No => {
                    if task.watch == Watch::Expected || ptrace::interrupt(tid).is_ok() {
                        waiting.insert(tid);
                    }
                    continue;
                }
                Held::Entry | Held::Plain | Held::Group => 0,
            };
            let _ = ptrace::detach(tid, signal);
            left.insert(tid);
        }
        let mut patience = LEAVING;
        let mut ready = std::mem::take(&mut self.ready);
        while !waiting.is_empty() && patience > 0 {
            let met = match ready.pop_front() {
                Some(met) => Ok(Some(met)),
                None => ptrace::wait(-1, false),
            };
            match met {
                Ok(Some((tid, Status::Stopped { signal, event }))) => {
                    if matches!(event, event::FORK | event::VFORK | event::CLONE)
                        && let Ok(made) = ptrace::message(tid)
                    {
                        let made = i32::try_from(made).unwrap_or(0);
                        if !left.contains(&made) {
                            waiting.insert(made);
                        }
                    }
                    let signal = match (event, signal) {
                        (0, signal) if signal != AT_CALL => signal,
                        _ => {
                            give_back(tid);
                            0
                        }
                    };
                    let _ = ptrace::detach(tid, signal);
                    waiting.remove(&tid);
                    left.insert(tid);
                }
                Ok(Some((tid, _))) => {
                    waiting.remove(&tid);
                }
                Ok(None) => {
                    // A process's first thread that has ended before the others tells of nothing any more.
                    waiting.retain(|tid| !is_zombie(*tid));
                    let _ = poll::poll(&mut [], Some(1));
                    patience -= 1;
                }
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }
}

/// Has a call made again that an interruption of ours cut short.
pub(super) fn give_back(tid: i32) {
    let (Ok(registers), Ok(blocked)) = (ptrace::registers(tid), ptrace::blocked(tid)) else {
        return;
    };
    if registers.is_native() && registers.cut_short().is_some() {
        let _ = ptrace::set_registers(tid, &made_again(tid, registers, blocked));
    }
}

fn is_zombie(tid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
    // The name stands in brackets and may have any byte in it, brackets too.
    let behind = stat.iter().rposition(|byte| *byte == b')');
    !matches!(behind.and_then(|at| stat.get(at + 2)), Some(state) if !b"ZXx".contains(state))
}

fn refused(pid: i32, error: Errno) -> String {
    let status = proc::status(pid).unwrap_or_default();
    let tracer = proc::field(&status, "TracerPid:").filter(|tracer: &i32| *tracer != 0);
    match (error, tracer) {
        (Errno::ESRCH, _) => format!("cannot trace process {pid}: there is none of this number"),
        (_, Some(tracer)) => {
            format!("cannot trace process {pid}: process {tracer} traces it already, and only one can")
        }
        (Errno::EPERM, None) => format!(
            "cannot trace process {pid}: {}; it is another user's, or a kernel thread, or kernel.yama.ptrace_scope forbids \
             it: try as root",
            error.text()
        ),
        _ => format!("cannot trace process {pid}: {error}"),
    }
}
