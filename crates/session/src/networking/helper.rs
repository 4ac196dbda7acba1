//! The loop: one poll over the launching side, the resolver, connects under way and kept listeners.
//!
//! A turn costs one ppoll and one clock_gettime, and serves at most one request, one answer of the resolver and
//! one connection per listener, so that none of them keeps the others waiting. It never spins: whatever cannot go
//! on and has no event of its own waits for a moment that the poll knows.

use super::connecting::{ConnectAttempt, Progress};
use super::listening::Listener;
use super::names::{Lookup, Names, News};
use super::outbox::{ControlClosed, Outbox};
use super::refusal;
use super::unix::{SocketPath, UnixConnectAttempt};
use alloc::format;
use alloc::vec::Vec;
use fleetgate_sys::net::Address;
use fleetgate_sys::poll::{self, READ, WRITE, Watch};
use fleetgate_sys::{Errno, Fd, clock, net};
use fleetgate_wire::Failure;
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::names::Found;
use fleetgate_wire::net::{Done, HELPER};

/// Why the helper ends.
pub enum End {
    /// It was told to, or nobody is there any more.
    Stopped,
    /// The other side sent what is no request; it was told so.
    Refused,
}

impl From<ControlClosed> for End {
    fn from(_: ControlClosed) -> End {
        End::Stopped
    }
}

/// All that one helper holds.
pub struct Helper {
    pub(super) control: Fd,
    pub(super) names: Names,
    outbox: Outbox,
    /// Requests without an answer, at most `max_pending`.
    pub(super) pending: Vec<PendingRequest>,
    /// What lives until cancelled, at most `MAX_KEPT_SOCKETS`.
    pub(super) kept: Vec<Resource>,
    pub(super) max_pending: usize,
    accept_again: i64,
}

/// A request without an answer.
pub struct PendingRequest {
    pub(super) id: u32,
    pub(super) stage: Stage,
}

/// What it waits for.
pub enum Stage {
    /// A name.
    NameLookup(Lookup, AddressUse),
    /// A TCP connection.
    TcpConnect(ConnectAttempt),
    /// Room in a unix-domain listener's queue.
    UnixConnect(UnixConnectAttempt),
}

/// What to do with a name's addresses.
#[derive(Clone, Copy)]
pub enum AddressUse {
    /// Connect to one of them.
    Connect,
    /// Bind to all of them.
    Bind,
    /// Listen on all of them.
    Listen { backlog: i32 },
    /// Listen, and keep the sockets.
    Accept { backlog: i32 },
}

/// Something that lives until it is cancelled or the helper ends.
pub struct Resource {
    pub(super) id: u32,
    pub(super) what: ResourceKind,
}

/// What is kept.
pub enum ResourceKind {
    /// Sockets whose connections are handed over.
    Listeners(Vec<Listener>),
    /// A file that goes when this is dropped.
    File { _made: SocketPath },
}

/// Whose descriptor stands at a place of the poll. A request is found again by its id: what came before it in the
/// same turn may have ended it.
enum Source {
    Control,
    Resolver,
    Attempt(u32),
    Listener(u32, u8),
}

/// How long no connection is accepted after the system had no descriptor or memory for one.
const ACCEPT_PAUSE: i64 = 100_000_000;

impl Helper {
    /// A helper that nothing was asked of yet.
    pub fn new(control: Fd, resolver: Option<Fd>, max_pending: usize) -> Helper {
        Helper {
            control,
            names: Names::new(resolver),
            outbox: Outbox::new(),
            pending: Vec::new(),
            kept: Vec::new(),
            max_pending,
            accept_again: 0,
        }
    }

    /// Serves until the end. What was made is removed when `self` is dropped.
    pub fn run(mut self) -> End {
        let (mut watches, mut sources) = (Vec::new(), Vec::new());
        let mut now = 0;
        loop {
            let wake = self.watch(&mut watches, &mut sources, now);
            let wait = wake.map(|at| at.saturating_sub(now).max(0));
            if poll::wait(&mut watches, wait).is_err() {
                // Only no memory: nothing can be told any more.
                return End::Refused;
            }
            now = clock::monotonic().as_nanos();
            if let Err(end) = self.turn(&watches, &sources, now) {
                return end;
            }
        }
    }

    /// Lists what to wait for; returns the moment at which to stop waiting.
    fn watch(&self, watches: &mut Vec<Watch>, sources: &mut Vec<Source>, now: i64) -> Option<i64> {
        watches.clear();
        sources.clear();
        let mut wake: Option<i64> = None;
        let mut at_latest = |at: i64| wake = Some(wake.map_or(at, |w| w.min(at)));
        let mut on = |fd, events, source| {
            watches.push(Watch::new(fd, events));
            sources.push(source);
        };
        let clear = self.outbox.is_empty();
        let control = match self.outbox.paused_until() {
            _ if clear => READ,
            0 => WRITE,
            until => {
                at_latest(until);
                0
            }
        };
        on(self.control.raw(), control, Source::Control);
        let mut unsent = false;
        for pending in &self.pending {
            match &pending.stage {
                Stage::NameLookup(asked, _) => {
                    unsent |= asked.unsent();
                    at_latest(asked.deadline());
                }
                Stage::TcpConnect(connecting) => {
                    for fd in connecting.sockets() {
                        on(fd, WRITE, Source::Attempt(pending.id));
                    }
                    at_latest(connecting.wake_at());
                }
                Stage::UnixConnect(knocking) => at_latest(knocking.wake_at()),
            }
        }
        if let Some(fd) = self.names.socket() {
            on(fd, if unsent { READ | WRITE } else { READ }, Source::Resolver);
        }
        let accepting = clear && self.accept_again <= now;
        for kept in &self.kept {
            if let ResourceKind::Listeners(list) = &kept.what {
                if !accepting && clear {
                    at_latest(self.accept_again);
                }
                for (index, bound) in (0..).zip(list).filter(|_| accepting) {
                    on(bound.socket.raw(), READ, Source::Listener(kept.id, index));
                }
            }
        }
        wake
    }

    fn turn(&mut self, watches: &[Watch], sources: &[Source], now: i64) -> Result<(), End> {
        for (watch, source) in watches.iter().zip(sources) {
            let happened = watch.happened();
            if happened == 0 {
                continue;
            }
            match *source {
                Source::Control if happened & WRITE != 0 && !self.outbox.is_empty() => self.flush(now)?,
                Source::Control if happened & READ != 0 => self.request(now)?,
                // Hung up, with an answer still waiting.
                Source::Control => return Err(End::Stopped),
                Source::Resolver => self.resolver(now)?,
                Source::Attempt(id) => self.attempt(id, watch.fd(), now)?,
                Source::Listener(id, index) => self.accept(id, index, now)?,
            }
        }
        let paused = self.outbox.paused_until();
        if paused != 0 && paused <= now {
            self.flush(now)?;
        }
        self.due(now)
    }

    fn flush(&mut self, now: i64) -> Result<(), End> {
        Ok(self.outbox.flush(&self.control, now)?)
    }

    /// Goes on with every request whose moment has come.
    fn due(&mut self, now: i64) -> Result<(), End> {
        let mut at = 0;
        while let Some(pending) = self.pending.get_mut(at) {
            match &mut pending.stage {
                Stage::NameLookup(asked, _) if asked.deadline() <= now => {
                    let why = asked.timed_out();
                    self.finish(at, Err(why))?;
                }
                Stage::TcpConnect(connecting) if connecting.wake_at() <= now => {
                    let progress = connecting.proceed(now);
                    at += self.progressed(at, progress)?;
                }
                Stage::UnixConnect(knocking) => match knocking.proceed(now) {
                    None => at += 1,
                    Some(result) => {
                        let done = result.map(|socket| (Done::Connected { peer: None }, alloc::vec![socket]));
                        self.finish(at, done)?;
                    }
                },
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// A socket of request `id` has news.
    fn attempt(&mut self, id: u32, fd: i32, now: i64) -> Result<(), End> {
        let Some(at) = self.pending.iter().position(|p| p.id == id) else {
            return Ok(());
        };
        let Stage::TcpConnect(connecting) = &mut self.pending[at].stage else {
            return Ok(());
        };
        let progress = connecting.ready(fd, now);
        self.progressed(at, progress).map(drop)
    }

    /// Answers request number `at` if it is done; returns how far its place is from the next one's.
    pub(super) fn progressed(&mut self, at: usize, progress: Progress) -> Result<usize, End> {
        let done = match progress {
            Progress::Waiting => return Ok(1),
            Progress::Connected(socket, to) => {
                let peer = Some(endpoint(&to));
                Ok((Done::Connected { peer }, alloc::vec![socket]))
            }
            Progress::Failed(errno, to) => {
                let thing = format!("connecting to {}", refusal::written(&to));
                Err(refusal::system(errno, &thing))
            }
        };
        self.finish(at, done)?;
        Ok(0)
    }

    /// Answers request number `at` and forgets it.
    fn finish(&mut self, at: usize, done: Result<(Done, Vec<Fd>), Failure>) -> Result<(), End> {
        let id = self.pending.remove(at).id;
        match done {
            Ok((done, fds)) => self.answer(id, done, fds),
            Err(why) => self.refuse(id, why),
        }
    }

    /// Answers.
    pub(super) fn answer(&mut self, id: u32, done: Done, fds: Vec<Fd>) -> Result<(), End> {
        Ok(self.outbox.answer(&self.control, id, done, fds)?)
    }

    /// Answers that it failed.
    pub(super) fn refuse(&mut self, id: u32, failure: Failure) -> Result<(), End> {
        self.answer(id, Done::Failed { failure }, Vec::new())
    }

    /// Ends because of `why`, telling it if there is room.
    pub(super) fn give_up(&mut self, why: Failure) -> End {
        let _ = self.refuse(HELPER, why);
        End::Refused
    }

    /// The resolver has an answer, or room for a question.
    fn resolver(&mut self, now: i64) -> Result<(), End> {
        let mut at = 0;
        while let Some(pending) = self.pending.get_mut(at) {
            let refused = match &mut pending.stage {
                Stage::NameLookup(asked, _) => self.names.send(asked, now).err(),
                _ => None,
            };
            match refused {
                Some(why) => self.finish(at, Err(why))?,
                None => at += 1,
            }
        }
        match self.names.receive() {
            News::Nothing => Ok(()),
            News::Answer(number, found) => self.named(number, found, now),
            News::Lost => self.unnamed(),
        }
    }

    /// The question with `number` is answered; one that was cancelled or gave up is not there any more.
    fn named(&mut self, number: u32, found: Found, now: i64) -> Result<(), End> {
        let asks = |p: &PendingRequest| matches!(&p.stage, Stage::NameLookup(asked, _) if asked.is(number));
        let Some(at) = self.pending.iter().position(asks) else {
            return Ok(());
        };
        let Stage::NameLookup(asked, then) = &self.pending[at].stage else {
            return Ok(());
        };
        let (then, deadline) = (*then, asked.deadline());
        match asked.addresses(found) {
            Err(why) => self.finish(at, Err(why)),
            Ok(list) if matches!(then, AddressUse::Connect) => {
                let mut connecting = ConnectAttempt::new(&list, deadline);
                let progress = connecting.proceed(now);
                self.pending[at].stage = Stage::TcpConnect(connecting);
                self.progressed(at, progress).map(drop)
            }
            Ok(list) => {
                let id = self.pending.remove(at).id;
                self.listen(id, &list, true, then)
            }
        }
    }

    /// There is no resolver any more.
    fn unnamed(&mut self) -> Result<(), End> {
        let mut at = 0;
        while let Some(pending) = self.pending.get(at) {
            match &pending.stage {
                Stage::NameLookup(asked, _) => {
                    let why = self.names.unreachable(asked);
                    self.finish(at, Err(why))?;
                }
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// Hands over one connection. Not while an answer waits: connections then wait in the kernel's queue, whose
    /// length the request set.
    fn accept(&mut self, id: u32, index: u8, now: i64) -> Result<(), End> {
        if !self.outbox.is_empty() {
            return Ok(());
        }
        let listener = self.kept.iter().find(|k| k.id == id).and_then(|k| match &k.what {
            ResourceKind::Listeners(list) => list.get(index as usize),
            ResourceKind::File { .. } => None,
        });
        let Some(listener) = listener else {
            return Ok(());
        };
        match net::accept(&listener.socket) {
            Ok((socket, peer)) => {
                let _ = net::set_no_delay(&socket);
                let peer = endpoint(&peer);
                self.answer(id, Done::Accepted { peer, local: index }, alloc::vec![socket])
            }
            // The connection ended before it was taken, or somebody was faster.
            Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => Ok(()),
            Err(_) => {
                self.accept_again = now + ACCEPT_PAUSE;
                Ok(())
            }
        }
    }
}

/// As it travels.
pub(super) fn endpoint(address: &Address) -> Endpoint {
    Endpoint {
        address: address.ip,
        scope: address.scope,
        port: address.port,
    }
}
