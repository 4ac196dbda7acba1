//! Catching by seccomp's user notification: a wanted call waits on a listener until it is let go on. Nothing is stopped, no
//! task is traced: gdb and strace work inside, and a signal or a wait means what it always meant.
//!
//! One thing the kernel does not hide: a signal that comes in the moment between a call and its reception here, and has a
//! handler without SA_RESTART, makes the call answer EINTR, even one that never does. (From the reception on nothing but a
//! deadly signal interrupts it, Linux 5.19.) Nobody is told, and nothing here can help it; by ptrace it does not happen.
//!
//! What it cannot do: results (a call is made after it was let go on), signals, whether an exec succeeds, and the end of a
//! task other than the first. A task is told of when its first wanted call comes.
//!
//! What is read of a task's memory was there at that moment: another thread may change it before the kernel reads it. And
//! the filter stays until the last program under it has ended; whoever is gone by then leaves that to the
//! [guardian](fleetgate_calls::guardian).

mod tasks;

use super::{Catch, End, Enter, Event, NextEvent, Then, Wait};
use crate::TraceError;
use fleetgate_calls::abi::{Call, low};
use fleetgate_calls::guardian::{self, AdoptedListener, Guardian, Image};
use fleetgate_sys::poll::{CLOSED, READ, Watch, poll};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::seccomp::{self, Waiting, flag};
use fleetgate_sys::slots::{SLOTS, Slots};
use fleetgate_sys::traced::{self, Start, Step, Traced};
use fleetgate_sys::{Errno, Fd, memory};
use std::collections::VecDeque;
use std::fmt;
use tasks::Tasks;

/// Programs whose calls come by a listener.
pub struct Notify {
    listener: Fd,
    slots: Slots,
    /// What is in each slot.
    held: Vec<Option<Waiting>>,
    first: Option<First>,
    guardian: Option<(Guardian, u64)>,
    tasks: Tasks,
    queue: VecDeque<Event>,
    also: Option<i32>,
    notes: Vec<Note>,
    /// Nobody is bound by the filter any more.
    hung_up: bool,
    left: bool,
    /// How many more guardians are started when one ends.
    guardians: u32,
}

/// The process that was started, or attached to.
struct First {
    pid: i32,
    /// None: it has ended.
    pidfd: Option<Fd>,
    /// It is a child of this process: its end is told with its code.
    child: Option<Traced>,
    /// What it calls is the program's by now.
    begun: bool,
}

/// What is otherwise than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Linux before 5.19: a signal makes a waiting call begin again, and it is shown once more.
    Interruptible,
    /// Linux before 6.6: each call wakes the tracer on whatever processor.
    NoTurns,
    /// The filter was to be had for no_new_privs only: setuid programs run without their privileges.
    NoNewPrivileges,
    /// The guardian had ended; another one was started.
    NewGuardian,
    /// If the tracer dies, so do the wanted calls: they answer ENOSYS.
    NoGuardian(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Interruptible => f.write_str(
                "this kernel (before 5.19) begins a call anew when a signal comes while it waits for the tracer: \
                 such calls are shown twice",
            ),
            Note::NoTurns => f.write_str("this kernel (before 6.6) does not let program and tracer take turns on one processor: calls cost more"),
            Note::NoNewPrivileges => f.write_str(
                "the kernel takes the filter of an ordinary user only with no_new_privs: programs with the setuid bit \
                 run without it; trace as root to keep it",
            ),
            Note::NewGuardian => f.write_str("the guardian was killed; another one was started"),
            Note::NoGuardian(why) => write!(f, "{why}; if the tracer is killed, the traced calls answer ENOSYS"),
        }
    }
}

/// Why nothing is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not even a process was to be had.
    Fork(Errno),
    /// The kernel did not take the filter.
    Filter(Errno),
    /// The program was not executed.
    Exec(Errno),
    /// The child was killed before it came to the program.
    Killed,
    /// Memory for the slots.
    Slots(Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Fork(errno) => write!(f, "no process for the program: {errno}"),
            Error::Filter(Errno::EBUSY) => f.write_str(
                "this program runs under a listener already, and the kernel allows one in a line of filters (EBUSY): \
                 trace by ptrace instead, or from outside",
            ),
            Error::Filter(Errno::EINVAL) => f.write_str(
                "the kernel did not take the filter (EINVAL): user notification needs Linux 5.5; trace by ptrace instead",
            ),
            Error::Filter(errno) => write!(f, "the kernel did not take the filter: {errno}; trace by ptrace instead"),
            Error::Exec(errno) => write!(f, "the program cannot be executed: {errno}"),
            Error::Killed => f.write_str("the program was killed before it began"),
            Error::Slots(errno) => write!(f, "no memory for calls that wait: {errno}"),
        }
    }
}

impl std::error::Error for Error {}

/// The most guardians that are started in place of those that end.
pub const MAX_GUARDIANS: u32 = 3;

/// The id that a guardian of one listener knows it by.
pub const ONLY: u64 = 1;

impl Notify {
    /// Starts a program under a filter, whose answer to what is wanted is `SECCOMP_RET_USER_NOTIF`; `flags` of `what` are
    /// not looked at. The guardian is given the listener before the program's first instruction runs.
    ///
    /// # Errors
    /// See [`Error`]; a program that cannot be executed is told of by [`Notify::failure`] after its end.
    pub fn start(what: &Start<'_>, guardian: Result<Guardian, guardian::Error>) -> Result<Notify, Error> {
        let mut notes = Vec::new();
        let slots = Slots::new().map_err(Error::Slots)?;
        let wanted = flag::NEW_LISTENER | flag::NO_MITIGATION | flag::WAIT_KILLABLE;
        let (child, listener) = match Self::child(what, wanted) {
            Err(Error::Filter(Errno::EINVAL)) => {
                notes.push(Note::Interruptible);
                Self::child(what, wanted & !flag::WAIT_KILLABLE)
            }
            other => other,
        }?;
        if child.gave_up_privileges() {
            notes.push(Note::NoNewPrivileges);
        }
        let pid = child.pid;
        let first = First {
            pid,
            pidfd: Some(child.pidfd.duplicate(0).map_err(Error::Slots)?),
            child: Some(child),
            begun: false,
        };
        let mut notify = Notify::new(listener, slots, Some(first), notes);
        notify.guard(guardian);
        if let Some(child) = notify.first.as_ref().and_then(|f| f.child.as_ref()) {
            child.go();
        }
        notify.begin(pid);
        Ok(notify)
    }

    fn child(what: &Start<'_>, flags: u32) -> Result<(Traced, Fd), Error> {
        let child = traced::start(&Start { flags, ..*what }).map_err(Error::Fork)?;
        child.begin();
        if let Some(listener) = child.listener() {
            return Ok((child, listener));
        }
        let _ = process::wait(&child.pidfd, true);
        Err(match child.failure() {
            Some((Step::Filter, errno)) => Error::Filter(errno),
            Some((_, errno)) => Error::Exec(errno),
            None => Error::Killed,
        })
    }

    /// Goes on where a guardian answers: after [`Guardian::adopt`]. `pid` is the first process, if it is known and lives.
    #[must_use]
    pub fn adopted(guardian: Guardian, adopted: AdoptedListener, first: Option<(i32, Fd)>) -> Notify {
        let first = first.map(|(pid, pidfd)| First {
            pid,
            pidfd: Some(pidfd),
            child: None,
            begun: true,
        });
        let mut notify = Notify::new(adopted.listener, adopted.slots, first, Vec::new());
        notify.guardian = Some((guardian, adopted.kept.id));
        notify
    }

    /// What an injection brought.
    pub(super) fn of(
        listener: Fd,
        slots: Slots,
        guardian: (Guardian, u64),
        pid: i32,
        pidfd: Fd,
        notes: Vec<Note>,
    ) -> Notify {
        let first = First {
            pid,
            pidfd: Some(pidfd),
            child: None,
            begun: true,
        };
        let mut notify = Notify::new(listener, slots, Some(first), notes);
        notify.guardian = Some(guardian);
        notify.begin(pid);
        notify
    }

    /// What waits.
    pub(super) fn listener(&self) -> &Fd {
        &self.listener
    }

    /// Takes a call off the listener, and lets it go on unseen if it is this task's.
    pub(super) fn take_but(&mut self, tid: i32) {
        let _ = self.take();
        if self
            .queue
            .back()
            .is_some_and(|e| matches!(e, Event::Enter(enter) if enter.tid == tid))
        {
            self.queue.pop_back();
            self.go_on(tid, Then::Free);
        }
    }

    /// The guardian cannot be told of the listener.
    pub(super) fn lost_guardian(&mut self, error: &guardian::Error) {
        self.guardian = None;
        self.notes.push(Note::NoGuardian(error.to_string()));
    }

    fn begin(&mut self, pid: i32) {
        self.tasks.add(pid);
        self.queue.push_back(Event::Began { tid: pid, pid, by: 0 });
    }

    fn new(listener: Fd, slots: Slots, first: Option<First>, mut notes: Vec<Note>) -> Notify {
        if seccomp::take_turns(&listener).is_err() {
            notes.push(Note::NoTurns);
        }
        Notify {
            listener,
            slots,
            held: vec![None; SLOTS],
            first,
            guardian: None,
            tasks: Tasks::default(),
            queue: VecDeque::new(),
            also: None,
            notes,
            hung_up: false,
            left: false,
            guardians: MAX_GUARDIANS,
        }
    }

    fn guard(&mut self, guardian: Result<Guardian, guardian::Error>) {
        let kept = guardian.and_then(|guardian| {
            guardian.keep(ONLY, &self.listener, &self.slots)?;
            Ok(guardian)
        });
        match kept {
            Ok(guardian) => self.guardian = Some((guardian, ONLY)),
            Err(error) => self.notes.push(Note::NoGuardian(error.to_string())),
        }
    }

    /// The guardian has ended. What it kept is here still, so another one can have it.
    fn guard_again(&mut self) {
        let ended = self.guardian.take();
        let own = ended.filter(|(guardian, _)| guardian.process().is_some() && self.guardians > 0);
        let Some((_, id)) = own else {
            self.notes.push(Note::NoGuardian("the guardian has ended".into()));
            return;
        };
        self.guardians -= 1;
        let next = Guardian::start(&Image::own(), None);
        let kept = next.and_then(|guardian| {
            guardian.keep(id, &self.listener, &self.slots)?;
            Ok(guardian)
        });
        match kept {
            Ok(guardian) => {
                self.guardian = Some((guardian, id));
                self.notes.push(Note::NewGuardian);
            }
            Err(error) => self.notes.push(Note::NoGuardian(error.to_string())),
        }
    }

    /// The first process.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.first.as_ref().map(|f| f.pid)
    }

    /// What is otherwise than wanted, each told once: more may come later.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Why the program was not executed, after its end.
    #[must_use]
    pub fn failure(&self) -> Option<(Step, Errno)> {
        self.first.as_ref()?.child.as_ref()?.failure()
    }

    /// A descriptor that ends a wait when it is readable: [`NextEvent::Nothing`]. For signals.
    pub fn wake_by(&mut self, fd: &Fd) {
        self.also = Some(fd.raw());
    }

    /// Waits for news: of the first process, of the guardian, of whoever ends a wait, of calls.
    fn look(&self, wait: Wait) -> Result<[i16; 4], Errno> {
        let first = self
            .first
            .as_ref()
            .and_then(|f| f.pidfd.as_ref())
            .map_or(-1, Fd::raw);
        let guardian = self.guardian.as_ref().map_or(-1, |(g, _)| g.socket().raw());
        let mut watches = [
            Watch::new(if self.hung_up { -1 } else { self.listener.raw() }, READ),
            Watch::new(first, READ),
            Watch::new(guardian, READ),
            Watch::new(self.also.unwrap_or(-1), READ),
        ];
        poll(&mut watches, (wait == Wait::No).then_some(0))?;
        Ok(watches.map(|w| w.happened()))
    }

    /// Takes a call off the listener. None: it was withdrawn, or is none of the program's own.
    fn take(&mut self) -> Result<Option<()>, Errno> {
        let Some(slot) = self.held.iter().position(Option::is_none) else {
            return Ok(None);
        };
        let waiting = match self.slots.receive(slot, &self.listener) {
            Ok(Some(waiting)) => waiting,
            Ok(None) | Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        self.held[slot] = Some(waiting);
        if self.is_no_program(&waiting) {
            self.answer(slot);
            return Ok(None);
        }
        // Where a signal began it anew, its former self waits no more.
        let former = |h: &Option<Waiting>| h.is_some_and(|h| h.pid == waiting.pid && h.id != waiting.id);
        if waiting.pid != 0
            && let Some(stale) = self.held.iter().position(former)
        {
            self.answer(stale);
        }
        if let Some(began) = self.tasks.meet(waiting.pid) {
            self.queue.push_back(began);
        }
        self.queue.push_back(Event::Enter(enter(&waiting)));
        Ok(Some(()))
    }

    /// A call of the child's, before it is the program, or when it could not become it and ends itself.
    fn is_no_program(&mut self, waiting: &Waiting) -> bool {
        let Some(first) = self.first.as_mut().filter(|f| f.pid == waiting.pid) else {
            return false;
        };
        let Some(child) = &first.child else { return false };
        let is_own = !first.begun && {
            let (is_own, is_last) = child.is_own(waiting);
            first.begun = is_last || !is_own;
            is_own
        };
        is_own || child.failure().is_some()
    }

    fn answer(&mut self, slot: usize) {
        if let Some(waiting) = self.held[slot].take() {
            // ENOENT: its caller is gone.
            let _ = seccomp::allow(&self.listener, &waiting);
            self.slots.free(slot);
        }
    }

    /// The first process has ended.
    fn end(&mut self) {
        let Some(first) = &mut self.first else { return };
        let Some(pidfd) = first.pidfd.take() else { return };
        let end = match first.child.as_ref().map(|_| process::wait(&pidfd, true)) {
            Some(Ok(Some(Exit::Code(code)))) => End::Exited(code),
            Some(Ok(Some(Exit::Signal { number, core }))) => End::Killed(number, core),
            _ => End::Left,
        };
        let tid = first.pid;
        self.queue.push_back(Event::Ended { tid, end });
    }
}

fn enter(waiting: &Waiting) -> Enter {
    let number = low(waiting.call.cast_unsigned());
    Enter {
        tid: waiting.pid,
        call: Call::seen(waiting.audit, number),
        audit: waiting.audit,
        number,
        arguments: waiting.arguments,
        instruction: waiting.instruction,
    }
}

impl Catch for Notify {
    fn next(&mut self, wait: Wait) -> Result<NextEvent, TraceError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(NextEvent::Event(event));
            }
            let has_first = self.first.as_ref().is_some_and(|f| f.pidfd.is_some());
            if self.left || self.hung_up && !has_first {
                return Ok(NextEvent::Over);
            }
            let words = |what, errno| format!("{what}: {errno}; the programs go on without being traced");
            let [listener, first, guardian, also] = self
                .look(wait)
                .map_err(|e| words("waiting for the next call", e))?;
            if guardian != 0 {
                self.guard_again();
            }
            self.hung_up |= listener & CLOSED != 0 && listener & READ == 0;
            if listener & READ != 0 && self.held.iter().all(Option::is_some) {
                return Ok(NextEvent::Nothing);
            } else if listener & READ != 0 {
                self.take().map_err(|e| words("receiving a call", e))?;
            } else if first != 0 {
                // A call that waits keeps its process, so this is after its last one.
                self.end();
            } else if also != 0 || wait == Wait::No {
                return Ok(NextEvent::Nothing);
            }
        }
    }

    fn go_on(&mut self, tid: i32, _: Then) {
        if let Some(slot) = self.held.iter().position(|h| h.is_some_and(|h| h.pid == tid)) {
            self.answer(slot);
        }
    }

    fn has_results(&self) -> bool {
        false
    }

    fn read(&self, tid: i32, at: u64, into: &mut [u8]) -> usize {
        let Some(waiting) = self.held.iter().flatten().find(|h| h.pid == tid) else {
            return 0;
        };
        match memory::read(tid, at, into) {
            // Killed meanwhile, its number may be another's: that one's memory is nobody's business.
            Ok(got) if seccomp::is_waiting(&self.listener, waiting) => got,
            _ => 0,
        }
    }

    fn leave(&mut self) {
        for slot in 0..SLOTS {
            self.answer(slot);
        }
        self.queue.clear();
        if let Some((guardian, id)) = &self.guardian {
            let _ = guardian.answer(*id);
        }
        self.left = true;
    }
}
