//! Entering namespaces that somebody else made. All of it is about the calling thread, and about what it starts; other
//! threads of the process stay where they are.

use crate::{Fd, Result, syscall};

/// Puts the calling thread into the namespace behind `namespace`, a file of `/proc/PID/ns`, of whatever kind it is. A
/// mount namespace wants a thread that has called [`own_directory`]; a process namespace is for the children only, and
/// the thread can start no further threads from then on.
pub fn enter(namespace: &Fd) -> Result<()> {
    // SAFETY: numbers only; 0 takes every kind.
    unsafe { syscall!(libc::SYS_setns, namespace.raw(), 0) }.map(drop)
}

/// What can be entered by [`enter_with`]; several in one number.
pub mod kind {
    /// Control groups: what is shown as the root of the hierarchy.
    pub const CGROUP: i32 = libc::CLONE_NEWCGROUP;
    /// System V IPC and message queues.
    pub const IPC: i32 = libc::CLONE_NEWIPC;
    /// Mounts.
    pub const MOUNT: i32 = libc::CLONE_NEWNS;
    /// Networking.
    pub const NETWORK: i32 = libc::CLONE_NEWNET;
    /// Processes: for the children of who enters it.
    pub const PROCESS: i32 = libc::CLONE_NEWPID;
    /// The clocks since boot.
    pub const TIME: i32 = 0x80;
    /// Users, groups and capabilities.
    pub const USER: i32 = libc::CLONE_NEWUSER;
    /// The machine's name.
    pub const HOST_NAME: i32 = libc::CLONE_NEWUTS;
}

/// Puts the calling thread into these namespaces of the process behind `pidfd`: all of them, or none on an error. For users
/// and for times the process must have one thread. Linux 5.8.
pub fn enter_with(pidfd: &Fd, kinds: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_setns, pidfd.raw(), kinds) }.map(drop)
}

/// Whether entering these kinds put this process's children among other processes than its own.
pub const fn enters_process_namespace(kinds: i32) -> bool {
    kinds & kind::PROCESS != 0
}

/// Makes the open directory this process's root and working directory.
pub fn set_root(directory: &Fd) -> Result<()> {
    // SAFETY: a number; the kernel reads one string.
    unsafe {
        syscall!(libc::SYS_fchdir, directory.raw())?;
        syscall!(libc::SYS_chroot, c".".as_ptr()).map(drop)
    }
}

/// Gives the calling thread a root and a working directory of its own, which it shares with the other threads
/// otherwise.
pub fn own_directory() -> Result<()> {
    // SAFETY: a number.
    unsafe { syscall!(libc::SYS_unshare, libc::CLONE_FS) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Errno, file};

    #[test]
    fn what_is_no_namespace_is_refused() {
        let own = |path| file::openat(file::CWD, path, 0, 0).expect("opens");
        assert_eq!(enter(&own(c"/dev/null")), Err(Errno::EINVAL));
        // Two threads at least share a directory here: this one and the one that it starts.
        let sharing = std::thread::spawn(move || enter(&own(c"/proc/self/ns/mnt")));
        assert_eq!(sharing.join().expect("it ends"), Err(Errno::EINVAL));
        if crate::process::effective_uid() == 0 {
            let alone =
                std::thread::spawn(move || own_directory().and_then(|()| enter(&own(c"/proc/self/ns/mnt"))));
            assert_eq!(alone.join().expect("it ends"), Ok(()));
        }
    }
}
