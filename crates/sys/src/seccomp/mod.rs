//! Forbidding system calls to the calling thread and all that it starts, or having somebody else decide on them.
//!
//! There is no way back: a thread that calls [`confine`] stays confined. Nothing here asks for no_new_privs when
//! the kernel lets root go without.

mod only;
mod service;

use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;
pub use only::{Allowed, Forbidden, MAX_ALLOWED, MAX_TESTS, Otherwise, Test, allow_all_but, allow_only};
pub use service::serve_only;

/// Numbers of system calls that rules are made for.
pub mod calls {
    /// The older form of waiting, which a C library's epoll_wait makes where the kernel has it.
    #[cfg(target_arch = "x86_64")]
    pub use libc::SYS_epoll_wait;
    pub use libc::{
        SYS_accept4, SYS_brk, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_epoll_create1,
        SYS_epoll_ctl, SYS_epoll_pwait, SYS_exit, SYS_exit_group, SYS_fcntl, SYS_fdatasync, SYS_ftruncate,
        SYS_futex, SYS_getpid, SYS_getrandom, SYS_getsockopt, SYS_gettid, SYS_ioctl, SYS_madvise, SYS_mmap,
        SYS_mprotect, SYS_mremap, SYS_munmap, SYS_ppoll, SYS_prctl, SYS_pread64, SYS_prlimit64, SYS_pwrite64,
        SYS_read, SYS_readv, SYS_recvfrom, SYS_restart_syscall, SYS_rseq, SYS_rt_sigaction,
        SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield, SYS_sendmsg,
        SYS_sendto, SYS_set_robust_list, SYS_setsid, SYS_setsockopt, SYS_shutdown, SYS_sigaltstack,
        SYS_write, SYS_writev,
    };
    pub use libc::{
        SYS_bind, SYS_bpf, SYS_chdir, SYS_chroot, SYS_clone, SYS_clone3, SYS_connect, SYS_execve,
        SYS_execveat, SYS_init_module, SYS_io_uring_setup, SYS_keyctl, SYS_kill, SYS_listen,
        SYS_memfd_create, SYS_mount, SYS_openat, SYS_openat2, SYS_perf_event_open, SYS_pidfd_getfd,
        SYS_pidfd_open, SYS_pidfd_send_signal, SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace,
        SYS_readlinkat, SYS_recvmsg, SYS_sendmmsg, SYS_setns, SYS_setuid, SYS_socket, SYS_socketpair,
        SYS_statx, SYS_tgkill, SYS_tkill, SYS_unlinkat, SYS_unshare, SYS_userfaultfd, SYS_waitid,
    };
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It answers this error.
    Deny(Errno),
    /// It waits until whoever has the listener lets it go on.
    Ask,
}

/// One rule; the first that fits decides, what no rule fits is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The system call's number (`libc::SYS_…`).
    pub call: i64,
    /// Only when the lower 32 bits of argument `.0` (from 0) equal `.1`.
    pub argument: Option<(u32, u32)>,
    /// What becomes of it.
    pub action: Action,
}

impl Rule {
    /// `call` answers `errno`, whatever its arguments.
    pub const fn deny(call: i64, errno: Errno) -> Rule {
        Rule {
            call,
            argument: None,
            action: Action::Deny(errno),
        }
    }
}

/// The most rules of one filter.
pub const MAX_RULES: usize = 64;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// One instruction of classic BPF.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does: `BPF_…`, or-ed.
    pub code: u16,
    /// How many instructions a jump leaves out where its test holds.
    pub yes: u8,
    /// And where not.
    pub no: u8,
    /// The operand.
    pub value: u32,
}

/// `SECCOMP_FILTER_FLAG_…`.
pub mod flag {
    /// All threads of the process are bound.
    pub const ALL_THREADS: u32 = 1;
    /// No mitigation of speculation for it, which would slow down everything else that the program does.
    pub const NO_MITIGATION: u32 = 1 << 2;
    /// A listener is the answer.
    pub const NEW_LISTENER: u32 = 1 << 3;
    /// With both: a thread that cannot be bound is an error (`ESRCH`), not its number.
    pub const ALL_THREADS_ERROR: u32 = 1 << 4;
    /// A call that a listener has read can be interrupted by nothing but a deadly signal: without it each signal would
    /// make it again. Linux 5.19.
    pub const WAIT_KILLABLE: u32 = 1 << 5;
}

/// The x32 calls of x86_64 have this bit beside their number. No call of another architecture has so high a number.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_NOTIFY: u32 = 0x7fc0_0000;

fn program(rules: &[Rule]) -> Vec<Instruction> {
    let step = |code, value, no| Instruction {
        code,
        yes: 0,
        no,
        value,
    };
    let mut out = Vec::with_capacity(rules.len() * 5 + 4);
    // struct seccomp_data: nr, arch, instruction pointer, six arguments of 64 bits.
    out.push(step(LOAD, 4, 0));
    // Calls of another architecture's numbering are let through: the rules do not speak of them.
    out.push(Instruction {
        yes: 1,
        ..step(EQUAL, ARCH, 0)
    });
    out.push(step(RETURN, RET_ALLOW, 0));
    for rule in rules {
        let action = match rule.action {
            Action::Deny(errno) => RET_ERRNO | errno.0 as u32,
            Action::Ask => RET_NOTIFY,
        };
        match rule.argument {
            None => {
                out.push(step(LOAD, 0, 0));
                out.push(step(EQUAL, rule.call as u32, 1));
            }
            Some((index, value)) => {
                out.push(step(LOAD, 0, 0));
                out.push(step(EQUAL, rule.call as u32, 3));
                out.push(step(LOAD, 16 + 8 * index.min(5), 0));
                out.push(step(EQUAL, value, 1));
            }
        }
        out.push(step(RETURN, action, 0));
    }
    out.push(step(RETURN, RET_ALLOW, 0));
    out
}

/// Puts the rules on the calling thread. With [`Action::Ask`] among them, the listener on which the calls arrive.
pub fn confine(rules: &[Rule]) -> Result<Option<Fd>> {
    if rules.len() > MAX_RULES {
        return Err(Errno::EINVAL);
    }
    let instructions = program(rules);
    let asks = rules.iter().any(|r| r.action == Action::Ask);
    let flags = if asks { flag::NEW_LISTENER } else { 0 };
    let installed = match install(&instructions, flags) {
        Err(Errno::EACCES) => {
            crate::credentials::set_no_new_privileges()?;
            install(&instructions, flags)
        }
        other => other,
    }?;
    Ok(asks.then(|| Fd::from_raw(installed as i32)))
}

/// Puts a program on the calling thread, with [`flag`]s; the number of its listener, if one is asked for. Without
/// no_new_privs only with CAP_SYS_ADMIN (`EACCES`).
pub fn install(instructions: &[Instruction], flags: u32) -> Result<usize> {
    const SET_MODE_FILTER: u32 = 1;
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const Instruction,
    }
    let filter = Program {
        len: instructions.len() as u16,
        filter: instructions.as_ptr(),
    };
    // SAFETY: the kernel reads the program, which lives through the call; only the calling thread is bound by it.
    unsafe { syscall!(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const filter) }
}

/// A call that waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Names it.
    pub id: u64,
    /// Who makes it.
    pub pid: i32,
    /// AUDIT_ARCH.
    pub audit: u32,
    /// The system call.
    pub call: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Where in the program.
    pub instruction: u64,
}

/// The next call that waits on the listener; waits for one.
pub fn next(listener: &Fd) -> Result<Waiting> {
    loop {
        match receive(listener) {
            Ok(Some(waiting)) => return Ok(waiting),
            Ok(None) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// `ioctl(2)`s of a listener, for rules about who may make them.
pub mod requests {
    /// Reads the next call.
    pub const RECEIVE: u32 = 0xc050_2100;
    /// Answers one.
    pub const SEND: u32 = 0xc018_2101;
    /// Asks whether one still waits.
    pub const ID_VALID: u32 = 0x4008_2102;
    /// Sets how waking is done.
    pub const SET_FLAGS: u32 = 0x4008_2104;
}
use requests::{ID_VALID, RECEIVE, SEND, SET_FLAGS};

/// The same, and `None` when there was one whose caller was killed before it could be told of. A listener is readable when a
/// call waits, and hangs up when nobody is bound by its filter any more.
pub fn receive(listener: &Fd) -> Result<Option<Waiting>> {
    let mut notice = Notice::default();
    // SAFETY: a notice of zeroes, which this function owns.
    unsafe { receive_at(listener, &raw mut notice) }?;
    Ok((notice.id != 0).then(|| notice.waiting()))
}

/// struct seccomp_notif.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

impl Notice {
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting {
            id: self.id,
            pid: self.pid as i32,
            audit: self.arch,
            call: self.nr.into(),
            arguments: self.args,
            instruction: self.ip,
        }
    }
}

/// Has the kernel write the next waiting call at `at`; it stays as it was when there is none to be told of.
///
/// # Safety
/// `at` is valid for writing and all zeroes, which the kernel asks for (`EINVAL`).
pub(crate) unsafe fn receive_at(listener: &Fd, at: *mut Notice) -> Result<()> {
    // SAFETY: the kernel writes one struct seccomp_notif of 80 bytes where the caller says it may.
    match unsafe { syscall!(libc::SYS_ioctl, listener.raw(), RECEIVE, at) } {
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets a waiting call go on. `ENOENT`: its caller is gone.
pub fn allow(listener: &Fd, waiting: &Waiting) -> Result<()> {
    const CONTINUE: u32 = 1;
    answer_to(listener, waiting, 0, CONTINUE)
}

fn answer_to(listener: &Fd, waiting: &Waiting, error: i32, flags: u32) -> Result<()> {
    #[repr(C)]
    struct Decision {
        id: u64,
        value: i64,
        error: i32,
        flags: u32,
    }
    let decision = Decision {
        id: waiting.id,
        value: 0,
        error,
        flags,
    };
    // SAFETY: the kernel reads one struct seccomp_notif_resp of 24 bytes.
    unsafe { syscall!(libc::SYS_ioctl, listener.raw(), SEND, &raw const decision) }.map(drop)
}

/// Lets a waiting call answer this error instead of being made. `ENOENT`: its caller is gone.
pub fn refuse(listener: &Fd, waiting: &Waiting, errno: Errno) -> Result<()> {
    answer_to(listener, waiting, -errno.0, 0)
}

/// Whether the caller still waits: what was read of its memory before this was its own, not that of a later process with its
/// number.
pub fn is_waiting(listener: &Fd, waiting: &Waiting) -> bool {
    // SAFETY: the kernel reads one number.
    unsafe { syscall!(libc::SYS_ioctl, listener.raw(), ID_VALID, &raw const waiting.id) }.is_ok()
}

/// Whoever calls and whoever answers take turns on one processor: two wake-ups across processors less for each call. Linux
/// 6.6; `EINVAL` before.
pub fn take_turns(listener: &Fd) -> Result<()> {
    const SYNC_WAKE_UP: usize = 1;
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_ioctl, listener.raw(), SET_FLAGS, SYNC_WAKE_UP) }.map(drop)
}

/// Makes `call` with -1 as every argument, for tests of a confinement: with these none of [`HARMLESS`] has an effect.
/// `EDOM`: the call is not one of them.
pub fn answer(call: i64) -> Result<usize> {
    if !HARMLESS.contains(&call) {
        return Err(Errno::EDOM);
    }
    // SAFETY: a pointer of -1 is never mapped, descriptor -1 never open, flags of -1 never valid; each call on the
    // list fails on one of these before it does anything.
    unsafe { crate::raw::check(crate::raw::syscall6(call, [usize::MAX; 6])) }
}

/// Makes getppid with these as its arguments: the call looks at none of them, a filter sees them. As x32's call where that
/// is asked for; `ENOSYS`, where it is not served.
pub fn parent_with(arguments: [u64; 6], x32: bool) -> Result<usize> {
    #[cfg(target_arch = "x86_64")]
    let bit = if x32 { i64::from(X32) } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let bit = if x32 { return Err(Errno::ENOSYS) } else { 0 };
    let arguments = arguments.map(|argument| argument as usize);
    // SAFETY: getppid has the same number in both numberings and reads no memory.
    unsafe { crate::raw::check(crate::raw::syscall6(libc::SYS_getppid | bit, arguments)) }
}

/// Calls that fail when every argument is -1.
pub const HARMLESS: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_pwrite64,
    libc::SYS_clone3,
    libc::SYS_connect,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fcntl,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_ioctl,
    libc::SYS_keyctl,
    libc::SYS_kill,
    libc::SYS_listen,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mount,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_sendmmsg,
    libc::SYS_setns,
    libc::SYS_setsockopt,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_unlinkat,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_fail_are_made_to_probe() {
        assert_eq!(answer(libc::SYS_exit_group), Err(Errno::EDOM));
    }
}
