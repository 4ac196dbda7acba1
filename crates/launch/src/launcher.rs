//! The launching thread's tool: one request after the other, moving down the ladder where the image is at fault.

use crate::attempt::{Failed, Parcel, Tools, Via, attempt};
use crate::pam::PamSession;
use crate::reply::BUFFER;
use crate::{Begun, LaunchError, Stage};
use fleetgate_seal::{Death, Image, Ladder, Strategy, Verdict};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Fallback, InFlight, Stack};
use fleetgate_sys::{Errno, Fd, file};
use fleetgate_wire::order::{Order, Role, Work};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a helper may take to its word, all tries together, unless the request says otherwise.
pub const READY_DEADLINE: Duration = Duration::from_secs(15);
/// How often a helper that died is started again from an image that works when probed. Two, so that a single
/// kill by endpoint security or the out-of-memory killer costs nobody his session.
pub const UNEXPLAINED_DEATHS: u32 = 2;
/// How often one launch is tried at all: each rung of the ladder, and the unexplained deaths.
pub const MAX_TRIES: u32 = 8;

/// One request.
#[derive(Debug)]
pub struct Launch {
    /// What the helper is to do.
    pub work: Work,
    /// The descriptors that travel with the order, and what each is for. Kept until the user's program runs,
    /// because a retry sends them again; closed with the request.
    pub fds: Vec<(Role, Fd)>,
    /// The cgroup (v2 directory) that the helper is born in.
    pub cgroup: Option<Fd>,
    /// How long the helper may take to its word, all tries together.
    pub deadline: Duration,
}

impl Launch {
    /// A request without a cgroup and with the usual deadline.
    pub fn new(work: Work, fds: Vec<(Role, Fd)>) -> Launch {
        Launch {
            work,
            fds,
            cgroup: None,
            deadline: READY_DEADLINE,
        }
    }
}

/// What the launching side's steps cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// The control socket and the order on it.
    pub order: Duration,
    /// clone3 until the exec has happened.
    pub spawn: Duration,
    /// From there to the helper's word.
    pub ready: Duration,
}

/// A started helper, or the user's program that it became.
#[derive(Debug)]
pub struct Running {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
    /// Our end of the control socket; closed at the other end once the user's program runs.
    pub control: Fd,
    /// The rung its image was on.
    pub strategy: Strategy,
    /// The slower way its process was made, if one had to be taken.
    pub fallback: Option<Fallback>,
    /// What the last try cost.
    pub spent: Spent,
    /// How many tries it took.
    pub tries: u32,
}

impl Running {
    /// Waits for its end and reaps it.
    pub fn wait_exit(&self) -> Result<Exit, Errno> {
        // A blocking wait always has an answer.
        process::wait(&self.pidfd, true)?.ok_or(Errno::ECHILD)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        process::signal(&self.pidfd, signal)
    }
}

/// Starts helpers. One per thread.
pub struct Launcher {
    ladder: Arc<Ladder>,
    tools: Tools,
}

impl Launcher {
    /// A launcher of images from `ladder`.
    pub fn new(ladder: Arc<Ladder>) -> Result<Launcher, LaunchError> {
        let stack = Stack::new().map_err(LaunchError::system("mapping the launcher's stack"))?;
        let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0)
            .map_err(LaunchError::system("opening /dev/null"))?;
        Ok(Launcher {
            ladder,
            tools: Tools {
                stack,
                null,
                buffer: vec![0; BUFFER],
            },
        })
    }

    /// For another thread: the helper whose exec this launcher is waiting for.
    pub fn in_flight(&self) -> Arc<InFlight> {
        self.tools.stack.in_flight()
    }

    /// Starts a helper and waits for its word. An image that is at fault is left for the next rung and the
    /// launch made again; nothing is made again after Leaving. On an error nothing is left running.
    pub fn launch(&mut self, launch: Launch) -> Result<(Running, Begun), LaunchError> {
        self.launch_via(Via::Here, launch)
    }

    /// The same inside an opened PAM session, as a child of its process; see [`crate::pam`] for what differs.
    pub fn launch_in(
        &mut self,
        session: &mut PamSession,
        launch: Launch,
    ) -> Result<(Running, Begun), LaunchError> {
        let done = self.launch_via(Via::Pam(session), launch);
        session.settle();
        done
    }

    fn launch_via(&mut self, mut via: Via<'_>, launch: Launch) -> Result<(Running, Begun), LaunchError> {
        let started = Instant::now();
        let deadline = started + launch.deadline;
        let (roles, fds): (Vec<Role>, Vec<Fd>) = launch.fds.into_iter().unzip();
        let order = Order {
            work: launch.work,
            roles,
        };
        let parcel = Parcel::new(&order, &fds)?;
        let mut unexplained = 0;
        let mut tries = 0;
        loop {
            let image = self
                .ladder
                .image()
                .map_err(|e| LaunchError::NoImage(e.to_string()))?;
            tries += 1;
            let failed = match attempt(
                &mut via,
                &mut self.tools,
                &image,
                &parcel,
                &order.work,
                launch.cgroup.as_ref(),
                deadline,
            ) {
                Ok((mut running, begun)) => {
                    running.tries = tries;
                    return Ok((running, begun));
                }
                Err(failed) => failed,
            };
            let after = started.elapsed();
            let death = match &failed {
                Failed::Exec(e) => Death::Exec(e.errno),
                // Its exec was held up until the watchdog ended it.
                Failed::Gone { .. } | Failed::Late(_) if self.tools.stack.in_flight().was_killed() => {
                    return Err(error(Failed::Late(Stage::Exec), tries, after));
                }
                Failed::Gone { stage, exit, lived } if *stage < Stage::Leaving => death(*exit, *lived),
                _ => return Err(error(failed, tries, after)),
            };
            let moved = self.moved_for(&image, death);
            if !moved {
                unexplained += 1;
            }
            if unexplained > UNEXPLAINED_DEATHS || tries >= MAX_TRIES {
                return Err(error(failed, tries, after));
            }
        }
    }
}

impl Launcher {
    /// Tells the ladder of a death; whether it stands on another rung now.
    fn moved_for(&self, image: &Image, death: Death) -> bool {
        matches!(self.ladder.image_failed(image, death), Verdict::Moved { .. })
    }
}

/// A death as the ladder knows it. One that nobody could wait for (PAM's child) counts as killed.
fn death(exit: Option<Exit>, lived: Duration) -> Death {
    match exit {
        Some(Exit::Code(code)) => Death::Exited { code, lived },
        Some(Exit::Signal { number, .. }) => Death::Killed {
            signal: number,
            lived,
        },
        None => Death::Killed { signal: 9, lived },
    }
}

fn error(failed: Failed, tries: u32, after: Duration) -> LaunchError {
    match failed {
        Failed::Exec(e) => LaunchError::of_spawn(e),
        Failed::Gone { stage, exit, .. } => LaunchError::Died { stage, exit, tries },
        Failed::Late(stage) => LaunchError::TimedOut { stage, after },
        Failed::Final(e) => e,
    }
}
