//! This process and its children: ids, limits, waiting, signals.

use crate::{Errno, Fd, Result, syscall};

/// This process's id.
pub fn id() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// The effective group id.
pub fn effective_gid() -> u32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_getegid, [0; 6]) as u32 }
}

/// Ends this process at once; nothing is flushed or dropped.
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: does not return; the loop only tells the compiler so.
        unsafe { crate::raw::syscall6(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}

/// A soft and a hard resource limit; `u64::MAX` is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What is enforced.
    pub soft: u64,
    /// How far the process itself may raise it.
    pub hard: u64,
}

/// This process's limit of `resource` (`RLIMIT_…`).
pub fn limit(resource: u32) -> Result<Limit> {
    let mut old = Limit { soft: 0, hard: 0 };
    // SAFETY: the kernel writes one rlimit64, which is what Limit is.
    unsafe { syscall!(libc::SYS_prlimit64, 0, resource, 0, &raw mut old) }?;
    Ok(old)
}

/// Sets this process's limit of `resource`.
pub fn set_limit(resource: u32, new: Limit) -> Result<()> {
    // SAFETY: the kernel reads one rlimit64, which is what Limit is.
    unsafe { syscall!(libc::SYS_prlimit64, 0, resource, &raw const new, 0) }.map(drop)
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It left with this code.
    Code(i32),
    /// This signal ended it.
    Signal {
        /// The signal's number.
        number: i32,
        /// Whether it left a core dump.
        core: bool,
    },
}

/// Waits for the child behind `pidfd` and reaps it; with `block` false, `None` when it still runs.
pub fn wait(pidfd: &Fd, block: bool) -> Result<Option<Exit>> {
    const P_PIDFD: u32 = 3;
    // The kernel's siginfo for SIGCHLD, padded to its full 128 bytes: signo, errno, code, pad, pid, uid, status.
    let mut info = [0i32; 32];
    let options = libc::WEXITED | libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: the kernel writes one siginfo of 128 bytes.
        match unsafe {
            syscall!(
                libc::SYS_waitid,
                P_PIDFD,
                pidfd.raw(),
                info.as_mut_ptr(),
                options,
                0
            )
        } {
            Err(Errno::EINTR) => continue,
            other => {
                other?;
                break;
            }
        }
    }
    let (signo, code, status) = (info[0], info[2], info[6]);
    Ok(match (signo, code) {
        (0, _) => None,
        (_, libc::CLD_EXITED) => Some(Exit::Code(status)),
        (_, code) => Some(Exit::Signal {
            number: status,
            core: code == libc::CLD_DUMPED,
        }),
    })
}

/// A descriptor of process `pid`. Only for a process that is known not to have been reaped.
pub fn pidfd_open(pid: i32) -> Result<Fd> {
    // SAFETY: numbers only.
    Ok(Fd::from_raw(
        unsafe { syscall!(libc::SYS_pidfd_open, pid, 0) }? as i32
    ))
}

/// The signal that nothing survives.
pub const SIGKILL: i32 = libc::SIGKILL;

/// Sends `signal` to the process behind `pidfd`, never to another that got its number.
pub fn signal(pidfd: &Fd, signal: i32) -> Result<()> {
    // SAFETY: numbers, and a null siginfo, which the kernel allows.
    unsafe { syscall!(libc::SYS_pidfd_send_signal, pidfd.raw(), signal, 0, 0) }.map(drop)
}

/// The signal for a pipe without a reader.
pub const SIGPIPE: i32 = libc::SIGPIPE;

/// Gives `signal` its default action. Rust ignores SIGPIPE, and what is ignored stays so across exec.
pub fn reset_signal(signal: i32) -> Result<()> {
    let default = [0usize; 4];
    // SAFETY: the kernel reads one sigaction, which zeroes make the default.
    unsafe { syscall!(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) }.map(drop)
}

/// Makes `signal` do nothing to this process: the call that would have raised it answers with its error. Also
/// true of whatever it executes.
pub fn ignore_signal(signal: i32) -> Result<()> {
    // The kernel's sigaction: handler, flags, restorer, mask. SIG_IGN needs neither restorer nor flags.
    let action: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];
    // SAFETY: the kernel reads one sigaction of 32 bytes; ignoring runs no code of ours.
    unsafe { syscall!(libc::SYS_rt_sigaction, signal, action.as_ptr(), 0, 8) }.map(drop)
}

/// Signals and resources by their names.
pub mod numbers {
    pub use libc::{SIGPIPE, SIGXFSZ};
    /// How many descriptors may be open.
    #[allow(clippy::unnecessary_cast)] // musl has it signed.
    pub const RLIMIT_NOFILE: u32 = libc::RLIMIT_NOFILE as u32;
}

/// The processor time of all children that were waited for, user and system, in microseconds.
pub fn children_cpu_micros() -> Result<u64> {
    // Two timevals, then fourteen numbers that nobody asks for here.
    let mut usage = [0i64; 18];
    // SAFETY: the kernel writes one rusage of 144 bytes.
    unsafe { syscall!(libc::SYS_getrusage, libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) }?;
    let [user_sec, user_usec, system_sec, system_usec, ..] = usage;
    Ok(((user_sec + system_sec) * 1_000_000 + user_usec + system_usec) as u64)
}
