//! What a service never does that has its own files and talks to others, whatever libraries, resolvers and name services it
//! is linked with. A list of what it does would have to know those of every machine.

use super::only::{Forbidden, Test, allow_all_but};
use crate::{Errno, Result};
use alloc::vec::Vec;

/// Sockets of this machine and of the internet; of the kernel's, by which resolvers look at its routes.
const FAMILIES: &[Test] = &[
    Test::Equals(0, libc::AF_UNIX as u32),
    Test::Equals(0, libc::AF_INET as u32),
    Test::Equals(0, libc::AF_INET6 as u32),
    Test::Equals(0, libc::AF_NETLINK as u32),
];
/// Limits of its own.
const OWN: &[Test] = &[Test::Equals(0, 0)];
/// A thread, in the namespaces that it is in.
const NO_NAMESPACES: &[Test] = &[Test::Clear(0, NAMESPACES)];
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Other programs, other processes, mounts and namespaces, the kernel itself.
const NEVER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Its flags are in memory, where no filter sees them; C libraries go on with clone.
    libc::SYS_clone3,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[i64] = &[];

/// From here on the calling thread, and those that it starts, get `ENOSYS` for calls that a service does not make: it starts
/// no program, looks into no process, mounts nothing, makes no namespace and no socket but those of this machine and of the
/// internet. It must have no_new_privs or CAP_SYS_ADMIN.
pub fn serve_only() -> Result<()> {
    let mut list: Vec<Forbidden> = NEVER
        .iter()
        .chain(NEVER_HERE)
        .copied()
        .map(Forbidden::always)
        .collect();
    list.push(Forbidden::unless(libc::SYS_clone, NO_NAMESPACES));
    list.push(Forbidden::unless(libc::SYS_socket, FAMILIES));
    list.push(Forbidden::unless(libc::SYS_socketpair, FAMILIES));
    list.push(Forbidden::unless(libc::SYS_prlimit64, OWN));
    allow_all_but(&mut list, Errno::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{HARMLESS, answer};
    use std::net::{TcpListener, ToSocketAddrs, UdpSocket};
    use std::os::unix::net::UnixStream;

    /// In a thread that serves and does nothing else.
    fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(|| {
            crate::credentials::set_no_new_privileges().expect("always allowed");
            serve_only().expect("a good list");
            work()
        })
        .join()
        .expect("no panic")
    }

    #[test]
    fn what_a_service_does_goes_on() {
        confined(|| {
            // Whichever way the C library makes threads.
            let other = std::thread::spawn(|| answer(libc::SYS_execve));
            assert_eq!(
                other.join().expect("a thread"),
                Err(Errno::ENOSYS),
                "it is bound too"
            );
            assert!(
                "localhost:1"
                    .to_socket_addrs()
                    .is_ok_and(|mut found| found.next().is_some())
            );
            let listener = TcpListener::bind("127.0.0.1:0").expect("TCP");
            drop(std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("TCP"));
            drop(UdpSocket::bind("127.0.0.1:0").expect("UDP"));
            drop(UnixStream::pair().expect("a pair"));
            assert!(std::fs::read("/proc/self/status").is_ok());
        });
    }

    #[test]
    fn what_none_does_is_not_there() {
        for call in HARMLESS.iter().copied() {
            let forbidden = NEVER.contains(&call) || [libc::SYS_socket, libc::SYS_socketpair].contains(&call);
            let before = answer(call).expect_err("harmless");
            let after = confined(move || answer(call)).expect_err("harmless");
            let wanted = if forbidden { Errno::ENOSYS } else { before };
            assert_eq!(after, wanted, "call {call}");
        }
        assert!(HARMLESS.iter().filter(|call| NEVER.contains(call)).count() > 10);
        let started = confined(|| std::process::Command::new("/bin/true").status());
        assert_eq!(
            started.expect_err("no program").raw_os_error(),
            Some(Errno::ENOSYS.0)
        );
    }
}
