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

/// What a process and the children that it waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, user and system, in microseconds.
    pub cpu_micros: u64,
    /// The largest resident set of one of them, in bytes.
    pub memory: u64,
    /// Bytes read from block devices.
    pub read: u64,
    /// Bytes written to block devices.
    pub written: u64,
}

/// The kernel's struct rusage: two timevals, then fourteen numbers.
type Rusage = [i64; 18];

impl Usage {
    fn of(usage: &Rusage) -> Usage {
        let [user_sec, user_usec, system_sec, system_usec, max_rss, ..] = *usage;
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        Usage {
            cpu_micros: positive((user_sec + system_sec) * 1_000_000 + user_usec + system_usec),
            // In kilobytes there; blocks of 512 bytes.
            memory: positive(max_rss) << 10,
            read: positive(usage[11]) << 9,
            written: positive(usage[12]) << 9,
        }
    }
}

/// Waits for the child behind `pidfd` and reaps it; with `block` false, `None` when it still runs.
pub fn wait(pidfd: &Fd, block: bool) -> Result<Option<Exit>> {
    wait_id(pidfd, block, 0, core::ptr::null_mut())
}

/// How the child behind `pidfd` ended, left for whoever waits for it; `None` when it still runs.
pub fn ended(pidfd: &Fd) -> Result<Option<Exit>> {
    wait_id(pidfd, false, libc::WNOWAIT, core::ptr::null_mut())
}

/// The same, and what the child used.
pub fn wait_usage(pidfd: &Fd, block: bool) -> Result<Option<(Exit, Usage)>> {
    let mut usage: Rusage = [0; 18];
    let exit = wait_id(pidfd, block, 0, &raw mut usage)?;
    Ok(exit.map(|exit| (exit, Usage::of(&usage))))
}

/// The largest resident set that this process ever had, in bytes. A child that shares its memory until it executes
/// (CLONE_VM) begins with this as its own [`Usage::memory`].
pub fn high_water() -> Result<u64> {
    let mut usage: Rusage = [0; 18];
    // SAFETY: the kernel writes one rusage of 144 bytes.
    unsafe { syscall!(libc::SYS_getrusage, libc::RUSAGE_SELF, &raw mut usage) }?;
    Ok(Usage::of(&usage).memory)
}

fn wait_id(pidfd: &Fd, block: bool, more: i32, usage: *mut Rusage) -> Result<Option<Exit>> {
    const P_PIDFD: u32 = 3;
    // The kernel's siginfo for SIGCHLD, padded to its full 128 bytes: signo, errno, code, pad, pid, uid, status.
    let mut info = [0i32; 32];
    let options = more | libc::WEXITED | libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: the kernel writes one siginfo of 128 bytes, and one rusage of 144 where there is room for it.
        match unsafe {
            syscall!(
                libc::SYS_waitid,
                P_PIDFD,
                pidfd.raw(),
                info.as_mut_ptr(),
                options,
                usage
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

/// A duplicate of descriptor `number` of the process behind `pidfd`. Needs what tracing it needs. Linux 5.6.
pub fn descriptor_of(pidfd: &Fd, number: i32) -> Result<Fd> {
    // SAFETY: numbers only.
    Ok(Fd::from_raw(
        unsafe { syscall!(libc::SYS_pidfd_getfd, pidfd.raw(), number, 0) }? as i32,
    ))
}

/// Makes a copy of this process, whose parent is this one's: it is born in the process namespace that was entered last. The
/// number of the copy; `None` in the copy. The memory is copied: for small programs with one thread.
pub fn fork_sibling() -> Result<Option<i32>> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: numbers only; without a stack the copy goes on where this process stands, on its own copy of the memory.
    // A program with one thread leaves no lock held by another.
    let pid = unsafe { syscall!(libc::SYS_clone, flags, 0, 0, 0, 0) }?;
    Ok((pid > 0).then_some(pid as i32))
}

/// Sets which signal the calling thread gets when the thread that started it ends; 0: none.
pub fn set_parent_death_signal(signal: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }.map(drop)
}

/// The number of the process that started this one, or took it over.
pub fn parent_id() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_getppid, [0; 6]) as i32 }
}

/// The signal that nothing survives.
pub const SIGKILL: i32 = libc::SIGKILL;

/// Sends `signal` to the process behind `pidfd`, never to another that got its number.
pub fn signal(pidfd: &Fd, signal: i32) -> Result<()> {
    // SAFETY: numbers, and a null siginfo, which the kernel allows.
    unsafe { syscall!(libc::SYS_pidfd_send_signal, pidfd.raw(), signal, 0, 0) }.map(drop)
}

/// Sends `signal` to the process group that the process `pid` behind `pidfd` leads, as user `uid` could: what in the
/// group is not the user's (a setuid program that he started) is left alone. Not after that process was reaped: then
/// `ESRCH`. Only this thread takes the user's id, for these calls.
pub fn signal_group_as(pidfd: &Fd, pid: i32, signal: i32, uid: u32) -> Result<()> {
    /// Linux 6.9.
    const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
    const UNCHANGED: u32 = u32::MAX;
    if pid <= 1 {
        return Err(Errno::EINVAL);
    }
    let own = effective_uid();
    if own != uid {
        // SAFETY: numbers only; the real and the saved id stay, so the way back is open.
        unsafe { syscall!(libc::SYS_setresuid, UNCHANGED, uid, UNCHANGED) }?;
    }
    // SAFETY: numbers, and a null siginfo, which the kernel allows.
    let sent = match unsafe {
        syscall!(
            libc::SYS_pidfd_send_signal,
            pidfd.raw(),
            signal,
            0,
            PIDFD_SIGNAL_PROCESS_GROUP
        )
    } {
        // Before 6.9. The leader is there or a zombie now, so its number is nobody else's; what may pass between the
        // two calls is its reaping and a turn of all process numbers.
        Err(Errno::EINVAL) => {
            // SAFETY: numbers only.
            unsafe {
                syscall!(libc::SYS_pidfd_send_signal, pidfd.raw(), 0, 0, 0)
                    .and_then(|_| syscall!(libc::SYS_kill, -pid, signal))
            }
        }
        other => other,
    };
    if own != uid {
        // SAFETY: numbers only; the saved id allows it, so it cannot fail.
        let back = unsafe { syscall!(libc::SYS_setresuid, UNCHANGED, own, UNCHANGED) };
        back.expect("the saved user id may always be taken back");
    }
    sent.map(drop)
}

/// Has the calling thread run before all ordinary ones whenever it has something to do (SCHED_FIFO). For a thread that
/// mostly waits; what it starts is ordinary again. Needs CAP_SYS_NICE.
pub fn run_first() -> Result<()> {
    let priority = 1i32;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one sched_param, which is one number; 0 is the calling thread.
    unsafe { syscall!(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) }.map(drop)
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
    pub use libc::{
        SIGABRT, SIGALRM, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGTERM, SIGUSR1,
        SIGUSR2,
    };
    pub use libc::{SIGPIPE, SIGXFSZ};
    /// How many descriptors may be open.
    #[allow(clippy::unnecessary_cast)] // musl has it signed.
    pub const RLIMIT_NOFILE: u32 = libc::RLIMIT_NOFILE as u32;
    /// How many processes the user may have.
    #[allow(clippy::unnecessary_cast)]
    pub const RLIMIT_NPROC: u32 = libc::RLIMIT_NPROC as u32;
    /// How long a file may become.
    #[allow(clippy::unnecessary_cast)]
    pub const RLIMIT_FSIZE: u32 = libc::RLIMIT_FSIZE as u32;
    /// How large a core dump may be.
    #[allow(clippy::unnecessary_cast)]
    pub const RLIMIT_CORE: u32 = libc::RLIMIT_CORE as u32;
}

/// The processor time of all children that were waited for, user and system, in microseconds.
pub fn children_cpu_micros() -> Result<u64> {
    let mut usage: Rusage = [0; 18];
    // SAFETY: the kernel writes one rusage of 144 bytes.
    unsafe { syscall!(libc::SYS_getrusage, libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) }?;
    Ok(Usage::of(&usage).cpu_micros)
}
