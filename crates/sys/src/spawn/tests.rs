//! A start under every condition that its fallbacks are for. Conditions are made in threads of their own: a
//! seccomp filter and a descriptor table belong to a thread, so tests run beside each other.

use super::*;
use crate::file;
use crate::process::{Exit, wait};
use crate::seccomp::{Action, Rule, confine, next};
use std::string::String;
use std::vec::Vec;

type Started = core::result::Result<Child, SpawnError>;

fn start(path: &CStr, args: &[&CStr], fds: &[i32], cgroup: Option<&Fd>, stack: &mut Stack) -> Started {
    let argv = Strings::new(args.iter().copied());
    let envp = Strings::new([c"PATH=/bin:/usr/bin"]);
    let what = Spawn {
        program: Program::Path(path),
        argv: &argv,
        envp: &envp,
        fds,
        cgroup,
    };
    spawn(&what, stack)
}

fn run(path: &CStr, args: &[&CStr]) -> core::result::Result<Exit, SpawnError> {
    let child = start(path, args, &[0, 1, 2], None, &mut Stack::new().expect("stack"))?;
    Ok(wait(&child.pidfd, true).expect("wait").expect("blocking"))
}

fn pipe() -> (Fd, Fd) {
    let mut fds = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe { syscall!(libc::SYS_pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) }.expect("pipe");
    (Fd::from_raw(fds[0]), Fd::from_raw(fds[1]))
}

/// What `script` prints, started with its output as 1 and `more` from 3 on.
fn output(script: &CStr, more: &[i32], cgroup: Option<&Fd>) -> (String, Option<Fallback>) {
    let (read, write) = pipe();
    let mut fds = Vec::from([write.raw(), write.raw(), write.raw()]);
    fds.extend_from_slice(more);
    let args = [c"sh", c"-c", script];
    let child = start(c"/bin/sh", &args, &fds, cgroup, &mut Stack::new().expect("stack")).expect("starts");
    drop(write);
    let mut out = Vec::new();
    let mut chunk = [0; 512];
    loop {
        match file::read(read.raw(), &mut chunk).expect("read") {
            0 => break,
            n => out.extend_from_slice(&chunk[..n]),
        }
    }
    assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(0))));
    (String::from_utf8(out).expect("text"), child.fallback)
}

/// Lists the shell's own descriptors.
const LIST: &CStr = c"PATH=/bin ls /proc/$$/fd; :";

/// Runs `body` on a thread of its own, with a descriptor table of its own.
fn apart<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        // SAFETY: numbers only; this thread's table alone is copied.
        unsafe { syscall!(libc::SYS_unshare, libc::CLONE_FILES) }.expect("unshare");
        // What the test was started with is not ours to be judged by.
        // SAFETY: numbers only.
        unsafe { syscall!(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) }
            .expect("close_range");
        body()
    });
    thread.join().expect("the thread's own assertions")
}

#[test]
fn starts_and_reaps() {
    assert_eq!(run(c"/bin/sh", &[c"sh", c"-c", c"exit 7"]), Ok(Exit::Code(7)));
    let killed = Exit::Signal {
        number: 9,
        core: false,
    };
    assert_eq!(run(c"/bin/sh", &[c"sh", c"-c", c"kill -9 $$"]), Ok(killed));
}

#[test]
fn exec_errors_come_back() {
    let failed = |errno| {
        Err(SpawnError {
            step: Step::Exec,
            errno,
        })
    };
    assert_eq!(run(c"/nowhere", &[c"x"]), failed(Errno::ENOENT));
    assert_eq!(run(c"/", &[c"x"]), failed(Errno::EACCES));
    assert_eq!(run(c"/proc/self/status", &[c"x"]), failed(Errno::EACCES));
}

#[test]
fn nothing_leaks() {
    apart(|| {
        // A descriptor that somebody made without close-on-exec, the case that the sweep is for.
        let (leaky, other) = pipe();
        leaky.set_cloexec(false).expect("fcntl");
        assert_eq!(output(LIST, &[other.raw()], None).0, "0\n1\n2\n3\n");
        // The control: given on purpose, it is there.
        assert_eq!(
            output(LIST, &[other.raw(), leaky.raw()], None).0,
            "0\n1\n2\n3\n4\n"
        );
    });
}

#[test]
fn a_parent_without_descriptors_0_to_3_starts_too() {
    apart(|| {
        let (read, write) = pipe();
        let (read, write) = (
            read.duplicate(20).expect("dup"),
            write.duplicate(20).expect("dup"),
        );
        crate::close_range(0, 19).expect("close");
        // The table is empty below 20: what spawn makes itself lands where the child's own are to be.
        let program = file::openat(file::CWD, c"/bin/sh", libc::O_PATH, 0).expect("open");
        assert!(program.raw() < 4);
        let argv = Strings::new([c"sh", c"-c", LIST]);
        let envp = Strings::new([]);
        let what = Spawn {
            program: Program::Fd(&program),
            argv: &argv,
            envp: &envp,
            fds: &[write.raw(), write.raw(), write.raw(), write.raw()],
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("stack")).expect("starts");
        drop(write);
        assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(0))));
        let mut buf = [0; 64];
        let n = file::read(read.raw(), &mut buf).expect("read");
        assert_eq!(&buf[..n], b"0\n1\n2\n3\n");
    });
}

#[test]
fn sources_may_stand_where_targets_are() {
    apart(|| {
        let (read, write) = pipe();
        // Swap: what is 0 here becomes 1 there and the other way round.
        write.place_at(0, false).expect("dup3");
        let null = file::openat(file::CWD, c"/dev/null", libc::O_RDWR, 0).expect("open");
        null.place_at(1, false).expect("dup3");
        let argv = Strings::new([c"sh", c"-c", c"echo swapped"]);
        let envp = Strings::new([]);
        let what = Spawn {
            program: Program::Path(c"/bin/sh"),
            argv: &argv,
            envp: &envp,
            fds: &[1, 0, 1],
            cgroup: None,
        };
        spawn(&what, &mut Stack::new().expect("stack")).expect("starts");
        let mut buf = [0; 64];
        let n = file::read(read.raw(), &mut buf).expect("read");
        assert_eq!(&buf[..n], b"swapped\n");
    });
}

#[test]
fn a_filtered_clone3_is_made_good_by_clone() {
    for errno in [Errno::ENOSYS, Errno::EPERM] {
        apart(move || {
            assert_eq!(output(c"echo hello", &[], None), ("hello\n".into(), None));
            confine(&[Rule::deny(libc::SYS_clone3, errno)]).expect("confine");
            let told = Some(Fallback::Clone);
            assert_eq!(output(c"echo hello", &[], None), ("hello\n".into(), told));
        });
    }
}

#[test]
fn a_full_process_table_is_told_as_it_is() {
    apart(|| {
        confine(&[Rule::deny(libc::SYS_clone3, Errno::EAGAIN)]).expect("confine");
        let stack = &mut Stack::new().expect("stack");
        let error = start(c"/bin/true", &[c"true"], &[], None, stack).expect_err("no process");
        assert_eq!((error.step, error.errno), (Step::Clone, Errno::EAGAIN));
    });
}

#[test]
fn nothing_leaks_where_close_range_is_filtered() {
    apart(|| {
        confine(&[Rule::deny(libc::SYS_close_range, Errno::ENOSYS)]).expect("confine");
        // All of ours are close-on-exec; that is what is left then.
        let (_ours, other) = pipe();
        assert_eq!(output(LIST, &[other.raw()], None).0, "0\n1\n2\n3\n");
    });
}

#[test]
fn ignored_signals_and_the_mask_do_not_stay() {
    // SigBlk, SigIgn and SigCgt of the started program.
    let script =
        c"while read name set; do case $name in SigBlk:|SigIgn:) echo $set;; esac; done < /proc/$$/status";
    apart(move || {
        let mask = u64::MAX;
        // SAFETY: the kernel reads one set; this thread's mask alone changes.
        unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) }
            .expect("mask");
        // SIGPIPE is ignored by every Rust program.
        let clean = "0000000000000000\n0000000000000000\n";
        assert_eq!(output(script, &[], None).0, clean);
        confine(&[Rule::deny(libc::SYS_clone3, Errno::ENOSYS)]).expect("confine");
        assert_eq!(output(script, &[], None).0, clean);
    });
}

/// A cgroup of the unified hierarchy, removed at the end.
struct Cgroup {
    path: std::path::PathBuf,
    fd: Fd,
}

impl Cgroup {
    fn new(name: &str) -> Option<Cgroup> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mount = mounts
            .lines()
            .map(|l| l.split(' ').collect::<Vec<_>>())
            .find(|l| l[2] == "cgroup2")?;
        let path =
            std::path::Path::new(mount[1]).join(std::format!("fleetgate-{name}-{}", crate::process::id()));
        std::fs::create_dir(&path).ok()?;
        let directory = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero");
        let fd = file::openat(file::CWD, &directory, libc::O_RDONLY, 0).expect("open");
        Some(Cgroup { path, fd })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn it_is_born_in_its_cgroup() {
    let Some(cgroup) = Cgroup::new("spawn") else {
        assert!(
            std::env::var("CI").is_err(),
            "this machine lets us make no cgroup"
        );
        return std::eprintln!("skipped: this machine lets us make no cgroup");
    };
    let name = cgroup.path.file_name().expect("name").to_str().expect("text");
    let (text, fallback) = output(c"cat /proc/self/cgroup", &[], Some(&cgroup.fd));
    assert!(
        text.lines().any(|l| l.starts_with("0::") && l.ends_with(name)),
        "{text}"
    );
    assert_eq!(fallback, None);
    // The control: without it, it is not there.
    let (text, _) = output(c"cat /proc/self/cgroup", &[], None);
    assert!(!text.contains(name), "{text}");
    // A directory that is no cgroup is told as such.
    let no_cgroup = file::openat(file::CWD, c"/", libc::O_RDONLY, 0).expect("open");
    let stack = &mut Stack::new().expect("stack");
    let error = start(c"/bin/true", &[c"true"], &[], Some(&no_cgroup), stack).expect_err("no cgroup");
    assert_eq!((error.step, error.errno), (Step::Cgroup, Errno::EBADF));
}

#[test]
fn without_clone3_the_cgroup_is_written() {
    let Some(cgroup) = Cgroup::new("written") else {
        return;
    };
    let name = std::string::ToString::to_string(&cgroup.path.file_name().expect("name").to_string_lossy());
    let (text, fallback) = apart(move || {
        confine(&[Rule::deny(libc::SYS_clone3, Errno::ENOSYS)]).expect("confine");
        let (read, write) = pipe();
        let (gate, opener) = pipe();
        let fds = [gate.raw(), write.raw(), write.raw()];
        let stack = &mut Stack::new().expect("stack");
        let args = [c"sh", c"-c", c"read go; cat /proc/self/cgroup"];
        let child = start(c"/bin/sh", &args, &fds, Some(&cgroup.fd), stack).expect("starts");
        // It was moved after its start and before spawn returned: from here on it is there.
        file::write_all(opener.raw(), b"\n").expect("write");
        drop(write);
        assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(0))));
        let mut buf = [0; 4096];
        let n = file::read(read.raw(), &mut buf).expect("read");
        (String::from_utf8_lossy(&buf[..n]).into_owned(), child.fallback)
    });
    assert!(
        text.lines().any(|l| l.starts_with("0::") && l.ends_with(&name)),
        "{text}"
    );
    assert_eq!(fallback, Some(Fallback::CloneAndWrite));
}

#[test]
fn a_held_up_exec_can_be_ended_from_another_thread() {
    let (send, receive) = std::sync::mpsc::channel();
    let launcher = std::thread::spawn(move || {
        let listener = confine(&[Rule {
            call: libc::SYS_execveat,
            argument: None,
            action: Action::Ask,
        }]);
        let mut stack = Stack::new().expect("stack");
        send.send((listener.expect("confine").expect("asks"), stack.in_flight()))
            .expect("send");
        let child = start(c"/bin/true", &[c"true"], &[], None, &mut stack).expect("the clone succeeds");
        (wait(&child.pidfd, true), stack.in_flight().kill())
    });
    let (listener, in_flight) = receive.recv().expect("receive");
    let held = next(&listener).expect("the exec is held up");
    assert_eq!(held.call, libc::SYS_execveat);
    assert!(in_flight.kill(), "there is a child between clone and exec");
    let (exit, again) = launcher.join().expect("thread");
    let killed = Exit::Signal {
        number: 9,
        core: false,
    };
    assert_eq!(exit, Ok(Some(killed)));
    assert!(!again, "nobody is in flight any more");
}

#[test]
fn ten_thousand_starts_leave_nothing_behind() {
    apart(|| {
        let open = || std::fs::read_dir("/proc/thread-self/fd").expect("fd").count();
        let before = open();
        let mut stack = Stack::new().expect("stack");
        let mut pids = Vec::new();
        for turn in 0..10_000 {
            // Most of them fail at exec, which has the parent reap them inside spawn.
            let path = if turn % 10 == 0 { c"/bin/true" } else { c"/nowhere" };
            match start(path, &[c"true"], &[0, 1, 2], None, &mut stack) {
                Ok(child) => {
                    assert_eq!(wait(&child.pidfd, true), Ok(Some(Exit::Code(0))));
                    pids.push(child.pid);
                }
                Err(e) => assert_eq!((e.step, e.errno), (Step::Exec, Errno::ENOENT)),
            }
        }
        assert_eq!(pids.len(), 1000);
        assert_eq!(open(), before, "descriptors");
        // A zombie of ours would be among our children.
        let children = std::fs::read_to_string("/proc/thread-self/children").expect("children");
        assert_eq!(children, "", "children");
    });
}
