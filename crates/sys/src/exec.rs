//! Turning this process into another program: its session, terminal, directory, signals, keyring, and the exec.

use crate::spawn::Strings;
use crate::{Errno, Fd, Result, syscall};
use core::ffi::{CStr, c_char};

/// Makes this process the leader of a session of its own, without a terminal. `EPERM`: it leads a group already.
pub fn new_session() -> Result<()> {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_setsid) }.map(drop)
}

/// Makes `terminal` the controlling terminal of this session. `ENOTTY`: it is no terminal.
pub fn take_terminal(terminal: &Fd) -> Result<()> {
    // SAFETY: numbers only; 0 does not take the terminal away from another session.
    unsafe { syscall!(libc::SYS_ioctl, terminal.raw(), libc::TIOCSCTTY as u32, 0) }.map(drop)
}

/// Changes the owner of the open file `fd`.
pub fn change_owner(fd: &Fd, uid: u32, gid: u32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fchown, fd.raw(), uid, gid) }.map(drop)
}

/// Changes the working directory.
pub fn change_directory(path: &CStr) -> Result<()> {
    // SAFETY: the kernel reads one string.
    unsafe { syscall!(libc::SYS_chdir, path.as_ptr()) }.map(drop)
}

/// The working directory's path; `ENOENT`: it was removed, or lies outside this process's root.
pub fn current_directory() -> Result<alloc::ffi::CString> {
    let mut path = alloc::vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most as many bytes as it is told, a zero byte among them.
    let len = unsafe { syscall!(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) }?;
    path.truncate(len);
    match alloc::ffi::CString::from_vec_with_nul(path) {
        // The kernel marks what cannot be reached from the root by words in front.
        Ok(path) if path.as_bytes().starts_with(b"/") => Ok(path),
        _ => Err(Errno::ENOENT),
    }
}

/// Sets the nice value of this process.
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_setpriority, libc::PRIO_PROCESS as i32, 0, nice) }.map(drop)
}

/// Gives this process a fresh session keyring of its own, from which the user's keyring can be reached.
pub fn new_session_keyring() -> Result<()> {
    const JOIN_SESSION_KEYRING: usize = 1;
    const LINK: usize = 8;
    const USER_KEYRING: isize = -4;
    const SESSION_KEYRING: isize = -3;
    // SAFETY: a null name asks for an anonymous keyring; the rest are numbers.
    unsafe {
        syscall!(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0)?;
        syscall!(libc::SYS_keyctl, LINK, USER_KEYRING, SESSION_KEYRING).map(drop)
    }
}

/// Unblocks every signal and gives SIGPIPE its default action: Rust's start code ignores it, and what is ignored
/// stays so across exec. Whatever else was ignored was reset by [`crate::spawn`].
pub fn reset_signals() {
    // The kernel's sigaction: handler, flags, restorer, mask; zeros are the default action.
    let default = [0usize; 4];
    let none = 0u64;
    // SAFETY: the kernel reads one sigaction and one set of 64 bits.
    unsafe {
        let _ = syscall!(libc::SYS_rt_sigaction, libc::SIGPIPE, default.as_ptr(), 0, 8);
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, 8);
    }
}

/// Replaces this process by the program at `path`; returns only when that failed.
pub fn execute(path: &CStr, argv: &Strings<'_>, envp: &Strings<'_>) -> Errno {
    // SAFETY: a string and two null-ended lists of strings that live through the call.
    match unsafe { syscall!(libc::SYS_execve, path.as_ptr(), argv.as_ptr(), envp.as_ptr()) } {
        Err(e) => e,
        Ok(_) => Errno::EIO,
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The environment that this process was started with, as `NAME=value`.
pub fn environment() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: the start code has set `environ` to a null-ended list of strings; nothing here changes it.
    let mut at = unsafe { environ };
    core::iter::from_fn(move || {
        // SAFETY: as above, and the end is not passed.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let variable = CStr::from_ptr(*at);
            at = at.add(1);
            Some(variable)
        }
    })
}

/// The value of variable `name` in the environment that this process was started with.
pub fn inherited(name: &CStr) -> Option<&'static CStr> {
    environment().find_map(|variable| {
        let value = variable.to_bytes_with_nul().strip_prefix(name.to_bytes())?;
        CStr::from_bytes_with_nul(value.strip_prefix(b"=")?).ok()
    })
}
