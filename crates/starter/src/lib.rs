//! The service's first process: owns the listening sockets, executes the monitor, talks to systemd.
//!
//! It exists for the restart. What systemd waits for when it stops a service is its first process; were that the
//! monitor, every session would end with it, because only a parent hears how its children end. So the starter ends
//! at once and the monitor goes on as a process without a service (`KillMode=process`) until its last connection has.
//! It decides nothing and reads nothing from the network. Once the monitor is ready it only waits, and for that it needs no
//! program of many megabytes: it becomes `fleetgate-front starter` (`worker::idle_starter`), 0.2 MB instead of 0.7, in a worker's sandbox.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

mod listeners;
mod notify;

use fleetgate_base::parent;
use fleetgate_node_config::{Config, ConfigError};
use fleetgate_sys::spawn::{Child, Program, Spawn, SpawnError, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, file, socket};
use fleetgate_wire::node::starter::FIRST_LISTENER;
use fleetgate_worker::idle_starter::{self, IdleStarter, Stage};
use fleetgate_worker::start::Format;
use listeners::ListeningSockets;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// For the monitor's allocator (glibc): what was large goes back to the kernel when it is freed. By itself it learns
/// from the images that are unpacked at the start to keep as much for good, 1 MB.
const ALLOCATOR: &CStr = c"GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072:glibc.malloc.arena_max=2";

/// What `fleetgate node` was told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration's path.
    pub config: PathBuf,
    /// Listen here, whatever the configuration says.
    pub listen: Vec<SocketAddr>,
    /// Without root: for the user who starts it.
    pub user_mode: bool,
    /// How its own log lines look.
    pub format: Format,
    /// How the monitor is called: the words of its command line after the program's name.
    pub monitor: Vec<OsString>,
}

/// Why there is no service, or no more.
#[derive(Debug)]
pub enum StarterError {
    /// The configuration.
    Config(ConfigError),
    /// No socket on this address.
    Listen(SocketAddr, Errno),
    /// A system call failed.
    System(&'static str, Errno),
    /// The monitor was not started.
    Spawn(SpawnError),
    /// It was ready to serve, or nearly, and the monitor ended by itself, or waiting for it failed. A sentence.
    Ended(String),
}

impl fmt::Display for StarterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StarterError::Config(e) => e.fmt(f),
            StarterError::Listen(address, e @ Errno::EADDRINUSE) => write!(
                f,
                "cannot listen on {address}: {e}: another server has this port; stop it, or choose another with \
                 `listen` in node.toml or --listen"
            ),
            StarterError::Listen(address, e @ Errno::EACCES) => write!(
                f,
                "cannot listen on {address}: {e}: ports below 1024 are root's; choose another with --listen"
            ),
            StarterError::Listen(address, e) => write!(f, "cannot listen on {address}: {e}"),
            StarterError::System(doing, e) => write!(f, "{doing}: {e}"),
            StarterError::Spawn(e) => write!(f, "the monitor was not started: {e}"),
            StarterError::Ended(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StarterError {}

impl From<ConfigError> for StarterError {
    fn from(e: ConfigError) -> StarterError {
        StarterError::Config(e)
    }
}

/// Starts the service and stays until it is told to end. The answer is the exit code.
pub fn run(options: &Options) -> Result<i32, StarterError> {
    let system = |doing| move |e| StarterError::System(doing, e);
    parent::follow().map_err(|e| StarterError::Ended(e.into()))?;
    let signals = idle_starter::signals().map_err(system("taking signals"))?;
    let log = idle_starter::log(options.format);
    let systemd = notify::systemd(log);
    let config = Config::load(&options.config)?;
    let addresses = match (options.listen.as_slice(), options.user_mode) {
        ([], true) if config.listen == Config::default().listen => &listeners::USER_MODE[..],
        ([], _) => &config.listen,
        (given, _) => given,
    };
    let listening = listeners::open(addresses, notify::sockets(&systemd, addresses))?;
    for address in &listening.addresses {
        tracing::info!(%address, "listening");
    }
    let (control, theirs) = socket::pair().map_err(system("making the monitor's socket"))?;
    let child = start(options, &theirs, &listening)?;
    drop(theirs);

    let mut starter =
        IdleStarter::new(control, child.pidfd, signals, systemd, log).map_err(system("watching"))?;
    let image = match starter.until_ready().map_err(|e| StarterError::Ended(e.into()))? {
        Stage::Over => return Ok(0),
        Stage::Ready(image) => image,
    };
    notify::keep(&starter.systemd, &listening);
    // The monitor has them: a connection that comes when it is gone is to be refused, or kept by systemd.
    drop(listening);
    starter.systemd.say("READY=1");
    tracing::info!("ready");
    if let Some(image) = image {
        starter.become_small(&image);
    }
    starter.serve().map_err(|e| StarterError::Ended(e.into()))?;
    Ok(0)
}

/// Executes the monitor: this very program under its own word, by descriptor, so that an upgrade of the file does not
/// mix two versions.
fn start(options: &Options, control: &Fd, listening: &ListeningSockets) -> Result<Child, StarterError> {
    let system = |doing| move |e| StarterError::System(doing, e);
    let program = file::openat(file::CWD, c"/proc/self/exe", file::flags::O_RDONLY, 0)
        .map_err(system("opening this program"))?;
    let string =
        |s: &OsStr| CString::new(s.as_bytes()).map_err(|_| StarterError::System("argument", Errno::EINVAL));
    let mut argv = vec![c"fleetgate".to_owned()];
    for word in &options.monitor {
        argv.push(string(word)?);
    }
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os() {
        // The monitor talks to the starter, and inherits nothing under systemd's numbers.
        if !notify::is_systemds(&name) && name != "GLIBC_TUNABLES" {
            let mut variable = name;
            variable.push("=");
            variable.push(value);
            environment.push(string(&variable)?);
        }
    }
    environment.push(ALLOCATOR.to_owned());
    let argv = Strings::new(argv.iter().map(CString::as_c_str));
    let envp = Strings::new(environment.iter().map(CString::as_c_str));
    let mut fds = vec![0, 1, 2, control.raw()];
    debug_assert_eq!(fds.len(), FIRST_LISTENER as usize);
    fds.extend(listening.sockets.iter().map(Fd::raw));
    let what = Spawn {
        program: Program::Fd(&program),
        argv: &argv,
        envp: &envp,
        fds: &fds,
        cgroup: None,
    };
    let mut stack = Stack::new().map_err(system("mapping a stack"))?;
    spawn(&what, &mut stack).map_err(StarterError::Spawn)
}
