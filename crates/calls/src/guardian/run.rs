//! The guardian itself. One thread, which waits for its tracers, its door, and the listeners that no tracer has.

use super::{DOOR, SOCKET, WITH_DOOR};
use fleetgate_sys::poll::{CLOSED, READ, Watch, poll};
use fleetgate_sys::process::Limit;
use fleetgate_sys::process::numbers::{
    RLIMIT_NOFILE, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
};
use fleetgate_sys::seccomp::Waiting;
use fleetgate_sys::{Errno, Fd, clock, credentials, exec, net, pages, process, seccomp, slots, socket};
use fleetgate_wire::guard::{Gap, Kept, MAX_LISTENERS, MAX_REQUEST, MAX_TRACERS, Refusal, Reply, Request};
use fleetgate_wire::{decode, encode};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// A program's main function where its name is [`super::NAME`]: the guardian of the tracer at descriptor 3. It ends when it
/// has neither tracers nor listeners.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    let door = match args {
        [] => None,
        [only] if only.as_bytes() == WITH_DOOR.to_bytes() => Some(Fd::from_raw(DOOR)),
        _ => return 2,
    };
    withdraw();
    let mut run = Run::new(Fd::from_raw(SOCKET), door);
    while run.has_work() {
        run.turn();
    }
    0
}

/// Away from the terminal, from signals that are meant for the tracer, and from memory that was needed to start.
fn withdraw() {
    let _ = exec::new_session();
    let _ = credentials::set_dumpable(false);
    let _ = exec::change_directory(c"/");
    for signal in [SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        let _ = process::ignore_signal(signal);
    }
    // Two for each listener.
    if let Ok(limit) = process::limit(RLIMIT_NOFILE) {
        let soft = limit.hard;
        let _ = process::set_limit(RLIMIT_NOFILE, Limit { soft, ..limit });
    }
    if let Ok(program) = pages::Program::find() {
        let _ = program.release();
    }
}

/// Whoever answers as long as it lives.
struct Tracer {
    /// Names it.
    key: u64,
    socket: Fd,
    /// It is told of by [`Request::Here`].
    process: Option<Fd>,
    gone: bool,
}

struct Listener {
    id: u64,
    listener: Fd,
    slots: Fd,
    /// The call that is not let go on.
    refuse: Option<u32>,
    /// The tracer's key; none: the guardian answers.
    by: Option<u64>,
    gap: Option<Gap>,
    over: bool,
}

struct Run {
    tracers: Vec<Tracer>,
    door: Option<Fd>,
    listeners: Vec<Listener>,
    next_key: u64,
}

impl Run {
    fn new(socket: Fd, door: Option<Fd>) -> Run {
        let mut run = Run {
            tracers: Vec::new(),
            door,
            listeners: Vec::new(),
            next_key: 0,
        };
        run.connect(socket);
        run
    }

    fn connect(&mut self, socket: Fd) {
        let key = self.next_key;
        self.next_key += 1;
        self.tracers.push(Tracer {
            key,
            socket,
            process: None,
            gone: false,
        });
    }

    fn has_work(&self) -> bool {
        !self.tracers.is_empty() || !self.listeners.is_empty()
    }

    /// Waits, and does what there is to do. Listeners of a tracer that lives are not waited for: they wake nobody here.
    fn turn(&mut self) {
        let mut watches = Vec::with_capacity(2 * self.tracers.len() + self.listeners.len() + 1);
        for listener in &self.listeners {
            let fd = if listener.by.is_none() {
                listener.listener.raw()
            } else {
                -1
            };
            watches.push(Watch::new(fd, READ));
        }
        for tracer in &self.tracers {
            watches.push(Watch::new(tracer.socket.raw(), READ));
            watches.push(Watch::new(tracer.process.as_ref().map_or(-1, Fd::raw), READ));
        }
        let room = self.tracers.len() < MAX_TRACERS;
        watches.push(Watch::new(
            self.door.as_ref().filter(|_| room).map_or(-1, Fd::raw),
            READ,
        ));
        if poll(&mut watches, None).is_err() {
            // No memory for the wait: there is nothing better to do than to try again.
            clock::pause(10_000_000);
            return;
        }
        let (listeners, rest) = watches.split_at(self.listeners.len());
        for (listener, watch) in self.listeners.iter_mut().zip(listeners) {
            listener.serve(watch.happened());
        }
        let spoke: Vec<bool> = rest
            .chunks(2)
            .map(|pair| pair.iter().any(|w| w.happened() != 0))
            .collect();
        for (at, _) in spoke.iter().enumerate().filter(|(_, spoke)| **spoke) {
            match at < self.tracers.len() {
                true => self.hear(at),
                false => self.let_in(),
            }
        }
        self.clear();
    }

    /// What a tracer says, to its end where it is gone.
    fn hear(&mut self, at: usize) {
        let mut room = [0; MAX_REQUEST];
        loop {
            let tracer = &self.tracers[at];
            let heard = match socket::receive(&tracer.socket, &mut room, false) {
                Ok(got) if got.len > 0 && !got.truncated => {
                    decode(&room[..got.len]).ok().map(|r| (r, got.fds))
                }
                Err(Errno::EAGAIN) => break,
                _ => None,
            };
            if heard.is_none_or(|(request, fds)| self.take(at, &request, fds).is_none()) {
                self.tracers[at].gone = true;
                return;
            }
        }
        let mut ended = [Watch::new(
            self.tracers[at].process.as_ref().map_or(-1, Fd::raw),
            READ,
        )];
        let _ = poll(&mut ended, Some(0));
        self.tracers[at].gone = ended[0].happened() != 0;
    }

    /// Hears to their end those that have died, but for the one that is being heard, and takes over from them.
    fn look_for_dead(&mut self, but: usize) {
        for at in (0..self.tracers.len()).filter(|at| *at != but) {
            let Some(process) = &self.tracers[at].process else {
                continue;
            };
            let mut ended = [Watch::new(process.raw(), READ)];
            if poll(&mut ended, Some(0)) == Ok(1) && !self.tracers[at].gone {
                self.hear(at);
                self.tracers[at].gone = true;
                let key = self.tracers[at].key;
                let theirs = self.listeners.iter_mut().filter(|l| l.by == Some(key));
                theirs.for_each(Listener::abandon);
            }
        }
    }

    /// Does as a tracer says. None: it does not keep to what was agreed, or cannot be answered.
    fn take(&mut self, at: usize, request: &Request, mut fds: Vec<Fd>) -> Option<()> {
        let awaited = match request {
            Request::Here | Request::Tracer => 1,
            Request::Keep { .. } => 2,
            _ => 0,
        };
        if fds.len() != awaited {
            return None;
        }
        let key = self.tracers[at].key;
        match *request {
            Request::Here => self.tracers[at].process = fds.pop(),
            Request::Tracer if self.tracers.len() == MAX_TRACERS => return None,
            Request::Tracer => self.connect(fds.pop()?),
            Request::Keep { id, refuse } => {
                let (slots, listener) = (fds.pop()?, fds.pop()?);
                match self.listeners.iter().position(|l| l.id == id) {
                    Some(found) if self.listeners[found].by == Some(key) => {
                        self.listeners.remove(found);
                    }
                    Some(_) => return None,
                    None if self.listeners.len() == MAX_LISTENERS => return None,
                    None => {}
                }
                self.listeners.push(Listener {
                    id,
                    listener,
                    slots,
                    refuse,
                    by: Some(key),
                    gap: None,
                    over: false,
                });
            }
            Request::Answer { id } => {
                let mut own = self.listeners.iter_mut();
                own.find(|l| l.id == id && l.by == Some(key))?.abandon();
            }
            Request::Forget { id } => {
                let found = self.listeners.iter_mut().find(|l| l.id == id);
                let reply = match found {
                    None => refusal(Refusal::Unknown),
                    Some(l) if l.by.is_some_and(|by| by != key) => refusal(Refusal::Taken),
                    Some(l) => {
                        l.over = true;
                        Reply::Forgotten { kept: l.kept() }
                    }
                };
                self.reply(at, &reply, &[])?;
            }
            Request::List => {
                let kept = self.listeners.iter().map(Listener::kept).collect();
                self.reply(at, &Reply::List { kept }, &[])?;
            }
            Request::Take { id } => {
                // Who asks may have seen a tracer end that nobody here has looked at yet.
                self.look_for_dead(at);
                let found = self.listeners.iter_mut().find(|l| l.id == id && !l.over);
                let (reply, fds) = match found {
                    None => (refusal(Refusal::Unknown), vec![]),
                    Some(l) if l.by.is_some() => (refusal(Refusal::Taken), vec![]),
                    Some(l) => {
                        l.by = Some(key);
                        if let Some(gap) = &mut l.gap {
                            gap.until = Some(now());
                        }
                        (
                            Reply::Yours { kept: l.kept() },
                            vec![l.listener.raw(), l.slots.raw()],
                        )
                    }
                };
                self.reply(at, &reply, &fds)?;
            }
        }
        Some(())
    }

    /// A tracer that does not read its answers is let go rather than waited for.
    fn reply(&self, at: usize, reply: &Reply, fds: &[i32]) -> Option<()> {
        socket::send_now(&self.tracers[at].socket, &encode(reply), fds).ok()
    }

    fn let_in(&mut self) {
        let Some(Ok((socket, _))) = self.door.as_ref().map(net::accept_any) else {
            return;
        };
        if socket::peer_user(&socket).is_ok_and(|user| user == 0 || user == process::effective_uid()) {
            self.connect(socket);
        }
    }

    /// Takes over from tracers that are gone, and closes what is over.
    fn clear(&mut self) {
        for tracer in self.tracers.iter().filter(|t| t.gone) {
            let theirs = self.listeners.iter_mut().filter(|l| l.by == Some(tracer.key));
            theirs.for_each(Listener::abandon);
        }
        self.tracers.retain(|t| !t.gone);
        self.listeners.retain(|l| !l.over);
    }
}

impl Listener {
    /// Its tracer is gone: what that one had received has to be answered by its id, since nobody is told of it again.
    fn abandon(&mut self) {
        self.by = None;
        let mut gap = Gap {
            since: now(),
            until: None,
            left: 0,
            unseen: 0,
        };
        for call in slots::left(&self.slots).unwrap_or_default() {
            gap.left += u64::from(self.answer(&call));
        }
        self.gap = Some(gap);
    }

    /// Lets the next call go on.
    fn serve(&mut self, happened: i16) {
        if happened & READ != 0 {
            match seccomp::receive(&self.listener) {
                Ok(Some(call)) => {
                    let allowed = self.answer(&call);
                    if let Some(gap) = &mut self.gap {
                        gap.unseen += u64::from(allowed);
                    }
                }
                Ok(None) | Err(Errno::EINTR) => {}
                // It is no listener: there is nothing to answer.
                Err(_) => self.over = true,
            }
        } else if happened & CLOSED != 0 {
            self.over = true;
        }
    }

    /// False: its caller is gone, or it was answered.
    fn answer(&self, call: &Waiting) -> bool {
        let answered = match self.refuse {
            Some(refuse) if call.call == i64::from(refuse) => {
                seccomp::refuse(&self.listener, call, Errno::EPERM)
            }
            _ => seccomp::allow(&self.listener, call),
        };
        answered.is_ok()
    }

    fn kept(&self) -> Kept {
        Kept {
            id: self.id,
            gap: self.gap.clone(),
        }
    }
}

fn refusal(why: Refusal) -> Reply {
    Reply::Refused { why }
}

fn now() -> u64 {
    clock::boot().as_nanos().unsigned_abs()
}
