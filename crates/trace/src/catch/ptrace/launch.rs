//! Starting a program under trace. It is waited for until its exec has been done: what could not be executed is an error
//! here, and no events.

use super::Ptrace;
use super::tasks::{Held, Inside, Task};
use crate::TraceError;
use crate::catch::{Enter, Event};
use crate::follow::Follow;
use fleetgate_calls::abi::{Abi, Call, low};
use fleetgate_calls::select::Selection;
use fleetgate_sys::ptrace::{self, AT_CALL, At, Status, event};
use fleetgate_sys::seccomp::{self, Instruction};
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::traced::{self, Start, Step, Traced};
use fleetgate_sys::{Errno, process};
use std::ffi::{CStr, CString};

/// What to start, and how it is traced.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program's path; see [`crate::catch::program::find`].
    pub path: &'a CStr,
    /// Its arguments, the name first.
    pub arguments: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<CString>,
    /// The calls that it answers with `SECCOMP_RET_TRACE` stop; empty: there is no filter, and every call does.
    pub filter: &'a [Instruction],
    /// Which of the calls in [`super::needs`] are told of, where the filter stops them for that alone; none: all of them.
    pub wanted: Option<Selection>,
    /// Which of its children and threads are wanted.
    pub follow: Follow,
    /// Unwanted ones may be freed of the filter: as long as they are traced, the kernel then asks no filter of theirs at
    /// all. One that has a filter of its own is not, and each is looked at again at every fork, exec and signal; but one that
    /// gives itself a filter runs without it until then.
    pub may_suspend: bool,
}

impl Ptrace {
    /// Starts a program.
    ///
    /// # Errors
    /// A sentence: it cannot be traced, filtered or executed.
    pub fn launch(what: Launch<'_>) -> Result<Ptrace, TraceError> {
        let filtered = !what.filter.is_empty();
        // The exec that is told of later names the addresses of these; a few kilobytes, once.
        let kept = |strings: Vec<CString>| {
            let strings: &'static [CString] = strings.leak();
            Strings::new(strings.iter().map(CString::as_c_str))
        };
        let path: &'static CStr = Box::leak(CString::from(what.path).into_boxed_c_str());
        let strings = [kept(what.arguments), kept(what.environment)];
        let options = Ptrace::options(&what.follow, filtered) | ptrace::option::EXIT_KILL;
        let mut this = Ptrace::new(filtered, options, what.follow);
        this.may_suspend = filtered && what.may_suspend;
        this.wanted = what.wanted;
        let child = traced::start(&Start {
            path,
            argv: &strings[0],
            envp: &strings[1],
            filter: what.filter,
            flags: seccomp::flag::NO_MITIGATION,
        })
        .map_err(|error| format!("cannot make a process for {}: {error}", path.to_string_lossy()))?;
        let begun = ptrace::seize(child.pid, options).and_then(|()| match filtered {
            true => Ok(()),
            // It waits, so that it stops before anything else.
            false => ptrace::interrupt(child.pid),
        });
        if let Err(error) = begun {
            let _ = process::signal(&child.pidfd, process::SIGKILL);
            let _ = process::wait(&child.pidfd, true);
            return Err(TraceError(format!(
                "cannot trace {}: {error}; a container's rules or kernel.yama.ptrace_scope may forbid ptrace, \
                 where --no-ptrace needs none",
                path.to_string_lossy()
            )));
        }
        child.begin();
        let entry = this.until_exec(&child, path)?;
        let pid = child.pid;
        this.first = pid;
        this.gave_up_privileges = child.gave_up_privileges();
        this.strings = entry.is_some().then_some(strings);
        this.counts.tasks = 1;
        this.counts.calls = u64::from(entry.is_some());
        let task = Task {
            held: if entry.is_some() { Held::Entry } else { Held::Plain },
            inside: if filtered { Inside::No } else { Inside::Quietly },
            ..Task::first(pid)
        };
        this.tasks.insert(pid, task);
        this.queue.push_back(Event::Began { tid: pid, pid, by: 0 });
        this.queue.extend(entry.map(Event::Enter));
        this.queue.push_back(Event::Executed { pid, former: pid });
        Ok(this)
    }

    /// Until its exec has been done, and is to be told of; how that was called, where it stopped.
    fn until_exec(&mut self, child: &Traced, path: &CStr) -> Result<Option<Enter>, String> {
        let pid = child.pid;
        let on = |signal| match self.filtered {
            true => ptrace::go_on(pid, signal),
            false => ptrace::go_on_to_call(pid, signal),
        };
        let mut entry = None;
        loop {
            let status = match ptrace::wait(pid, true) {
                Ok(Some((_, status))) => status,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(format!("cannot wait for {}: {error}", path.to_string_lossy())),
            };
            self.counts.stops += 1;
            // One that was killed meanwhile says so at the next turn.
            let _ = match status {
                Status::Exited(_) | Status::Killed(..) => return Err(why(child, path, status)),
                Status::Stopped {
                    event: event::EXEC, ..
                } => return Ok(entry),
                Status::Stopped {
                    event: event::SECCOMP,
                    ..
                }
                | Status::Stopped {
                    event: 0,
                    signal: AT_CALL,
                } => {
                    entry = entry.or_else(|| exec_at(pid));
                    on(0)
                }
                Status::Stopped {
                    event: event::STOP,
                    signal: libc::SIGTRAP,
                } => on(0),
                Status::Stopped {
                    event: event::STOP, ..
                } => ptrace::listen(pid),
                Status::Stopped { event: 0, signal } => on(signal),
                Status::Stopped { .. } => on(0),
            };
        }
    }
}

/// The exec that a stopped child is about to do.
fn exec_at(pid: i32) -> Option<Enter> {
    let Ok(At::Entry(entry)) = ptrace::call(pid) else {
        return None;
    };
    let enter = super::stops::enter(pid, &entry);
    let exec = Call {
        abi: Abi::NATIVE,
        number: low(libc::SYS_execve.cast_unsigned()),
    };
    (enter.call == Some(exec)).then_some(enter)
}

/// Why nothing was executed.
fn why(child: &Traced, path: &CStr, status: Status) -> String {
    let path = path.to_string_lossy();
    match (child.failure(), status) {
        (Some((Step::Filter, error)), _) => format!(
            "cannot give {path} a filter: {error}; the kernel or a container's rules refuse it, and without a filter every \
             call stops"
        ),
        (Some((_, Errno::ENOENT)), _) => {
            format!(
                "cannot execute {path}: {}, or the interpreter that it names does not exist",
                Errno::ENOENT.text()
            )
        }
        (Some((_, Errno::ENOEXEC)), _) => format!(
            "cannot execute {path}: {}; a script needs a first line as #!/bin/sh, a program the architecture of this machine",
            Errno::ENOEXEC.text()
        ),
        (Some((_, error)), _) => format!("cannot execute {path}: {}", error.text()),
        (None, Status::Killed(signal, _)) => {
            format!("{path} was ended by signal {signal} before it was executed")
        }
        (None, _) => format!("{path} ended before it was executed"),
    }
}
