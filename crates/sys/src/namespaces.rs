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
