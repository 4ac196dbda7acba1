//! The processes that the monitor executed: the workers (lobby, fronts, tunnel, watcher, guardian), and the resolver, which is
//! started the same way. Each has a control socket, a pidfd and a log
//! pipe. What they say is handed on unread; when one ends, whoever needs it is told once.

mod messages;
#[cfg(test)]
mod tests;
mod worker_socket;

pub use fleetgate_launch::workers::{
    Executor, Images, Process, StartOrder, Started, WorkerKind, WorkerStarter,
};
pub use messages::Messages;
pub use worker_socket::{Frame, LossReason};

use super::timers::{micros, now};
use super::wakes::{Key, Owner, Wakes};
use fleetgate_launch::workers::log_pipe::{LogPipe, log_line};
use fleetgate_seal::Death;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::{self, Exit, SIGKILL};
use fleetgate_sys::{Errno, Fd, epoll, file, socket};
use fleetgate_wire::Encode;
use fleetgate_wire::node::MAX_FRAME;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;
use worker_socket::WorkerSocket;

/// A process's number, given once.
pub type WorkerId = u64;

/// All of them.
pub struct Workers {
    starts: Box<dyn WorkerStarter>,
    table: HashMap<WorkerId, WorkerEntry>,
    next: WorkerId,
    /// With the moment of its exec.
    done: mpsc::Receiver<(WorkerId, Duration, Started)>,
    done_sender: mpsc::Sender<(WorkerId, Duration, Started)>,
    bell: std::sync::Arc<Fd>,
    /// Where frames are heard, and where they are made.
    buffer: Vec<u8>,
    room: Vec<u8>,
}

struct WorkerEntry {
    kind: WorkerKind,
    /// None: it is not spoken to any more, and only its end is waited for.
    socket: Option<WorkerSocket>,
    process: Option<Process>,
    log: Option<LogPipe>,
    /// When its start was asked for.
    since: Duration,
    /// Why it has to go, as a text for the log.
    going: Option<String>,
    /// Nobody is to be told of its end.
    quiet: bool,
    /// It said something: whatever ends it now, its image works.
    spoke: bool,
}

/// What a turn brought.
pub enum WorkerEvent {
    /// A frame of this process.
    Heard(WorkerId, Frame),
    /// This process (its number, 0 if there was none) ended, or could not be started.
    Gone(WorkerId, WorkerKind, i32, String),
}

/// The kinds of descriptors of one process, in the lowest bits of its keys' ids.
const CONTROL: u64 = 0;
const PROCESS: u64 = 1;
const LOG: u64 = 2;
/// Why it is ended that closed its socket, which the kernel does for one that died.
const CLOSED: &str = "it closed its socket";
/// The most frames taken from one process before others have their turn.
const PER_TURN: usize = 32;

impl Workers {
    /// There are none yet.
    pub fn new(starts: Box<dyn WorkerStarter>, wakes: &Wakes) -> Result<Workers, Errno> {
        let bell = epoll::bell()?;
        wakes.watch(&bell, READ, Key::new(Owner::StartedWorkers, 0))?;
        let (done_sender, done) = mpsc::channel();
        Ok(Workers {
            starts,
            table: HashMap::new(),
            next: 0,
            done,
            done_sender,
            bell: bell.into(),
            buffer: vec![0; MAX_FRAME],
            room: Vec::with_capacity(MAX_FRAME + 8 * 1024),
        })
    }

    /// Starts a process. It may be spoken to at once: what it is told waits in its socket.
    pub fn start(&mut self, kind: WorkerKind, wakes: &Wakes) -> Result<WorkerId, Errno> {
        let (ours, theirs) = socket::pair()?;
        self.start_with(kind, Some(ours), theirs, wakes)
    }

    /// The resolver is spoken to by others: its socket stays with the caller.
    pub fn start_resolver(&mut self, wakes: &Wakes) -> Result<(WorkerId, Fd), Errno> {
        let (ours, theirs) = socket::pair()?;
        Ok((self.start_with(WorkerKind::Resolver, None, theirs, wakes)?, ours))
    }

    fn start_with(
        &mut self,
        kind: WorkerKind,
        ours: Option<Fd>,
        theirs: Fd,
        wakes: &Wakes,
    ) -> Result<WorkerId, Errno> {
        let (log, errors) = file::pipe()?;
        log.set_nonblocking(true)?;
        self.next += 1;
        let id = self.next;
        wakes.watch(&log, READ, key(id, LOG))?;
        let socket = ours
            .map(|ours| WorkerSocket::new(ours, key(id, CONTROL), wakes))
            .transpose()?;
        self.table.insert(
            id,
            WorkerEntry {
                kind,
                socket,
                process: None,
                log: Some(LogPipe::new(log)),
                since: now(),
                going: None,
                quiet: false,
                spoke: false,
            },
        );
        let (sender, bell) = (self.done_sender.clone(), self.bell.clone());
        self.starts.start(StartOrder {
            kind,
            control: theirs,
            log: errors,
            done: Box::new(move |started| {
                // A front that runs says so itself in a moment: one wake-up instead of two for each first login.
                let speaks = kind == WorkerKind::Front && started.is_ok();
                let _ = sender.send((id, now(), started));
                if !speaks {
                    epoll::ring(&bell);
                }
            }),
        });
        Ok(id)
    }

    /// Says `message` to a process. One that is gone, or going, hears nothing.
    pub fn say(&mut self, id: WorkerId, message: &impl Encode, fds: Vec<Fd>, wakes: &Wakes) {
        let Some(socket) = self.table.get_mut(&id).and_then(|s| s.socket.as_mut()) else {
            return;
        };
        if let Err(lost) = socket.say(message, fds, wakes, &mut self.room) {
            self.lose(id, lost);
        }
    }

    /// Ends a process; `why` is told with its end.
    pub fn end(&mut self, id: WorkerId, why: &str) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.socket = None;
            entry.going.get_or_insert_with(|| why.to_owned());
            if let Some(process) = &entry.process {
                // It is gone already: its end is on its way.
                let _ = process::signal(&process.pidfd, SIGKILL);
            }
        }
    }

    /// Ends a process that nobody needs any more; nobody is told.
    pub fn dismiss(&mut self, id: WorkerId) {
        self.end(id, "");
        if let Some(entry) = self.table.get_mut(&id) {
            entry.quiet = true;
        }
    }

    /// The bell for what was started.
    pub fn rung(&self) {
        epoll::quiet(&self.bell);
    }

    /// Takes up what was started. For every turn: the bell does not ring for all of them.
    pub fn started(&mut self, wakes: &Wakes, news: &mut Vec<WorkerEvent>) {
        while let Ok((id, at, started)) = self.done.try_recv() {
            let Some(entry) = self.table.get_mut(&id) else {
                continue;
            };
            let watched = started.and_then(|process| {
                wakes
                    .watch(&process.pidfd, READ, key(id, PROCESS))
                    .map_err(|e| format!("its pidfd cannot be watched: {e}"))?;
                Ok(process)
            });
            match watched {
                Ok(process) => {
                    if entry.going.is_some() {
                        let _ = process::signal(&process.pidfd, SIGKILL);
                    }
                    entry.process = Some(process);
                    if entry.kind == WorkerKind::Front {
                        let micros = micros(at.saturating_sub(entry.since));
                        tracing::debug!(step = "front_start", micros, "timing");
                    }
                }
                Err(why) => self.remove(id, format!("it could not be started: {why}"), news),
            }
        }
    }

    /// A process stands in its sandbox.
    pub fn ready(&self, id: WorkerId) {
        if let Some(entry) = self.table.get(&id) {
            let micros = micros(now().saturating_sub(entry.since));
            tracing::debug!(step = "front_ready", micros, "timing");
        }
    }

    /// A descriptor of a process has news.
    pub fn woken(&mut self, id: u64, wakes: &Wakes, news: &mut Vec<WorkerEvent>) {
        let (id, which) = (id >> 2, id & 3);
        let Some(entry) = self.table.get_mut(&id) else {
            return;
        };
        match which {
            CONTROL => self.listen(id, wakes, news),
            PROCESS => self.ended(id, wakes, news),
            _ => {
                let name = entry.kind.name();
                let pid = entry.process.as_ref().map_or(0, |p| p.pid);
                let more = entry
                    .log
                    .as_mut()
                    .is_some_and(|log| log.read(|line| log_line(name, pid, line)));
                if !more {
                    entry.log = None;
                }
            }
        }
    }

    /// Whether this process is there, and not going.
    pub fn is_there(&self, id: WorkerId) -> bool {
        self.table.get(&id).is_some_and(|s| s.going.is_none())
    }

    /// Whether this process was executed.
    pub fn runs(&self, id: WorkerId) -> bool {
        self.table.get(&id).is_some_and(|s| s.process.is_some())
    }

    fn listen(&mut self, id: WorkerId, wakes: &Wakes, news: &mut Vec<WorkerEvent>) {
        let Some(entry) = self.table.get_mut(&id) else {
            return;
        };
        let Some(socket) = &mut entry.socket else { return };
        let mut lost = socket.flush(wakes).err();
        for _ in 0..PER_TURN {
            match socket.hear(&mut self.buffer) {
                Ok(Some(frame)) => {
                    entry.spoke = true;
                    news.push(WorkerEvent::Heard(id, frame));
                }
                Ok(None) => break,
                Err(e) => {
                    lost = Some(e);
                    break;
                }
            }
        }
        if let Some(lost) = lost {
            self.lose(id, lost);
        }
    }

    fn lose(&mut self, id: WorkerId, lost: LossReason) {
        self.end(
            id,
            match lost {
                LossReason::Closed => CLOSED,
                LossReason::Deaf => "it does not read what it is told",
                LossReason::Garbage => "it sent what is no frame",
            },
        );
    }

    /// Its process ended: what it said before counts.
    fn ended(&mut self, id: WorkerId, wakes: &Wakes, news: &mut Vec<WorkerEvent>) {
        self.listen(id, wakes, news);
        let Some(entry) = self.table.get_mut(&id) else {
            return;
        };
        let exit = entry
            .process
            .as_ref()
            .and_then(|p| process::wait(&p.pidfd, false).ok().flatten());
        // One that we did not end and that never spoke may have died of its image. A resolver speaks to others: each of
        // its deaths is looked into.
        if !entry.spoke
            && entry.going.as_deref().is_none_or(|why| why == CLOSED)
            && let Some(image) = entry.process.as_mut().and_then(|p| p.image.take())
            && let Some(exit) = exit
        {
            let lived = now().saturating_sub(entry.since);
            let death = match exit {
                Exit::Code(code) => Death::Exited { code, lived },
                Exit::Signal { number, .. } => Death::Killed {
                    signal: number,
                    lived,
                },
            };
            self.starts.died_early(entry.kind, image, death);
        }
        let how = match (&entry.going, exit) {
            (Some(why), _) if why != CLOSED => why.clone(),
            (_, Some(Exit::Code(code))) => format!("it ended with code {code}"),
            (_, Some(Exit::Signal { number, .. })) => format!("it was ended by signal {number}"),
            (_, None) => "it ended".to_owned(),
        };
        self.remove(id, how, news);
    }

    fn remove(&mut self, id: WorkerId, how: String, news: &mut Vec<WorkerEvent>) {
        if let Some(mut entry) = self.table.remove(&id) {
            let name = entry.kind.name();
            let pid = entry.process.as_ref().map_or(0, |p| p.pid);
            if let Some(log) = &mut entry.log {
                log.read(|line| log_line(name, pid, line));
            }
            if !entry.quiet {
                news.push(WorkerEvent::Gone(id, entry.kind, pid, how));
            }
        }
    }
}

const fn key(id: WorkerId, which: u64) -> Key {
    Key::new(Owner::Workers, id << 2 | which)
}
