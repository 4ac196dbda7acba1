//! Signals as a descriptor. It never installs a handler that does anything: code that runs between any two instructions
//! cannot be made sound.

use crate::{Errno, Fd, Result, process, syscall};

/// Ask to end.
pub const TERM: i32 = libc::SIGTERM;
/// From a terminal's Ctrl-C.
pub const INT: i32 = libc::SIGINT;
/// A terminal is gone, or: read the configuration again.
pub const HUP: i32 = libc::SIGHUP;
/// Nobody can refuse it.
pub const KILL: i32 = libc::SIGKILL;
/// From a terminal's Ctrl-Z.
pub const TSTP: i32 = libc::SIGTSTP;
/// The terminal's window has another size.
pub const WINDOW: i32 = libc::SIGWINCH;
/// A child ended.
pub const CHLD: i32 = libc::SIGCHLD;

/// The set in the kernel's form: one bit per signal, from 1.
fn mask(signals: &[i32]) -> u64 {
    signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// Blocks `signals` for this thread, and for every thread that it starts later, and gives a descriptor that is
/// readable when one of them came. Call it before the first thread is started. What [`crate::spawn`] starts has
/// nothing blocked.
pub fn descriptor(signals: &[i32]) -> Result<Fd> {
    let mask = mask(signals);
    // SAFETY: the kernel reads 8 bytes of mask; a null old mask is allowed.
    unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const mask, 0, 8) }?;
    // SAFETY: as above, and numbers.
    let fd = unsafe {
        syscall!(
            libc::SYS_signalfd4,
            -1i32,
            &raw const mask,
            8,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK
        )
    }?;
    Ok(Fd::from_raw(fd as i32))
}

/// Lets these through again: whoever starts a process hands down what it blocks itself.
pub fn unblock(signals: &[i32]) -> Result<()> {
    let mask = mask(signals);
    // SAFETY: the kernel reads one 64-bit set.
    unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const mask, 0, 8) }.map(drop)
}

/// The signal that only wakes: [`wakes`] and [`wake`]. Nobody else is harmed by it: who did nothing about it ignores it.
pub const URG: i32 = libc::SIGURG;

/// Has this signal end a wait with `EINTR` and do nothing else, as long as the process is this program: an exec forgets it.
pub fn wakes(signal: i32) -> Result<()> {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // Without SA_RESTART, so that a wait ends.
    action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
    // SAFETY: the C library reads one sigaction, and brings the way back from a handler that the kernel wants of it; the
    // handler is empty, so it may run between any two instructions.
    match unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// This thread's number, for [`wake`].
pub fn thread() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { syscall!(libc::SYS_gettid) }.unwrap_or(0) as i32
}

/// Sends a signal to a thread of this process.
pub fn wake(thread: i32, signal: i32) -> Result<()> {
    // SAFETY: numbers only, and of this very process.
    unsafe { syscall!(libc::SYS_tgkill, process::id(), thread, signal) }.map(drop)
}

/// Ends the process as this signal would, without a core file of its own; a shell then says the same of it as of whoever
/// really had it. Where the signal ends nothing, the code is what a shell would make of it.
pub fn end_by(signal: i32) -> ! {
    let none = process::Limit { soft: 0, hard: 0 };
    let _ = process::set_limit(process::numbers::RLIMIT_CORE, none);
    let _ = process::reset_signal(signal);
    let _ = unblock(&[signal]);
    let _ = wake(thread(), signal);
    process::exit(128 + signal)
}

/// The next signal that came, if one did.
pub fn next(descriptor: &Fd) -> Result<Option<i32>> {
    // signalfd_siginfo: 128 bytes, of which the first four are the number.
    let mut info = [0u8; 128];
    match crate::file::read(descriptor.raw(), &mut info) {
        Ok(128) => Ok(Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))),
        Ok(_) => Err(Errno::EINVAL),
        Err(Errno::EAGAIN) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_came_is_read_once() {
        let fd = descriptor(&[libc::SIGUSR2]).expect("signalfd");
        assert_eq!(next(&fd), Ok(None));
        // SAFETY: numbers; the signal is blocked in this thread, to which it is sent.
        unsafe {
            let thread = syscall!(libc::SYS_gettid).expect("gettid");
            syscall!(libc::SYS_tgkill, process::id(), thread, libc::SIGUSR2).expect("tgkill");
        }
        assert_eq!(next(&fd), Ok(Some(libc::SIGUSR2)));
        assert_eq!(next(&fd), Ok(None));
    }

    #[test]
    fn a_wait_is_ended_by_a_signal_that_does_nothing_else() {
        wakes(URG).expect("a handler");
        let waits = thread();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // As often as it takes: it may not wait yet.
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    wake(waits, URG).expect("it is there");
                }
            });
            // SAFETY: no descriptors, no time, no mask: it waits for a signal and nothing else.
            let woken = unsafe { syscall!(libc::SYS_ppoll, 0, 0, 0, 0, 8) };
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(woken, Err(Errno::EINTR));
        });
    }
}
