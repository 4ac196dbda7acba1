//! Starting a program: one clone3 that shares memory until the exec, on a stack of its own, and execveat.
//!
//! Why this way: fork grows with the parent's memory (1.8 of this at 300 MB), posix_spawn cannot give a pidfd or
//! a cgroup, and writing cgroup.procs costs 5 ms. The traps, each met by the code below:
//! - the child runs on its own stack, entered by assembly, and never returns from [`child`];
//! - the child shares our memory: no allocation, no panic, no Drop, no errno, nothing of libc in it;
//! - a signal handler that ran in the child would run on our memory: all signals are blocked around the clone;
//! - user ids are never changed here: a child's setresuid would clear the parent's dumpable flag, and a process
//!   of the user's would share memory with the server. The program that is started drops privileges itself.
//!
//! System calls of one spawn (fast path): sigprocmask, clone3, in the child dup3 per descriptor, close_range
//! twice, rt_sigaction per ignored signal, sigprocmask, execveat; sigprocmask in the parent.
//!
//! An exec can be held up for as long as somebody else likes (fanotify permission events, a seccomp supervisor):
//! the calling thread stands still meanwhile. [`Stack::in_flight`] lets another thread end such a child.

use crate::{Errno, Fd, Result, raw, syscall};
use alloc::sync::Arc;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// What to execute.
#[derive(Clone, Copy, Debug)]
pub enum Program<'a> {
    /// The open file itself, by execveat(AT_EMPTY_PATH): no path is looked up.
    Fd(&'a Fd),
    /// A path.
    Path(&'a CStr),
}

/// Strings as exec wants them: pointers, ended by null. Made before the clone, because the child cannot allocate.
pub struct Strings<'a> {
    pointers: alloc::vec::Vec<*const c_char>,
    _strings: core::marker::PhantomData<&'a CStr>,
}

impl<'a> Strings<'a> {
    /// Pointers to `strings`, in order.
    pub fn new(strings: impl IntoIterator<Item = &'a CStr>) -> Strings<'a> {
        let mut pointers: alloc::vec::Vec<_> = strings.into_iter().map(CStr::as_ptr).collect();
        pointers.push(core::ptr::null());
        Strings {
            pointers,
            _strings: core::marker::PhantomData,
        }
    }
    /// For exec.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// A program about to be started.
pub struct Spawn<'a> {
    /// What to execute.
    pub program: Program<'a>,
    /// Its arguments, the name first.
    pub argv: &'a Strings<'a>,
    /// Its environment.
    pub envp: &'a Strings<'a>,
    /// The descriptors it gets: `fds[i]` becomes number `i`. Every other one is closed.
    pub fds: &'a [i32],
    /// The cgroup (v2 directory) it is born in.
    pub cgroup: Option<&'a Fd>,
}

/// A started program.
#[derive(Debug)]
pub struct Child {
    /// Its number, as this process sees it.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
    /// What had to be done otherwise than wanted.
    pub fallback: Option<Fallback>,
}

/// A slower or weaker way that had to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// clone3 is missing or filtered; the old clone was used.
    Clone,
    /// As above, and the cgroup was entered by writing cgroup.procs after the start.
    CloneAndWrite,
}

/// Why nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnError {
    /// What failed.
    pub step: Step,
    /// With what.
    pub errno: Errno,
}

/// The steps of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Making the process.
    Clone = 1,
    /// Placing its descriptors.
    Descriptors = 2,
    /// Replacing it by the program.
    Exec = 3,
    /// Entering the cgroup.
    Cgroup = 4,
    /// The stack for the child.
    Stack = 5,
}

impl core::fmt::Display for SpawnError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let step = match self.step {
            Step::Clone => "making the process",
            Step::Descriptors => "placing its descriptors",
            Step::Exec => "executing the program",
            Step::Cgroup => "entering the cgroup",
            Step::Stack => "mapping its stack",
        };
        write!(f, "{step}: {}", self.errno)
    }
}

impl core::error::Error for SpawnError {}

/// The stack on which children run until their exec. One per launching thread, used again for every start.
pub struct Stack {
    base: *mut c_void,
    /// Signals this process ignores: what is ignored stays so across exec, even with CLONE_CLEAR_SIGHAND.
    ignored: u64,
    in_flight: Arc<InFlight>,
}

// SAFETY: the mapping belongs to this value alone; spawn borrows it mutably, so one child at a time stands on it.
unsafe impl Send for Stack {}

/// The child needs a few hundred bytes; the lowest page is a guard.
const STACK_SIZE: usize = 64 << 10;
const GUARD: usize = 4096;

impl Stack {
    /// Maps a stack, and notes which signals this process ignores.
    pub fn new() -> Result<Stack> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a fresh anonymous mapping, placed by the kernel; then its lowest page is made inaccessible.
        unsafe {
            let base = syscall!(libc::SYS_mmap, 0, STACK_SIZE, prot, flags, -1isize, 0)?;
            let stack = Stack {
                base: base as *mut c_void,
                ignored: ignored_signals(),
                in_flight: Arc::new(InFlight {
                    pidfd: AtomicI32::new(-1),
                    killed: AtomicBool::new(false),
                    busy: AtomicBool::new(false),
                }),
            };
            syscall!(libc::SYS_mprotect, base, GUARD, libc::PROT_NONE)?;
            Ok(stack)
        }
    }

    /// The child that stands on this stack, for another thread to end.
    pub fn in_flight(&self) -> Arc<InFlight> {
        self.in_flight.clone()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no child stands on it: spawn returns only after exec or exit.
        let _ = unsafe { syscall!(libc::SYS_munmap, self.base, STACK_SIZE) };
    }
}

/// A child between its clone and its exec. The kernel writes its pidfd here before the launching thread begins
/// to wait for the exec, so another thread can end a child whose exec somebody holds up.
#[derive(Debug)]
pub struct InFlight {
    pidfd: AtomicI32,
    /// The latest child was ended by [`InFlight::kill`].
    killed: AtomicBool,
    /// Held while the number is used or taken away, so that it is never used after its descriptor was closed.
    busy: AtomicBool,
}

impl InFlight {
    /// Kills the child if there is one between clone and exec; whether there was.
    pub fn kill(&self) -> bool {
        self.locked(|pidfd| {
            let raw = pidfd.load(Ordering::Acquire);
            if raw < 0 {
                return false;
            }
            // SAFETY: numbers, and a null siginfo; the descriptor is open while the lock is held.
            let sent = unsafe { syscall!(libc::SYS_pidfd_send_signal, raw, libc::SIGKILL, 0, 0) };
            self.killed.fetch_or(sent.is_ok(), Ordering::AcqRel);
            sent.is_ok()
        })
    }

    /// Whether the latest child was ended between its clone and its exec.
    pub fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// The child has exec'd or ended: nobody else may use the number from now on.
    fn landed(&self) -> i32 {
        self.locked(|pidfd| pidfd.swap(-1, Ordering::AcqRel))
    }

    /// A spin lock: it is held for one system call at most.
    fn locked<T>(&self, with: impl FnOnce(&AtomicI32) -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let out = with(&self.pidfd);
        self.busy.store(false, Ordering::Release);
        out
    }
}

/// The set of signals that this process ignores.
fn ignored_signals() -> u64 {
    let mut set = 0u64;
    for signal in 1..=64u32 {
        // The kernel's sigaction: handler, flags, restorer, mask.
        let mut old = [0usize; 4];
        // SAFETY: the kernel writes one sigaction of 32 bytes (24 on aarch64).
        let asked = unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0, old.as_mut_ptr(), 8) };
        if asked.is_ok() && old[0] == libc::SIG_IGN {
            set |= 1 << (signal - 1);
        }
    }
    set
}

/// The kernel's struct clone_args, as of 5.7 (with `cgroup`).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Flags of the legacy clone; those of clone3 beyond 32 bits stand beside their use.
const CLONE_BASE: u64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// All the child reads, and the two words it writes when it fails. It lives on the parent's stack; the parent
/// stands still (CLONE_VFORK) while the child uses it.
struct Plan {
    program_fd: i32,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    fds: *const i32,
    fd_count: usize,
    /// Signals that the child sets to their default before it unblocks any: the ignored ones, or all of them
    /// where handlers are still the parent's (no CLONE_CLEAR_SIGHAND).
    reset: u64,
    failed_step: u32,
    failed_errno: i32,
}

/// Starts `what`. Returns after the exec, with its error if it failed (the child is then already reaped).
pub fn spawn(what: &Spawn<'_>, stack: &mut Stack) -> core::result::Result<Child, SpawnError> {
    let fail = |step, errno| SpawnError { step, errno };
    let (program_fd, path) = match what.program {
        Program::Fd(fd) => (fd.raw(), c"".as_ptr()),
        Program::Path(path) => (-1, path.as_ptr()),
    };
    // The child places descriptors at 0..n one after the other: a source below n could be overwritten before
    // its turn, so such sources are moved up first. Rare: a server has 0 to 2 taken.
    let count = what.fds.len();
    let mut lifted: alloc::vec::Vec<Fd> = alloc::vec::Vec::new();
    let mut sources: alloc::vec::Vec<i32> = alloc::vec::Vec::with_capacity(count);
    let mut lift = |raw: i32| -> core::result::Result<i32, SpawnError> {
        if raw < 0 || raw >= count as i32 {
            return Ok(raw);
        }
        let borrowed = core::mem::ManuallyDrop::new(Fd::from_raw(raw));
        let high = borrowed
            .duplicate(count as i32)
            .map_err(|e| fail(Step::Descriptors, e))?;
        let raw = high.raw();
        lifted.push(high);
        Ok(raw)
    };
    for &fd in what.fds {
        sources.push(lift(fd)?);
    }
    let program_fd = lift(program_fd)?;
    let mut plan = Plan {
        program_fd,
        path,
        argv: what.argv.as_ptr(),
        envp: what.envp.as_ptr(),
        fds: sources.as_ptr(),
        fd_count: count,
        reset: stack.ignored | 1 << (libc::SIGPIPE - 1),
        failed_step: 0,
        failed_errno: 0,
    };

    let signals = block_signals();
    let started = start(&mut plan, what.cgroup, stack);
    restore_signals(signals);
    let (pid, pidfd, fallback) = started.map_err(|e| match e {
        // What only CLONE_INTO_CGROUP answers: not a cgroup, dying or removed, not writable by us, threaded or not a leaf.
        Errno::EBADF | Errno::ENODEV | Errno::ENOENT | Errno::EACCES | Errno::EBUSY | Errno::EOPNOTSUPP
            if what.cgroup.is_some() =>
        {
            fail(Step::Cgroup, e)
        }
        _ => fail(Step::Clone, e),
    })?;

    // SAFETY: the child wrote these two through a pointer the compiler lost sight of in the assembly.
    let (step, errno) = unsafe {
        (
            core::ptr::read_volatile(&raw const plan.failed_step),
            core::ptr::read_volatile(&raw const plan.failed_errno),
        )
    };
    if step != 0 {
        let _ = crate::process::wait(&pidfd, true);
        let step = if step == Step::Descriptors as u32 {
            Step::Descriptors
        } else {
            Step::Exec
        };
        return Err(fail(step, Errno(errno)));
    }
    let fallback = match (fallback, what.cgroup) {
        (false, _) => None,
        (true, None) => Some(Fallback::Clone),
        (true, Some(cgroup)) => {
            if let Err(errno) = write_cgroup(cgroup, pid) {
                let _ = crate::process::signal(&pidfd, libc::SIGKILL);
                let _ = crate::process::wait(&pidfd, true);
                return Err(fail(Step::Cgroup, errno));
            }
            Some(Fallback::CloneAndWrite)
        }
    };
    Ok(Child { pid, pidfd, fallback })
}

/// Clones; true beside the ids when clone3 could not be used.
fn start(plan: &mut Plan, cgroup: Option<&Fd>, stack: &mut Stack) -> Result<(i32, Fd, bool)> {
    stack.in_flight.killed.store(false, Ordering::Release);
    let pidfd = stack.in_flight.pidfd.as_ptr();
    let mut args = CloneArgs {
        flags: CLONE_BASE | CLONE_CLEAR_SIGHAND,
        pidfd: pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.base as u64,
        stack_size: STACK_SIZE as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.raw() as u64;
    }
    // SAFETY: args and plan live until the child has exec'd or gone (CLONE_VFORK); the stack is ours alone.
    let made = unsafe { clone_call(Clone::Three(&args), plan) };
    let (made, legacy) = match raw::check(made) {
        // A filter that does not know clone3 answers ENOSYS (or, older Docker, EPERM).
        Err(Errno::ENOSYS | Errno::EPERM) => {
            plan.reset = u64::MAX;
            let top = stack.base as usize + STACK_SIZE;
            let flags = CLONE_BASE as usize | libc::SIGCHLD as usize;
            // SAFETY: as above.
            let made = unsafe { clone_call(Clone::Legacy { flags, top, pidfd }, plan) };
            (made, true)
        }
        _ => (made, false),
    };
    // The kernel wrote the pidfd before the child ran; a failed clone wrote none, and leaves -1.
    let pidfd = stack.in_flight.landed();
    Ok((raw::check(made)? as i32, Fd::from_raw(pidfd), legacy))
}

enum Clone<'a> {
    Three(&'a CloneArgs),
    Legacy {
        flags: usize,
        top: usize,
        pidfd: *mut i32,
    },
}

/// Makes the call; the parent gets its result, the child goes to [`child`] on the new stack.
///
/// # Safety
/// The new stack and everything in `plan` must stay alive until the child has exec'd or exited.
unsafe fn clone_call(how: Clone<'_>, plan: *mut Plan) -> isize {
    let (nr, args) = match how {
        Clone::Three(a) => (
            libc::SYS_clone3,
            [a as *const _ as usize, size_of::<CloneArgs>(), 0, 0],
        ),
        // x86_64 and aarch64 agree on flags, stack, parent_tid (where CLONE_PIDFD writes).
        Clone::Legacy { flags, top, pidfd } => (libc::SYS_clone, [flags, top, pidfd as usize, 0]),
    };
    let ret: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: r8, r12 survive the call; the child, on an empty 16-byte aligned stack, calls `child`, which never
    // returns, so nothing of this frame is used twice. The clone3 stack is given by base and size: sp is its top.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") nr as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3],
            in("r8") child as extern "C" fn(*mut Plan) -> !,
            in("r12") plan,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; x9 and x10 survive the call.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x10",
            "blr x9",
            "brk #1",
            "2:",
            in("x8") nr,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x9") child as extern "C" fn(*mut Plan) -> !,
            in("x10") plan,
            lateout("x30") _,
        );
    }
    ret
}

/// The child's whole life. No allocation, no panic, no Drop, no errno: see the top of this file.
extern "C" fn child(plan: *mut Plan) -> ! {
    // SAFETY: the parent stands still and keeps `plan` alive; only raw system calls are made; the descriptor
    // table is this process's own copy (no CLONE_FILES).
    unsafe {
        let mut target = 0;
        while target < (*plan).fd_count {
            let source = *(*plan).fds.add(target);
            if let Err(e) = syscall!(libc::SYS_dup3, source, target, 0) {
                give_up(plan, Step::Descriptors, e);
            }
            target += 1;
        }
        // Everything else goes, the program too: it is open until the exec has happened.
        let program = (*plan).program_fd;
        close_the_rest((*plan).fd_count, program);
        let default = [0usize; 4];
        let mut signal = 1;
        while signal <= 64 {
            if (*plan).reset >> (signal - 1) & 1 == 1 {
                // SIGKILL and SIGSTOP answer EINVAL, and are as they should be.
                let _ = syscall!(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8);
            }
            signal += 1;
        }
        let none = 0u64;
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, 8);
        let dir = if program >= 0 { program } else { libc::AT_FDCWD };
        let flags = if program >= 0 { libc::AT_EMPTY_PATH } else { 0 };
        let e = match syscall!(
            libc::SYS_execveat,
            dir,
            (*plan).path,
            (*plan).argv,
            (*plan).envp,
            flags
        ) {
            Err(e) => e,
            Ok(_) => Errno::EIO,
        };
        give_up(plan, Step::Exec, e)
    }
}

/// Closes every descriptor from `first` on, but for the program. Really closes them, now: an exec that is held up
/// would otherwise hold other sessions' pipes open for as long. A kernel before 5.9, and a filter that forbids
/// the call, leave it to the close-on-exec flag that all of ours are born with.
unsafe fn close_the_rest(first: usize, program: i32) {
    // SAFETY: numbers only, in the child's own table.
    unsafe {
        let mut from = first;
        if program >= first as i32 {
            if program > first as i32 {
                let _ = syscall!(libc::SYS_close_range, first, program - 1, 0);
            }
            from = program as usize + 1;
        }
        let _ = syscall!(libc::SYS_close_range, from, u32::MAX, 0);
    }
}

/// Leaves word for the parent and ends the child.
unsafe fn give_up(plan: *mut Plan, step: Step, errno: Errno) -> ! {
    // SAFETY: the parent reads both after this process is gone.
    unsafe {
        core::ptr::write_volatile(&raw mut (*plan).failed_step, step as u32);
        core::ptr::write_volatile(&raw mut (*plan).failed_errno, errno.0);
    }
    crate::process::exit(127)
}

fn block_signals() -> u64 {
    let (all, mut old) = (u64::MAX, 0u64);
    // SAFETY: the kernel reads and writes one 64-bit set each; this cannot fail with valid pointers.
    let _ = unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            &raw mut old,
            8
        )
    };
    old
}

fn restore_signals(old: u64) {
    // SAFETY: as above.
    let _ = unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const old, 0, 8) };
}

/// The slow way into a cgroup: 5 ms, and the process may have forked before. Only where clone3 is missing.
fn write_cgroup(cgroup: &Fd, pid: i32) -> Result<()> {
    let file = crate::file::openat(cgroup.raw(), c"cgroup.procs", libc::O_WRONLY, 0)?;
    crate::file::write_all(file.raw(), alloc::format!("{pid}").as_bytes())
}

#[cfg(test)]
mod tests;
