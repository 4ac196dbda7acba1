//! Catching in a process that runs already, as [`super::notify`] does: one of its tasks is stopped for a moment and made to
//! bind all of them by a filter; its listener is fetched, and the task goes on.
//!
//! The filter stays until the process ends, and so does the guardian, which answers when the tracer has left. A process
//! without privileges gets no_new_privs for good, because the kernel takes no filter from it otherwise; that is told.
//!
//! The filter is handed over in memory that the process is made to map for it. Below its stack pointer there may be another
//! task's stack: Go's are small and lie side by side.
//!
//! A tracer that is killed in that moment leaves a task with registers that are not its own: it takes the process with it.

mod look;
mod task;

use super::notify::{Note, Notify, ONLY};
use fleetgate_calls::abi::low_signed;
use fleetgate_calls::guardian::{self, Guardian};
use fleetgate_sys::poll::{READ, Watch, poll};
use fleetgate_sys::seccomp::{Instruction, flag};
use fleetgate_sys::slots::Slots;
use fleetgate_sys::{Errno, Fd, clock, process};
use std::fmt;
pub(super) use task::made_again;
use task::{Meanwhile, Nothing, Task};

/// What was done to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// For how long one of its tasks stood still, in nanoseconds.
    pub nanos: u64,
    /// It got no_new_privs, for good.
    pub no_new_privileges: bool,
}

/// Why nothing was done, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such process, or it has ended.
    Gone,
    /// It is this one.
    Own,
    /// It is of another architecture than this program.
    Foreign,
    /// Another process traces it.
    Traced(i32),
    /// This process may not.
    Refused(Errno),
    /// None of its tasks stops.
    Busy,
    /// It runs under a filter, which may forbid what it would be made to do.
    Filtered,
    /// It may make no more calls than read, write and exit.
    Strict,
    /// It has a listener already.
    Nested,
    /// One of its threads has a filter that the others have not.
    Threads,
    /// It has no instruction that makes a system call.
    NoInstruction,
    /// The kernel refused what it was made to do.
    Kernel(Errno),
    /// The guardian cannot be had.
    Guardian(String),
    /// It got no_new_privs, for good, and then: this.
    After(Box<Error>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Gone => f.write_str("there is no such process, or it has just ended"),
            Error::Own => f.write_str("this process cannot trace itself"),
            Error::Foreign => f.write_str("it is a 32-bit program: attach without --inject"),
            Error::Traced(by) => {
                write!(f, "process {by} traces it already (strace, gdb): end that one first, or see /proc/{by}/cmdline")
            }
            Error::Refused(errno) => match look::restriction() {
                Some(3) => f.write_str("this kernel lets nobody trace (kernel.yama.ptrace_scope is 3 until it is started anew)"),
                Some(scope @ 1..) => write!(f, "this user may not trace it (kernel.yama.ptrace_scope is {scope}): do it as root"),
                _ => write!(f, "this user may not trace it ({errno}): it is another user's, or has privileges; do it as root"),
            },
            Error::Busy => f.write_str(
                "none of its threads stops: they wait in the kernel, for a disk or a child that has not executed yet; \
                 try again, or attach without --inject",
            ),
            Error::Filtered => f.write_str(
                "it runs under a seccomp filter, which may kill it for what it would be made to do: as root that filter \
                 can be suspended for the moment",
            ),
            Error::Strict => f.write_str("it is in seccomp's strict mode, in which no filter can be added: attach without --inject"),
            Error::Nested => f.write_str(
                "it has a seccomp listener already, and the kernel allows one in a line of filters (EBUSY): another tracer, \
                 a session's audit or a container's manager has it; attach without --inject",
            ),
            Error::Threads => f.write_str(
                "one of its threads has a seccomp filter that the others have not (ESRCH): all cannot be bound at once; attach without --inject",
            ),
            Error::NoInstruction => f.write_str("no instruction that makes a system call was found in its memory: attach without --inject"),
            Error::Kernel(Errno::EMFILE) => f.write_str("it has no descriptor left for the listener (EMFILE): attach without --inject"),
            Error::Kernel(errno) => write!(f, "the kernel refused what it was made to do: {errno}; attach without --inject"),
            Error::Guardian(why) => f.write_str(why),
            Error::After(error) => write!(f, "{error} (it has no_new_privs now, for good)"),
        }
    }
}

impl std::error::Error for Error {}

/// Binds process `pid` by a filter, whose answer to what is wanted is `SECCOMP_RET_USER_NOTIF`. An error leaves it as it was;
/// [`Error::After`] tells what cannot be taken back.
///
/// # Errors
/// See [`Error`].
pub fn inject(pid: i32, filter: &[Instruction], guardian: Guardian) -> Result<(Notify, Injection), Error> {
    // Whatever is traced is traced by a thread, and let go at the latest when that one ends.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| on_this_thread(pid, filter, guardian));
        thread.join().unwrap_or(Err(Error::Busy))
    })
}

fn on_this_thread(
    pid: i32,
    filter: &[Instruction],
    guardian: Guardian,
) -> Result<(Notify, Injection), Error> {
    if pid == process::id() {
        return Err(Error::Own);
    }
    let pidfd = process::pidfd_open(pid).map_err(|_| Error::Gone)?;
    let target = look::target(pid)?;
    match (target.tracer, target.seccomp) {
        (0, 1) => return Err(Error::Strict),
        (0, _) => {}
        (by, _) => return Err(Error::Traced(by)),
    }
    // No descriptor has this number: whether one can be fetched at all is to be known before the filter is there for good.
    match process::descriptor_of(&pidfd, i32::MAX) {
        Err(Errno::EBADF) => {}
        Err(Errno::ESRCH) => return Err(Error::Gone),
        Err(errno) => return Err(Error::Refused(errno)),
        Ok(_) => return Err(Error::Kernel(Errno::EINVAL)),
    }
    let slots = Slots::new().map_err(Error::Kernel)?;
    guardian.list().map_err(|e| Error::Guardian(e.to_string()))?;
    let instruction = look::instruction(pid)?;
    let task = stop(pid, &target, instruction)?;
    let since = clock::monotonic();

    if target.seccomp != 0 && !task.unfiltered {
        task.release()?;
        return Err(Error::Filtered);
    }
    let mut injected = Injected {
        task,
        pid,
        page: 0,
        length: 0,
        no_new_privileges: false,
    };
    let outcome = injected.bind(filter, pidfd, slots, guardian);
    let no_new_privileges = injected.no_new_privileges;
    let (outcome, released) = injected.finish(outcome);
    let nanos = (clock::monotonic().as_nanos() - since.as_nanos()).unsigned_abs();
    let after = |error| {
        if no_new_privileges {
            Error::After(Box::new(error))
        } else {
            error
        }
    };
    let notify = outcome.map_err(after)?;
    released?;
    Ok((
        notify,
        Injection {
            nanos,
            no_new_privileges,
        },
    ))
}

/// Stops the first of its tasks that stops.
fn stop(pid: i32, target: &look::Target, instruction: u64) -> Result<Task, Error> {
    let mut last = Error::Gone;
    for tid in &target.tasks {
        match Task::stop(*tid, instruction) {
            Err(Error::Gone) if *tid != pid => {}
            Err(error @ (Error::Busy | Error::Gone)) => last = error,
            Err(Error::Refused(errno)) => {
                let by = look::target(pid).map_or(0, |now| now.tracer);
                return Err(if by == 0 {
                    Error::Refused(errno)
                } else {
                    Error::Traced(by)
                });
            }
            other => return other,
        }
    }
    Err(last)
}

/// A process of which one task is lent.
struct Injected {
    task: Task,
    pid: i32,
    /// What it has mapped for the filter.
    page: u64,
    length: u64,
    no_new_privileges: bool,
}

impl Injected {
    /// Installs the filter, and has its listener here and with the guardian.
    fn bind(
        &mut self,
        filter: &[Instruction],
        pidfd: Fd,
        slots: Slots,
        guardian: Guardian,
    ) -> Result<Notify, Error> {
        const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let at = |page: u64| program(filter, page);
        let length = at(0).len() as u64;
        let map = [0, length, BOTH as u64, PRIVATE as u64, u64::MAX, 0];
        self.page = self.task.call(libc::SYS_mmap, map, &mut Nothing)?;
        self.length = length;
        self.task.write(self.page, &at(self.page))?;

        // One descriptor less afterwards, and there is one for the listener.
        let spare = pidfd.duplicate(0).map_err(Error::Kernel)?;
        let mut notes = Vec::new();
        let wanted = flag::ALL_THREADS
            | flag::ALL_THREADS_ERROR
            | flag::NEW_LISTENER
            | flag::NO_MITIGATION
            | flag::WAIT_KILLABLE;
        let number = match self.install(wanted) {
            Err(Error::Kernel(Errno::EINVAL)) => {
                notes.push(Note::Interruptible);
                self.install(wanted & !flag::WAIT_KILLABLE)
            }
            other => other,
        };
        let number = low_signed(number.map_err(|error| match error {
            Error::Kernel(Errno::EBUSY) => Error::Nested,
            Error::Kernel(Errno::ESRCH) => Error::Threads,
            other => other,
        })?);
        drop(spare);
        let listener = process::descriptor_of(&pidfd, number).map_err(Error::Kernel)?;
        let kept = guardian.keep(ONLY, &listener, &slots);
        let mut notify = Notify::of(listener, slots, (guardian, ONLY), self.pid, pidfd, notes);
        if let Err(error) = kept {
            notify.lost_guardian(&error);
        }
        let mut answers = Answers {
            notify: &mut notify,
            tid: self.task.tid,
            needed: !self.task.unfiltered,
        };
        self.task.call(
            libc::SYS_close,
            [i64::from(number).cast_unsigned(), 0, 0, 0, 0, 0],
            &mut answers,
        )?;
        Ok(notify)
    }

    /// The listener's number in the process.
    fn install(&mut self, flags: u32) -> Result<u64, Error> {
        const SET_MODE_FILTER: u64 = 1;
        let arguments = [SET_MODE_FILTER, flags.into(), self.page, 0, 0, 0];
        match self.task.call(libc::SYS_seccomp, arguments, &mut Nothing) {
            Err(Error::Kernel(Errno::EACCES)) => {
                let set = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
                self.task.call(libc::SYS_prctl, set, &mut Nothing)?;
                self.no_new_privileges = true;
                self.task.call(libc::SYS_seccomp, arguments, &mut Nothing)
            }
            other => other,
        }
    }

    /// Takes away what was mapped, and lets the task go.
    fn finish(self, mut outcome: Result<Notify, Error>) -> (Result<Notify, Error>, Result<(), Error>) {
        if self.length != 0 {
            let unmap = [self.page, self.length, 0, 0, 0, 0];
            let needed = !self.task.unfiltered;
            let _ = match &mut outcome {
                Ok(notify) => {
                    let tid = self.task.tid;
                    let mut answers = Answers { notify, tid, needed };
                    self.task.call(libc::SYS_munmap, unmap, &mut answers)
                }
                Err(_) => self.task.call(libc::SYS_munmap, unmap, &mut Nothing),
            };
        }
        (outcome, self.task.release())
    }
}

/// The new filter may select what the task is made to call: then it waits for an answer.
struct Answers<'a> {
    notify: &'a mut Notify,
    tid: i32,
    needed: bool,
}

impl Meanwhile for Answers<'_> {
    fn serve(&mut self) -> bool {
        const A_MILLISECOND: u32 = 1;
        if self.needed {
            let mut watch = [Watch::new(self.notify.listener().raw(), READ)];
            if poll(&mut watch, Some(A_MILLISECOND)) == Ok(1) {
                self.notify.take_but(self.tid);
            }
        }
        self.needed
    }
}

/// struct sock_fprog at `page`, and what it points to behind it.
fn program(filter: &[Instruction], page: u64) -> Vec<u8> {
    const HEAD: usize = 16;
    let mut out = Vec::with_capacity(HEAD + filter.len() * 8);
    out.extend(u16::try_from(filter.len()).unwrap_or(u16::MAX).to_ne_bytes());
    out.resize(8, 0);
    out.extend((page + HEAD as u64).to_ne_bytes());
    for step in filter {
        out.extend(step.code.to_ne_bytes());
        out.extend([step.yes, step.no]);
        out.extend(step.value.to_ne_bytes());
    }
    out
}

impl From<guardian::Error> for Error {
    fn from(error: guardian::Error) -> Error {
        Error::Guardian(error.to_string())
    }
}
