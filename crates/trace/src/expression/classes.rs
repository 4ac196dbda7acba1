//! Classes of calls: `%file`, `%network` and so on. Members are those that strace has in them, as it was seen to choose
//! among all calls of x86_64, i386 and x32, and the calls since then by what they take. `%write` is of this tracer alone.
//! A member that a numbering lacks is left out there.

/// A class of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// As it is written, with its `%`.
    pub name: &'static str,
    /// What is in it.
    pub about: &'static str,
    /// Another name for it.
    pub second: &'static str,
    /// Whether it may be written without `%`, as in former times.
    pub bare: bool,
    /// The names of its calls, with spaces between them.
    members: &'static str,
    /// Those that are in it with some arguments only, as an expression.
    pub(super) asked: &'static str,
}

impl Class {
    /// The class of a name, which has its `%`, or is one of those that need none.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Class> {
        CLASSES.iter().find(|class| {
            let bare = class.bare && class.name.strip_prefix('%') == Some(name);
            class.name == name || bare || (class.second == name && !name.is_empty())
        })
    }

    /// The names of the calls that are in it whatever their arguments are.
    pub fn members(&self) -> impl Iterator<Item = &'static str> {
        self.members.split_ascii_whitespace()
    }
}

const fn class(name: &'static str, about: &'static str, members: &'static str) -> Class {
    Class {
        name,
        about,
        second: "",
        bare: false,
        members,
        asked: "",
    }
}

const fn bare(class: Class) -> Class {
    Class { bare: true, ..class }
}

/// All classes, in the order in which help shows them.
pub const CLASSES: &[Class] = &[
    bare(class(
        "%file",
        "take the name of a file",
        "access acct chdir chmod chown chown32 chroot creat execve execveat faccessat faccessat2 fanotify_mark \
         fchmodat fchmodat2 fchownat file_getattr file_setattr fsconfig fspick fstatat64 futimesat getcwd getxattr \
         getxattrat inotify_add_watch lchown lchown32 lgetxattr link linkat listxattr listxattrat llistxattr \
         lremovexattr lsetxattr lstat lstat64 mkdir mkdirat mknod mknodat mount mount_setattr move_mount \
         name_to_handle_at newfstatat oldlstat oldstat open open_tree open_tree_attr openat openat2 pivot_root \
         quotactl readlink readlinkat removexattr removexattrat rename renameat renameat2 rmdir setxattr setxattrat \
         stat stat64 statfs statfs64 statx swapoff swapon symlink symlinkat truncate truncate64 umount umount2 unlink \
         unlinkat uselib utime utimensat utimensat_time64 utimes",
    )),
    bare(class(
        "%process",
        "begin, change, signal, await or end processes",
        "clone clone3 execve execveat exit exit_group fork kill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo \
         tgkill tkill vfork wait4 waitid waitpid",
    )),
    Class {
        second: "%net",
        ..bare(class(
            "%network",
            "work with sockets",
            "accept accept4 bind connect getpeername getpmsg getsockname getsockopt listen putpmsg recvfrom recvmmsg \
             recvmmsg_time64 recvmsg sendfile sendfile64 sendmmsg sendmsg sendto setsockopt shutdown socket socketcall \
             socketpair",
        ))
    },
    bare(class(
        "%signal",
        "send, catch, block or await signals",
        "io_uring_enter kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo \
         rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sgetmask sigaction \
         sigaltstack signal signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend ssetmask tgkill tkill",
    )),
    bare(class(
        "%ipc",
        "System V messages, semaphores and shared memory",
        "ipc msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget",
    )),
    bare(class(
        "%desc",
        "take or make descriptors",
        "_llseek _newselect bpf cachestat close copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl \
         epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execveat faccessat faccessat2 fadvise64 fadvise64_64 \
         fallocate fanotify_init fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 \
         fdatasync fgetxattr file_getattr file_setattr finit_module flistxattr flock fremovexattr fsconfig fsetxattr \
         fsmount fsopen fspick fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getdents \
         getdents64 getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_uring_enter \
         io_uring_register io_uring_setup ioctl kexec_file_load landlock_add_rule landlock_create_ruleset \
         landlock_restrict_self linkat listxattrat lseek memfd_create memfd_secret mkdirat mknodat mmap mmap2 \
         mount_setattr move_mount mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend \
         mq_timedsend_time64 name_to_handle_at newfstatat oldfstat open open_by_handle_at open_tree open_tree_attr \
         openat openat2 perf_event_open pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 poll ppoll ppoll_time64 \
         pread64 preadv preadv2 process_madvise process_mrelease pselect6 pselect6_time64 pwrite64 pwritev pwritev2 \
         quotactl_fd read readahead readdir readlinkat readv removexattrat renameat renameat2 select sendfile \
         sendfile64 setns setxattrat signalfd signalfd4 socketcall splice statx symlinkat sync_file_range syncfs tee \
         timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 unlinkat userfaultfd \
         utimensat utimensat_time64 vmsplice write writev",
    )),
    bare(class(
        "%memory",
        "map, lock or advise about memory",
        "break brk get_mempolicy io_destroy io_setup io_uring_register madvise map_shadow_stack mbind migrate_pages \
         mincore mlock mlock2 mlockall mmap mmap2 move_pages mprotect mremap mseal msync munlock munlockall munmap \
         pkey_mprotect remap_file_pages set_mempolicy set_mempolicy_home_node shmat shmdt",
    )),
    class(
        "%creds",
        "read or set users, groups and capabilities",
        "capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid \
         getresgid32 getresuid getresuid32 getuid getuid32 prctl setfsgid setfsgid32 setfsuid setfsuid32 setgid \
         setgid32 setgroups setgroups32 setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid \
         setreuid32 setuid setuid32",
    ),
    class(
        "%clock",
        "read or set clocks",
        "adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 \
         clock_settime clock_settime64 gettimeofday settimeofday time",
    ),
    class("%stat", "stat", "oldstat stat stat64"),
    class("%lstat", "lstat", "lstat lstat64 oldlstat"),
    class(
        "%fstat",
        "fstat, fstatat and statx",
        "fstat fstat64 fstatat64 newfstatat oldfstat statx",
    ),
    class(
        "%%stat",
        "the three above",
        "fstat fstat64 fstatat64 lstat lstat64 newfstatat oldfstat oldlstat oldstat stat stat64 statx",
    ),
    class("%statfs", "statfs", "statfs statfs64"),
    class("%fstatfs", "fstatfs", "fstatfs fstatfs64"),
    class(
        "%%statfs",
        "the two above and ustat",
        "fstatfs fstatfs64 statfs statfs64 ustat",
    ),
    class(
        "%pure",
        "take nothing and never fail",
        "getegid getegid32 geteuid geteuid32 getgid getgid32 getpgrp getpid getppid gettid getuid getuid32",
    ),
    // What may change files by name, or their attributes. That data is written through a descriptor is not in it: the
    // descriptor was opened for that. The flags of openat2 are in memory, where no filter sees them.
    Class {
        asked: "open(flags&O_WRONLY|O_RDWR|O_CREAT|O_TRUNC),openat(flags&O_WRONLY|O_RDWR|O_CREAT|O_TRUNC),\
                open_by_handle_at(flags&O_WRONLY|O_RDWR|O_TRUNC)",
        ..class(
            "%write",
            "open for writing, create, remove, rename, or change what is known of files (not strace's)",
            "chmod chown chown32 creat fchmod fchmodat fchmodat2 fchown fchown32 fchownat file_setattr fremovexattr \
             fsetxattr futimesat lchown lchown32 link linkat lremovexattr lsetxattr mkdir mkdirat mknod mknodat openat2 \
             removexattr removexattrat rename renameat renameat2 rmdir setxattr setxattrat symlink symlinkat truncate \
             truncate64 unlink unlinkat utime utimensat utimensat_time64 utimes",
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_calls::abi::{Abi, Call};

    #[test]
    fn every_member_of_a_class_is_a_call_and_stands_once() {
        for class in CLASSES {
            let members: Vec<_> = class.members().collect();
            assert!(members.is_sorted_by(|a, b| a < b), "{}: {members:?}", class.name);
            for member in members {
                let known = Abi::ALL.iter().any(|abi| Call::named(*abi, member).is_some());
                assert!(known, "{}: {member}", class.name);
            }
        }
    }

    #[test]
    fn a_class_is_found_by_its_names() {
        for (name, class) in [
            ("%file", Some("%file")),
            ("file", Some("%file")),
            ("%net", Some("%network")),
            ("net", None),
            ("network", Some("%network")),
            ("%%stat", Some("%%stat")),
            ("%stat", Some("%stat")),
            ("stat", None),
            ("pure", None),
            ("%", None),
            ("", None),
            ("%FILE", None),
        ] {
            assert_eq!(Class::named(name).map(|c| c.name), class, "{name}");
        }
    }
}
