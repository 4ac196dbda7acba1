//! Processes that are copies of this one, for libraries that are already loaded and warm; never for the server.
//!
//! glibc's fork, not the bare system call: it takes the locks of malloc and stdio over into the child.

use crate::{Errno, Result, syscall};
use core::ffi::CStr;

/// Which of the two this process is.
#[derive(Debug, PartialEq, Eq)]
pub enum ForkSide {
    /// The new one.
    Child,
    /// The old one; the child's number.
    Parent(i32),
}

/// Copies this process. It must have one thread: the child has only the calling one, and whatever another held
/// stays locked in it for ever.
pub fn fork() -> Result<ForkSide> {
    // SAFETY: the child continues as an ordinary single-threaded process on memory of its own.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid if pid > 0 => Ok(ForkSide::Parent(pid)),
        // SAFETY: glibc's errno of this thread, just set.
        _ => Err(Errno(unsafe { *libc::__errno_location() })),
    }
}

/// Children that end are reaped by the kernel (`true`), or wait to be waited for.
pub fn reap_children(by_kernel: bool) {
    let action = if by_kernel { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: no handler of ours: the signal is ignored or has its default effect.
    unsafe { libc::signal(libc::SIGCHLD, action) };
}

/// This process outlives the signals that end a service: it has a session to close first. Handled, not ignored:
/// what is ignored stays so in every program that a child executes.
pub fn outlive_signals() {
    extern "C" fn nothing(_: i32) {}
    for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: a handler that does nothing; signal() restarts interrupted calls.
        unsafe { libc::signal(number, nothing as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

/// Asks that this process be killed when its parent ends, however that happens.
pub fn die_with_parent() -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.map(drop)
}

/// Makes this process the leader of a session of its own: signals to the server's group or terminal pass it by.
pub fn leave_session() -> Result<()> {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_setsid) }.map(drop)
}

/// The name that `ps` shows; the kernel keeps 15 bytes of it.
pub fn set_name(name: &CStr) {
    // SAFETY: the kernel reads up to 16 bytes of a string that lives through the call. It cannot fail.
    let _ = unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Gives memory that malloc keeps free back to the kernel.
pub fn trim_memory() {
    // SAFETY: a number.
    unsafe { libc::malloc_trim(0) };
}

/// A clock that kills this process unless it is set anew or stopped in time. The kernel keeps it: neither a hang
/// nor a blocked signal keeps it from striking. Not inherited by children.
pub struct Watchdog(i32);

impl Watchdog {
    /// Not running yet.
    pub fn new() -> Result<Watchdog> {
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut id: i32 = 0;
        // SAFETY: the kernel reads one sigevent and writes one number.
        unsafe {
            syscall!(
                libc::SYS_timer_create,
                libc::CLOCK_BOOTTIME,
                &raw const event,
                &raw mut id
            )
        }?;
        Ok(Watchdog(id))
    }

    /// Strikes after `seconds`; 0 stops it.
    pub fn set(&self, seconds: u32) -> Result<()> {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: seconds.into(),
                tv_nsec: 0,
            },
        };
        // SAFETY: the kernel reads one itimerspec.
        unsafe { syscall!(libc::SYS_timer_settime, self.0, 0, &raw const spec, 0) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, pidfd_open, wait};

    fn in_child(body: impl FnOnce()) -> Exit {
        match fork().expect("fork") {
            ForkSide::Child => {
                body();
                crate::process::exit(0)
            }
            ForkSide::Parent(pid) => wait(&pidfd_open(pid).expect("not reaped"), true)
                .expect("wait")
                .expect("blocking"),
        }
    }

    fn forever() -> ! {
        loop {
            let _ = crate::poll::poll(&mut [], None);
        }
    }

    #[test]
    fn a_watchdog_strikes_and_a_stopped_one_does_not() {
        let killed = in_child(|| {
            let dog = Watchdog::new().expect("timer");
            dog.set(1).expect("set");
            forever()
        });
        assert_eq!(
            killed,
            Exit::Signal {
                number: libc::SIGKILL,
                core: false
            }
        );
        let lived = in_child(|| {
            let dog = Watchdog::new().expect("timer");
            dog.set(1).expect("set");
            dog.set(0).expect("stop");
            let _ = crate::poll::poll(&mut [], Some(1500));
        });
        assert_eq!(lived, Exit::Code(0));
    }
}
