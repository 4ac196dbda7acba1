//! Starting a program that is watched from its first instruction on: a fork that waits until whoever watches is ready,
//! binds itself by a filter, and executes. Unlike [`crate::spawn`] the parent goes on meanwhile: it may be the one who lets
//! the very exec through.
//!
//! The child says what it has to say in a page that it shares with its parent, and by no system call: the filter may stop
//! any of them.

use crate::seccomp::{self, Instruction};
use crate::spawn::Strings;
use crate::{Errno, Fd, Result, syscall};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// What to start.
pub struct Start<'a> {
    /// The program's path; no search is made.
    pub path: &'a CStr,
    /// Its arguments, the name first.
    pub argv: &'a Strings<'a>,
    /// Its environment.
    pub envp: &'a Strings<'a>,
    /// Its filter; empty: none.
    pub filter: &'a [Instruction],
    /// With `SECCOMP_FILTER_FLAG_…`; see [`seccomp::flag`].
    pub flags: u32,
}

/// A child that waits for [`Traced::begin`].
#[derive(Debug)]
pub struct Traced {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
    page: Page,
}

/// How far the child has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has not begun, or is on its way, or executes.
    Fine,
    /// The filter was refused.
    Filter,
    /// The exec was refused.
    Exec,
}

/// What the two share.
#[derive(Debug)]
struct Page(*mut Words);

#[repr(C)]
#[derive(Debug)]
struct Words {
    begin: AtomicU32,
    /// Its listener is in safe hands.
    go: AtomicU32,
    /// The listener's number, and one.
    listener: AtomicU32,
    failed: AtomicU32,
    errno: AtomicU32,
    no_new_privs: AtomicU32,
}

// SAFETY: the mapping belongs to this value alone in this process, and is made of atomics.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Result<Page> {
        const SHARED: usize = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
        const BOTH: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let at = unsafe { syscall!(libc::SYS_mmap, 0, 4096, BOTH, SHARED, -1i32, 0) }?;
        Ok(Page(at as *mut Words))
    }

    fn words(&self) -> &Words {
        // SAFETY: the page is mapped as long as `self` is there, zeroed by the kernel, and made of atomics alone.
        unsafe { &*self.0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nobody in this process has a reference into it any more.
        let _ = unsafe { syscall!(libc::SYS_munmap, self.0, 4096) };
    }
}

/// Forks it. Until it executes it ends with the calling thread. It shares the table of descriptors until its exec where the filter has a listener, which is how that comes here.
pub fn start(what: &Start<'_>) -> Result<Traced> {
    /// struct clone_args of Linux 5.3.
    #[repr(C)]
    #[derive(Default)]
    struct Arguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        rest: [u64; 3],
    }
    let page = Page::new()?;
    let parent = crate::process::id();
    let mut pidfd = -1i32;
    let shared = if what.flags & seccomp::flag::NEW_LISTENER != 0 {
        libc::CLONE_FILES
    } else {
        0
    };
    let arguments = Arguments {
        flags: (libc::CLONE_PIDFD | shared) as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Arguments::default()
    };
    // SAFETY: without CLONE_VM the child has memory and stack of its own; in it only `child` runs, which makes raw calls
    // alone (another thread may have held any lock) and never returns.
    let pid = unsafe { syscall!(libc::SYS_clone3, &raw const arguments, size_of::<Arguments>()) }?;
    if pid == 0 {
        child(what, page.words(), parent);
    }
    Ok(Traced {
        pid: pid as i32,
        pidfd: Fd::from_raw(pidfd),
        page,
    })
}

/// The child: allocates nothing, locks nothing.
fn child(what: &Start<'_>, words: &Words, parent: i32) -> ! {
    // Nobody is told to begin by one who is dead.
    let _ = crate::process::set_parent_death_signal(libc::SIGKILL);
    if crate::process::parent_id() != parent {
        crate::process::exit(127);
    }
    wait_for(&words.begin, None);
    let listens = what.flags & seccomp::flag::NEW_LISTENER != 0;
    if !listens {
        let _ = crate::process::set_parent_death_signal(0);
    }
    // Rust's runtime ignores it, and nobody else's program expects that.
    let _ = crate::process::reset_signal(libc::SIGPIPE);
    if !what.filter.is_empty() {
        let installed = match seccomp::install(what.filter, what.flags) {
            Err(Errno::EACCES) => {
                words.no_new_privs.store(1, SeqCst);
                crate::credentials::set_no_new_privileges()
                    .and_then(|()| seccomp::install(what.filter, what.flags))
            }
            other => other,
        };
        match installed {
            Ok(listener) => words.listener.store(listener as u32 + 1, SeqCst),
            Err(errno) => fail(words, Step::Filter, errno),
        }
    }
    if listens {
        // A program whose listener only a dead tracer had would run with calls that fail.
        wait_for(&words.go, None);
        let _ = crate::process::set_parent_death_signal(0);
    }
    let errno = crate::exec::execute(what.path, what.argv, what.envp);
    fail(words, Step::Exec, errno)
}

fn fail(words: &Words, step: Step, errno: Errno) -> ! {
    words.errno.store(errno.0 as u32, SeqCst);
    words.failed.store(step as u32, SeqCst);
    crate::process::exit(127)
}

/// Waits until a word is not 0, for so many nanoseconds at most.
fn wait_for(word: &AtomicU32, nanos: Option<i64>) {
    let time = nanos.map(|n| [n / 1_000_000_000, n % 1_000_000_000]);
    let time = time.as_ref().map_or(core::ptr::null(), |t| t.as_ptr());
    while word.load(SeqCst) == 0 {
        // SAFETY: the kernel reads the word and the time, which live through the call.
        let woken = unsafe { syscall!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, time) };
        if woken == Err(Errno::ETIMEDOUT) {
            return;
        }
    }
}

impl Traced {
    /// Lets it go on: to its filter and its exec.
    pub fn begin(&self) {
        Self::wake(&self.page.words().begin);
    }

    /// Lets one with a listener go on to its exec: whoever is to answer when this process is gone has the listener too. Its
    /// calls until then may wait for an answer already: see [`Traced::is_own`].
    pub fn go(&self) {
        Self::wake(&self.page.words().go);
    }

    /// Whether a call is not the program's but the child's own, on the way to its exec; to be asked of each of its calls
    /// until one is not, or was the last of them: then the second is true.
    #[must_use]
    pub fn is_own(&self, call: &seccomp::Waiting) -> (bool, bool) {
        let go = self.page.words().go.as_ptr() as u64;
        let [first, second, ..] = call.arguments;
        match call.call {
            libc::SYS_futex => (first == go, false),
            libc::SYS_prctl => (first == libc::PR_SET_PDEATHSIG as u64 && second == 0, true),
            _ => (false, true),
        }
    }

    fn wake(word: &AtomicU32) {
        word.store(1, SeqCst);
        // SAFETY: the kernel looks for who waits at the word's address, which is mapped.
        let _ = unsafe { syscall!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// The filter's listener, when there is one; `None`: the child did not come so far, and [`Traced::failure`] says why, or
    /// was killed. It never says so itself: its next call may already wait for an answer.
    pub fn listener(&self) -> Option<Fd> {
        let words = self.page.words();
        loop {
            match words.listener.load(SeqCst) {
                0 if words.failed.load(SeqCst) != 0 || self.is_over() => return None,
                0 => wait_for(&words.listener, Some(100_000)),
                number => return Some(Fd::from_raw(number as i32 - 1)),
            }
        }
    }

    fn is_over(&self) -> bool {
        let mut watch = [crate::poll::Watch::new(self.pidfd.raw(), crate::poll::READ)];
        crate::poll::poll(&mut watch, Some(0)) != Ok(0)
    }

    /// What refused to start it, once it has ended.
    #[must_use]
    pub fn failure(&self) -> Option<(Step, Errno)> {
        let words = self.page.words();
        let step = match words.failed.load(SeqCst) {
            1 => Step::Filter,
            2 => Step::Exec,
            _ => return None,
        };
        Some((step, Errno(words.errno.load(SeqCst) as i32)))
    }

    /// The filter was only to be had for no_new_privs: programs with the setuid bit run without it.
    #[must_use]
    pub fn gave_up_privileges(&self) -> bool {
        self.page.words().no_new_privs.load(SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, wait};
    use std::vec::Vec;

    /// `LD nr; JEQ call → answer; ALLOW`.
    fn answering(call: i64, answer: u32) -> Vec<Instruction> {
        let step = |code, no, value| Instruction {
            code,
            yes: 0,
            no,
            value,
        };
        Vec::from([
            step(0x20, 0, 0),
            step(0x15, 1, call as u32),
            step(0x06, 0, answer),
            step(0x06, 0, 0x7fff_0000),
        ])
    }

    fn shell(script: &CStr, filter: &[Instruction], flags: u32, path: &CStr) -> Traced {
        let argv = Strings::new([c"sh", c"-c", script]);
        let envp = Strings::new([c"PATH=/bin:/usr/bin"]);
        start(&Start {
            path,
            argv: &argv,
            envp: &envp,
            filter,
            flags,
        })
        .expect("a child")
    }

    #[test]
    fn it_waits_until_it_may_begin_and_is_bound_by_its_filter() {
        for (filter, path, code, failure) in [
            (Vec::new(), c"/bin/sh", 7, None),
            (answering(libc::SYS_chdir, 0x0005_000d), c"/bin/sh", 3, None),
            (Vec::new(), c"/nowhere", 127, Some((Step::Exec, Errno::ENOENT))),
        ] {
            let child = shell(c"cd / 2> /dev/null || exit 3; exit 7", &filter, 0, path);
            let mut watch = [crate::poll::Watch::new(child.pidfd.raw(), crate::poll::READ)];
            assert_eq!(crate::poll::poll(&mut watch, Some(20)), Ok(0), "it waits");
            child.begin();
            assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(code))));
            assert_eq!(child.failure(), failure);
            assert!(!child.gave_up_privileges() || crate::process::effective_uid() != 0);
        }
    }

    #[test]
    fn its_listener_comes_here_and_the_exec_itself_may_wait_for_an_answer() {
        let filter = answering(libc::SYS_execve, 0x7fc0_0000);
        let child = shell(c"exit 9", &filter, seccomp::flag::NEW_LISTENER, c"/bin/sh");
        child.begin();
        let listener = child.listener().expect("a listener");
        child.go();
        let call = seccomp::next(&listener).expect("a call");
        assert_eq!((call.call, call.pid), (libc::SYS_execve, child.pid));
        seccomp::allow(&listener, &call).expect("it waits");
        assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(9))));
    }
}
