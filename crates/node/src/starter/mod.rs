//! The service's first process: owns the listening sockets, executes the monitor, talks to systemd.
//!
//! It exists for the restart. What systemd waits for when it stops a service is its first process; were that the
//! monitor, every session would end with it, because only a parent hears how its children end. So the starter ends
//! at once and the monitor goes on as a process without a service (`KillMode=process`) until its last connection has.
//! It decides nothing and reads nothing from the network.

mod listeners;
mod notify;

use crate::config::{Config, ConfigError};
use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_sys::poll::READ;
use fleetgate_sys::spawn::{Child, Program, Spawn, SpawnError, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, file, process, signals, socket};
use fleetgate_wire::node::starter::{FIRST_LISTENER, FromMonitor, ToMonitor};
use fleetgate_wire::{decode, encode};
use listeners::Listening;
use notify::Systemd;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long the monitor may take to close its listening sockets when the service stops.
const DRAIN: Duration = Duration::from_secs(5);
/// The longest word of the monitor.
const MAX_WORD: usize = 4096;

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
    /// The monitor ended by itself.
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
            StarterError::Ended(how) => write!(f, "the monitor {how}; its log says why"),
        }
    }
}

impl std::error::Error for StarterError {}

impl From<ConfigError> for StarterError {
    fn from(e: ConfigError) -> StarterError {
        StarterError::Config(e)
    }
}

const SIGNALS: u64 = 0;
const CONTROL: u64 = 1;
const CHILD: u64 = 2;

/// Starts the service and stays until it is told to end. The answer is the exit code.
pub fn run(options: &Options) -> Result<i32, StarterError> {
    let system = |doing| move |e| StarterError::System(doing, e);
    let signals = signals::descriptor(&[signals::TERM, signals::INT, signals::HUP])
        .map_err(system("taking signals"))?;
    let systemd = Systemd::from_environment();
    let config = Config::load(&options.config)?;
    let addresses = match (options.listen.as_slice(), options.user_mode) {
        ([], true) if config.listen == Config::default().listen => &listeners::USER_MODE[..],
        ([], _) => &config.listen,
        (given, _) => given,
    };
    let listening = listeners::open(addresses, &systemd)?;
    for address in &listening.addresses {
        tracing::info!(%address, "listening");
    }
    let (control, theirs) = socket::pair().map_err(system("making the monitor's socket"))?;
    let child = start(options, &theirs, &listening)?;
    drop(theirs);

    let epoll = Epoll::new().map_err(system("making an epoll"))?;
    for (fd, key) in [(&signals, SIGNALS), (&control, CONTROL), (&child.pidfd, CHILD)] {
        epoll.add(fd, READ, key).map_err(system("watching"))?;
    }
    let mut service = Service {
        control,
        child,
        systemd,
        listening,
        ending: None,
    };
    let mut events = [Event::EMPTY; 4];
    loop {
        let wait = service.ending.is_some().then_some(DRAIN.as_millis() as u32);
        let count = epoll.wait(&mut events, wait).map_err(system("waiting"))?;
        if count == 0 {
            tracing::warn!("the monitor did not close its listening sockets in time; it is left to itself");
            return Ok(0);
        }
        for event in &events[..count] {
            let done = match event.key() {
                SIGNALS => service.signalled(&signals)?,
                CONTROL => service.heard()?,
                _ => service.child_ended()?,
            };
            if let Some(code) = done {
                return Ok(code);
            }
        }
    }
}

/// Executes the monitor: this very program under its own word, by descriptor, so that an upgrade of the file does not
/// mix two versions.
fn start(options: &Options, control: &Fd, listening: &Listening) -> Result<Child, StarterError> {
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

struct Service {
    control: Fd,
    child: Child,
    systemd: Systemd,
    listening: Listening,
    /// What it ends with, once the monitor has let go of the listening sockets.
    ending: Option<i32>,
}

impl Service {
    fn tell(&self, word: &ToMonitor) {
        if let Err(e) = socket::send_now(&self.control, &encode(word), &[]) {
            tracing::warn!("the monitor does not take words: {e}");
        }
    }

    fn signalled(&mut self, signals: &Fd) -> Result<Option<i32>, StarterError> {
        while let Some(signal) =
            signals::next(signals).map_err(|e| StarterError::System("reading a signal", e))?
        {
            match signal {
                signals::HUP => {
                    self.systemd.reloading();
                    self.tell(&ToMonitor::Reload);
                }
                signal => {
                    self.systemd.say("STOPPING=1");
                    // From a terminal the user means all of it; a service manager means this process.
                    self.tell(if signal == signals::INT {
                        &ToMonitor::End
                    } else {
                        &ToMonitor::Drain
                    });
                    self.ending = Some(0);
                }
            }
        }
        Ok(None)
    }

    fn heard(&mut self) -> Result<Option<i32>, StarterError> {
        let mut buffer = [0; MAX_WORD];
        let received = match socket::receive(&self.control, &mut buffer, false) {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(StarterError::System("hearing the monitor", e)),
            Ok(received) if received.len == 0 => return self.child_ended(),
            Ok(received) => received,
        };
        match decode(&buffer[..received.len]) {
            Ok(FromMonitor::Ready) => {
                self.systemd.keep(&self.listening);
                self.systemd.say("READY=1");
                tracing::info!("ready");
                // From here on it waits; it needs none of the code that has brought it so far.
                let _ = fleetgate_sys::pages::Program::find().and_then(|program| program.release());
            }
            Ok(FromMonitor::Reloaded { refused }) => {
                self.systemd.say("READY=1");
                if let Some(why) = refused {
                    let why = why.to_string_lossy();
                    tracing::error!("the old configuration stays: {why}");
                    self.systemd
                        .say(&format!("STATUS=the old configuration stays: {why}"));
                }
            }
            Ok(FromMonitor::Draining) => return Ok(self.ending),
            Ok(FromMonitor::Status { line }) => {
                self.systemd.say(&format!("STATUS={}", line.to_string_lossy()))
            }
            Err(e) => return Err(StarterError::Ended(format!("said what cannot be read ({e})"))),
        }
        Ok(None)
    }

    /// The monitor has ended: as it was told, or the service has failed.
    fn child_ended(&mut self) -> Result<Option<i32>, StarterError> {
        if let Some(code) = self.ending {
            return Ok(Some(code));
        }
        let how = match process::wait(&self.child.pidfd, true) {
            Ok(Some(process::Exit::Code(code))) => format!("ended with code {code}"),
            Ok(Some(process::Exit::Signal { number, .. })) => format!("was ended by signal {number}"),
            Ok(None) | Err(_) => "ended".to_owned(),
        };
        Err(StarterError::Ended(how))
    }
}
