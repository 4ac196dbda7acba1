//! The watcher: it hears of the calls that watched sessions make, reads what they are about, tells the monitor, and lets
//! them go on. It refuses nothing but io_uring where a role wants that, and it never makes a session wait for the disk or the
//! network.
//!
//! Each listener has a thread of its own. Reading a caller's memory can take as long as the caller likes (a page of a file
//! system in user space, or one that userfaultfd watches), so whoever holds up his thread holds up nobody but himself.
//! The main thread speaks with the monitor, the guardian and the helpers, and touches nobody's memory.

mod caller;
mod outbox;
mod thread;

use crate::rest::Rest;
use crate::start::{Control, Log, Start, WorkerEnd};
use fleetgate_calls::guardian::{Error, Guardian};
use fleetgate_sys::epoll::{self, Epoll, Event};
use fleetgate_sys::poll::READ;
use fleetgate_sys::slots::Slots;
use fleetgate_sys::{Errno, Fd, exe, seccomp, socket};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::exec::HELD;
use fleetgate_wire::node::watch::{CREDIT, FromWatcher, LEVELS, ToWatcher, WatchedSession};
use outbox::Outbox;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

/// The most listeners: as many as the guardian keeps.
const MAX_LISTENERS: usize = fleetgate_wire::guard::MAX_LISTENERS;
/// So many events of its own loop are taken at once.
const EVENTS: usize = 32;
const CONTROL: u64 = 0;
const BELL: u64 = 1;
/// Introductions come behind these.
const FIRST: u64 = 16;
/// io_uring_setup, in every numbering.
const IO_URING_SETUP: u32 = 425;

/// What is made before the sandbox, which has no calls for it.
struct Preparation {
    epoll: Epoll,
    bell: Fd,
    rest: Rest,
}

/// A helper that may bring a listener.
struct Introduction {
    socket: Fd,
    watched: WatchedSession,
}

/// A listener that has a thread.
struct HeldListener {
    listener: Arc<Fd>,
    slots: Fd,
    watched: WatchedSession,
}

struct Watcher {
    control: Control,
    epoll: Epoll,
    log: Log,
    rest: Rest,
    guardian: Option<Guardian>,
    outbox: Arc<Outbox>,
    introductions: BTreeMap<u64, Introduction>,
    held: BTreeMap<u64, HeldListener>,
    next: u64,
    /// So many events may be told.
    credit: u32,
}

/// Serves until the monitor ends it.
pub(crate) fn run(start: &Start) -> WorkerEnd {
    let prepared = match Preparation::new() {
        Ok(prepared) => prepared,
        Err(ended) => return ended,
    };
    match start.confine(&[]) {
        Ok(()) => prepared.serve(Control::inherited(), start.log),
        Err(ended) => ended,
    }
}

impl Preparation {
    fn new() -> Result<Preparation, WorkerEnd> {
        Ok(Preparation {
            epoll: Epoll::new().map_err(WorkerEnd::at("making an epoll"))?,
            bell: epoll::bell().map_err(WorkerEnd::at("making an eventfd"))?,
            rest: Rest::now(),
        })
    }

    fn serve(self, control: Control, log: Log) -> WorkerEnd {
        let mut watcher = Watcher {
            control,
            epoll: self.epoll,
            log,
            rest: self.rest,
            guardian: None,
            outbox: Arc::new(Outbox::new(self.bell)),
            introductions: BTreeMap::new(),
            held: BTreeMap::new(),
            next: FIRST,
            credit: CREDIT,
        };
        let Err(ended) = watcher.run();
        ended
    }
}

impl Watcher {
    fn run(&mut self) -> Result<Infallible, WorkerEnd> {
        self.control.watch(&self.epoll, CONTROL)?;
        self.epoll
            .add(self.outbox.bell(), READ, BELL)
            .map_err(WorkerEnd::at("watching the bell"))?;
        self.control.say(&FromWatcher::Ready)?;
        let mut events = [Event::EMPTY; EVENTS];
        loop {
            self.control.will_wait(&self.epoll)?;
            let count = self
                .epoll
                .wait(&mut events, self.rest.wait(None))
                .map_err(WorkerEnd::at("waiting"))?;
            self.rest.woke(count);
            for event in &events[..count] {
                match event.key() {
                    CONTROL => self.hear()?,
                    BELL => epoll::quiet(self.outbox.bell()),
                    number => self.introduced(number)?,
                }
            }
            self.tell()?;
        }
    }

    fn hear(&mut self) -> Result<(), WorkerEnd> {
        while let Some((message, mut fds)) = self.control.receive::<ToWatcher>()? {
            match message {
                ToWatcher::Guardian => {
                    let socket = fds.pop().ok_or_else(|| missing("guardian"))?;
                    self.meet(socket);
                }
                ToWatcher::Session { watched } => {
                    let socket = fds.pop().ok_or_else(|| missing("session"))?;
                    self.introduce(socket, watched)?;
                }
                ToWatcher::Adopt { key, watched } => self.adopt(key, watched)?,
                ToWatcher::More { events } => self.credit = self.credit.saturating_add(events),
            }
        }
        self.control.flush()
    }

    /// A guardian, the first or the next one: it keeps what is held here.
    fn meet(&mut self, socket: Fd) {
        self.guardian = Guardian::on(socket)
            .inspect_err(|why| self.log.warn(&format_args!("{why}")))
            .ok();
        for key in self.held.keys().copied().collect::<Vec<_>>() {
            self.have_kept(key);
        }
    }

    /// Has the guardian keep a listener too. False: it does not.
    fn have_kept(&mut self, key: u64) -> bool {
        let (Some(guardian), Some(held)) = (&self.guardian, self.held.get(&key)) else {
            return false;
        };
        let refuse = held.watched.refuse_io_uring.then_some(IO_URING_SETUP);
        match guardian.keep_file(key, &held.listener, &held.slots, refuse) {
            Ok(()) => true,
            Err(why) => {
                // The monitor notices its end as well, and brings another one.
                self.log.warn(&format_args!("a session is not kept: {why}"));
                self.guardian = None;
                false
            }
        }
    }

    /// A session whose helper may come: it hears that somebody is here.
    fn introduce(&mut self, socket: Fd, watched: WatchedSession) -> Result<(), WorkerEnd> {
        let number = self.next;
        self.next += 1;
        let session = watched.session;
        let is_full = self.held.len() + self.introductions.len() >= MAX_LISTENERS;
        if is_full || self.guardian.is_none() || !LEVELS.contains(&watched.level) {
            let why = if is_full {
                "as many sessions are watched as can be"
            } else {
                "there is no guardian for it"
            };
            self.log.warn(&format_args!("a session is not watched: {why}"));
            return self.control.say(&FromWatcher::Over { session });
        }
        let greeted = socket::send_now(&socket, &HELD, &[]);
        if greeted.is_ok() && self.epoll.add(&socket, READ, number).is_ok() {
            self.introductions
                .insert(number, Introduction { socket, watched });
            return Ok(());
        }
        self.control.say(&FromWatcher::Over { session })
    }

    /// A helper has brought its listener, or is gone.
    fn introduced(&mut self, number: u64) -> Result<(), WorkerEnd> {
        let Some(introduction) = self.introductions.get(&number) else {
            return Ok(());
        };
        let mut word = [0; HELD.len()];
        match socket::receive(&introduction.socket, &mut word, false) {
            Err(Errno::EAGAIN) => Ok(()),
            Ok(mut got) if got.len == HELD.len() && word == HELD && got.fds.len() == 1 => {
                let watched = introduction.watched.clone();
                let listener = got.fds.pop().ok_or_else(|| missing("listener"))?;
                self.take(number, listener, watched)
            }
            // The launch is over, with a program or without.
            _ => {
                let session = self.introductions.remove(&number).map(|i| i.watched.session);
                self.perhaps_over(session)
            }
        }
    }

    /// Watches a new listener, and says so to the helper.
    fn take(&mut self, number: u64, listener: Fd, watched: WatchedSession) -> Result<(), WorkerEnd> {
        let session = watched.session;
        match self.hold(listener, watched) {
            Ok(key) => {
                self.control.say(&FromWatcher::Holds { key, session })?;
                if let Some(introduction) = self.introductions.get(&number) {
                    // It is gone: so is what its filter bound.
                    let _ = socket::send_now(&introduction.socket, &HELD, &[]);
                }
                Ok(())
            }
            Err(why) => {
                // The listener is closed here and by the helper, which hears nothing and ends.
                self.log.warn(&format_args!("a session is not watched: {why}"));
                self.introductions.remove(&number);
                self.perhaps_over(Some(session))
            }
        }
    }

    fn hold(&mut self, listener: Fd, watched: WatchedSession) -> Result<u64, String> {
        let key = exe::random()[0];
        let slots = Slots::new().map_err(|e| format!("its memory: {e}"))?;
        let file = slots
            .file()
            .duplicate(0)
            .map_err(|e| format!("its memory: {e}"))?;
        let held = HeldListener {
            listener: Arc::new(listener),
            slots: file,
            watched,
        };
        self.held.insert(key, held);
        let begun = match self.have_kept(key) {
            true => self.begin(key, slots, false),
            false => Err("the guardian is gone".to_owned()),
        };
        if let Err(why) = begun {
            self.held.remove(&key);
            return Err(why);
        }
        Ok(key)
    }

    /// Takes over what the watcher before this one held.
    fn adopt(&mut self, key: u64, watched: WatchedSession) -> Result<(), WorkerEnd> {
        let session = watched.session;
        let adopted = match self.guardian.as_ref().map(|guardian| guardian.adopt(key)) {
            Some(Ok(adopted)) => adopted,
            Some(Err(Error::Unknown)) => {
                self.control.say(&FromWatcher::Released { key })?;
                return self.perhaps_over(Some(session));
            }
            Some(Err(why)) => {
                self.log.warn(&format_args!("a session goes on unwatched: {why}"));
                return Ok(());
            }
            None => return Ok(()),
        };
        if let Some(gap) = &adopted.kept.gap {
            let until = gap.until.unwrap_or(gap.since);
            self.control.say(&FromWatcher::Gap {
                session,
                lasted_ms: until.saturating_sub(gap.since) / 1_000_000,
                calls: gap.left + gap.unseen,
            })?;
        }
        let Ok(file) = adopted.slots.file().duplicate(0) else {
            return Ok(());
        };
        let held = HeldListener {
            listener: Arc::new(adopted.listener),
            slots: file,
            watched,
        };
        self.held.insert(key, held);
        if let Err(why) = self.begin(key, adopted.slots, true) {
            self.log.warn(&format_args!("a session goes on unwatched: {why}"));
            self.held.remove(&key);
            if let Some(guardian) = &self.guardian {
                let _ = guardian.answer(key);
            }
        }
        Ok(())
    }

    /// Starts a listener's thread.
    fn begin(&mut self, key: u64, slots: Slots, begun: bool) -> Result<(), String> {
        let held = self.held.get(&key).ok_or("it is not held")?;
        // An older kernel goes without: it is faster with.
        let _ = seccomp::take_turns(&held.listener);
        let (listener, watched) = (held.listener.clone(), held.watched.clone());
        self.outbox.open(key, watched.session);
        let outbox = self.outbox.clone();
        thread::start(key, listener, slots, watched, begun, outbox).map_err(|e| {
            self.outbox.forget(key);
            format!("its thread: {e}")
        })
    }

    /// What the threads have seen goes to the monitor, as far as it listens.
    fn tell(&mut self) -> Result<(), WorkerEnd> {
        while !self.control.is_congested() {
            let Some(message) = self.outbox.next(self.credit) else {
                break;
            };
            if let FromWatcher::Seen { events } = &message {
                self.credit -= u32::try_from(events.len()).unwrap_or(u32::MAX);
            }
            self.control.say(&message)?;
        }
        for key in self.outbox.ended() {
            let session = self.held.remove(&key).map(|held| held.watched.session);
            if let Some(guardian) = &self.guardian {
                // It may have noticed first.
                let _ = guardian.forget(key);
            }
            self.control.say(&FromWatcher::Released { key })?;
            self.perhaps_over(session)?;
        }
        Ok(())
    }

    fn perhaps_over(&mut self, session: Option<SessionId>) -> Result<(), WorkerEnd> {
        let Some(session) = session else { return Ok(()) };
        let is_held = self.held.values().any(|held| held.watched.session == session);
        let may_come = self
            .introductions
            .values()
            .any(|introduction| introduction.watched.session == session);
        if is_held || may_come {
            return Ok(());
        }
        self.control.say(&FromWatcher::Over { session })
    }
}

fn missing(what: &str) -> WorkerEnd {
    WorkerEnd::Because(format!("a message of the monitor came without its {what}"))
}
