//! One try: control socket, order, spawn, word. Everything a retry needs again stays with the caller.

use crate::pam::PamSession;
use crate::reply::{self, Begun, Silence};
use crate::{LaunchError, LaunchTimes, RunningHelper, Stage};
use fleetgate_seal::Image;
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Child, Program, Spawn, SpawnError, Stack, Step, Strings, spawn};
use fleetgate_sys::{Errno, Fd, memfd, poll, socket};
use fleetgate_wire::container;
use fleetgate_wire::order::{BY_REFERENCE, Work};
use fleetgate_wire::{Failure, MAX_INLINE, MAX_ORDER, Reason};
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// An order made ready to be sent, as often as it takes.
pub(crate) struct PreparedOrder<'a> {
    frame: Vec<u8>,
    /// The order itself when it is too long for a message.
    memory: Option<Fd>,
    fds: &'a [Fd],
    pub subcommand: &'static CStr,
}

impl<'a> PreparedOrder<'a> {
    pub fn new(
        mut frame: Vec<u8>,
        subcommand: &'static CStr,
        fds: &'a [Fd],
    ) -> Result<PreparedOrder<'a>, LaunchError> {
        if frame.len() > MAX_ORDER {
            return Err(LaunchError::OrderTooLong { len: frame.len() });
        }
        let mut memory = None;
        if frame.len() > MAX_INLINE {
            let made = memfd::sealed(c"fleetgate-order", &frame);
            memory = Some(made.map_err(LaunchError::system("making the memfd for a long order"))?);
            frame = BY_REFERENCE.to_vec();
        }
        let count = fds.len() + memory.is_some() as usize;
        if count > socket::MAX_FDS {
            return Err(LaunchError::TooManyDescriptors { count });
        }
        Ok(PreparedOrder {
            frame,
            memory,
            fds,
            subcommand,
        })
    }

    /// Puts the order on the control socket, before anybody listens at the other end.
    pub fn send(&self, to: &Fd) -> Result<(), LaunchError> {
        let mut raw = [0; socket::MAX_FDS];
        let mut count = 0;
        for fd in self.memory.iter().chain(self.fds) {
            raw[count] = fd.raw();
            count += 1;
        }
        socket::send(to, &self.frame, &raw[..count]).map_err(LaunchError::system("sending the order"))
    }
}

/// What a try came to, when not to a running helper.
pub(crate) enum AttemptError {
    /// The image could not be executed.
    Exec(SpawnError),
    /// The helper ended without a word, so long after its start.
    Gone {
        stage: Stage,
        exit: Option<Exit>,
        lived: Duration,
    },
    /// Time is up; the helper was killed.
    Late(Stage),
    /// Nothing another try would change.
    Final(LaunchError),
}

impl From<LaunchError> for AttemptError {
    fn from(e: LaunchError) -> AttemptError {
        AttemptError::Final(e)
    }
}

/// What a launching thread owns and uses again for every try.
pub(crate) struct Resources {
    pub stack: Stack,
    pub null: Fd,
    pub buffer: Vec<u8>,
}

/// Whose child the helper becomes.
pub(crate) enum Parent<'a> {
    /// Ours.
    Here,
    /// The PAM process's.
    Pam(&'a mut PamSession),
}

/// Makes one try.
pub(crate) fn attempt(
    parent: &mut Parent<'_>,
    resources: &mut Resources,
    image: &Image,
    prepared: &PreparedOrder<'_>,
    work: &Work,
    cgroup: Option<&Fd>,
    deadline: Instant,
) -> Result<(RunningHelper, Begun), AttemptError> {
    let started = Instant::now();
    let (ours, theirs) = socket::pair().map_err(LaunchError::system("making the control socket"))?;
    if prepared.subcommand == container::SUBCOMMAND && matches!(work, Work::Exec(_)) {
        socket::tell_senders(&ours).map_err(LaunchError::system("asking who sends on the control socket"))?;
    }
    prepared.send(&ours)?;
    let ordered = Instant::now();
    let spawned = match parent {
        Parent::Here => spawn_here(resources, image, prepared, &theirs, cgroup),
        Parent::Pam(session) => {
            session.start(prepared.subcommand, image.fd(), &theirs, &resources.null, cgroup)?
        }
    };
    let child = spawned.map_err(|e| match is_of_the_image(&e) {
        true => AttemptError::Exec(e),
        false => AttemptError::Final(match LaunchError::of_spawn(e) {
            // That of a container goes with it.
            LaunchError::Cgroup(Errno::ENOENT | Errno::ENODEV)
                if prepared.subcommand == container::SUBCOMMAND =>
            {
                LaunchError::Refused(Failure {
                    reason: Reason::Ended,
                    errno: e.errno.0,
                    subject: c"the container".into(),
                })
            }
            other => other,
        }),
    })?;
    // The helper's end lives in the helper alone from here on: its hang-up is our news.
    drop(theirs);
    let cloned = Instant::now();
    let mut copy = None;
    let mut heard = hear(
        &ours,
        work,
        &mut resources.buffer,
        deadline,
        (child.pid, &mut copy),
    );
    let copy = match copy.map(take_copy) {
        None => None,
        Some(Ok(taken)) => Some(taken),
        Some(Err(e)) => {
            heard = Err(Silence::Final(e));
            None
        }
    };
    match heard {
        Ok(begun) => {
            let program = match copy {
                None => (child.pid, child.pidfd),
                Some(copy) => {
                    // The helper has ended, or is about to: it said so last.
                    let _ = process::wait(&child.pidfd, true);
                    copy
                }
            };
            Ok((
                RunningHelper {
                    pid: program.0,
                    pidfd: program.1,
                    control: ours,
                    strategy: image.strategy(),
                    fallback: child.fallback,
                    spent: LaunchTimes {
                        order: ordered - started,
                        spawn: cloned - ordered,
                        ready: cloned.elapsed(),
                    },
                    tries: 1,
                    container: None,
                },
                begun,
            ))
        }
        Err(silence) => {
            if let Some((_, pidfd)) = copy {
                let _ = process::signal(&pidfd, process::SIGKILL);
                wait_not_for_ever(&pidfd);
            }
            Err(end(&child.pidfd, silence, ordered))
        }
    }
}

/// The helper's copy in a container, by the number that the helper said. A child of ours has its number until we have waited
/// for it.
fn take_copy(pid: i32) -> Result<(i32, Fd), LaunchError> {
    let failed = LaunchError::system("opening the process in the container");
    let pidfd = process::pidfd_open(pid).map_err(&failed)?;
    process::ended(&pidfd).map_err(&failed)?;
    Ok((pid, pidfd))
}

fn spawn_here(
    resources: &mut Resources,
    image: &Image,
    prepared: &PreparedOrder<'_>,
    control: &Fd,
    cgroup: Option<&Fd>,
) -> Result<Child, SpawnError> {
    let argv = Strings::new([image.name(), prepared.subcommand, c"--order"]);
    let envp = Strings::new([]);
    let null = resources.null.raw();
    let what = Spawn {
        program: Program::Fd(image.fd()),
        argv: &argv,
        envp: &envp,
        fds: &[null, null, null, control.raw()],
        cgroup,
    };
    spawn(&what, &mut resources.stack)
}

/// Waits for the helper's word as its work has it. `copy` has the helper's number, and becomes the process that goes on
/// instead of it.
pub(crate) fn hear(
    control: &Fd,
    work: &Work,
    buffer: &mut [u8],
    deadline: Instant,
    copy: (i32, &mut Option<i32>),
) -> Result<Begun, Silence> {
    let left = deadline.saturating_duration_since(Instant::now());
    let wait_ms = poll::milliseconds(left);
    match work {
        Work::Exec(_) => reply::executed(control, buffer, wait_ms, copy),
        _ => reply::first_word(control, buffer, wait_ms),
    }
}

/// Sees to it that nothing of a failed try is left.
fn end(pidfd: &Fd, silence: Silence, ordered: Instant) -> AttemptError {
    let lived = ordered.elapsed();
    // A helper that closed its socket and lives on is as useless as one that is late.
    const GRACE_MS: u32 = 1000;
    let kill = match silence {
        Silence::Gone(_) | Silence::Final(LaunchError::Refused(_)) => {
            let mut watch = [poll::Watch::new(pidfd.raw(), poll::READ)];
            poll::poll(&mut watch, Some(GRACE_MS)) != Ok(1)
        }
        _ => true,
    };
    if kill {
        let _ = process::signal(pidfd, process::SIGKILL);
    }
    // ECHILD: not our child (PAM), or reaped by a server that ignores SIGCHLD.
    let exit = wait_not_for_ever(pidfd);
    match silence {
        Silence::Gone(stage) => AttemptError::Gone { stage, exit, lived },
        Silence::Late(stage) => AttemptError::Late(stage),
        Silence::Final(e) => AttemptError::Final(e),
    }
}

/// Waits for a process that was killed. One that a freezer holds (cgroups of version 1) ends when somebody lets it go: a thread
/// waits for that, and nobody else.
fn wait_not_for_ever(pidfd: &Fd) -> Option<Exit> {
    const PATIENCE_MS: u32 = 2000;
    let mut watch = [poll::Watch::new(pidfd.raw(), poll::READ)];
    if poll::poll(&mut watch, Some(PATIENCE_MS)) != Ok(0) {
        return process::wait(pidfd, true).ok().flatten();
    }
    if let Ok(pidfd) = pidfd.duplicate(3) {
        let _ = std::thread::Builder::new()
            .name("launch-frozen".to_owned())
            .stack_size(64 << 10)
            .spawn(move || process::wait(&pidfd, true));
    }
    None
}

/// Whether a failed start speaks against the image rather than against the machine's resources or our request.
fn is_of_the_image(e: &SpawnError) -> bool {
    e.step == Step::Exec
        && !matches!(
            e.errno,
            Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::E2BIG | Errno::EFAULT
        )
}
