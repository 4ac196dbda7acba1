//! Ways to catch calls that a filter stops, behind one interface. What each of them costs and cannot do stands in its own
//! file. None of them knows what a call means.

pub mod inject;
pub mod notify;
mod proc;
pub mod program;
pub mod ptrace;

use crate::TraceError;
use fleetgate_calls::abi::Call;
use fleetgate_sys::ptrace::Signal;

/// What has happened to a traced task. It stands still until [`Catch::go_on`] names it, where the way can hold it at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A wanted call begins.
    Enter(Enter),
    /// A call ends, of which the result was asked for.
    Leave {
        /// Whose.
        tid: i32,
        /// The result as the register has it: -1 to -4095 are errors.
        result: i64,
    },
    /// A task is traced from here on.
    Began {
        /// It.
        tid: i32,
        /// Its process: itself, unless it is a thread.
        pid: i32,
        /// Who made it; 0: it was there before, or nobody knows.
        by: i32,
    },
    /// A process runs another program; its other threads are gone.
    Executed {
        /// The process, and its one task.
        pid: i32,
        /// The number that the task had before.
        former: i32,
    },
    /// A signal is about to be delivered.
    Signal {
        /// To whom.
        tid: i32,
        /// Which, and all that the kernel says of it.
        signal: Signal,
    },
    /// A task stopped by this signal, as a shell's job control does it. It goes on by itself.
    Stopped {
        /// Which.
        tid: i32,
        /// By which.
        signal: i32,
    },
    /// A task is gone.
    Ended {
        /// It.
        tid: i32,
        /// How.
        end: End,
    },
}

/// A call that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enter {
    /// Who makes it.
    pub tid: i32,
    /// Which; none: an architecture that has no name here, and `audit` and `number` are all that is known.
    pub call: Option<Call>,
    /// AUDIT_ARCH.
    pub audit: u32,
    /// The number as it came.
    pub number: u32,
    /// Its arguments, as the registers have them.
    pub arguments: [u64; 6],
    /// Where in the program.
    pub instruction: u64,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By this signal, with a core file or without.
    Killed(i32, bool),
    /// It is followed no more.
    Left,
}

/// How a task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// To the next call that is wanted.
    Free,
    /// To the end of the call that it is in: [`Event::Leave`]. A way that cannot takes it for `Free`.
    Result,
}

/// Whether to wait for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Only what has happened already.
    No,
    /// As long as it takes, or until the process has a signal of its own.
    Yes,
}

/// What [`Catch::next`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextEvent {
    /// This.
    Event(Event),
    /// Nothing yet: it was not to wait, or this process had a signal.
    Nothing,
    /// Nobody is traced any more.
    Over,
}

/// A way to catch calls.
pub trait Catch {
    /// The next thing that happened.
    ///
    /// # Errors
    /// The kernel's, in words: nothing can be caught any more.
    fn next(&mut self, wait: Wait) -> Result<NextEvent, TraceError>;

    /// Lets the task of an event go on, once for each event. One that is gone meanwhile is no error.
    fn go_on(&mut self, tid: i32, then: Then);

    /// Whether results can be had.
    fn has_results(&self) -> bool;

    /// Reads a stopped task's memory: how many bytes there were from `at` on, until what cannot be read.
    fn read(&self, tid: i32, at: u64, into: &mut [u8]) -> usize;

    /// Leaves everybody alone: what was attached goes on without being traced.
    fn leave(&mut self);
}
