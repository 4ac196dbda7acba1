//! Starts the node's workers and the resolver, on a thread of its own: an exec that endpoint security holds up holds up no login.
//! The image comes from a fallback chain; one that cannot be executed is left for the next strategy. What a worker writes to its
//! standard error is [`log_pipe`]'s. Who needs a worker, and what it is told, is the monitor's.

pub mod log_pipe;

use fleetgate_seal::{Death, FallbackChain, Image, LateChain, Verdict};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Step, Strings, spawn};
use fleetgate_sys::{Fd, file};
use std::ffi::CString;
use std::sync::{Arc, mpsc};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerKind {
    /// Everything before a login.
    Lobby,
    /// One login's connections.
    Front,
    /// Names and PAM.
    Resolver,
    /// Connections to proxies.
    Tunnel,
    /// What is recorded of sessions.
    Recorder,
    /// What watched sessions do.
    Watcher,
    /// Keeps what the watcher holds, and outlives everybody.
    Guardian,
}

impl WorkerKind {
    /// As a text.
    pub const fn name(self) -> &'static str {
        match self {
            WorkerKind::Lobby => "lobby",
            WorkerKind::Front => "front",
            WorkerKind::Resolver => "resolver",
            WorkerKind::Tunnel => "tunnel",
            WorkerKind::Recorder => "recorder",
            WorkerKind::Watcher => "watcher",
            WorkerKind::Guardian => "guardian",
        }
    }
}

/// A started process, or why there is none.
pub type Started = Result<Process, String>;

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its descriptor.
    pub pidfd: Fd,
    /// What it was executed from, until it is known to work.
    pub image: Option<Arc<Image>>,
}

/// A process to start: its end of the control socket becomes descriptor 3, `log` its standard error.
pub struct StartOrder {
    /// What for.
    pub kind: WorkerKind,
    /// Its end of the control socket.
    pub control: Fd,
    /// Where its lines go.
    pub log: Fd,
    /// Called, on any thread, when it is executed or failed to be.
    pub done: Box<dyn FnOnce(Started) + Send>,
}

/// Starts processes. The monitor's own is [`Executor`]; a test of what a taken-over process can do has one that gives the
/// test the other end of the control socket.
pub trait WorkerStarter: Send {
    /// Starts one, without waiting.
    fn start(&mut self, order: StartOrder);

    /// One that was started from `image` died before it said anything. Whether the image is to blame is found out before
    /// the next start.
    fn died_early(&mut self, kind: WorkerKind, image: Arc<Image>, death: Death);
}

/// Executes them from fallback chains, unprivileged where this process is root.
pub struct Executor {
    jobs: mpsc::Sender<Job>,
}

enum Job {
    Start(StartOrder),
    Examine(WorkerKind, Arc<Image>, Death),
}

/// What [`Executor`] starts from, and as whom.
pub struct Images {
    /// Lobby and fronts.
    pub front: Arc<FallbackChain>,
    /// The resolver.
    pub resolver: Arc<FallbackChain>,
    /// The tunnel, which a node of no cluster does not have.
    pub tunnel: LateChain,
    /// The recorder, which a node that records nothing does not have.
    pub recorder: LateChain,
    /// The resolver's arguments behind `serve`.
    pub resolver_arguments: Vec<CString>,
    /// Where the guardian is born, outside of the service; none: where the monitor is.
    pub guardian_cgroup: Option<Fd>,
    /// The user and group that the workers become; none: they stay what they are. The resolver stays root.
    pub user: Option<(u32, u32)>,
}

impl Images {
    /// The chain that a process is started from.
    fn of(&mut self, kind: WorkerKind) -> Result<Arc<FallbackChain>, String> {
        match kind {
            WorkerKind::Resolver => Ok(self.resolver.clone()),
            WorkerKind::Lobby | WorkerKind::Front | WorkerKind::Watcher | WorkerKind::Guardian => {
                Ok(self.front.clone())
            }
            WorkerKind::Tunnel => self.tunnel.chain(),
            WorkerKind::Recorder => self.recorder.chain(),
        }
    }

    /// The chain that a process was started from.
    fn known(&self, kind: WorkerKind) -> Option<Arc<FallbackChain>> {
        match kind {
            WorkerKind::Resolver => Some(self.resolver.clone()),
            WorkerKind::Lobby | WorkerKind::Front | WorkerKind::Watcher | WorkerKind::Guardian => {
                Some(self.front.clone())
            }
            WorkerKind::Tunnel => self.tunnel.opened(),
            WorkerKind::Recorder => self.recorder.opened(),
        }
    }
}

/// How often one start is tried: each strategy of the chain.
const MAX_TRIES: u32 = 6;

impl Executor {
    /// Starts the thread.
    pub fn new(mut images: Images) -> std::io::Result<Executor> {
        let (jobs, queue) = mpsc::channel();
        let mut stack = Stack::new()?;
        std::thread::Builder::new()
            .name("workers".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                for job in queue {
                    match job {
                        Job::Start(order) => {
                            let started = execute(&mut images, &order, &mut stack);
                            (order.done)(started);
                        }
                        // The chain tells of a move itself.
                        Job::Examine(kind, image, death) => {
                            if let Some(chain) = images.known(kind) {
                                let _ = chain.image_failed(&image, death);
                            }
                        }
                    }
                }
            })?;
        Ok(Executor { jobs })
    }
}

impl WorkerStarter for Executor {
    fn start(&mut self, order: StartOrder) {
        if let Err(mpsc::SendError(Job::Start(order))) = self.jobs.send(Job::Start(order)) {
            (order.done)(Err("the thread that starts processes is gone".to_owned()));
        }
    }

    fn died_early(&mut self, kind: WorkerKind, image: Arc<Image>, death: Death) {
        // Where the thread is gone nothing starts any more, and the next start says so.
        let _ = self.jobs.send(Job::Examine(kind, image, death));
    }
}

fn execute(images: &mut Images, order: &StartOrder, stack: &mut Stack) -> Started {
    let chain = images.of(order.kind)?;
    let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0)
        .map_err(|e| format!("/dev/null: {e}"))?;
    let arguments = arguments(images, order.kind);
    for _ in 0..MAX_TRIES {
        let image = chain.image().map_err(|e| e.to_string())?;
        let argv = Strings::new(std::iter::once(image.name()).chain(arguments.iter().map(CString::as_c_str)));
        let envp = Strings::new([]);
        let what = Spawn {
            program: Program::Fd(image.fd()),
            argv: &argv,
            envp: &envp,
            fds: &[null.raw(), null.raw(), order.log.raw(), order.control.raw()],
            cgroup: images
                .guardian_cgroup
                .as_ref()
                .filter(|_| order.kind == WorkerKind::Guardian),
        };
        match spawn(&what, stack) {
            Ok(child) => {
                return Ok(Process {
                    pid: child.pid,
                    pidfd: child.pidfd,
                    image: Some(image),
                });
            }
            Err(e) if e.step == Step::Exec => match chain.image_failed(&image, Death::Exec(e.errno)) {
                Verdict::Moved { .. } => continue,
                _ => return Err(e.to_string()),
            },
            Err(e) => return Err(e.to_string()),
        }
    }
    Err("no strategy of the fallback chain executes it".to_owned())
}

fn arguments(images: &Images, kind: WorkerKind) -> Vec<CString> {
    let argument = |text: &str| CString::new(text).unwrap_or_default();
    if kind == WorkerKind::Resolver {
        return std::iter::once(argument("serve"))
            .chain(images.resolver_arguments.iter().cloned())
            .collect();
    }
    let mut arguments = vec![argument(kind.name())];
    if let Some((uid, gid)) = images.user {
        arguments.extend([
            argument("--uid"),
            argument(&uid.to_string()),
            argument("--gid"),
            argument(&gid.to_string()),
        ]);
    }
    if tracing::enabled!(tracing::Level::DEBUG) {
        arguments.extend([argument("--timings"), argument("on")]);
    }
    arguments
}
