//! Names of arguments, so that a test can say `flags` where it means the third. Of the calls that people test; any other
//! can be asked by position. The names are those of the manual, as JSON has them.

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::select::{Is, Test};

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// From 0.
    pub position: u8,
    /// All 64 bits count.
    pub wide: bool,
}

/// What is known of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is this one.
    At(Argument),
    /// The call has it, but a filter cannot see it there: it is behind a pointer, or in two halves.
    Hidden,
    /// The call has none of this name, as far as is known here.
    Missing,
}

/// Looks for an argument of a call by its name.
pub(super) fn argument(call: Call, name: &str) -> Found {
    let Some(of) = call.name() else {
        return Found::Missing;
    };
    let at = |arguments: &'static str| {
        let all = || (0u8..).zip(arguments.split_ascii_whitespace());
        let plain = |of: &'static str| of.trim_end_matches('*');
        let (position, of) = all()
            .find(|(_, of)| plain(of) == name)
            .or_else(|| all().find(|(_, of)| SECOND_NAMES.contains(&(name, plain(of)))))?;
        let wide = of.ends_with('*');
        Some(Argument { position, wide })
    };
    let usual = arguments(of).and_then(at);
    let other = DIFFERENT
        .iter()
        .find(|(abis, known, _)| *known == of && abis.contains(&call.abi));
    match (other, usual) {
        (None, Some(argument)) => Found::At(argument),
        (None, None) => Found::Missing,
        (Some((.., arguments)), usual) => match (at(arguments), usual) {
            (Some(argument), _) => Found::At(argument),
            (None, Some(_)) => Found::Hidden,
            (None, None) => Found::Missing,
        },
    }
}

/// The argument at a position. What is not known is taken for 64 bits.
pub(super) fn at(call: Call, position: u8) -> Argument {
    let known = call.name().and_then(arguments).unwrap_or_default();
    let narrow = |of: &str| !of.ends_with('*');
    let wide = !known
        .split_ascii_whitespace()
        .nth(usize::from(position))
        .is_some_and(narrow);
    Argument { position, wide }
}

/// The names of a call's arguments, as errors show them. Empty: nobody knows them.
pub(super) fn names(call: &str) -> Vec<&'static str> {
    let known = arguments(call).unwrap_or_default().split_ascii_whitespace();
    known.map(|name| name.trim_end_matches('*')).collect()
}

/// The calls through which a 32-bit program can make another, whose first argument says which: they, and the test.
pub(super) fn through(name: &str) -> impl Iterator<Item = (&'static str, Test)> {
    // The upper half of ipc's has a version.
    let tables = [
        ("socketcall", u64::from(u32::MAX), SOCKETCALL),
        ("ipc", 0xffff, IPC),
    ];
    tables.into_iter().flat_map(move |(call, mask, table)| {
        let numbers = table.iter().filter(move |(known, _)| *known == name);
        numbers.map(move |(_, value)| {
            let is = Is::Masked { mask, value: *value };
            let (argument, wide) = (0, false);
            (call, Test { argument, wide, is })
        })
    })
}

fn arguments(call: &str) -> Option<&'static str> {
    let found = ARGUMENTS.iter().find(|(known, _)| *known == call);
    found.map(|(_, arguments)| *arguments)
}

/// What else an argument is called: this, for that. The name itself is looked for first.
#[rustfmt::skip]
const SECOND_NAMES: &[(&str, &str)] = &[
    ("fd", "sockfd"), ("fd", "dirfd"), ("dfd", "dirfd"),
    ("path", "pathname"), ("pathname", "path"),
    ("family", "domain"),
    ("sig", "signum"), ("signal", "signum"), ("signal", "sig"),
    ("pid", "tgid"), ("uid", "fsuid"), ("gid", "fsgid"),
    ("op", "request"), ("op", "cmd"), ("op", "option"), ("op", "operation"), ("op", "opcode"),
    ("cmd", "request"), ("cmd", "op"), ("request", "cmd"),
    ("len", "length"), ("length", "len"), ("size", "len"), ("count", "buflen"),
    ("addr", "src_addr"), ("addr", "dest_addr"),
    ("child_stack", "stack"), ("child_tidptr", "child_tid"),
    ("fstype", "filesystemtype"), ("flags", "mountflags"), ("flags", "swapflags"),
];

const X86: &[Abi] = &[Abi::I386];
const NOT_X86_64: &[Abi] = &[Abi::I386, Abi::Aarch64];

/// Where a numbering has other arguments. A name that is missing here, and not among the usual ones, is hidden. i386's
/// calls with 16-bit users and groups, with a block of arguments in memory, and with 64-bit offsets in two halves.
const DIFFERENT: &[(&[Abi], &str, &str)] = &[
    (NOT_X86_64, "clone", "flags* stack* parent_tid* tls* child_tid*"),
    (X86, "mmap", "block*"),
    (X86, "select", "block*"),
    (X86, "pread64", "fd buf* count*"),
    (X86, "pwrite64", "fd buf* count*"),
    (X86, "truncate64", "path*"),
    (X86, "ftruncate64", "fd"),
    (X86, "fallocate", "fd mode"),
    (X86, "chown", "pathname*"),
    (X86, "lchown", "pathname*"),
    (X86, "fchown", "fd"),
    (X86, "setuid", ""),
    (X86, "setgid", ""),
    (X86, "setreuid", ""),
    (X86, "setregid", ""),
    (X86, "setresuid", ""),
    (X86, "setresgid", ""),
    (X86, "setfsuid", ""),
    (X86, "setfsgid", ""),
];

/// The number of a socket call in `socketcall`, `linux/net.h`.
const SOCKETCALL: &[(&str, u64)] = &[
    ("socket", 1),
    ("bind", 2),
    ("connect", 3),
    ("listen", 4),
    ("accept", 5),
    ("getsockname", 6),
    ("getpeername", 7),
    ("socketpair", 8),
    // send and recv, which are no calls elsewhere.
    ("sendto", 9),
    ("recvfrom", 10),
    ("sendto", 11),
    ("recvfrom", 12),
    ("shutdown", 13),
    ("setsockopt", 14),
    ("getsockopt", 15),
    ("sendmsg", 16),
    ("recvmsg", 17),
    ("accept4", 18),
    ("recvmmsg", 19),
    ("sendmmsg", 20),
];

/// The number of a call in `ipc`, `linux/ipc.h`.
const IPC: &[(&str, u64)] = &[
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

/// The arguments of a call by position, `*` behind those of which 64 bits count: `long`, sizes and pointers.
#[rustfmt::skip]
pub(super) const ARGUMENTS: &[(&str, &str)] = &[
    ("accept", "sockfd addr* addrlen*"),
    ("accept4", "sockfd addr* addrlen* flags"),
    ("access", "pathname* mode"),
    ("bind", "sockfd addr* addrlen"),
    ("bpf", "cmd attr* size"),
    ("brk", "addr*"),
    ("capset", "hdrp* datap*"),
    ("chmod", "pathname* mode"),
    ("chown", "pathname* owner group"),
    ("chown32", "pathname* owner group"),
    ("clock_gettime", "clockid tp*"),
    ("clock_nanosleep", "clockid flags request* remain*"),
    ("clock_settime", "clockid tp*"),
    ("clone", "flags* stack* parent_tid* child_tid* tls*"),
    ("clone3", "cl_args* size*"),
    ("close", "fd"),
    ("close_range", "first last flags"),
    ("connect", "sockfd addr* addrlen"),
    ("creat", "pathname* mode"),
    ("delete_module", "name* flags"),
    ("dup", "oldfd"),
    ("dup2", "oldfd newfd"),
    ("dup3", "oldfd newfd flags"),
    ("epoll_ctl", "epfd op fd event*"),
    ("epoll_wait", "epfd events* maxevents timeout"),
    ("execve", "pathname* argv* envp*"),
    ("execveat", "dirfd pathname* argv* envp* flags"),
    ("exit", "status"),
    ("exit_group", "status"),
    ("faccessat", "dirfd pathname* mode"),
    ("faccessat2", "dirfd pathname* mode flags"),
    ("fallocate", "fd mode offset* len*"),
    ("fchmod", "fd mode"),
    ("fchmodat", "dirfd pathname* mode"),
    ("fchmodat2", "dirfd pathname* mode flags"),
    ("fchown", "fd owner group"),
    ("fchown32", "fd owner group"),
    ("fchownat", "dirfd pathname* owner group flags"),
    ("fcntl", "fd cmd arg*"),
    ("fcntl64", "fd cmd arg*"),
    ("fdatasync", "fd"),
    ("finit_module", "fd param_values* flags"),
    ("flock", "fd operation"),
    ("fstat", "fd statbuf*"),
    ("fsync", "fd"),
    ("ftruncate", "fd length*"),
    ("ftruncate64", "fd length*"),
    ("futex", "uaddr* op val timeout* uaddr2* val3"),
    ("getdents64", "fd dirp* count"),
    ("getrandom", "buf* buflen* flags"),
    ("getsockopt", "sockfd level optname optval* optlen*"),
    ("inotify_add_watch", "fd pathname* mask"),
    ("io_uring_enter", "fd to_submit min_complete flags sig* sigsz*"),
    ("io_uring_register", "fd opcode arg* nr_args"),
    ("io_uring_setup", "entries params*"),
    ("ioctl", "fd request arg*"),
    ("kcmp", "pid1 pid2 type idx1* idx2*"),
    ("keyctl", "operation arg2* arg3* arg4* arg5*"),
    ("kill", "pid sig"),
    ("lchown", "pathname* owner group"),
    ("lchown32", "pathname* owner group"),
    ("linkat", "olddirfd oldpath* newdirfd newpath* flags"),
    ("listen", "sockfd backlog"),
    ("lseek", "fd offset* whence"),
    ("madvise", "addr* length* advice"),
    ("memfd_create", "name* flags"),
    ("mkdir", "pathname* mode"),
    ("mkdirat", "dirfd pathname* mode"),
    ("mknod", "pathname* mode dev"),
    ("mknodat", "dirfd pathname* mode dev"),
    ("mlock", "addr* len*"),
    ("mmap", "addr* length* prot* flags* fd offset*"),
    ("mmap2", "addr* length* prot* flags* fd pgoffset*"),
    ("mount", "source* target* filesystemtype* mountflags* data*"),
    ("mount_setattr", "dirfd pathname* flags attr* size*"),
    ("move_mount", "from_dirfd from_path* to_dirfd to_path* flags"),
    ("mprotect", "addr* len* prot*"),
    ("mremap", "old_address* old_size* new_size* flags* new_address*"),
    ("munmap", "addr* length*"),
    ("newfstatat", "dirfd pathname* statbuf* flags"),
    ("open", "pathname* flags mode"),
    ("open_by_handle_at", "mount_fd handle* flags"),
    ("open_tree", "dirfd pathname* flags"),
    ("openat", "dirfd pathname* flags mode"),
    ("openat2", "dirfd pathname* how* size*"),
    ("perf_event_open", "attr* pid cpu group_fd flags*"),
    ("personality", "persona"),
    ("pidfd_getfd", "pidfd targetfd flags"),
    ("pidfd_open", "pid flags"),
    ("pidfd_send_signal", "pidfd sig info* flags"),
    ("pipe2", "pipefd* flags"),
    ("pkey_mprotect", "addr* len* prot* pkey"),
    ("prctl", "option arg2* arg3* arg4* arg5*"),
    ("pread64", "fd buf* count* offset*"),
    ("prlimit64", "pid resource new_limit* old_limit*"),
    ("process_vm_readv", "pid local_iov* liovcnt* remote_iov* riovcnt* flags*"),
    ("process_vm_writev", "pid local_iov* liovcnt* remote_iov* riovcnt* flags*"),
    ("ptrace", "request* pid* addr* data*"),
    ("pwrite64", "fd buf* count* offset*"),
    ("quotactl", "cmd special* id addr*"),
    ("read", "fd buf* count*"),
    ("readv", "fd iov* iovcnt*"),
    ("reboot", "magic magic2 op arg*"),
    ("recvfrom", "sockfd buf* len* flags src_addr* addrlen*"),
    ("recvmsg", "sockfd msg* flags"),
    ("renameat2", "olddirfd oldpath* newdirfd newpath* flags"),
    ("rt_sigaction", "signum act* oldact* sigsetsize*"),
    ("rt_sigprocmask", "how set* oldset* sigsetsize*"),
    ("rt_sigqueueinfo", "tgid sig info*"),
    ("rt_tgsigqueueinfo", "tgid tid sig info*"),
    ("sched_setscheduler", "pid policy param*"),
    ("seccomp", "operation flags args*"),
    ("sendfile", "out_fd in_fd offset* count*"),
    ("sendmsg", "sockfd msg* flags"),
    ("sendto", "sockfd buf* len* flags dest_addr* addrlen"),
    ("setfsgid", "fsgid"),
    ("setfsuid", "fsuid"),
    ("setgid", "gid"),
    ("setgid32", "gid"),
    ("setns", "fd nstype"),
    ("setpgid", "pid pgid"),
    ("setpriority", "which who prio"),
    ("setregid", "rgid egid"),
    ("setresgid", "rgid egid sgid"),
    ("setresgid32", "rgid egid sgid"),
    ("setresuid", "ruid euid suid"),
    ("setresuid32", "ruid euid suid"),
    ("setreuid", "ruid euid"),
    ("setrlimit", "resource rlim*"),
    ("setsockopt", "sockfd level optname optval* optlen"),
    ("setuid", "uid"),
    ("setuid32", "uid"),
    ("shutdown", "sockfd how"),
    ("socket", "domain type protocol"),
    ("socketcall", "call args*"),
    ("socketpair", "domain type protocol sv*"),
    ("splice", "fd_in off_in* fd_out off_out* len* flags"),
    ("statx", "dirfd pathname* flags mask statxbuf*"),
    ("swapon", "path* swapflags"),
    ("syslog", "type bufp* len"),
    ("tgkill", "tgid tid sig"),
    ("timerfd_create", "clockid flags"),
    ("tkill", "tid sig"),
    ("truncate", "path* length*"),
    ("truncate64", "path* length*"),
    ("umount2", "target* flags"),
    ("unlinkat", "dirfd pathname* flags"),
    ("unshare", "flags*"),
    ("userfaultfd", "flags"),
    ("utimensat", "dirfd pathname* times* flags"),
    ("wait4", "pid wstatus* options rusage*"),
    ("waitid", "idtype id infop* options rusage*"),
    ("write", "fd buf* count*"),
    ("writev", "fd iov* iovcnt*"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_of_a_call_and_stands_once() {
        assert!(ARGUMENTS.is_sorted_by(|a, b| a.0 < b.0));
        let calls = ARGUMENTS.iter().map(|(name, arguments)| (*name, *arguments));
        let different = DIFFERENT.iter().map(|(_, name, arguments)| (*name, *arguments));
        for (name, arguments) in calls.chain(different) {
            assert!(
                Abi::ALL.iter().any(|abi| Call::named(*abi, name).is_some()),
                "{name}"
            );
            let mut names: Vec<_> = arguments.split_ascii_whitespace().collect();
            assert!(names.len() <= 6, "{name}");
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), arguments.split_ascii_whitespace().count(), "{name}");
        }
        for (name, _) in SOCKETCALL.iter().chain(IPC) {
            assert!(
                Abi::ALL.iter().any(|abi| Call::named(*abi, name).is_some()),
                "{name}"
            );
        }
    }

    #[test]
    fn an_argument_is_found_by_its_name() {
        let at = |position, wide| Found::At(Argument { position, wide });
        for (abi, call, name, found) in [
            (Abi::X86_64, "openat", "flags", at(2, false)),
            (Abi::X86_64, "open", "flags", at(1, false)),
            (Abi::X86_64, "open", "path", at(0, true)),
            (Abi::X86_64, "open", "fd", Found::Missing),
            (Abi::X86_64, "mmap", "prot", at(2, true)),
            (Abi::I386, "mmap", "prot", Found::Hidden),
            (Abi::I386, "mmap", "block", at(0, true)),
            (Abi::I386, "mmap2", "prot", at(2, true)),
            (Abi::I386, "setuid", "uid", Found::Hidden),
            (Abi::X86_64, "clone", "tls", at(4, true)),
            (Abi::Aarch64, "clone", "tls", at(3, true)),
            (Abi::X86_64, "getpid", "pid", Found::Missing),
            (Abi::X86_64, "ptrace", "op", at(0, true)),
            (Abi::X86_64, "connect", "fd", at(0, false)),
            (Abi::X86_64, "epoll_ctl", "fd", at(2, false)),
            (Abi::X86_64, "mount", "flags", at(3, true)),
        ] {
            let call = Call::named(abi, call).expect("a call");
            assert_eq!(argument(call, name), found, "{call:?} {name}");
        }
        let kill = Call::named(Abi::X86_64, "kill").expect("a call");
        assert!(!super::at(kill, 1).wide && super::at(kill, 2).wide);
    }
}
