//! `fleetgate up`: the roles of one configuration, each a process of its own. It starts them in order, says where they
//! are, starts again what dies, passes signals on and ends all of them together. It serves nothing itself and knows no
//! secret.

use crate::cluster::{self, Role};
use crate::flags::{Given, Outcome};
use fleetgate_base::notify::{self, Notify};
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::{Errno, Fd, signals};
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A role that dies is started again after so long, twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A role that was up for so long has not failed to start.
const SETTLED: Duration = Duration::from_secs(60);
/// When told to end, a role has so long before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);
/// A role has so long to become ready at the first start.
const START: Duration = Duration::from_secs(60);
/// Names that are tried for the directory of the sockets.
const PLACES: u32 = 1000;
/// The longest message of a role.
const MAX_MESSAGE: usize = 4096;

/// Starts what the configuration names and stays until it is told to end.
pub fn run(given: &Given) -> Outcome {
    let config = cluster::configuration(given)?;
    let roles = cluster::roles(&config)?;
    let signals = signals::descriptor(&[signals::TERM, signals::INT, signals::HUP])
        .map_err(|e| format!("taking signals: {e}"))?;
    let place = Place::make()?;
    let mut flags: Vec<OsString> = Vec::new();
    for flag in ["log-format", "log-level"] {
        if let Some(value) = given.value(flag) {
            flags.extend([format!("--{flag}").into(), value.into()]);
        }
    }
    let mut services = Vec::new();
    for role in roles {
        services.push(Service::new(role, &place, &flags, &config)?);
    }
    let mut up = Up {
        services,
        signals,
        manager: Notify::from_environment(),
        ending: None,
        announced: false,
    };
    up.serve()
}

/// A directory that holds the roles' notification sockets, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Place, String> {
        let run = Path::new("/run");
        let parent = if process::effective_uid() == 0 && run.is_dir() {
            run.to_owned()
        } else {
            std::env::temp_dir()
        };
        // In a container this process has the same number each time, and one that was killed has left its directory.
        for n in 0..PLACES {
            let path = parent.join(format!("fleetgate-up-{}-{n}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Place(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
        }
        Err(format!(
            "{} has {PLACES} directories fleetgate-up-{}-*: remove those that nobody uses",
            parent.display(),
            process::id()
        ))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a role does at the moment.
enum State {
    /// It was not started yet.
    Waiting,
    /// It runs and has not said that it is ready.
    Starting(Running),
    /// It serves.
    Ready(Running),
    /// It died and is started again at this moment.
    Pausing(Instant),
    /// It ended as it was told.
    Ended,
}

struct Running {
    child: Child,
    pidfd: Fd,
    since: Instant,
}

/// One role.
struct Service {
    role: Role,
    command: Vec<OsString>,
    socket: UnixDatagram,
    address: PathBuf,
    state: State,
    /// Deaths in a row.
    deaths: u32,
    /// It was ready once.
    proven: bool,
    /// What it last said of itself.
    status: String,
}

impl Service {
    fn new(role: Role, place: &Place, flags: &[OsString], config: &Path) -> Result<Service, String> {
        let address = place.0.join(role.name());
        let socket = UnixDatagram::bind(&address)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(|e| format!("{}: {e}", address.display()))?;
        let mut command = flags.to_vec();
        command.extend([role.name().into(), "--config".into(), config.into()]);
        if role == Role::Node && process::effective_uid() != 0 {
            command.push("--user-mode".into());
        }
        Ok(Service {
            role,
            command,
            socket,
            address,
            state: State::Waiting,
            deaths: 0,
            proven: false,
            status: String::new(),
        })
    }

    /// Executes this very program, also where its file was replaced meanwhile: no two versions together.
    fn start(&mut self) -> Result<(), String> {
        let name = self.role.name();
        let failed = |e: &dyn std::fmt::Display| format!("{name} was not started: {e}");
        let child = Command::new("/proc/self/exe")
            .arg0("fleetgate")
            .args(&self.command)
            .env(notify::VARIABLE, &self.address)
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::null())
            // Ctrl-C is for this process, which tells the others in their order.
            .process_group(0)
            .spawn()
            .map_err(|e| failed(&e))?;
        let pidfd = process::pidfd_open(child.id() as i32).map_err(|e| failed(&e))?;
        self.state = State::Starting(Running {
            child,
            pidfd,
            since: Instant::now(),
        });
        Ok(())
    }

    fn running(&self) -> Option<&Running> {
        match &self.state {
            State::Starting(running) | State::Ready(running) => Some(running),
            _ => None,
        }
    }

    fn signal(&self, signal: i32) {
        if let Some(running) = self.running() {
            let _ = process::signal(&running.pidfd, signal);
        }
    }

    /// Reads what it said; the answer is whether it has become ready.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; MAX_MESSAGE];
        let mut ready = false;
        while let Ok(length) = self.socket.recv(&mut buffer) {
            for line in String::from_utf8_lossy(&buffer[..length]).lines() {
                match line.split_once('=') {
                    Some(("READY", "1")) => ready = true,
                    Some(("STATUS", text)) => self.status = text.to_owned(),
                    _ => {}
                }
            }
        }
        if !ready {
            return false;
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Starting(running) => {
                self.state = State::Ready(running);
                self.proven = true;
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }
}

struct Up {
    services: Vec<Service>,
    signals: Fd,
    manager: Notify,
    /// It was told to end, and kills what is left at this moment.
    ending: Option<Instant>,
    announced: bool,
}

impl Up {
    fn serve(&mut self) -> Outcome {
        loop {
            if self.ending.is_none()
                && let Err(why) = self.start_what_is_due()
            {
                return self.fail(why);
            }
            if self.ending.is_some() && self.services.iter().all(|s| s.running().is_none()) {
                return Ok(0);
            }
            self.wait()?;
            let told: Vec<usize> = (0..self.services.len())
                .filter(|i| self.services[*i].hear())
                .collect();
            for index in told {
                self.say_ready(index);
            }
            self.take_signals()?;
            for index in 0..self.services.len() {
                if let Err(why) = self.look_for_death(index) {
                    return self.fail(why);
                }
            }
            if self.ending.is_some_and(|end| Instant::now() >= end) {
                for service in self.services.iter().filter(|s| s.running().is_some()) {
                    tracing::error!("{} does not end and is killed", service.role.name());
                    service.signal(signals::KILL);
                }
                self.ending = Some(Instant::now() + FAREWELL);
            }
        }
    }

    /// The first role that never ran, when those before it are ready; and those whose pause is over.
    fn start_what_is_due(&mut self) -> Result<(), String> {
        for service in &mut self.services {
            match &service.state {
                State::Pausing(until) if Instant::now() >= *until => {
                    tracing::warn!("starting {} again", service.role.name());
                    service.start()?;
                }
                State::Waiting => {
                    service.start()?;
                    return Ok(());
                }
                State::Starting(running) if !service.proven => {
                    if running.since.elapsed() >= START {
                        return Err(format!(
                            "{} is not ready after {} s; its log is above",
                            service.role.name(),
                            START.as_secs()
                        ));
                    }
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), String> {
        let mut watches = vec![Watch::new(self.signals.raw(), poll::READ)];
        for service in &self.services {
            watches.push(Watch::new(service.socket.as_raw_fd(), poll::READ));
            if let Some(running) = service.running() {
                watches.push(Watch::new(running.pidfd.raw(), poll::READ));
            }
        }
        let now = Instant::now();
        let due = self.services.iter().filter_map(|s| match &s.state {
            State::Pausing(until) => Some(*until),
            State::Starting(running) if !s.proven => Some(running.since + START),
            _ => None,
        });
        let next = due.chain(self.ending).min();
        let timeout = next.map(|at| at.saturating_duration_since(now).as_millis() as u32 + 1);
        match poll::poll(&mut watches, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(format!("waiting: {e}")),
        }
    }

    fn say_ready(&mut self, index: usize) {
        let service = &self.services[index];
        let status = if service.status.is_empty() {
            "ready"
        } else {
            &service.status
        };
        println!("{:<6} {status}", service.role.name());
        let all = self.services.iter().all(|s| matches!(s.state, State::Ready(_)));
        if all && !self.announced {
            self.announced = true;
            println!("all of it is up");
            self.manager.say("READY=1");
        }
    }

    fn take_signals(&mut self) -> Result<(), String> {
        while let Some(signal) = signals::next(&self.signals).map_err(|e| format!("reading a signal: {e}"))? {
            if signal == signals::HUP {
                self.services.iter().for_each(|s| s.signal(signals::HUP));
                continue;
            }
            // Asked twice, it means now.
            let first = self.ending.is_none();
            self.end(signal);
            if !first {
                self.ending = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Tells all of them to end, the one that was started last first.
    fn end(&mut self, signal: i32) {
        self.manager.say("STOPPING=1");
        self.ending = Some(Instant::now() + FAREWELL);
        self.services.iter().rev().for_each(|s| s.signal(signal));
    }

    fn look_for_death(&mut self, index: usize) -> Result<(), String> {
        let ending = self.ending.is_some();
        let service = &mut self.services[index];
        let Some(running) = service.running() else {
            return Ok(());
        };
        let Ok(Some(exit)) = process::wait(&running.pidfd, false) else {
            return Ok(());
        };
        let settled = running.since.elapsed() >= SETTLED;
        let how = match exit {
            Exit::Code(code) => format!("ended with code {code}"),
            Exit::Signal { number, .. } => format!("was ended by signal {number}"),
        };
        let name = service.role.name();
        if ending {
            service.state = State::Ended;
            return Ok(());
        }
        if !service.proven {
            service.state = State::Ended;
            return Err(format!("{name} {how} before it was ready; its log is above"));
        }
        service.deaths = if settled { 0 } else { service.deaths };
        let pause = FIRST_PAUSE
            .saturating_mul(1 << service.deaths.min(16))
            .min(LONGEST_PAUSE);
        service.deaths += 1;
        service.state = State::Pausing(Instant::now() + pause);
        tracing::error!("{name} {how}; it is started again in {} s", pause.as_secs());
        self.manager
            .say(&format!("STATUS={name} {how}; it is started again"));
        Ok(())
    }

    /// A first start that failed: what runs is ended, and the reason given.
    fn fail(&mut self, why: String) -> Outcome {
        self.end(signals::TERM);
        while self.services.iter().any(|s| s.running().is_some()) {
            self.wait()?;
            for index in 0..self.services.len() {
                self.look_for_death(index)?;
            }
            if self.ending.is_some_and(|end| Instant::now() >= end) {
                self.services.iter().for_each(|s| s.signal(signals::KILL));
                self.ending = Some(Instant::now() + FAREWELL);
            }
        }
        Err(why.into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The pidfd has said that it ended; this reaps nothing twice and leaves no handle behind.
        let _ = self.child.try_wait();
    }
}
