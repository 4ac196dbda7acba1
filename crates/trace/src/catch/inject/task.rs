//! A task that is stopped and lent: it makes system calls for somebody else, and goes on as if nothing had been.
//!
//! A task that waits in a call leaves it when it is stopped, and the kernel notes in its registers that the call is to be
//! made again. It does so on the way back from the stop alone, so what was saved is written back at a stop of that very
//! kind. What a call that was cut short has to remember (the rest of a sleep) is the kernel's, and none of the calls that
//! are made here touches it. Signals wait until all is done: a handler would run on registers that are not the program's.

use super::{Error, look};
use fleetgate_calls::abi::low_signed;
use fleetgate_sys::ptrace::{self, AT_CALL, At, Registers, Status, event, option};
use fleetgate_sys::{Errno, clock, memory};

/// How often a task is asked to stop, and for how long it is waited for each time, in nanoseconds: a second in all.
const PATIENCE: u32 = 1000;
const MOMENT: u32 = 1_000_000;
/// How often a task that is found where nobody may meddle is let on.
const TRIES: u32 = 20;

/// A stopped task.
pub(super) struct Task {
    pub(super) tid: i32,
    saved: Registers,
    blocked: u64,
    instruction: u64,
    /// No filter is asked for its calls meanwhile.
    pub(super) unfiltered: bool,
}

/// What waits for a call that the task makes, beside the stop: the task may wait for us.
pub(super) trait Meanwhile {
    /// Called until the task has stopped; false: there is nothing to do, just wait.
    fn serve(&mut self) -> bool;
}

/// Nothing.
pub(super) struct Nothing;

impl Meanwhile for Nothing {
    fn serve(&mut self) -> bool {
        false
    }
}

impl Task {
    /// Stops it. `instruction` makes system calls.
    pub(super) fn stop(tid: i32, instruction: u64) -> Result<Task, Error> {
        let unfiltered = seize(tid)?;
        for _ in 0..TRIES {
            ptrace::interrupt(tid).map_err(|_| Error::Gone)?;
            stopped(tid)?;
            let saved = ptrace::registers(tid).map_err(|_| Error::Gone)?;
            if !saved.is_native() {
                let _ = ptrace::detach(tid, 0);
                return Err(Error::Foreign);
            }
            if is_restartable(tid, &saved) {
                ptrace::go_on(tid, 0).map_err(|_| Error::Gone)?;
                continue;
            }
            let blocked = ptrace::blocked(tid).map_err(|_| Error::Gone)?;
            ptrace::set_blocked(tid, u64::MAX).map_err(|_| Error::Gone)?;
            return Ok(Task {
                tid,
                saved: made_again(tid, saved, blocked),
                blocked,
                instruction,
                unfiltered,
            });
        }
        // It runs on; its tracer is this thread, which ends.
        Err(Error::Busy)
    }

    /// Makes it call the kernel.
    pub(super) fn call(
        &self,
        number: i64,
        arguments: [u64; 6],
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<u64, Error> {
        let calling = self
            .saved
            .calling(self.instruction, number.cast_unsigned(), arguments);
        ptrace::set_registers(self.tid, &calling).map_err(|_| Error::Gone)?;
        let mut passed = 0;
        loop {
            ptrace::go_on_to_call(self.tid, passed).map_err(|_| Error::Gone)?;
            passed = 0;
            match self.next(meanwhile)? {
                (AT_CALL, 0) => match ptrace::call(self.tid) {
                    Ok(At::Exit(result)) if (-4095..0).contains(&result) => {
                        return Err(Error::Kernel(Errno(low_signed(
                            result.wrapping_neg().cast_unsigned(),
                        ))));
                    }
                    Ok(At::Exit(result)) => return Ok(result.cast_unsigned()),
                    Ok(_) => {}
                    Err(_) => return Err(Error::Gone),
                },
                // Job control; it takes effect when the task is let go.
                (signal, 0) => passed = signal,
                _ => {}
            }
        }
    }

    /// Writes into its memory.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match memory::write(self.tid, at, bytes) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(Error::Kernel(Errno::EFAULT)),
            Err(errno) => Err(Error::Kernel(errno)),
        }
    }

    /// Gives it back.
    pub(super) fn release(self) -> Result<(), Error> {
        ptrace::interrupt(self.tid).map_err(|_| Error::Gone)?;
        ptrace::go_on(self.tid, 0).map_err(|_| Error::Gone)?;
        loop {
            match self.next(&mut Nothing)? {
                (_, event::STOP) => break,
                (signal, _) => ptrace::go_on(self.tid, signal & !0x80).map_err(|_| Error::Gone)?,
            }
        }
        ptrace::set_registers(self.tid, &self.saved).map_err(|_| Error::Gone)?;
        ptrace::set_blocked(self.tid, self.blocked).map_err(|_| Error::Gone)?;
        ptrace::detach(self.tid, 0).map_err(|_| Error::Gone)
    }

    /// Its next stop: signal and event.
    fn next(&self, meanwhile: &mut dyn Meanwhile) -> Result<(i32, u8), Error> {
        loop {
            let busy = meanwhile.serve();
            match ptrace::wait(self.tid, !busy) {
                Ok(Some((_, Status::Stopped { signal, event }))) => return Ok((signal, event)),
                Ok(None) | Err(Errno::EINTR) => {}
                _ => return Err(Error::Gone),
            }
        }
    }
}

/// A few calls are not made again by the kernel, whoever stops the task; then it is done here.
pub(in crate::catch) fn made_again(tid: i32, registers: Registers, blocked: u64) -> Registers {
    /// `syscall`, behind which the task stands.
    const LENGTH: u64 = 2;
    match registers.cut_short() {
        Some((call, arguments)) if look::again(call, &arguments) && !look::has_signal(tid, blocked) => {
            registers.calling(registers.instruction() - LENGTH, call, arguments)
        }
        _ => registers,
    }
}

/// Traces it; whether no filter is asked meanwhile, which takes a privilege.
fn seize(tid: i32) -> Result<bool, Error> {
    if ptrace::seize(tid, option::SYSGOOD | option::SUSPEND_SECCOMP).is_ok() {
        return Ok(true);
    }
    match ptrace::seize(tid, option::SYSGOOD) {
        Ok(()) => Ok(false),
        Err(Errno::ESRCH) => Err(Error::Gone),
        Err(errno) => Err(Error::Refused(errno)),
    }
}

/// Waits until it has stopped because it was asked to.
fn stopped(tid: i32) -> Result<(), Error> {
    let mut waited = 0;
    loop {
        match ptrace::wait(tid, false) {
            Ok(Some((
                _,
                Status::Stopped {
                    event: event::STOP, ..
                },
            ))) => return Ok(()),
            // A signal was faster: the program has it as it would have had it.
            Ok(Some((_, Status::Stopped { signal, event }))) => {
                let signal = if event == 0 && signal != AT_CALL {
                    signal
                } else {
                    0
                };
                ptrace::go_on(tid, signal).map_err(|_| Error::Gone)?;
            }
            Ok(Some(_)) => return Err(Error::Gone),
            Ok(None) | Err(Errno::EINTR) if waited < PATIENCE => {
                // At first in short steps: most tasks stop at once.
                clock::pause(MOMENT.min(10_000 << waited.min(7)));
                waited += 1;
            }
            Ok(None) | Err(Errno::EINTR) => return Err(Error::Busy),
            Err(_) => return Err(Error::Gone),
        }
    }
}

/// Whether it stands in a sequence that the kernel begins anew when it is interrupted (rseq): moved elsewhere and back, it
/// would be taken for one that never was.
fn is_restartable(tid: i32, registers: &Registers) -> bool {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        (memory::read(tid, at, &mut bytes) == Ok(8)).then(|| u64::from_ne_bytes(bytes))
    };
    let inside = || {
        let area = ptrace::restartable(tid).ok().filter(|at| *at != 0)?;
        // struct rseq: two processor numbers, then the address of struct rseq_cs: version and flags, start, length.
        let sequence = word(area + 8)?;
        let start = word(sequence.checked_add(8)?)?;
        let length = word(sequence.checked_add(16)?)?;
        Some(sequence != 0 && registers.instruction().wrapping_sub(start) < length)
    };
    inside().unwrap_or(false)
}
