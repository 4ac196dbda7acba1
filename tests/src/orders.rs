//! Orders as data, and the helper started with one, by the shortest way: no fallback chain, no session reaper.
//!
//! A test says what differs from [`command`], runs it, and looks at what came out: replies, output, exit.

use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings};
use fleetgate_sys::{Fd, poll, socket};
use fleetgate_wire::common::{Account, Ids};
use fleetgate_wire::exec::{self, Exec};
use fleetgate_wire::order::{BY_REFERENCE, Order, Role, Work};
use fleetgate_wire::{Failure, MAX_INLINE, Reply};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

/// How long anything here may take, on a loaded machine.
pub const PATIENCE_MS: u32 = 60_000;

/// A zero-ended string.
pub fn text(text: impl AsRef<OsStr>) -> CString {
    CString::new(text.as_ref().as_bytes()).expect("no zero byte inside")
}

/// Root's account.
pub fn root() -> Account {
    Account {
        name: c"root".into(),
        ids: Ids {
            uid: 0,
            gid: 0,
            groups: vec![0],
        },
        home: c"/root".into(),
        shell: c"/bin/sh".into(),
        ageing: None,
    }
}

/// An ordinary account that needs no entry anywhere: the helper looks nobody up.
pub fn user() -> Account {
    Account {
        name: c"ada".into(),
        ids: Ids {
            uid: 54321,
            gid: 54322,
            groups: vec![54322, 54323],
        },
        home: c"/tmp".into(),
        shell: c"/bin/sh".into(),
        ageing: None,
    }
}

/// `sh -c line` for `account`: no terminal, no records, no checks.
pub fn command(account: Account, line: &str) -> Exec {
    Exec::new([7; 16], account, exec::Program::Command { line: text(line) })
}

/// A login shell for `account`; the terminal is opened when it is run.
pub fn shell(account: Account) -> Exec {
    Exec {
        program: exec::Program::Shell,
        ..command(account, "")
    }
}

/// What came of an order.
#[derive(Debug)]
pub struct Outcome {
    /// What the helper said, in order.
    pub replies: Vec<Reply>,
    /// Standard output, or everything on the terminal.
    pub output: String,
    /// Standard error; empty with a terminal.
    pub errors: String,
    /// How it ended.
    pub exit: Exit,
}

impl Outcome {
    /// The refusal, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.replies.iter().find_map(|r| match r {
            Reply::Failed { failure } => Some(failure),
            _ => None,
        })
    }
    /// Whether the program was executed: Ready, Leaving, nothing more.
    pub fn left(&self) -> bool {
        matches!(self.replies.as_slice(), [Reply::Ready, Reply::Leaving { .. }])
    }
    /// The output, after making sure that it was executed and ended well.
    pub fn good(&self) -> &str {
        assert!(self.left() && self.exit == Exit::Code(0), "{self:?}");
        &self.output
    }
}

/// A helper that was started.
pub struct Started {
    /// Its descriptor.
    pub pidfd: Fd,
    /// Its number.
    pub pid: i32,
    /// Our end of the control socket.
    pub control: Fd,
}

/// Starts the helper with `subcommand` and these environment variables, nothing sent yet. Descriptors 0 to 2 are
/// /dev/null, as the launcher makes them.
pub fn start(subcommand: &str, variables: &[&str]) -> Started {
    let (control, theirs) = socket::pair().expect("socketpair");
    let null = Fd::from(
        File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .expect("/dev/null"),
    );
    let path = text(crate::helper());
    let argv = [c"fleetgate-session".into(), text(subcommand), c"--order".into()];
    let envp: Vec<CString> = variables.iter().map(text).collect();
    let what = Spawn {
        program: Program::Path(&path),
        argv: &Strings::new(argv.iter().map(CString::as_c_str)),
        envp: &Strings::new(envp.iter().map(CString::as_c_str)),
        fds: &[null.raw(), null.raw(), null.raw(), theirs.raw()],
        cgroup: None,
    };
    let child = fleetgate_sys::spawn::spawn(&what, &mut Stack::new().expect("stack")).expect("spawn");
    Started {
        pidfd: child.pidfd,
        pid: child.pid,
        control,
    }
}

/// Sends `work` with descriptors as the launcher does: in the message, or beside it in a sealed memfd.
pub fn send(control: &Fd, work: Work, given: &[(Role, &Fd)]) {
    let roles = given.iter().map(|(role, _)| *role).collect();
    let frame = fleetgate_wire::encode(&Order { work, roles });
    let mut fds: Vec<i32> = given.iter().map(|(_, fd)| fd.raw()).collect();
    if frame.len() <= MAX_INLINE {
        socket::send(control, &frame, &fds).expect("send");
    } else {
        let memory = fleetgate_sys::memfd::sealed(c"order", &frame).expect("memfd");
        fds.insert(0, memory.raw());
        socket::send(control, &BY_REFERENCE, &fds).expect("send");
    }
}

impl Started {
    /// Reads replies until the helper closes its end.
    pub fn replies(&self) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut buffer = vec![0; MAX_INLINE];
        loop {
            wait_for(&self.control, poll::READ);
            // A socket whose other end closed with an order unread answers ECONNRESET.
            let Ok(message) = socket::receive(&self.control, &mut buffer, true) else {
                return replies;
            };
            if message.len == 0 {
                return replies;
            }
            replies.push(fleetgate_wire::decode(&buffer[..message.len]).expect("a reply"));
        }
    }

    /// Waits for its end.
    pub fn wait(&self) -> Exit {
        wait_for(&self.pidfd, poll::READ);
        process::wait(&self.pidfd, true).expect("wait").expect("it ended")
    }
}

/// Waits for an event on `fd`, not for ever.
pub fn wait_for(fd: &Fd, event: i16) {
    let mut watch = [poll::Watch::new(fd.raw(), event)];
    let ready = poll::poll(&mut watch, Some(PATIENCE_MS)).expect("poll");
    assert_eq!(ready, 1, "nothing happened in {PATIENCE_MS} ms");
}

/// Runs `order` with three pipes, nothing on standard input.
pub fn run(order: Exec) -> Outcome {
    run_with(order, &[])
}

/// The same, with variables in the helper's own environment.
pub fn run_with(order: Exec, variables: &[&str]) -> Outcome {
    finish(start("exec", variables), order)
}

fn finish(started: Started, order: Exec) -> Outcome {
    let (stdin, feed) = pipe();
    let (read_out, stdout) = pipe();
    let (read_err, stderr) = pipe();
    drop(feed);
    send(
        &started.control,
        Work::Exec(order),
        &[
            (Role::Stdin, &stdin),
            (Role::Stdout, &stdout),
            (Role::Stderr, &stderr),
        ],
    );
    drop((stdin, stdout, stderr));
    let errors = std::thread::spawn(move || read_all(read_err));
    let output = read_all(read_out);
    let replies = started.replies();
    let exit = started.wait();
    Outcome {
        replies,
        output,
        errors: errors.join().expect("reader"),
        exit,
    }
}

/// Runs `order` on a fresh terminal, typing `input` into it; its `terminal` is filled in.
pub fn run_on_terminal(mut order: Exec, input: &str) -> Outcome {
    let terminal = Terminal::open();
    order.terminal = Some(terminal.path.clone());
    let started = start("exec", &[]);
    send(
        &started.control,
        Work::Exec(order),
        &[(Role::Terminal, &terminal.user)],
    );
    let mut ours = terminal.give();
    ours.write_all(input.as_bytes()).expect("type");
    let output = read_terminal(&mut ours);
    let replies = started.replies();
    let exit = started.wait();
    Outcome {
        replies,
        output,
        errors: String::new(),
        exit,
    }
}

/// A pseudo terminal.
pub struct Terminal {
    /// Our side.
    pub ours: File,
    /// The user's side.
    pub user: Fd,
    /// The user's side's path.
    pub path: CString,
}

impl Terminal {
    /// A fresh one.
    pub fn open() -> Terminal {
        let (ours, user, path) = fleetgate_sys::terminal::open().expect("a pseudo terminal");
        Terminal {
            ours: ours.into(),
            user,
            path,
        }
    }

    /// Closes the user's side here, so that our side ends with the session; returns ours.
    pub fn give(self) -> File {
        self.ours
    }
}

/// Everything on the terminal until its last user is gone.
pub fn read_terminal(ours: &mut File) -> String {
    let mut all = String::new();
    while let Some(more) = read_some(ours) {
        all.push_str(&more);
    }
    all
}

/// What comes next on the terminal; none: nobody has the other side open any more.
pub fn read_some(ours: &mut File) -> Option<String> {
    use std::os::fd::AsRawFd;
    let mut watch = [poll::Watch::new(ours.as_raw_fd(), poll::READ)];
    let ready = poll::poll(&mut watch, Some(PATIENCE_MS)).expect("poll");
    assert_eq!(ready, 1, "nothing came from the terminal in {PATIENCE_MS} ms");
    let mut chunk = [0; 4096];
    match ours.read(&mut chunk) {
        Ok(0) => None,
        Ok(n) => Some(String::from_utf8_lossy(&chunk[..n]).into_owned()),
        Err(e) if e.raw_os_error() == Some(5) => None,
        Err(e) => panic!("reading the terminal: {e}"),
    }
}

/// Reading and writing end.
pub fn pipe() -> (Fd, Fd) {
    let (read, write) = std::io::pipe().expect("pipe");
    let owned = |fd: std::os::fd::OwnedFd| Fd::from(fd);
    (owned(read.into()), owned(write.into()))
}

/// Everything until the end.
pub fn read_all(fd: Fd) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        wait_for(&fd, poll::READ);
        match fleetgate_sys::file::read(fd.raw(), &mut chunk).expect("read") {
            0 => return String::from_utf8_lossy(&bytes).into_owned(),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Starts the helper by way of another program (`setpriv`, `prlimit`) that executes what its last arguments say. The
/// helper's own file may be where only root can look: it is executed through a descriptor.
pub fn start_by(words: &[&str], subcommand: &str) -> Started {
    let (control, theirs) = socket::pair().expect("socketpair");
    let null = Fd::from(
        File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .expect("/dev/null"),
    );
    let program = Fd::from(File::open(crate::helper()).expect("the helper"));
    let line = format!("exec -a fleetgate-session /proc/self/fd/4 {subcommand} --order");
    let argv: Vec<CString> = words
        .iter()
        .chain(&["/bin/bash", "-c", &line])
        .map(text)
        .collect();
    let what = Spawn {
        program: Program::Path(&argv[0]),
        argv: &Strings::new(argv.iter().map(CString::as_c_str)),
        envp: &Strings::new([]),
        fds: &[null.raw(), null.raw(), null.raw(), theirs.raw(), program.raw()],
        cgroup: None,
    };
    let child = fleetgate_sys::spawn::spawn(&what, &mut Stack::new().expect("stack")).expect("spawn");
    Started {
        pidfd: child.pidfd,
        pid: child.pid,
        control,
    }
}

/// Runs `order` by a helper that is started as `account`, not as root.
pub fn run_as(account: &Account, order: Exec) -> Outcome {
    let (uid, gid) = (
        format!("--reuid={}", account.ids.uid),
        format!("--regid={}", account.ids.gid),
    );
    let words = ["/usr/bin/setpriv", &uid, &gid, "--clear-groups", "--"];
    finish(start_by(&words, "exec"), order)
}
