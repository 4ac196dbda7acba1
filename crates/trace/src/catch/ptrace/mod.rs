//! Catching calls by ptrace(2): a program that is started with a filter (calls that it answers with `SECCOMP_RET_TRACE`
//! stop), one that is started without (every call stops), and what runs already (every call stops). Nobody's memory or
//! registers are changed here, but for one bit of a call that would make a task that nobody traces: see `escape`.
//!
//! The tracer's system calls for a call whose result nobody wants: wait4, PTRACE_GET_SYSCALL_INFO, PTRACE_CONT. With its
//! result: twice that. Without a filter the end of a call stops too: where nobody wants the result, wait4 and PTRACE_SYSCALL.
//! A signal: wait4, PTRACE_GETSIGINFO, PTRACE_CONT. A new process or thread: two stops, wait4, PTRACE_GETEVENTMSG, tgkill,
//! PTRACE_CONT for the one that makes it, wait4 and PTRACE_CONT for the new one. An exec: one stop, of wait4,
//! PTRACE_GETEVENTMSG, PTRACE_CONT. That one cannot be saved: where a thread that is not its process's first executes, it
//! takes over the first one's number, its own is gone, and nothing but this stop tells of it.
//!
//! Whoever makes a [`Ptrace`] must be the thread that uses it: the kernel knows tracers by thread. What else this thread has
//! started is reaped here as well; another thread is the one to start what is not traced.
//!
//! What cannot be done: a task that is traced already, by a debugger say, can have no second tracer, and a program that is
//! traced here cannot trace itself.

mod attach;
mod escape;
mod free;
mod kin;
mod launch;
mod stops;
mod tasks;

use super::{Catch, End, Event, NextEvent, Then, Wait};
use crate::TraceError;
use crate::follow::Follow;
use escape::Changed;
pub use escape::needs;
use fleetgate_calls::select::Selection;
use fleetgate_sys::ptrace::{Status, event};
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, memory, poll, process, ptrace};
pub use launch::Launch;
use std::collections::VecDeque;
use tasks::{Held, Inside, Tasks, Watch};

/// Milliseconds in which a task must show itself whose maker was killed before it could tell: it exists, and stops before its
/// first instruction.
const UNBORN: u32 = 200;

/// The most of those of whom their makers have still to tell: a maker that was killed never does.
const UNTOLD: usize = 64;
/// How many tasks are taken as the kernel gives them, before all that have stopped are: a call more for this many stops.
const UNFAIR: u32 = 16;

/// Tasks caught by ptrace.
pub struct Ptrace {
    tasks: Tasks,
    /// What has happened at one stop beside what was told of already.
    queue: VecDeque<Event>,
    /// Who has stopped or ended, and had to wait for its turn; at most one entry a task.
    ready: VecDeque<(i32, Status)>,
    /// How many were taken before their turn.
    unfair: u32,
    /// A filter says which calls stop; otherwise all do.
    filtered: bool,
    /// `PTRACE_O_…` of every task.
    options: usize,
    follow: Follow,
    /// The process that was started; 0: nothing was.
    first: i32,
    end: Option<End>,
    /// Of [`Watch::Early`].
    early: usize,
    /// Tasks that were taken in, or are gone, before their makers have told of them.
    untold: VecDeque<i32>,
    /// How often to look whether there is somebody of whom nobody has told, before it is over.
    unborn: u32,
    /// Unwanted tasks may be freed of the filter.
    may_suspend: bool,
    gave_up_privileges: bool,
    /// Which of the calls that make tasks are told of; none: all.
    wanted: Option<Selection>,
    /// What is to be put back where a call of these tasks ends.
    changed: Vec<(i32, Changed)>,
    /// As long as the first exec is told of: its strings, at the addresses that it names.
    strings: Option<[Strings<'static>; 2]>,
    counts: Counts,
    left: bool,
}

/// What tracing came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a task stood still.
    pub stops: u64,
    /// Calls that were told of.
    pub calls: u64,
    /// Tasks that were seen.
    pub tasks: u64,
    /// Of these, unwanted ones of which no call stops.
    pub freed: u64,
    /// And unwanted ones that had to be kept: the filter binds them, and their stops are answered at once.
    pub kept: u64,
}

impl Ptrace {
    fn new(filtered: bool, options: usize, follow: Follow) -> Ptrace {
        Ptrace {
            tasks: Tasks::default(),
            queue: VecDeque::new(),
            ready: VecDeque::new(),
            unfair: 0,
            filtered,
            options,
            follow,
            first: 0,
            end: None,
            early: 0,
            untold: VecDeque::new(),
            unborn: 0,
            may_suspend: false,
            gave_up_privileges: false,
            wanted: None,
            changed: Vec::new(),
            strings: None,
            counts: Counts::default(),
            left: false,
        }
    }

    /// The process that was started here.
    #[must_use]
    pub fn first(&self) -> Option<i32> {
        (self.first != 0).then_some(self.first)
    }

    /// How that process ended, once it has: whoever started the tracer expects it to end the same way.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// How many tasks are kept in mind: those that the kernel has, and no more.
    #[must_use]
    pub fn known(&self) -> usize {
        self.tasks.len()
    }

    /// What it came to so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The filter was only to be had for no_new_privs: programs with the setuid bit run without it.
    #[must_use]
    pub fn gave_up_privileges(&self) -> bool {
        self.gave_up_privileges
    }

    /// What to ask of the kernel so that it brings the tasks that are wanted.
    fn options(follow: &Follow, filtered: bool) -> usize {
        use ptrace::option::{CLONE, EXEC, FORK, SECCOMP, SYSGOOD, VFORK};
        // What a filter binds must be traced, wanted or not: nobody else answers for its calls.
        let brings = match follow {
            _ if filtered => FORK | VFORK | CLONE,
            Follow::None => 0,
            // A thread can come by any of the three: it depends on the exit signal that clone was given.
            Follow::All | Follow::Levels(_) | Follow::Threads | Follow::Exec(_) => FORK | VFORK | CLONE,
        };
        SYSGOOD | EXEC | brings | if filtered { SECCOMP } else { 0 }
    }

    /// A task is taken in, or gone, of which its maker has not told: when it does, it is late.
    fn will_be_told(&mut self, tid: i32) {
        if self.untold.len() == UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(tid);
    }

    /// Lets a task go on to where it is to stop next. One that was killed meanwhile is told of by its end.
    fn resume(&mut self, tid: i32, signal: i32) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.held = Held::No;
        let to_call = task.inside != Inside::No || !self.filtered && task.watch == Watch::Yes;
        let _ = if to_call {
            ptrace::go_on_to_call(tid, signal)
        } else {
            ptrace::go_on(tid, signal)
        };
    }

    /// Lets a task go on from what it stands at.
    fn release(&mut self, tid: i32) {
        match self.tasks.get(&tid).map(|task| task.held) {
            None | Some(Held::No) => {}
            Some(Held::Entry | Held::Plain) => self.resume(tid, 0),
            Some(Held::Signal(signal)) => self.resume(tid, signal),
            Some(Held::Group) => {
                let _ = ptrace::listen(tid);
                self.tasks.entry(tid).and_modify(|task| task.held = Held::No);
            }
        }
    }

    /// Whose turn it is. The kernel looks at the newest task first: one that makes calls all the time would keep the others
    /// from ever being seen. So now and then all that have stopped are taken, and then have their turns.
    fn turn(&mut self, block: bool) -> Result<Option<(i32, Status)>, Errno> {
        if self.unfair >= UNFAIR && self.tasks.len() > 1 {
            self.unfair = 0;
            while let Ok(Some((tid, status))) = ptrace::wait(-1, false) {
                if matches!(
                    status,
                    Status::Stopped {
                        event: event::EXEC,
                        ..
                    }
                ) {
                    // What had this number is gone: another thread of it has executed.
                    self.ready.retain(|(other, _)| *other != tid);
                }
                self.ready.push_back((tid, status));
            }
        }
        match self.ready.pop_front() {
            Some(met) => Ok(Some(met)),
            None => {
                self.unfair += 1;
                ptrace::wait(-1, block)
            }
        }
    }

    /// Whether the next thing to tell is of the same stop of a task.
    fn has_more_of(&self, tid: i32) -> bool {
        match self.queue.front() {
            Some(Event::Enter(enter)) => enter.tid == tid,
            Some(Event::Executed { pid, .. }) => *pid == tid,
            _ => false,
        }
    }
}

impl Catch for Ptrace {
    fn next(&mut self, wait: Wait) -> Result<NextEvent, TraceError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                if !matches!(event, Event::Began { .. } | Event::Enter(_)) {
                    self.strings = None;
                }
                return Ok(NextEvent::Event(event));
            }
            if self.left {
                return Ok(NextEvent::Over);
            }
            // Nobody may stand still for a maker that will never tell. Where nobody is known, the thread's own children may
            // be waited for without end, and yet there can be somebody.
            let known = !self.tasks.is_empty();
            let block = wait == Wait::Yes && self.early == 0 && known;
            match self.turn(block) {
                Ok(Some((tid, status))) => {
                    if let Some(event) = self.met(tid, status) {
                        return Ok(NextEvent::Event(event));
                    }
                }
                Ok(None) if !known && self.unborn == 0 => return Ok(NextEvent::Over),
                Ok(None) if !known => {
                    self.unborn -= 1;
                    let _ = poll::poll(&mut [], Some(1));
                }
                Ok(None) if wait == Wait::Yes => self.adopt(),
                Ok(None) | Err(Errno::EINTR) => return Ok(NextEvent::Nothing),
                Err(Errno::ECHILD) => return Ok(NextEvent::Over),
                Err(error) => return Err(TraceError(format!("cannot wait for traced tasks: {error}"))),
            }
        }
    }

    fn go_on(&mut self, tid: i32, then: Then) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        if task.held == Held::Entry {
            // Without a filter the end stops either way, and this says whether to tell of it.
            task.inside = match then {
                Then::Result => Inside::Awaited,
                Then::Free if self.filtered && !self.changed.iter().any(|(of, _)| *of == tid) => Inside::No,
                Then::Free => Inside::Quietly,
            };
        }
        if !self.has_more_of(tid) {
            self.release(tid);
        }
    }

    fn has_results(&self) -> bool {
        true
    }

    fn read(&self, tid: i32, at: u64, into: &mut [u8]) -> usize {
        // The first exec is told of when it has been done: its strings are gone there, and here they are still.
        let of = if self.strings.is_some() && tid == self.first {
            process::id()
        } else {
            tid
        };
        memory::read(of, at, into).unwrap_or(0)
    }

    fn leave(&mut self) {
        self.let_go();
    }
}
