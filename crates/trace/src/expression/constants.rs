//! Names for numbers in tests of arguments, as the kernel of this program's architecture has them.

use fleetgate_calls::tables::signal;

/// The number of a name: one of the table, or a signal's.
pub(super) fn value(name: &str) -> Option<u64> {
    let found = CONSTANTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).or_else(|| {
        let signal = name.starts_with("SIG").then(|| signal::number(name))??;
        u64::try_from(signal).ok()
    })
}

/// Every name, for whoever looks for one that is like another.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let signals = (1..=signal::LAST).filter_map(signal::name);
    CONSTANTS.iter().map(|(name, _)| *name).chain(signals)
}

/// Those of the C library, which has them with many types; a negative one has all upper bits.
macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as i64 as u64),)*
        // The C library says 0, which is true for its own callers only.
        ("O_LARGEFILE", if cfg!(target_arch = "aarch64") { 0o400_000 } else { 0o100_000 }),
    ] };
}

#[rustfmt::skip]
#[allow(
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "each has another type"
)]
static CONSTANTS: &[(&str, u64)] = of_libc! {
    O_RDONLY O_WRONLY O_RDWR O_ACCMODE O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_DSYNC O_SYNC O_ASYNC
    O_DIRECT O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH O_TMPFILE
    AT_FDCWD AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_REMOVEDIR AT_EACCESS AT_EMPTY_PATH AT_NO_AUTOMOUNT
    F_OK R_OK W_OK X_OK
    F_DUPFD F_DUPFD_CLOEXEC F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_ADD_SEALS F_GET_SEALS
    SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE
    S_IFMT S_IFREG S_IFDIR S_IFLNK S_IFBLK S_IFCHR S_IFIFO S_IFSOCK S_ISUID S_ISGID S_ISVTX
    LOCK_SH LOCK_EX LOCK_UN LOCK_NB
    AF_UNSPEC AF_UNIX AF_LOCAL AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_VSOCK AF_ALG AF_BLUETOOTH AF_CAN AF_XDP
    SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_NONBLOCK SOCK_CLOEXEC
    IPPROTO_IP IPPROTO_ICMP IPPROTO_TCP IPPROTO_UDP IPPROTO_IPV6 IPPROTO_ICMPV6 IPPROTO_RAW IPPROTO_SCTP
    SOL_SOCKET SHUT_RD SHUT_WR SHUT_RDWR MSG_PEEK MSG_DONTWAIT MSG_NOSIGNAL MSG_OOB MSG_TRUNC MSG_WAITALL
    SO_REUSEADDR SO_REUSEPORT SO_KEEPALIVE SO_MARK SO_BINDTODEVICE SO_ATTACH_FILTER SO_PEERCRED
    PROT_NONE PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP
    MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_STACK MAP_HUGETLB MAP_LOCKED MAP_NORESERVE MAP_POPULATE
    MAP_GROWSDOWN MAP_FIXED_NOREPLACE
    MADV_NORMAL MADV_DONTNEED MADV_FREE MADV_HUGEPAGE MADV_WILLNEED MADV_DONTFORK
    CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PTRACE CLONE_VFORK CLONE_PARENT CLONE_THREAD CLONE_NEWNS
    CLONE_SYSVSEM CLONE_SETTLS CLONE_UNTRACED CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID
    CLONE_NEWNET CLONE_IO
    MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_REMOUNT MS_BIND MS_MOVE MS_REC MS_PRIVATE MS_SHARED MS_SLAVE
    MS_UNBINDABLE MNT_FORCE MNT_DETACH MNT_EXPIRE UMOUNT_NOFOLLOW
    RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT
    PTRACE_TRACEME PTRACE_PEEKTEXT PTRACE_PEEKDATA PTRACE_POKETEXT PTRACE_POKEDATA PTRACE_CONT PTRACE_KILL
    PTRACE_ATTACH PTRACE_DETACH PTRACE_SEIZE PTRACE_INTERRUPT PTRACE_SETREGSET PTRACE_GETREGSET
    PR_SET_PDEATHSIG PR_SET_DUMPABLE PR_SET_NAME PR_GET_NAME PR_SET_SECCOMP PR_SET_NO_NEW_PRIVS PR_SET_PTRACER
    PR_CAPBSET_DROP PR_SET_KEEPCAPS PR_SET_CHILD_SUBREAPER PR_CAP_AMBIENT PR_SET_MM PR_SET_SECUREBITS
    SECCOMP_SET_MODE_STRICT SECCOMP_SET_MODE_FILTER SECCOMP_GET_ACTION_AVAIL SECCOMP_GET_NOTIF_SIZES
    FUTEX_WAIT FUTEX_WAKE FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME
    EPOLL_CTL_ADD EPOLL_CTL_MOD EPOLL_CTL_DEL
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID CLOCK_BOOTTIME
    MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB
    GRND_NONBLOCK GRND_RANDOM
    SIG_BLOCK SIG_UNBLOCK SIG_SETMASK
    SCHED_OTHER SCHED_FIFO SCHED_RR SCHED_BATCH SCHED_IDLE SCHED_DEADLINE
    RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_NOFILE RLIMIT_AS RLIMIT_NPROC
    RLIMIT_MEMLOCK RLIMIT_RTPRIO
    WNOHANG WUNTRACED WCONTINUED WEXITED WSTOPPED WNOWAIT P_PID P_PGID P_ALL P_PIDFD
    TIOCSTI TIOCSCTTY TIOCGWINSZ TIOCSWINSZ TCGETS TCSETS TCSETSW TCSETSF FIONREAD FIONBIO FICLONE FS_IOC_SETFLAGS
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_number_and_stands_once() {
        for (name, number) in [
            ("O_RDONLY", Some(0)),
            ("O_CREAT", Some(0o100)),
            ("AT_FDCWD", Some(-100_i64 as u64)),
            ("AF_INET6", Some(10)),
            ("SIGKILL", Some(9)),
            ("SIGRT_1", Some(33)),
            ("KILL", None),
            ("O_creat", None),
            ("", None),
        ] {
            assert_eq!(value(name), number, "{name}");
        }
        let mut all: Vec<_> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(names().all(|name| value(name).is_some()));
    }
}
