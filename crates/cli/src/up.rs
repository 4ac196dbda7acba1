//! `fleetgate up`: the roles of one configuration, each a process of its own. It starts them in order, says where they
//! are, starts again what dies, passes signals on and ends all of them together. It keeps their listening sockets, so that
//! nobody is refused while one of them restarts, and has its own service manager keep them too. A role that says that it
//! stops is replaced at once; a proxy that drains goes on beside the new one. It serves nothing itself and knows no secret.

use crate::cluster::{self, Role};
use crate::flags::{Arguments, Outcome};
use fleetgate_base::notify::{self, Notify};
use fleetgate_base::parent;
use fleetgate_base::sockets;
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::{Errno, Fd, signals, socket};
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The pauses before a role that died is started again.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4));
/// A role that was up for so long has not failed to start: its next pause is the first again.
const SETTLED: Duration = Duration::from_secs(10);
/// A process that drains ends by itself after 48 h. One that is still there an hour later was taken over, or hangs, and is
/// killed.
const DRAINED: Duration = Duration::from_secs(49 * 3600);
/// Messages of one role that are heard before the others have their turn.
const MESSAGES: usize = 64;
/// When told to end, a role has so long before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);
/// A role has so long to become ready. At its first start it is given up then, later it is killed and started again.
const START: Duration = Duration::from_secs(60);
/// Names that are tried for the directory of the sockets.
const PLACES: u32 = 1000;
/// The longest message of a role.
const MAX_MESSAGE: usize = 4096;

/// Starts what the configuration names and stays until it is told to end.
pub fn run(given: &Arguments) -> Outcome {
    let config = cluster::configuration(given)?;
    let roles = cluster::roles(&config)?;
    let handed = sockets::from_systemd();
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
        services.push(Service::new(role, &flags, &config));
    }
    for (name, socket) in handed {
        match services.iter_mut().find(|s| s.role.stored() == name) {
            Some(service) => service.kept.push(socket),
            None => tracing::warn!("a socket {name:?} was handed over, which no service is for"),
        }
    }
    let mut up = Up {
        services,
        place,
        leaving: Vec::new(),
        signals,
        manager: Notify::from_environment(),
        ending: None,
        all: false,
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
    /// Where it says how it is. Each process has its own, so that nothing is taken for another's.
    socket: Fd,
    /// It has said that it ends as it was told.
    stops: bool,
}

/// A process that another one has replaced.
struct Leaving {
    role: Role,
    running: Running,
    /// When it is killed.
    until: Instant,
}

/// One role.
struct Service {
    role: Role,
    command: Vec<OsString>,
    /// Its listening sockets, for its next process.
    kept: Vec<Fd>,
    state: State,
    pauses: Backoff,
    starts: u32,
    /// It was ready once.
    proven: bool,
    /// What it last said of itself.
    status: String,
}

/// What a role has said.
#[derive(Default)]
struct RoleReport {
    ready: bool,
    stops: bool,
}

impl Service {
    fn new(role: Role, flags: &[OsString], config: &Path) -> Service {
        let mut command = flags.to_vec();
        command.extend([role.name().into(), "--config".into(), config.into()]);
        if role == Role::Node && process::effective_uid() != 0 {
            command.push("--user-mode".into());
        }
        Service {
            role,
            command,
            kept: Vec::new(),
            state: State::Waiting,
            pauses: PAUSES,
            starts: 0,
            proven: false,
            status: String::new(),
        }
    }

    /// Executes this very program, also where its file was replaced meanwhile: no two versions together.
    fn start(&mut self, place: &Place) -> Result<(), String> {
        let name = self.role.name();
        let failed = |e: &dyn std::fmt::Display| format!("{name} was not started: {e}");
        self.starts += 1;
        let address = place.0.join(format!("{name}-{}", self.starts));
        let socket = UnixDatagram::bind(&address)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(|e| format!("{}: {e}", address.display()))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("fleetgate")
            .args(&self.command)
            .env(notify::VARIABLE, &address)
            .env(parent::VARIABLE, process::id().to_string())
            .env_remove(sockets::VARIABLE)
            .stdin(Stdio::null())
            // Ctrl-C is for this process, which tells the others in their order.
            .process_group(0);
        for variable in sockets::SYSTEMDS {
            command.env_remove(variable);
        }
        if !self.kept.is_empty() {
            let numbers: Vec<String> = self.kept.iter().map(|fd| fd.raw().to_string()).collect();
            command.env(sockets::VARIABLE, numbers.join(","));
        }
        // This process has one thread: nothing else is executed meanwhile.
        let inherited = |on: bool| self.kept.iter().try_for_each(|fd| fd.set_cloexec(!on));
        inherited(true).map_err(|e| failed(&e))?;
        let child = command.spawn();
        inherited(false).map_err(|e| failed(&e))?;
        let child = child.map_err(|e| failed(&e))?;
        let (child, pidfd) = watched(child, process::pidfd_open).map_err(|e| failed(&e))?;
        self.state = State::Starting(Running {
            child,
            pidfd,
            since: Instant::now(),
            socket: Fd::from(OwnedFd::from(socket)),
            stops: false,
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

    /// Takes its process, for which there is another state now.
    fn take(&mut self, next: State) -> Option<Running> {
        match std::mem::replace(&mut self.state, next) {
            State::Starting(running) | State::Ready(running) => Some(running),
            _ => None,
        }
    }

    /// It died, or could not be started, and is started again after a pause.
    fn pause(&mut self) -> Duration {
        let pause = self.pauses.failed(random());
        self.state = State::Pausing(Instant::now() + pause);
        pause
    }

    /// Reads what it said, and no more than a bound: it may say more than anybody can hear. Its sockets are kept here and by `manager`.
    fn hear(&mut self, manager: &Notify) -> RoleReport {
        let mut heard = RoleReport::default();
        let (State::Starting(running) | State::Ready(running)) = &mut self.state else {
            return heard;
        };
        let mut buffer = [0; MAX_MESSAGE];
        for _ in 0..MESSAGES {
            let Ok(received) = socket::receive(&running.socket, &mut buffer, false) else {
                break;
            };
            let mut keeps = false;
            for line in String::from_utf8_lossy(&buffer[..received.len]).lines() {
                match line.split_once('=') {
                    Some(("READY", "1")) => heard.ready = true,
                    Some(("STOPPING", "1")) => heard.stops = true,
                    Some(("STATUS", text)) => self.status = text.to_owned(),
                    Some(("FDSTORE", "1")) => keeps = true,
                    Some(("FDSTOREREMOVE", "1")) => {
                        self.kept.clear();
                        manager.forget(self.role.stored());
                    }
                    _ => {}
                }
            }
            for socket in received.fds.into_iter().filter(|_| keeps) {
                if self.kept.len() < sockets::MAX_SOCKETS {
                    manager.keep(self.role.stored(), socket.raw());
                    self.kept.push(socket);
                }
            }
        }
        running.stops |= heard.stops;
        heard.ready &= matches!(self.state, State::Starting(_));
        if heard.ready {
            self.proven = true;
            if let Some(running) = self.take(State::Ended) {
                self.state = State::Ready(running);
            }
        }
        heard
    }
}

struct Up {
    services: Vec<Service>,
    place: Place,
    /// Processes that drain: each ends with its last session.
    leaving: Vec<Leaving>,
    signals: Fd,
    manager: Notify,
    /// It was told to end, and kills what is left at this moment.
    ending: Option<Instant>,
    /// It was told by a terminal, or twice: what drains is to end too.
    all: bool,
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
            if self.ending.is_some()
                && self.services.iter().all(|s| s.running().is_none())
                && (self.leaving.is_empty() || !self.all)
            {
                return Ok(0);
            }
            self.wait()?;
            self.hear();
            self.take_signals()?;
            for index in 0..self.services.len() {
                if let Err(why) = self.look_for_death(index) {
                    return self.fail(why);
                }
            }
            self.look_for_leavers();
            if self.ending.is_some_and(|end| Instant::now() >= end) {
                for service in self.services.iter().filter(|s| s.running().is_some()) {
                    tracing::error!("{} does not end and is killed", service.role.name());
                    service.signal(signals::KILL);
                }
                for leaving in self.leaving.iter().filter(|_| self.all) {
                    let _ = process::signal(&leaving.running.pidfd, signals::KILL);
                }
                self.ending = Some(Instant::now() + FAREWELL);
            }
        }
    }

    fn hear(&mut self) {
        for index in 0..self.services.len() {
            let heard = self.services[index].hear(&self.manager);
            if heard.ready {
                self.say_ready(index);
            }
            let service = &mut self.services[index];
            // The others end at once. From a terminal all of them do.
            if heard.stops && service.role == Role::Proxy && !self.all {
                let next = match self.ending {
                    None => State::Pausing(Instant::now()),
                    Some(_) => State::Ended,
                };
                if let Some(running) = service.take(next) {
                    tracing::info!("{} drains", service.role.name());
                    self.leaving.push(Leaving {
                        role: service.role,
                        running,
                        until: Instant::now() + DRAINED,
                    });
                }
            }
        }
    }

    /// Takes note of processes that have drained, and kills those that do not end.
    fn look_for_leavers(&mut self) {
        let now = Instant::now();
        self.leaving.retain_mut(|leaving| {
            let name = leaving.role.name();
            let lives = matches!(process::wait(&leaving.running.pidfd, false), Ok(None));
            if !lives {
                tracing::info!("{name} has drained");
            } else if now >= leaving.until {
                tracing::error!(
                    "{name} drains for {} h and does not end: it is killed",
                    DRAINED.as_secs() / 3600
                );
                let _ = process::signal(&leaving.running.pidfd, signals::KILL);
                leaving.until = now + FAREWELL;
            }
            lives
        });
    }

    /// The first role that never ran, when those before it are ready; and those whose pause is over.
    fn start_what_is_due(&mut self) -> Result<(), String> {
        for service in &mut self.services {
            match &mut service.state {
                State::Pausing(until) if Instant::now() >= *until => {
                    tracing::info!("starting {} again", service.role.name());
                    // The others go on: what was missing (memory, processes) may be there in a moment.
                    if let Err(why) = service.start(&self.place) {
                        let pause = service.pause();
                        tracing::error!("{why}; it is tried again in {} ms", pause.as_millis());
                    }
                }
                State::Waiting => {
                    service.start(&self.place)?;
                    return Ok(());
                }
                State::Starting(running) if running.since.elapsed() >= START => {
                    let late = format!("{} is not ready after {} s", service.role.name(), START.as_secs());
                    if !service.proven {
                        return Err(format!("{late}; its log is above"));
                    }
                    tracing::error!("{late}: it is killed and started again");
                    let _ = process::signal(&running.pidfd, signals::KILL);
                    // Its death is taken note of like any other. Where the kernel holds it, it is killed again later.
                    running.since = Instant::now();
                }
                State::Starting(_) if !service.proven => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), String> {
        let mut watches = vec![Watch::new(self.signals.raw(), poll::READ)];
        for service in &self.services {
            if let Some(running) = service.running() {
                watches.push(Watch::new(running.socket.raw(), poll::READ));
                watches.push(Watch::new(running.pidfd.raw(), poll::READ));
            }
        }
        for leaving in &self.leaving {
            watches.push(Watch::new(leaving.running.pidfd.raw(), poll::READ));
        }
        let now = Instant::now();
        // Nothing is started any more while all of it ends.
        let starts = self.services.iter().filter(|_| self.ending.is_none());
        let due = starts.filter_map(|s| match &s.state {
            State::Pausing(until) => Some(*until),
            State::Starting(running) => Some(running.since + START),
            _ => None,
        });
        let drained = self.leaving.iter().map(|leaving| leaving.until);
        let next = due.chain(drained).chain(self.ending).min();
        let wait = |at: Instant| poll::milliseconds(at.saturating_duration_since(now));
        let timeout = next.map(|at| wait(at).saturating_add(1));
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
            self.all |= signal == signals::INT || !first;
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
        for leaving in self.leaving.iter().filter(|_| self.all) {
            let _ = process::signal(&leaving.running.pidfd, signals::INT);
        }
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
        // It says no more: what it said last is there.
        service.hear(&self.manager);
        let stops = service.running().is_some_and(|running| running.stops);
        let name = service.role.name();
        if ending {
            service.state = State::Ended;
            return Ok(());
        }
        if !service.proven {
            service.state = State::Ended;
            return Err(format!("{name} {how} before it was ready; its log is above"));
        }
        if stops && exit == Exit::Code(0) {
            tracing::info!("{name} has ended as it was told");
            service.state = State::Pausing(Instant::now());
            return Ok(());
        }
        if settled {
            service.pauses.worked();
        }
        let pause = service.pause();
        tracing::error!("{name} {how}; it is started again in {} ms", pause.as_millis());
        self.manager
            .say(&format!("STATUS={name} {how}; it is started again"));
        Ok(())
    }

    /// A first start that failed: what runs is ended, and the reason given.
    fn fail(&mut self, why: String) -> Outcome {
        self.end(signals::TERM);
        while self.services.iter().any(|s| s.running().is_some()) {
            self.wait()?;
            self.hear();
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

/// A process and what tells its end. One whose end nobody would hear of is not left behind.
fn watched(mut child: Child, open: impl FnOnce(i32) -> Result<Fd, Errno>) -> Result<(Child, Fd), Errno> {
    match open(child.id().cast_signed()) {
        Ok(pidfd) => Ok((child, pidfd)),
        Err(e) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(e)
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The pidfd has said that it ended; this reaps nothing twice and leaves no handle behind.
        let _ = self.child.try_wait();
    }
}

#[cfg(test)]
mod tests;
