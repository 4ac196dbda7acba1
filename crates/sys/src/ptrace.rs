//! Tracing other processes, by ptrace(2): one function for each of its requests that the tracer makes, and the wait that
//! tells of stops. All of it is for tasks that this very thread traces.

use crate::{Errno, Result, syscall};
use core::mem::MaybeUninit;

/// What a traced task tells of, beside its stops by signals: `PTRACE_O_*`, or-ed.
pub mod option {
    /// Stops at system calls are told from those by SIGTRAP.
    pub const SYSGOOD: usize = 1;
    /// A fork, and the child is traced too.
    pub const FORK: usize = 1 << 1;
    /// A vfork, and the child is traced too.
    pub const VFORK: usize = 1 << 2;
    /// A clone, and the child is traced too.
    pub const CLONE: usize = 1 << 3;
    /// An exec.
    pub const EXEC: usize = 1 << 4;
    /// The end, before it.
    pub const EXIT: usize = 1 << 6;
    /// What a filter answers with `SECCOMP_RET_TRACE`.
    pub const SECCOMP: usize = 1 << 7;
    /// When the tracer ends, what it traces is killed.
    pub const EXIT_KILL: usize = 1 << 20;
    /// No filter is asked as long as it is traced. Needs CAP_SYS_ADMIN and no filter of the tracer's own.
    pub const SUSPEND_SECCOMP: usize = 1 << 21;
}

/// Why a task stopped beside a signal: the third byte of its status.
pub mod event {
    /// See [`super::option::FORK`]; [`super::message`] has the child.
    pub const FORK: u8 = 1;
    /// See [`super::option::VFORK`].
    pub const VFORK: u8 = 2;
    /// See [`super::option::CLONE`].
    pub const CLONE: u8 = 3;
    /// See [`super::option::EXEC`]; [`super::message`] has the task's former number.
    pub const EXEC: u8 = 4;
    /// See [`super::option::EXIT`]; [`super::message`] has the status.
    pub const EXIT: u8 = 6;
    /// See [`super::option::SECCOMP`].
    pub const SECCOMP: u8 = 7;
    /// It was interrupted, is new, or its group was stopped.
    pub const STOP: u8 = 128;
}

/// What has become of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ended with this code.
    Exited(i32),
    /// This signal ended it; with a core file or without.
    Killed(i32, bool),
    /// It stands still.
    Stopped {
        /// By which signal; with bit 7, at a system call.
        signal: i32,
        /// Of [`event`]; 0: nothing but the signal.
        event: u8,
    },
}

/// In [`Status::Stopped`]: the stop is at a system call's beginning or end.
pub const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// Waits for a task that this thread traces, or a child that it made; -1: any. What other threads of the process trace or
/// made is never looked at. `None`: nothing has happened, and it was not to wait. `ECHILD`: there is nobody. `EINTR`: this
/// thread had a signal.
pub fn wait(which: i32, block: bool) -> Result<Option<(i32, Status)>> {
    let mut status = 0i32;
    let flags = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    // SAFETY: the kernel writes one number.
    let tid = unsafe { syscall!(libc::SYS_wait4, which, &raw mut status, flags, 0) }?;
    if tid == 0 {
        return Ok(None);
    }
    let status = match status & 0x7f {
        0 => Status::Exited((status >> 8) & 0xff),
        0x7f => Status::Stopped {
            signal: (status >> 8) & 0xff,
            event: (status >> 16) as u8,
        },
        signal => Status::Killed(signal, status & 0x80 != 0),
    };
    Ok(Some((tid as i32, status)))
}

/// Traces a task from here on, without stopping it.
pub fn seize(tid: i32, options: usize) -> Result<()> {
    request(libc::PTRACE_SEIZE as usize, tid, 0, options)
}

/// Stops a task; [`wait`] tells of it with [`event::STOP`].
pub fn interrupt(tid: i32) -> Result<()> {
    request(libc::PTRACE_INTERRUPT as usize, tid, 0, 0)
}

/// Lets a stopped task go on, with this signal (0: none), until something else stops it.
pub fn go_on(tid: i32, signal: i32) -> Result<()> {
    request(libc::PTRACE_CONT as usize, tid, 0, signal as usize)
}

/// The same, until the next system call begins or the one that it is in ends.
pub fn go_on_to_call(tid: i32, signal: i32) -> Result<()> {
    request(libc::PTRACE_SYSCALL as usize, tid, 0, signal as usize)
}

/// Leaves a task stopped that job control stopped, and hears when it goes on.
pub fn listen(tid: i32) -> Result<()> {
    request(libc::PTRACE_LISTEN as usize, tid, 0, 0)
}

/// Traces a stopped task no more; it goes on, with this signal.
pub fn detach(tid: i32, signal: i32) -> Result<()> {
    request(libc::PTRACE_DETACH as usize, tid, 0, signal as usize)
}

/// Changes what a stopped task tells of.
pub fn set_options(tid: i32, options: usize) -> Result<()> {
    request(libc::PTRACE_SETOPTIONS as usize, tid, 0, options)
}

/// What a stop's [`event`] has to say: see there.
pub fn message(tid: i32) -> Result<usize> {
    let mut message = 0usize;
    request(
        libc::PTRACE_GETEVENTMSG as usize,
        tid,
        0,
        &raw mut message as usize,
    )?;
    Ok(message)
}

/// Requests that take numbers, or the address of something that the kernel reads or writes.
fn request(request: usize, tid: i32, address: usize, data: usize) -> Result<()> {
    // SAFETY: private to this file: numbers only, or the address of what lives in the caller and is as long as the kernel
    // takes it to be (GETEVENTMSG, GETSIGINFO), or as `address` says (the masks, rseq, filters).
    unsafe { syscall!(libc::SYS_ptrace, request, tid, address, data) }.map(drop)
}

/// The signal that a task stopped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// `si_code`: above 0 it is the kernel's word.
    pub code: i32,
    /// Who sent it, by whose id, where it was sent by kill, tgkill or sigqueue.
    pub pid: i32,
    /// See `pid`.
    pub uid: u32,
    /// The address of a fault.
    pub address: u64,
    /// Of a child: its exit code, or the signal that ended or stopped it.
    pub status: i32,
    /// Of a child: the ticks of the clock (`sysconf(_SC_CLK_TCK)`, 100 a second) that it had as itself.
    pub user: i64,
    /// And in the kernel.
    pub system: i64,
    /// What the sender gave with it, where it was sent by sigqueue or a timer.
    pub value: u64,
}

/// The signal of a stop. `EINVAL`: it is a stop of the whole group.
pub fn signal(tid: i32) -> Result<Signal> {
    // siginfo_t: signo, errno, code, padding, then a union: pid and uid, then status, padding, user and system time of a
    // child or the sender's value; or an address; 128 bytes.
    let mut info = [0u32; 32];
    request(
        libc::PTRACE_GETSIGINFO as usize,
        tid,
        0,
        info.as_mut_ptr() as usize,
    )?;
    let wide = |at: usize| u64::from(info[at]) | u64::from(info[at + 1]) << 32;
    Ok(Signal {
        number: info[0] as i32,
        code: info[2] as i32,
        pid: info[4] as i32,
        uid: info[5],
        address: wide(4),
        status: info[6] as i32,
        user: wide(8) as i64,
        system: wide(10) as i64,
        value: wide(6),
    })
}

/// Where a stopped task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At no system call.
    Elsewhere,
    /// Where one begins; from a filter or not.
    Entry(Entry),
    /// Where one ends, with this result: -1 to -4095 are errors.
    Exit(i64),
}

/// A system call that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// AUDIT_ARCH.
    pub audit: u32,
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Where the program is.
    pub instruction: u64,
    /// Where its stack is.
    pub stack: u64,
}

/// struct ptrace_syscall_info: op, arch, instruction, stack; then by op.
#[repr(C)]
struct CallInfo {
    op: u8,
    _pad: [u8; 3],
    arch: u32,
    instruction: u64,
    stack: u64,
    /// Entry: number and arguments. Exit: result, and whether it is an error.
    rest: [u64; 8],
}

/// Where a stopped task is, and with what: one system call.
pub fn call(tid: i32) -> Result<At> {
    const GET_SYSCALL_INFO: usize = 0x420e;
    let mut info = MaybeUninit::<CallInfo>::zeroed();
    // SAFETY: the kernel writes at most the size it is told, which is the structure's.
    unsafe {
        syscall!(
            libc::SYS_ptrace,
            GET_SYSCALL_INFO,
            tid,
            size_of::<CallInfo>(),
            info.as_mut_ptr()
        )
    }?;
    // SAFETY: numbers alone, all of them set to zero before.
    let info = unsafe { info.assume_init() };
    let [number, a, b, c, d, e, f, _] = info.rest;
    Ok(match info.op {
        1 | 3 => At::Entry(Entry {
            audit: info.arch,
            number,
            arguments: [a, b, c, d, e, f],
            instruction: info.instruction,
            stack: info.stack,
        }),
        2 => At::Exit(number as i64),
        _ => At::Elsewhere,
    })
}

/// A stopped task's registers, as its own architecture has them.
#[derive(Clone, Copy)]
pub struct Registers {
    words: [u64; WORDS],
    length: usize,
}

/// More than any architecture's.
const WORDS: usize = 40;
const PRSTATUS: usize = 1;

/// Reads them.
pub fn registers(tid: i32) -> Result<Registers> {
    let mut registers = Registers {
        words: [0; WORDS],
        length: 0,
    };
    let mut part = libc::iovec {
        iov_base: registers.words.as_mut_ptr().cast(),
        iov_len: size_of_val(&registers.words),
    };
    // SAFETY: the kernel writes at most what the iovec has room for, and says there how much.
    unsafe {
        syscall!(
            libc::SYS_ptrace,
            libc::PTRACE_GETREGSET,
            tid,
            PRSTATUS,
            &raw mut part
        )
    }?;
    registers.length = part.iov_len;
    Ok(registers)
}

/// Writes them.
pub fn set_registers(tid: i32, registers: &Registers) -> Result<()> {
    let mut part = libc::iovec {
        iov_base: registers.words.as_ptr().cast_mut().cast(),
        iov_len: registers.length,
    };
    // SAFETY: the kernel reads what the iovec says, which is in the array.
    unsafe {
        syscall!(
            libc::SYS_ptrace,
            libc::PTRACE_SETREGSET,
            tid,
            PRSTATUS,
            &raw mut part
        )
    }
    .map(drop)
}

/// The signals that a stopped task blocks: a bit for each, from 1. Where it is in a call that blocks others meanwhile
/// (ppoll, sigsuspend), those that it blocks afterwards.
pub fn blocked(tid: i32) -> Result<u64> {
    const GET_SIGMASK: usize = 0x420a;
    let mut mask = 0u64;
    request(GET_SIGMASK, tid, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Changes them.
pub fn set_blocked(tid: i32, mask: u64) -> Result<()> {
    const SET_SIGMASK: usize = 0x420b;
    request(SET_SIGMASK, tid, size_of::<u64>(), &raw const mask as usize)
}

/// Where a stopped task keeps its struct rseq; 0: nowhere. Linux 5.13.
pub fn restartable(tid: i32) -> Result<u64> {
    const GET_RSEQ_CONFIGURATION: usize = 0x420f;
    // struct ptrace_rseq_configuration: address; size, signature; flags, padding.
    let mut configuration = [0u64; 3];
    let at = configuration.as_mut_ptr() as usize;
    request(GET_RSEQ_CONFIGURATION, tid, size_of_val(&configuration), at)?;
    Ok(configuration[0])
}

/// struct user_regs_struct of x86_64, by name.
#[cfg(target_arch = "x86_64")]
mod at {
    pub const BP: usize = 4;
    pub const RESULT: usize = 10;
    pub const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
    pub const CALL: usize = 15;
    pub const INSTRUCTION: usize = 16;
    pub const STACK: usize = 19;
    /// The bytes of a whole set; a 32-bit program has another.
    pub const LENGTH: usize = 27 * 8;
}

/// struct user_pt_regs of aarch64.
#[cfg(target_arch = "aarch64")]
mod at {
    pub const BP: usize = 29;
    pub const RESULT: usize = 0;
    pub const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
    pub const STACK: usize = 31;
    pub const INSTRUCTION: usize = 32;
    pub const LENGTH: usize = 34 * 8;
}

impl Registers {
    /// Whether they are of this program's own architecture: the rest of this is for those alone.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.length == at::LENGTH
    }

    /// Where the program is.
    #[must_use]
    pub fn instruction(&self) -> u64 {
        self.words[at::INSTRUCTION]
    }

    /// Where its stack is.
    #[must_use]
    pub fn stack(&self) -> u64 {
        self.words[at::STACK]
    }

    /// The frame pointer, where the program keeps one.
    #[must_use]
    pub fn frame(&self) -> u64 {
        self.words[at::BP]
    }

    /// The result of the call that has just ended.
    #[must_use]
    pub fn result(&self) -> i64 {
        self.words[at::RESULT] as i64
    }

    /// The call that has just answered EINTR, and its arguments; none: it is elsewhere, or the architecture keeps too little.
    #[must_use]
    pub fn cut_short(&self) -> Option<(u64, [u64; 6])> {
        #[cfg(target_arch = "x86_64")]
        {
            let number = self.words[at::CALL];
            let is = number != u64::MAX && self.result() == -i64::from(libc::EINTR);
            is.then(|| (number, at::ARGUMENTS.map(|at| self.words[at])))
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// The same, about to make a system call from the instruction `from`, which makes one. Where the stop was in a call
    /// that is made again after a signal, that is put off: these registers are no longer of it.
    #[must_use]
    pub fn calling(&self, from: u64, number: u64, arguments: [u64; 6]) -> Registers {
        let mut registers = *self;
        for (at, value) in at::ARGUMENTS.iter().zip(arguments) {
            registers.words[*at] = value;
        }
        #[cfg(target_arch = "x86_64")]
        {
            registers.words[at::RESULT] = number;
            // Not in a call: nothing is made again from here.
            registers.words[at::CALL] = u64::MAX;
        }
        #[cfg(target_arch = "aarch64")]
        {
            registers.words[8] = number;
        }
        registers.words[at::INSTRUCTION] = from;
        registers
    }
}

/// Writes one word of a stopped task's memory, also where it may not write itself.
pub fn poke(tid: i32, at: u64, value: u64) -> Result<()> {
    request(libc::PTRACE_POKEDATA as usize, tid, at as usize, value as usize)
}

/// Sets the first argument of the call that a stopped task is in; `audit` says by which numbering.
#[cfg(target_arch = "x86_64")]
pub fn set_first_argument(tid: i32, audit: u32, value: u64) -> Result<()> {
    const RBX: usize = 5;
    const RDI: usize = 14;
    let register = if audit == 0xc000_003e { RDI } else { RBX };
    request(libc::PTRACE_POKEUSER as usize, tid, register * 8, value as usize)
}

/// Sets the first argument of the call that a stopped task is in; `audit` says by which numbering.
#[cfg(target_arch = "aarch64")]
pub fn set_first_argument(tid: i32, _audit: u32, value: u64) -> Result<()> {
    let mut all = registers(tid)?;
    all.words[at::ARGUMENTS[0]] = value;
    set_registers(tid, &all)
}

/// Whether a stopped task has a filter of this number, counted from its oldest, from 0. Needs CAP_SYS_ADMIN and no filter of
/// the tracer's own, as [`option::SUSPEND_SECCOMP`] does. Linux 4.16.
pub fn has_filter(tid: i32, nth: u64) -> Result<bool> {
    const SECCOMP_GET_METADATA: usize = 0x420d;
    // struct seccomp_metadata: which, and its flags.
    let mut metadata = [nth, 0u64];
    let at = metadata.as_mut_ptr() as usize;
    match request(SECCOMP_GET_METADATA, tid, size_of_val(&metadata), at) {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a task is a thread of a process. `tid` must be one of a traced task's, as for [`kill`].
#[must_use]
pub fn is_thread_of(tid: i32, pid: i32) -> bool {
    if tid <= 0 || pid <= 0 {
        return false;
    }
    // SAFETY: numbers only; signal 0 is none, it asks whether there is such a thread.
    // Where it may not be sent (another user's program, started by a setuid bit) there is one.
    let asked = unsafe { syscall!(libc::SYS_tgkill, pid, tid, 0) };
    asked != Err(Errno::ESRCH)
}

/// Kills a task by its number, which must be one of a traced task: its number is nobody else's as long as it is.
pub fn kill(tid: i32) -> Result<()> {
    if tid <= 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_tkill, tid, libc::SIGKILL) }.map(drop)
}
