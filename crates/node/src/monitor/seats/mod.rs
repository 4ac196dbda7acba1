//! The processes that the monitor executed: lobby, fronts, resolver, tunnel. Each has a control socket, a pidfd and a log
//! pipe. What they say is handed on unread; when one ends, whoever needs it is told once.

mod late;
mod log_pipe;
mod peer;
mod start;
#[cfg(test)]
mod tests;
mod words;

pub use late::{Late, open as open_ladder};
pub use peer::{Frame, Lost};
pub use start::{Executed, Images, Order, Process, Seat, Started, Starts};
pub use words::Words;

use super::timers::now;
use super::wakes::{Key, Owner, Wakes};
use fleetgate_seal::Death;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::{self, Exit, SIGKILL};
use fleetgate_sys::{Errno, Fd, epoll, file, socket};
use fleetgate_wire::Encode;
use fleetgate_wire::node::MAX_FRAME;
use log_pipe::{LogPipe, log_line};
use peer::Peer;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;

/// A process's number, given once.
pub type SeatId = u64;

/// All of them.
pub struct Seats {
    starts: Box<dyn Starts>,
    table: HashMap<SeatId, Sitting>,
    next: SeatId,
    /// With the moment of its exec.
    done: mpsc::Receiver<(SeatId, Duration, Started)>,
    done_sender: mpsc::Sender<(SeatId, Duration, Started)>,
    bell: std::sync::Arc<Fd>,
    /// Where frames are heard, and where they are made.
    buffer: Vec<u8>,
    room: Vec<u8>,
}

struct Sitting {
    seat: Seat,
    /// None: it is not spoken to any more, and only its end is waited for.
    peer: Option<Peer>,
    process: Option<Process>,
    log: Option<LogPipe>,
    /// When its start was asked for.
    since: Duration,
    /// Why it has to go, in words for the log.
    going: Option<String>,
    /// Nobody is to be told of its end.
    quiet: bool,
    /// It said something: whatever ends it now, its image works.
    spoke: bool,
}

/// What a turn brought.
pub enum News {
    /// A frame of this process.
    Heard(SeatId, Frame),
    /// This process (its number, 0 if there was none) ended, or could not be started.
    Gone(SeatId, Seat, i32, String),
}

/// The kinds of descriptors of one process, in the lowest bits of its keys' ids.
const CONTROL: u64 = 0;
const PROCESS: u64 = 1;
const LOG: u64 = 2;
/// Why it is ended that closed its socket, which the kernel does for one that died.
const CLOSED: &str = "it closed its socket";
/// The most frames taken from one process before others have their turn.
const PER_TURN: usize = 32;

impl Seats {
    /// Nobody sits yet.
    pub fn new(starts: Box<dyn Starts>, wakes: &Wakes) -> Result<Seats, Errno> {
        let bell = epoll::bell()?;
        wakes.watch(&bell, READ, Key::new(Owner::Starts, 0))?;
        let (done_sender, done) = mpsc::channel();
        Ok(Seats {
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
    pub fn start(&mut self, seat: Seat, wakes: &Wakes) -> Result<SeatId, Errno> {
        let (ours, theirs) = socket::pair()?;
        self.start_with(seat, Some(ours), theirs, wakes)
    }

    /// The resolver is spoken to by others: its socket stays with the caller.
    pub fn start_resolver(&mut self, wakes: &Wakes) -> Result<(SeatId, Fd), Errno> {
        let (ours, theirs) = socket::pair()?;
        Ok((self.start_with(Seat::Resolver, None, theirs, wakes)?, ours))
    }

    fn start_with(
        &mut self,
        seat: Seat,
        ours: Option<Fd>,
        theirs: Fd,
        wakes: &Wakes,
    ) -> Result<SeatId, Errno> {
        let (log, errors) = file::pipe()?;
        log.set_nonblocking(true)?;
        self.next += 1;
        let id = self.next;
        wakes.watch(&log, READ, key(id, LOG))?;
        let peer = ours
            .map(|ours| Peer::new(ours, key(id, CONTROL), wakes))
            .transpose()?;
        self.table.insert(
            id,
            Sitting {
                seat,
                peer,
                process: None,
                log: Some(LogPipe::new(log)),
                since: now(),
                going: None,
                quiet: false,
                spoke: false,
            },
        );
        let (sender, bell) = (self.done_sender.clone(), self.bell.clone());
        self.starts.start(Order {
            seat,
            control: theirs,
            log: errors,
            done: Box::new(move |started| {
                // A front that runs says so itself in a moment: one wake-up instead of two for each first login.
                let speaks = seat == Seat::Front && started.is_ok();
                let _ = sender.send((id, now(), started));
                if !speaks {
                    epoll::ring(&bell);
                }
            }),
        });
        Ok(id)
    }

    /// Says `word` to a process. One that is gone, or going, hears nothing.
    pub fn say(&mut self, id: SeatId, word: &impl Encode, fds: Vec<Fd>, wakes: &Wakes) {
        let Some(peer) = self.table.get_mut(&id).and_then(|s| s.peer.as_mut()) else {
            return;
        };
        if let Err(lost) = peer.say(word, fds, wakes, &mut self.room) {
            self.lose(id, lost);
        }
    }

    /// Ends a process; `why` is told with its end.
    pub fn end(&mut self, id: SeatId, why: &str) {
        if let Some(sitting) = self.table.get_mut(&id) {
            sitting.peer = None;
            sitting.going.get_or_insert_with(|| why.to_owned());
            if let Some(process) = &sitting.process {
                // It is gone already: its end is on its way.
                let _ = process::signal(&process.pidfd, SIGKILL);
            }
        }
    }

    /// Ends a process that nobody needs any more; nobody is told.
    pub fn dismiss(&mut self, id: SeatId) {
        self.end(id, "");
        if let Some(sitting) = self.table.get_mut(&id) {
            sitting.quiet = true;
        }
    }

    /// The bell for what was started.
    pub fn rung(&self) {
        epoll::quiet(&self.bell);
    }

    /// Takes up what was started. For every turn: the bell does not ring for all of them.
    pub fn started(&mut self, wakes: &Wakes, news: &mut Vec<News>) {
        while let Ok((id, at, started)) = self.done.try_recv() {
            let Some(sitting) = self.table.get_mut(&id) else {
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
                    if sitting.going.is_some() {
                        let _ = process::signal(&process.pidfd, SIGKILL);
                    }
                    sitting.process = Some(process);
                    if sitting.seat == Seat::Front {
                        let micros = at.saturating_sub(sitting.since).as_micros() as u64;
                        tracing::debug!(step = "front_start", micros, "timing");
                    }
                }
                Err(why) => self.remove(id, format!("it could not be started: {why}"), news),
            }
        }
    }

    /// A process stands in its sandbox.
    pub fn ready(&self, id: SeatId) {
        if let Some(sitting) = self.table.get(&id) {
            let micros = now().saturating_sub(sitting.since).as_micros() as u64;
            tracing::debug!(step = "front_ready", micros, "timing");
        }
    }

    /// A descriptor of a process has news.
    pub fn woken(&mut self, id: u64, wakes: &Wakes, news: &mut Vec<News>) {
        let (id, which) = (id >> 2, id & 3);
        let Some(sitting) = self.table.get_mut(&id) else {
            return;
        };
        match which {
            CONTROL => self.listen(id, wakes, news),
            PROCESS => self.ended(id, wakes, news),
            _ => {
                let name = sitting.seat.name();
                let pid = sitting.process.as_ref().map_or(0, |p| p.pid);
                let more = sitting
                    .log
                    .as_mut()
                    .is_some_and(|log| log.read(|line| log_line(name, pid, line)));
                if !more {
                    sitting.log = None;
                }
            }
        }
    }

    /// Whether this process is there, and not going.
    pub fn is_there(&self, id: SeatId) -> bool {
        self.table.get(&id).is_some_and(|s| s.going.is_none())
    }

    /// Whether this process was executed.
    pub fn runs(&self, id: SeatId) -> bool {
        self.table.get(&id).is_some_and(|s| s.process.is_some())
    }

    fn listen(&mut self, id: SeatId, wakes: &Wakes, news: &mut Vec<News>) {
        let Some(sitting) = self.table.get_mut(&id) else {
            return;
        };
        let Some(peer) = &mut sitting.peer else { return };
        let mut lost = peer.flush(wakes).err();
        for _ in 0..PER_TURN {
            match peer.hear(&mut self.buffer) {
                Ok(Some(frame)) => {
                    sitting.spoke = true;
                    news.push(News::Heard(id, frame));
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

    fn lose(&mut self, id: SeatId, lost: Lost) {
        self.end(
            id,
            match lost {
                Lost::Closed => CLOSED,
                Lost::Deaf => "it does not read what it is told",
                Lost::Garbage => "it sent what is no frame",
            },
        );
    }

    /// Its process ended: what it said before counts.
    fn ended(&mut self, id: SeatId, wakes: &Wakes, news: &mut Vec<News>) {
        self.listen(id, wakes, news);
        let Some(sitting) = self.table.get_mut(&id) else {
            return;
        };
        let exit = sitting
            .process
            .as_ref()
            .and_then(|p| process::wait(&p.pidfd, false).ok().flatten());
        // One that we did not end and that never spoke may have died of its image. A resolver speaks to others: each of
        // its deaths is looked into.
        if !sitting.spoke
            && sitting.going.as_deref().is_none_or(|why| why == CLOSED)
            && let Some(image) = sitting.process.as_mut().and_then(|p| p.image.take())
            && let Some(exit) = exit
        {
            let lived = now().saturating_sub(sitting.since);
            let death = match exit {
                Exit::Code(code) => Death::Exited { code, lived },
                Exit::Signal { number, .. } => Death::Killed {
                    signal: number,
                    lived,
                },
            };
            self.starts.died_early(sitting.seat, image, death);
        }
        let how = match (&sitting.going, exit) {
            (Some(why), _) if why != CLOSED => why.clone(),
            (_, Some(Exit::Code(code))) => format!("it ended with code {code}"),
            (_, Some(Exit::Signal { number, .. })) => format!("it was ended by signal {number}"),
            (_, None) => "it ended".to_owned(),
        };
        self.remove(id, how, news);
    }

    fn remove(&mut self, id: SeatId, how: String, news: &mut Vec<News>) {
        if let Some(mut sitting) = self.table.remove(&id) {
            let name = sitting.seat.name();
            let pid = sitting.process.as_ref().map_or(0, |p| p.pid);
            if let Some(log) = &mut sitting.log {
                log.read(|line| log_line(name, pid, line));
            }
            if !sitting.quiet {
                news.push(News::Gone(id, sitting.seat, pid, how));
            }
        }
    }
}

const fn key(id: SeatId, which: u64) -> Key {
    Key::new(Owner::Seats, id << 2 | which)
}
