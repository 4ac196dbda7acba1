//! Proving an image by running it: whether a kernel, a security module or a watcher lets a program run from it is
//! not to be known in any other way.

use crate::Image;
use crate::refusal::{Context, Failure, Step};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::self_test::IMAGE;
use fleetgate_sys::spawn::{Child, Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, file, poll};
use std::ffi::{CStr, CString};
use std::sync::mpsc;
use std::time::Duration;

/// How a probe is made.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The subcommand that tests itself and exits 0.
    pub subcommand: CString,
    /// The ordinary user as whom the probe executes the image a second time, when this process is root. The probe
    /// is told by `--as UID:GID`, and finds the image on descriptor 3.
    pub user: Option<(u32, u32)>,
    /// How long the probe stays alive before it ends (`--linger MS`): a watcher that kills from user space needs a
    /// moment to notice.
    pub linger: Duration,
    /// When a probe that has not ended is taken for one that is held up.
    pub deadline: Duration,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe {
            subcommand: c"true".to_owned(),
            user: Some((65534, 65534)),
            linger: Duration::ZERO,
            deadline: Duration::from_secs(10),
        }
    }
}

const KILL: i32 = 9;

/// Runs the probe from `image`.
pub(crate) fn run(image: &Image, probe: &Probe, linger: Duration) -> Result<(), Failure> {
    let null: Fd = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .step(Step::Run)?
        .into();
    let (words, errors) = file::pipe().step(Step::Run)?;
    let mut argv: Vec<CString> = vec![image.name().to_owned(), probe.subcommand.clone()];
    let mut add = |word: String| argv.push(CString::new(word).unwrap_or_default());
    if let (Some((uid, gid)), 0) = (probe.user, process::effective_uid()) {
        add("--as".to_owned());
        add(format!("{uid}:{gid}"));
    }
    let linger = linger.max(probe.linger).min(probe.deadline / 2);
    if !linger.is_zero() {
        add("--linger".to_owned());
        add(linger.as_millis().to_string());
    }
    let argv = Strings::new(argv.iter().map(|a| -> &CStr { a }));
    let envp = Strings::new([]);
    let fds = [null.raw(), null.raw(), errors.raw(), image.fd().raw()];
    debug_assert_eq!(i32::try_from(fds.len()), Ok(IMAGE + 1));
    let what = Spawn {
        program: Program::Fd(image.fd()),
        argv: &argv,
        envp: &envp,
        fds: &fds,
        cgroup: None,
    };
    let mut stack = Stack::new().step(Step::Run)?;
    let child = spawn_in_time(&what, &mut stack, probe.deadline)?;
    drop(errors);
    match wait(&child.pidfd, probe.deadline).step(Step::Run)? {
        Some(Exit::Code(0)) => Ok(()),
        Some(Exit::Code(code)) => Err(Failure::because(
            Step::Run,
            match last_words(&words) {
                Some(text) => format!("exit code {code}: {text}"),
                None => format!("exit code {code}"),
            },
        )),
        Some(Exit::Signal { number, .. }) => {
            Err(Failure::because(Step::Run, format!("killed by signal {number}")))
        }
        None => Err(Failure::because(
            Step::Run,
            format!("still running after {} s", probe.deadline.as_secs_f32()),
        )),
    }
}

/// Starts the probe. The exec may be held up for as long as somebody likes (a security product that asks a person), and
/// this thread with it, so another one ends it when the deadline comes.
fn spawn_in_time(what: &Spawn<'_>, stack: &mut Stack, deadline: Duration) -> Result<Child, Failure> {
    let in_flight = stack.in_flight();
    let (landed, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watchdog =
            std::thread::Builder::new().spawn_scoped(scope, move || match waits.recv_timeout(deadline) {
                Err(mpsc::RecvTimeoutError::Timeout) => in_flight.kill(),
                _ => false,
            });
        let watchdog = watchdog.step(Step::Run)?;
        let started = spawn(what, stack);
        drop(landed);
        if watchdog.join().unwrap_or(false) {
            return Err(Failure::because(
                Step::Run,
                format!("its exec was held up for {} s", deadline.as_secs_f32()),
            ));
        }
        started.map_err(|e| e.errno).step(Step::Run)
    })
}

/// How it ended; `None` when the deadline came first (it is killed and reaped then).
fn wait(pidfd: &Fd, deadline: Duration) -> Result<Option<Exit>, fleetgate_sys::Errno> {
    let mut watch = [poll::Watch::new(pidfd.raw(), poll::READ)];
    let ended = poll::poll(&mut watch, Some(poll::milliseconds(deadline)))? > 0;
    if !ended {
        process::signal(pidfd, KILL)?;
    }
    let exit = process::wait(pidfd, true)?;
    Ok(if ended { exit } else { None })
}

/// What the probe said on standard error, if it has ended: one line, a short one.
fn last_words(pipe: &Fd) -> Option<String> {
    pipe.set_nonblocking(true).ok()?;
    let mut buffer = [0u8; 300];
    let len = file::read(pipe.raw(), &mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..len]);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
