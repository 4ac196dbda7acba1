//! What the workers give up before they read a byte from the network: other descriptors, root, files, ports, other
//! processes, and all system calls but those that they make. It never takes anything back, and it does not
//! go on where a part fails that this kernel has; what a kernel has not is told.

use fleetgate_sys::process::{self, Limit, numbers};
use fleetgate_sys::seccomp::{self, Allowed, Otherwise, Test, calls};
use fleetgate_sys::{Errno, close_range, credentials, file, landlock, stream, terminal, tree};
use std::fmt;

/// Who is to be confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// Everything before logins.
    Lobby,
    /// One login's connections.
    Front,
    /// What watched sessions do.
    Watcher,
    /// Keeps what the watcher holds.
    Guardian,
    /// Between the monitor and systemd.
    Starter,
    /// The connections to proxies.
    Tunnel,
    /// What sessions show, on its way to the disk.
    Recorder,
}

impl Worker {
    /// As a text.
    pub const fn name(self) -> &'static str {
        match self {
            Worker::Lobby => "lobby",
            Worker::Front => "front",
            Worker::Watcher => "watcher",
            Worker::Guardian => "guardian",
            Worker::Starter => "starter",
            Worker::Tunnel => "tunnel",
            Worker::Recorder => "recorder",
        }
    }
}

/// Whom to become. Without root, nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user id.
    pub uid: u32,
    /// The group id; there are no others.
    pub gid: u32,
}

/// A part that could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// The kernel has no landlock.
    Landlock,
    /// It is older than 6.7.
    LandlockPorts,
    /// It is older than 6.12.
    LandlockScopes,
    /// The kernel has no seccomp filters.
    Seccomp,
    /// Not started as root: it keeps the user it has.
    Identity,
}

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingPart::Landlock => {
                "without landlock (Linux 5.13, and `landlock` in lsm=): the filter on system calls alone keeps it from \
                 files"
            }
            MissingPart::LandlockPorts => {
                "without landlock's rules on ports (Linux 6.7): the filter on system calls alone keeps it from the network"
            }
            MissingPart::LandlockScopes => {
                "without landlock's scopes (Linux 6.12): the filter on system calls alone keeps it from other processes"
            }
            MissingPart::Seccomp => "without a filter on system calls: this kernel has no seccomp",
            MissingPart::Identity => "as the user who started it: only root can give it one of its own",
        })
    }
}

/// A part that this kernel has, and that failed all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxError {
    /// The step.
    pub step: &'static str,
    /// What the kernel said.
    pub errno: Errno,
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sandbox cannot be made: {}: {}", self.step, self.errno)
    }
}

impl std::error::Error for SandboxError {}

/// The control socket; what lies above it is closed.
pub const CONTROL: i32 = 3;

/// Closes every descriptor above the control socket, whatever this process was started with. The first step: what is
/// opened after it stays.
pub fn close_others() -> Result<(), SandboxError> {
    close_range(CONTROL + 1, u32::MAX).map_err(|errno| SandboxError {
        step: "closing other descriptors",
        errno,
    })
}

/// Confines this process, which has one thread; it may connect to `ports`, if it connects at all. What comes back is
/// what is missing.
pub fn enter(
    worker: Worker,
    identity: Option<Identity>,
    ports: &[u16],
) -> Result<Vec<MissingPart>, SandboxError> {
    let at = |step: &'static str| move |errno: Errno| SandboxError { step, errno };
    let mut missing = Vec::new();
    limits(worker).map_err(at("setting limits"))?;
    credentials::set_no_new_privileges().map_err(at("no_new_privs"))?;
    // Whoever is within landlock may look at nobody outside of it, and that is the watcher's work.
    let denied = (worker != Worker::Watcher).then(|| landlock::deny_all_but(ports));
    match denied {
        None => {}
        Some(Ok(denied)) if !denied.files => missing.push(MissingPart::Landlock),
        Some(Ok(denied)) => {
            if !denied.tcp {
                missing.push(MissingPart::LandlockPorts);
            }
            if !denied.others {
                missing.push(MissingPart::LandlockScopes);
            }
        }
        Some(Err(e)) if landlock::is_missing(e) => missing.push(MissingPart::Landlock),
        Some(Err(e)) => return Err(at("landlock")(e)),
    }
    match identity {
        Some(identity) if worker == Worker::Watcher && process::effective_uid() == 0 => {
            let kept = [credentials::READ_OTHERS, credentials::LOOK_EVERYWHERE];
            credentials::become_with(identity.uid, identity.gid, &kept).map_err(at("changing the ids"))?;
        }
        Some(identity) if process::effective_uid() == 0 => {
            credentials::set_groups(&[]).map_err(at("giving up groups"))?;
            credentials::set_group_ids(identity.gid).map_err(at("changing the group id"))?;
            credentials::set_user_ids(identity.uid).map_err(at("changing the user id"))?;
        }
        Some(_) => missing.push(MissingPart::Identity),
        // Nobody else was to be become: a node that serves its own user only.
        None => {}
    }
    if worker != Worker::Watcher {
        credentials::drop_capabilities().map_err(at("giving up capabilities"))?;
    }
    // After the ids: changing them may set the flag anew.
    credentials::set_dumpable(false).map_err(at("not being dumpable"))?;
    match seccomp::allow_only(&mut allowed(worker), Otherwise::Kill) {
        Ok(()) => {}
        Err(Errno::ENOSYS | Errno::EINVAL) => missing.push(MissingPart::Seccomp),
        Err(e) => return Err(at("seccomp")(e)),
    }
    Ok(missing)
}

/// As many descriptors as may be; no processes, no files, no core that would hold keys.
fn limits(worker: Worker) -> Result<(), Errno> {
    const NONE: Limit = Limit { soft: 0, hard: 0 };
    let files = process::limit(numbers::RLIMIT_NOFILE)?;
    process::set_limit(
        numbers::RLIMIT_NOFILE,
        Limit {
            soft: files.hard,
            ..files
        },
    )?;
    process::set_limit(numbers::RLIMIT_CORE, NONE)?;
    if !matches!(worker, Worker::Watcher | Worker::Recorder) {
        process::set_limit(numbers::RLIMIT_NPROC, NONE)?;
    }
    if worker == Worker::Recorder {
        // A file of its own may be of any size.
        return process::ignore_signal(numbers::SIGXFSZ);
    }
    // Our log may be a file: it must stay writable.
    const KIND: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    if tree::stat_open(2).is_ok_and(|s| s.mode & KIND != REGULAR) {
        process::ignore_signal(numbers::SIGXFSZ)?;
        // The watcher makes files in memory, of a page each.
        let most = match worker {
            Worker::Watcher => Limit {
                soft: 4096,
                hard: 4096,
            },
            _ => NONE,
        };
        process::set_limit(numbers::RLIMIT_FSIZE, most)?;
    }
    Ok(())
}

/// Every call that a worker makes. What is not here ends the process: it would not be made by our code, so somebody else
/// has it, and gets no second try. The kernel's audit log names the call, the monitor sees SIGSYS.
fn allowed(worker: Worker) -> Vec<Allowed> {
    const NO_CODE: &[Test] = &[Test::Clear(2, stream::requests::PROT_EXEC)];
    const TERMINAL: &[Test] = &[
        Test::Equals(1, terminal::requests::SET_WINDOW),
        Test::Equals(1, terminal::requests::SEND_BREAK),
        Test::Equals(1, terminal::requests::MODES),
    ];
    const PIPES: &[Test] = &[
        Test::Equals(1, stream::requests::SET_FLAGS),
        Test::Equals(1, stream::requests::SET_PIPE_SIZE),
    ];
    const SOCKET: &[Test] = &[
        Test::Equals(2, stream::requests::NO_DELAY),
        Test::Equals(2, stream::requests::CONFIRM_NOW),
    ];
    let mut list = Vec::with_capacity(seccomp::MAX_ALLOWED);
    let always = [
        // The loop and its sockets.
        calls::SYS_epoll_pwait,
        calls::SYS_epoll_ctl,
        calls::SYS_recvfrom,
        calls::SYS_sendto,
        calls::SYS_recvmsg,
        calls::SYS_sendmsg,
        calls::SYS_shutdown,
        calls::SYS_close,
        // Log lines.
        calls::SYS_write,
        // What the allocator, the clock and the end of a process need.
        calls::SYS_munmap,
        calls::SYS_mremap,
        calls::SYS_madvise,
        calls::SYS_brk,
        calls::SYS_futex,
        calls::SYS_getrandom,
        calls::SYS_clock_gettime,
        calls::SYS_restart_syscall,
        calls::SYS_rt_sigreturn,
        calls::SYS_rt_sigprocmask,
        calls::SYS_rt_sigaction,
        calls::SYS_sigaltstack,
        calls::SYS_exit,
        calls::SYS_exit_group,
    ];
    list.extend(always.map(Allowed::any));
    list.push(Allowed::when(calls::SYS_mmap, NO_CODE));
    list.push(Allowed::when(calls::SYS_mprotect, NO_CODE));
    list.push(Allowed::when(calls::SYS_setsockopt, SOCKET));
    if worker == Worker::Front {
        // Pipes and terminals of sessions; listeners for agents, displays and sockets that the login asked for.
        list.push(Allowed::any(calls::SYS_read));
        list.push(Allowed::any(calls::SYS_readv));
        list.push(Allowed::any(calls::SYS_writev));
        list.push(Allowed::any(calls::SYS_accept4));
        list.push(Allowed::when(calls::SYS_ioctl, TERMINAL));
        list.push(Allowed::when(calls::SYS_fcntl, PIPES));
    }
    match worker {
        Worker::Watcher => list.extend(of_the_watcher()),
        Worker::Recorder => list.extend(of_the_recorder()),
        Worker::Guardian => list.extend(of_the_guardian()),
        // Signals; how the monitor ended.
        Worker::Starter => list.extend([calls::SYS_read, calls::SYS_waitid].map(Allowed::any)),
        _ => {}
    }
    if worker == Worker::Tunnel {
        // The runtime's waiting and its bell; TLS writes what it has in parts.
        #[cfg(target_arch = "x86_64")]
        list.push(Allowed::any(calls::SYS_epoll_wait));
        list.push(Allowed::any(calls::SYS_read));
        list.push(Allowed::any(calls::SYS_writev));
        // Recordings that it was handed.
        list.push(Allowed::any(calls::SYS_pread64));
        // TCP, and no other kind of socket: to which ports is landlock's matter. The rest is what came of a connect, and
        // whether a socket that was handed over waits.
        const TCP: &[Test] = &[
            Test::Both(0, stream::requests::INET, 1, stream::requests::STREAM),
            Test::Both(0, stream::requests::INET6, 1, stream::requests::STREAM),
        ];
        const OUTCOME: &[Test] = &[Test::Equals(2, stream::requests::OUTCOME)];
        const FLAGS: &[Test] = &[
            Test::Equals(1, stream::requests::GET_FLAGS),
            // Where it was built with debug assertions the standard library asks before it closes.
            Test::Equals(1, stream::requests::GET_CLOEXEC),
        ];
        list.push(Allowed::when(calls::SYS_socket, TCP));
        list.push(Allowed::any(calls::SYS_connect));
        list.push(Allowed::when(calls::SYS_getsockopt, OUTCOME));
        list.push(Allowed::when(calls::SYS_fcntl, FLAGS));
    }
    list
}

const READING: &[Test] = &[Test::Clear(2, file::flags::FOR_WRITING as u32)];
const LISTENERS: &[Test] = &[
    Test::Equals(1, seccomp::requests::RECEIVE),
    Test::Equals(1, seccomp::requests::SEND),
    Test::Equals(1, seccomp::requests::ID_VALID),
    Test::Equals(1, seccomp::requests::SET_FLAGS),
];

/// A thread, as the C libraries make one.
const FOR_THREADS: [i64; 7] = [
    calls::SYS_clone,
    calls::SYS_clone3,
    calls::SYS_set_robust_list,
    calls::SYS_rseq,
    calls::SYS_sched_getaffinity,
    calls::SYS_sched_yield,
    calls::SYS_gettid,
];

/// Pipes of sessions, files that it was handed, and one thread. It opens nothing, and cuts nothing off.
fn of_the_recorder() -> Vec<Allowed> {
    let mut list: Vec<Allowed> = [calls::SYS_read, calls::SYS_pwrite64, calls::SYS_fdatasync]
        .map(Allowed::any)
        .into();
    list.extend(FOR_THREADS.map(Allowed::any));
    list
}

/// Listeners and their memory; what /proc says of callers; threads.
fn of_the_watcher() -> Vec<Allowed> {
    let mut list: Vec<Allowed> = [
        calls::SYS_ppoll,
        calls::SYS_process_vm_readv,
        calls::SYS_read,
        calls::SYS_readlinkat,
        calls::SYS_statx,
        calls::SYS_memfd_create,
        calls::SYS_ftruncate,
        calls::SYS_pread64,
        calls::SYS_fcntl,
        // Itself, for the guardian.
        calls::SYS_getpid,
        calls::SYS_pidfd_open,
    ]
    .map(Allowed::any)
    .into();
    list.extend(FOR_THREADS.map(Allowed::any));
    list.push(Allowed::when(calls::SYS_openat, READING));
    list.push(Allowed::when(calls::SYS_ioctl, LISTENERS));
    list
}

/// Listeners and their memory, and getting out of the way.
fn of_the_guardian() -> Vec<Allowed> {
    let mut list: Vec<Allowed> = [
        calls::SYS_ppoll,
        calls::SYS_read,
        calls::SYS_pread64,
        calls::SYS_setsid,
        calls::SYS_prctl,
        calls::SYS_prlimit64,
        calls::SYS_chdir,
        calls::SYS_clock_nanosleep,
    ]
    .map(Allowed::any)
    .into();
    list.push(Allowed::when(calls::SYS_openat, READING));
    list.push(Allowed::when(calls::SYS_ioctl, LISTENERS));
    list
}

#[cfg(test)]
mod tests;
