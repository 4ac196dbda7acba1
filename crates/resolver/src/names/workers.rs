//! Processes that look names up, one question at a time. A name service that hangs hangs its worker, and nobody else.

use super::{MS, Nanos, failed, lookup};
use fleetgate_sys::glibc::fork::{self, ForkSide};
use fleetgate_sys::pages::Program;
use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::{Fd, process, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::names::{Answer, Found, Question};

/// The most workers at once.
pub const MAX_WORKERS: usize = 16;
/// An idle worker beyond the first ends after this.
const REST: Nanos = 30_000 * MS;
/// A worker that is not asked for so long gives back the pages of its code, which the kernel still has.
const QUIET_MS: u32 = 2000;
/// Where a worker finds its socket.
const SOCKET: i32 = 3;

struct Worker {
    socket: Fd,
    pidfd: Fd,
    state: State,
    /// It has read files that are no longer so: its current question is its last.
    retired: bool,
}

enum State {
    Busy(u32),
    Idle(Nanos),
}

/// All of them.
pub struct Workers {
    list: Vec<Worker>,
    selinux_required: bool,
}

impl Workers {
    /// None yet; the first question starts the first.
    pub fn new(selinux_required: bool) -> Workers {
        Workers {
            list: Vec::new(),
            selinux_required,
        }
    }

    /// Adds what is to be waited for.
    pub fn watch(&self, watches: &mut Vec<Watch>) {
        watches.extend(self.list.iter().map(|w| Watch::new(w.socket.raw(), READ)));
    }

    /// When an idle worker may end.
    pub fn due(&self) -> Option<Nanos> {
        let mut idle: Vec<Nanos> = self.list.iter().filter_map(Worker::idle_since).collect();
        idle.sort_unstable();
        (idle.len() > 1).then(|| idle[0] + REST)
    }

    /// Answers that came, and a failure for each worker that died over its question.
    pub fn collect(&mut self, ready: &[Watch], now: Nanos) -> Vec<(u32, Found)> {
        let mut out = Vec::new();
        let mut buffer = Vec::new();
        self.list.retain_mut(|worker| {
            let news = ready.iter().find(|w| w.fd() == worker.socket.raw());
            if news.is_none_or(|w| w.happened() == 0) {
                return true;
            }
            buffer.resize(MAX_INLINE, 0);
            let answer = match socket::receive(&worker.socket, &mut buffer, false) {
                Ok(m) if m.len > 0 && !m.truncated => fleetgate_wire::decode::<Answer>(&buffer[..m.len]).ok(),
                _ => None,
            };
            match (answer, &worker.state) {
                (Some(answer), State::Busy(number)) if answer.id == *number => {
                    out.push((*number, answer.found));
                    worker.state = State::Idle(now);
                    !worker.retired
                }
                (_, state) => {
                    if let State::Busy(number) = state {
                        out.push((*number, failed("a module of the name service ended its process")));
                    }
                    worker.kill();
                    false
                }
            }
        });
        out
    }

    /// Whether one more question can be given out.
    pub fn has_room(&self) -> bool {
        self.list.len() < MAX_WORKERS || self.list.iter().any(|w| w.idle_since().is_some())
    }

    /// Gives `question` to an idle worker, or a new one.
    pub fn give(&mut self, question: &Question) -> fleetgate_sys::Result<()> {
        let at = match self.list.iter().position(|w| w.idle_since().is_some()) {
            Some(at) => at,
            None => {
                self.list.push(start(self.selinux_required)?);
                self.list.len() - 1
            }
        };
        let worker = &mut self.list[at];
        // It has answered everything before, so its socket is empty and this does not wait.
        match socket::send(&worker.socket, &fleetgate_wire::encode(question), &[]) {
            Ok(()) => {
                worker.state = State::Busy(question.id);
                Ok(())
            }
            Err(e) => {
                self.list.remove(at).kill();
                Err(e)
            }
        }
    }

    /// Kills the worker that is at question `number`.
    pub fn kill(&mut self, number: u32) {
        self.list.retain(|worker| {
            let it = matches!(worker.state, State::Busy(n) if n == number);
            if it {
                worker.kill();
            }
            !it
        });
    }

    /// The files that workers have read are no longer so.
    pub fn retire(&mut self) {
        self.list.retain_mut(|worker| {
            worker.retired = true;
            worker.idle_since().is_none()
        });
    }

    /// Ends workers that have had nothing to do, but one.
    pub fn rest(&mut self, now: Nanos) {
        while let Some(due) = self.due()
            && due <= now
        {
            let since = due - REST;
            self.list.retain(|w| w.idle_since() != Some(since));
        }
    }
}

impl Worker {
    fn idle_since(&self) -> Option<Nanos> {
        match self.state {
            State::Idle(since) => Some(since),
            State::Busy(_) => None,
        }
    }

    fn kill(&self) {
        // It may be gone already.
        let _ = process::signal(&self.pidfd, process::SIGKILL);
    }
}

fn start(selinux_required: bool) -> fleetgate_sys::Result<Worker> {
    let (ours, theirs) = socket::pair()?;
    match fork::fork()? {
        ForkSide::Parent(pid) => Ok(Worker {
            socket: ours,
            // Reaped by the kernel when it ends: should it have ended already, this fails and nothing is lost.
            pidfd: process::pidfd_open(pid)?,
            state: State::Idle(0),
            retired: false,
        }),
        ForkSide::Child => {
            let code = match crate::child::become_child(theirs, SOCKET, c"fleetgate-names") {
                Ok(socket) => work(&socket, selinux_required),
                Err(_) => 1,
            };
            process::exit(code)
        }
    }
}

/// A worker's life: until the broker closes its end.
fn work(socket: &Fd, selinux_required: bool) -> i32 {
    if fork::die_with_parent().is_err() {
        return 1;
    }
    let mut buffer = vec![0u8; MAX_INLINE];
    loop {
        let mut watch = [Watch::new(socket.raw(), READ)];
        if matches!(poll::poll(&mut watch, Some(QUIET_MS)), Ok(0)) {
            // Where the kernel refuses, they stay.
            let _ = Program::find().and_then(|program| program.release());
        }
        let question = match socket::receive(socket, &mut buffer, true) {
            Ok(m) if m.len > 0 => fleetgate_wire::decode::<Question>(&buffer[..m.len]),
            _ => return 0,
        };
        let Ok(question) = question else { return 1 };
        let answer = Answer {
            id: question.id,
            found: lookup::look_up(&question.about, selinux_required),
        };
        let mut frame = fleetgate_wire::encode(&answer);
        if frame.len() > MAX_INLINE {
            frame = fleetgate_wire::encode(&Answer {
                id: question.id,
                found: failed("the entry is longer than an answer may be"),
            });
        }
        if socket::send(socket, &frame, &[]).is_err() {
            return 0;
        }
    }
}
