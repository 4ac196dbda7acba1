//! The launching thread's tool: one request after the other, moving down the fallback chain where the image is at fault.

use crate::attempt::{AttemptError, Parent, PreparedOrder, Resources, attempt};
use crate::pam::PamSession;
use crate::reply::BUFFER;
use crate::{Begun, LaunchError, RunningHelper, Stage};
use fleetgate_seal::{Death, FallbackChain, Image, Verdict};
use fleetgate_sys::process::Exit;
use fleetgate_sys::spawn::{InFlight, Stack};
use fleetgate_sys::{Fd, file};
use fleetgate_wire::container::{self, Container, ContainerOrder};
use fleetgate_wire::order::{Order, Role, Work};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a helper may take to its word, all tries together, unless the request says otherwise.
pub const READY_DEADLINE: Duration = Duration::from_secs(15);
/// How often a helper that died is started again from an image that works when probed. Two, so that a single
/// kill by endpoint security or the out-of-memory killer costs nobody his session.
pub const UNEXPLAINED_DEATHS: u32 = 2;
/// How often one launch is tried at all: each strategy of the fallback chain, and the unexplained deaths.
pub const MAX_TRIES: u32 = 8;

/// One request.
#[derive(Debug)]
pub struct Launch {
    /// What the helper is to do.
    pub work: Work,
    /// The container that it enters for that; its descriptors are among `fds`.
    pub container: Option<Container>,
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
            container: None,
            fds,
            cgroup: None,
            deadline: READY_DEADLINE,
        }
    }

    /// The same in `container`, whose first process and root these are, and its cgroup where it has one of version 2.
    pub fn entering(mut self, container: Container, first: Fd, root: Fd, cgroup: Option<Fd>) -> Launch {
        self.fds.extend([(Role::Container, first), (Role::Root, root)]);
        self.container = Some(container);
        self.cgroup = cgroup;
        self
    }
}

/// Starts helpers. One per thread.
pub struct Launcher {
    chain: Arc<FallbackChain>,
    tools: Resources,
}

impl Launcher {
    /// A launcher of images from `chain`.
    pub fn new(chain: Arc<FallbackChain>) -> Result<Launcher, LaunchError> {
        let stack = Stack::new().map_err(LaunchError::system("mapping the launcher's stack"))?;
        let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0)
            .map_err(LaunchError::system("opening /dev/null"))?;
        Ok(Launcher {
            chain,
            tools: Resources {
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

    /// Starts a helper and waits for its word. An image that is at fault is left for the next strategy and the
    /// launch made again; nothing is made again after Leaving. On an error nothing is left running.
    pub fn launch(&mut self, launch: Launch) -> Result<(RunningHelper, Begun), LaunchError> {
        self.launch_by(Parent::Here, launch)
    }

    /// The same inside an opened PAM session, as a child of its process; see [`crate::pam`] for what differs.
    pub fn launch_in(
        &mut self,
        session: &mut PamSession,
        launch: Launch,
    ) -> Result<(RunningHelper, Begun), LaunchError> {
        let done = self.launch_by(Parent::Pam(session), launch);
        session.settle();
        done
    }

    fn launch_by(
        &mut self,
        mut parent: Parent<'_>,
        launch: Launch,
    ) -> Result<(RunningHelper, Begun), LaunchError> {
        let started = Instant::now();
        let deadline = started + launch.deadline;
        let (roles, fds): (Vec<Role>, Vec<Fd>) = launch.fds.into_iter().unzip();
        let order = Order {
            work: launch.work,
            roles,
        };
        let (frame, subcommand) = match launch.container {
            None => (fleetgate_wire::encode(&order), order.work.subcommand()),
            Some(container) => {
                let order = ContainerOrder {
                    container,
                    order: order.clone(),
                };
                (fleetgate_wire::encode(&order), container::SUBCOMMAND)
            }
        };
        let prepared = PreparedOrder::new(frame, subcommand, &fds)?;
        let mut unexplained = 0;
        let mut tries = 0;
        loop {
            let image = self
                .chain
                .image()
                .map_err(|e| LaunchError::NoImage(e.to_string()))?;
            tries += 1;
            let failed = match attempt(
                &mut parent,
                &mut self.tools,
                &image,
                &prepared,
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
                AttemptError::Exec(e) => Death::Exec(e.errno),
                // Its exec was held up until the watchdog ended it.
                AttemptError::Gone { .. } | AttemptError::Late(_)
                    if self.tools.stack.in_flight().was_killed() =>
                {
                    return Err(error(AttemptError::Late(Stage::Exec), tries, after));
                }
                AttemptError::Gone { stage, exit, lived } if *stage < Stage::Leaving => death(*exit, *lived),
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
    /// Tells the fallback chain of a death; whether it stands on another strategy now.
    fn moved_for(&self, image: &Image, death: Death) -> bool {
        matches!(self.chain.image_failed(image, death), Verdict::Moved { .. })
    }
}

/// A death as the fallback chain knows it. One that nobody could wait for (PAM's child) counts as killed.
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

fn error(failed: AttemptError, tries: u32, after: Duration) -> LaunchError {
    match failed {
        AttemptError::Exec(e) => LaunchError::of_spawn(e),
        AttemptError::Gone { stage, exit, .. } => LaunchError::Died { stage, exit, tries },
        AttemptError::Late(stage) => LaunchError::TimedOut { stage, after },
        AttemptError::Final(e) => e,
    }
}
