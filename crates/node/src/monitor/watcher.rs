//! Sessions that are watched, and the two processes that watch them: the watcher and its guardian. Both are started with
//! the first session that is watched, ended when none is left for a while, and started again when they die. What the
//! watcher says goes to the audit log.

use super::Monitor;
use super::audit::{self, Event, WatchReport};
use super::timers::{Timer, now};
use super::wakes::{Key, Owner};
use super::workers::{WorkerId, WorkerKind};
use fleetgate_calls::audit::{self as calls, Level, selection, with_pass};
use fleetgate_calls::filter::{Answers, Program, compile};
use fleetgate_policy::{Audit, Stance, Watching as WatchPolicy};
use fleetgate_sys::clock::{self, Time};
use fleetgate_sys::{Fd, net, socket};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::exec::Watch;
use fleetgate_wire::guard::Request;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::watch::{FromWatcher, ToWatcher, WatchedSession};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Whose a watched session is.
#[derive(Clone, Debug)]
pub struct SessionOwner {
    /// The connection that it came by.
    pub connection: ConnectionNumber,
    /// The account.
    pub login: String,
    /// What the watcher was told.
    pub watched: WatchedSession,
}

/// All of them.
#[derive(Debug, Default)]
pub struct WatchedSessions {
    filters: BTreeMap<Level, Arc<Program>>,
    sessions: HashMap<SessionId, SessionOwner>,
    /// Which listeners the watcher holds.
    keys: HashMap<u64, SessionId>,
    /// Sessions that the watcher is not told of yet, with its end of the introduction.
    waiting: Vec<(WatchedSession, Fd)>,
}

impl WatchedSessions {
    /// A session is to be watched: what its order says, and the descriptor beside it.
    pub(crate) fn begin(
        &mut self,
        connection: ConnectionNumber,
        login: &str,
        session: SessionId,
        wanted: WatchPolicy,
    ) -> Result<Option<(Watch, Fd)>, String> {
        let level = match wanted.audit {
            Audit::None => return Ok(None),
            Audit::Commands => Level::Commands,
            Audit::Files => Level::Files,
            Audit::Full => Level::Full,
        };
        let (filter, pass) = self.filter(level)?;
        let (ours, theirs) = socket::pair().map_err(|e| format!("making a socket: {e}"))?;
        let watched = WatchedSession {
            session,
            level: level.number(),
            refuse_io_uring: wanted.io_uring == Stance::Refuse,
        };
        self.waiting.push((watched.clone(), ours));
        let whose = SessionOwner {
            connection,
            login: login.to_owned(),
            watched,
        };
        self.sessions.insert(session, whose);
        let watch = Watch {
            filter,
            pass,
            required: wanted.unwatched == Stance::Refuse,
        };
        Ok(Some((watch, theirs)))
    }

    /// The instructions of a session's filter, as the kernel has them, and what it lets pass.
    fn filter(&mut self, level: Level) -> Result<(Vec<u8>, u64), String> {
        let program = match self.filters.get(&level) {
            Some(program) => program.clone(),
            None => {
                let made = compile(&selection(level), &Answers::notify()).map_err(|e| e.to_string())?;
                let program = Arc::new(made);
                self.filters.insert(level, program.clone());
                program
            }
        };
        let mut pass = [0; 8];
        net::random(&mut pass).map_err(|e| format!("random numbers: {e}"))?;
        let pass = u64::from_ne_bytes(pass);
        let steps = with_pass(level, &program, pass).ok_or("the filter lets no helper pass")?;
        let bytes = steps.iter().flat_map(|step| {
            let [a, b] = step.code.to_ne_bytes();
            let [c, d, e, f] = step.value.to_ne_bytes();
            [a, b, step.yes, step.no, c, d, e, f]
        });
        Ok((bytes.collect(), pass))
    }

    /// Whether somebody has to watch.
    pub fn is_needed(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// Whether the watcher is to be told something.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sessions that the watcher is to be told of.
    pub fn take_waiting(&mut self) -> Vec<(WatchedSession, Fd)> {
        std::mem::take(&mut self.waiting)
    }

    /// Whose a session is.
    pub fn whose(&self, session: &SessionId) -> Option<&SessionOwner> {
        self.sessions.get(session)
    }

    /// The watcher holds a listener.
    pub fn holds(&mut self, key: u64, session: SessionId) {
        if self.sessions.contains_key(&session) {
            self.keys.insert(key, session);
        }
    }

    /// It does not any more.
    pub fn released(&mut self, key: u64) {
        self.keys.remove(&key);
    }

    /// Nothing of a session is watched any more.
    pub fn over(&mut self, session: &SessionId) {
        self.sessions.remove(session);
        self.keys.retain(|_, of| of != session);
    }

    /// The watcher is gone: what the next one takes over. Those whose helper had brought nothing yet are not watched: the
    /// helper hears nobody and says so.
    pub fn left_behind(&mut self) -> Vec<(u64, WatchedSession)> {
        let waits = |session: &SessionId| self.waiting.iter().any(|(w, _)| w.session == *session);
        let is_held = |session: &SessionId| self.keys.values().any(|of| of == session);
        let gone: Vec<SessionId> = self
            .sessions
            .keys()
            .filter(|session| !waits(session) && !is_held(session))
            .copied()
            .collect();
        for session in gone {
            self.sessions.remove(&session);
        }
        let held = self.keys.iter().filter_map(|(key, session)| {
            let whose = self.sessions.get(session)?;
            Some((*key, whose.watched.clone()))
        });
        held.collect()
    }
}

/// So long both stay when nobody is watched: the next session is often close behind.
const IDLE: Duration = Duration::from_secs(60);
/// So long nothing is started after one of them died before it was ready.
const PAUSE: Duration = Duration::from_secs(1);
const IDLE_KEY: Key = Key::new(Owner::Watcher, 0);
const AGAIN_KEY: Key = Key::new(Owner::Watcher, 1);
const ROOM_KEY: Key = Key::new(Owner::Watcher, 2);
/// How long the watcher waits at least while the audit log is behind.
const CATCH_UP: Duration = Duration::from_millis(20);

/// Which processes they are.
#[derive(Default)]
pub struct WatcherProcesses {
    watcher: Option<WorkerId>,
    guardian: Option<WorkerId>,
    /// The watcher has its sandbox, and can be spoken to.
    ready: bool,
    idle: Option<Timer>,
    /// Nothing is started before it is due.
    pause: Option<Timer>,
    /// When the guardian was started.
    guarding_since: Duration,
    /// Events that the log has taken and the watcher was not yet told of.
    taken: u32,
    /// Looks again whether the log has room.
    room: Option<Timer>,
}

impl WatcherProcesses {
    pub(crate) fn is_watcher(&self, worker: WorkerId) -> bool {
        self.watcher == Some(worker)
    }
}

impl Monitor {
    /// Sessions that were begun in this turn.
    pub(crate) fn watch_sessions(&mut self) {
        if !self.tools.watching.has_waiting() {
            return;
        }
        if let Some(timer) = self.watchers.idle.take() {
            self.tools.timers.cancel(timer);
        }
        self.have_watchers();
        self.introduce();
    }

    /// Starts whichever of them is not there.
    fn have_watchers(&mut self) {
        if self.watchers.pause.is_some() {
            return;
        }
        for worker in [WorkerKind::Guardian, WorkerKind::Watcher] {
            let place = match worker {
                WorkerKind::Guardian => &mut self.watchers.guardian,
                _ => &mut self.watchers.watcher,
            };
            if place.is_some() {
                continue;
            }
            match self.workers.start(worker, &self.tools.wakes) {
                Ok(id) => *place = Some(id),
                Err(e) => {
                    tracing::error!("the {} is not started: {e}", worker.name());
                    return self.pause_watchers();
                }
            }
            if worker == WorkerKind::Guardian {
                self.watchers.guarding_since = now();
                self.join_watchers();
            }
        }
    }

    fn pause_watchers(&mut self) {
        if self.watchers.pause.is_none() {
            self.watchers.pause = Some(self.tools.timers.after(PAUSE, AGAIN_KEY));
        }
    }

    /// Makes the socket between the two, once both can be spoken to.
    fn join_watchers(&mut self) {
        let (Some(watcher), Some(guardian)) = (self.watchers.watcher, self.watchers.guardian) else {
            return;
        };
        if !self.watchers.ready {
            return;
        }
        match socket::pair() {
            Ok((one, other)) => {
                let wakes = &self.tools.wakes;
                self.workers.say(guardian, &Request::Tracer, vec![one], wakes);
                self.workers
                    .say(watcher, &ToWatcher::Guardian, vec![other], wakes);
            }
            Err(e) => {
                tracing::error!("the watcher has no guardian: {e}");
                self.workers.end(watcher, "it could be given no guardian");
            }
        }
    }

    fn introduce(&mut self) {
        let Some(watcher) = self.watchers.watcher.filter(|_| self.watchers.ready) else {
            return;
        };
        for (watched, socket) in self.tools.watching.take_waiting() {
            let message = ToWatcher::Session { watched };
            self.workers
                .say(watcher, &message, vec![socket], &self.tools.wakes);
        }
    }

    /// The watcher says something.
    pub(crate) fn watcher_says(&mut self, worker: WorkerId, frame: &[u8]) {
        let message = match fleetgate_wire::decode::<FromWatcher>(frame) {
            Ok(message) => message,
            Err(e) => {
                let why = format!("it asked for what it may not: {e}");
                return self.workers.end(worker, &why);
            }
        };
        match message {
            FromWatcher::Ready => {
                self.watchers.ready = true;
                self.join_watchers();
                for (key, watched) in self.tools.watching.left_behind() {
                    let message = ToWatcher::Adopt { key, watched };
                    self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
                }
                self.introduce();
            }
            FromWatcher::Holds { key, session } => self.tools.watching.holds(key, session),
            FromWatcher::Released { key } => self.tools.watching.released(key),
            FromWatcher::Seen { events } => {
                self.watchers.taken = self
                    .watchers
                    .taken
                    .saturating_add(u32::try_from(events.len()).unwrap_or(u32::MAX));
                for seen in events {
                    let Some(event) = calls::event(&seen.event.to_string_lossy()) else {
                        return self.workers.end(worker, "it told of what no watcher tells");
                    };
                    let at = Time {
                        sec: seen.at.sec,
                        nsec: seen.at.nsec,
                    };
                    let what = WatchReport::Call {
                        event,
                        fields: seen.fields,
                    };
                    self.tell_watched(seen.session, what, Some(at));
                }
                self.have_more_told();
            }
            FromWatcher::Lost { session, count } => {
                self.tell_watched(session, WatchReport::Lost { count }, None);
            }
            FromWatcher::Gap {
                session,
                lasted_ms,
                calls,
            } => self.tell_watched(session, WatchReport::Gap { lasted_ms, calls }, None),
            FromWatcher::Over { session } => {
                self.tools.watching.over(&session);
                self.perhaps_idle();
            }
        }
    }

    /// Lets the watcher tell more, once the log has room: what it cannot tell holds up the sessions that make it, and is
    /// not lost on the way to the disk.
    fn have_more_told(&mut self) {
        if !self.tools.audit.is_at_ease() {
            if self.watchers.room.is_none() {
                self.watchers.room = Some(self.tools.timers.after(CATCH_UP, ROOM_KEY));
            }
            return;
        }
        let events = std::mem::take(&mut self.watchers.taken);
        if events > 0
            && let Some(watcher) = self.watchers.watcher
        {
            let message = ToWatcher::More { events };
            self.workers.say(watcher, &message, Vec::new(), &self.tools.wakes);
        }
    }

    fn tell_watched(&mut self, session: SessionId, what: WatchReport, at: Option<Time>) {
        let Some(whose) = self.tools.watching.whose(&session) else {
            return;
        };
        let event = Event::Watched(Box::new(audit::WatchedEvent {
            connection: whose.connection,
            session,
            login: whose.login.clone(),
            what,
        }));
        let at = at.unwrap_or_else(clock::wall);
        self.tools.tell_recorded(&session, at, event);
    }

    fn perhaps_idle(&mut self) {
        if !self.tools.watching.is_needed() && self.watchers.idle.is_none() {
            self.watchers.idle = Some(self.tools.timers.after(IDLE, IDLE_KEY));
        }
    }

    /// A timer of theirs.
    pub(crate) fn watcher_woken(&mut self, id: u64) {
        if id == ROOM_KEY.id {
            self.watchers.room = None;
            return self.have_more_told();
        }
        if id == AGAIN_KEY.id {
            self.watchers.pause = None;
            if self.tools.watching.is_needed() {
                self.have_watchers();
                self.introduce();
            }
            return;
        }
        self.watchers.idle = None;
        if self.tools.watching.is_needed() {
            return;
        }
        self.watchers.ready = false;
        // The watcher first: nobody has the guardian answer for it.
        let both = [self.watchers.watcher.take(), self.watchers.guardian.take()];
        for worker in both.into_iter().flatten() {
            self.workers.dismiss(worker);
        }
    }

    /// One of them is gone. What it did the other one goes on with until the next is there.
    pub(crate) fn watcher_gone(&mut self, worker: WorkerId) {
        if self.watchers.watcher == Some(worker) {
            if !std::mem::take(&mut self.watchers.ready) {
                self.pause_watchers();
            }
            self.watchers.watcher = None;
            self.watchers.taken = 0;
        } else if self.watchers.guardian == Some(worker) {
            self.watchers.guardian = None;
            if now().saturating_sub(self.watchers.guarding_since) < PAUSE {
                self.pause_watchers();
            }
        } else {
            return;
        }
        if self.tools.watching.is_needed() {
            self.have_watchers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_wire::exec::MAX_FILTER;

    fn wanted(audit: Audit) -> WatchPolicy {
        WatchPolicy {
            audit,
            ..WatchPolicy::default()
        }
    }

    #[test]
    fn each_level_has_a_filter_that_fits_an_order() {
        let mut watching = WatchedSessions::default();
        assert!(matches!(
            watching.begin(1, "ada", [0; 16], WatchPolicy::default()),
            Ok(None)
        ));
        assert!(!watching.is_needed() && !watching.has_waiting());
        let mut lengths = Vec::new();
        for (number, audit) in (1..).zip(&Audit::ALL[1..]) {
            let begun = watching.begin(1, "ada", [number; 16], wanted(*audit));
            let (watch, _) = begun.expect("a filter").expect("it is watched");
            assert!(watch.required && watch.filter.len() <= MAX_FILTER && watch.filter.len() % 8 == 0);
            lengths.push(watch.filter.len());
        }
        assert!(lengths[0] < lengths[1], "{lengths:?}");
        let waiting = watching.take_waiting();
        assert_eq!(
            waiting.iter().map(|(w, _)| w.level).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(!watching.has_waiting());
        // What the filter lets pass is each session's own.
        let mut full = || {
            let begun = watching.begin(1, "ada", [9; 16], wanted(Audit::Full));
            begun.expect("a filter").expect("it is watched").0
        };
        let (one, other) = (full(), full());
        assert!(one.pass != other.pass && one.filter != other.filter);
    }

    #[test]
    fn what_a_watcher_held_is_left_to_the_next() {
        let mut watching = WatchedSessions::default();
        for number in 1..=3 {
            let begun = watching.begin(1, "ada", [number; 16], wanted(Audit::Commands));
            assert!(matches!(begun, Ok(Some(_))));
        }
        let told = watching.take_waiting();
        assert_eq!(told.len(), 3);
        watching.holds(7, [1; 16]);
        watching.holds(8, [2; 16]);
        watching.released(8);
        watching.holds(9, [99; 16]);
        let begun = watching.begin(2, "bob", [4; 16], wanted(Audit::Full));
        assert!(matches!(begun, Ok(Some(_))));
        let left = watching.left_behind();
        assert_eq!(left, [(7, told[0].0.clone())]);
        // One that is not told of yet waits on; those that had brought nothing are given up.
        assert!(watching.whose(&[4; 16]).is_some_and(|whose| whose.login == "bob"));
        assert!(watching.whose(&[2; 16]).is_none() && watching.whose(&[3; 16]).is_none());
        watching.over(&[1; 16]);
        watching.over(&[4; 16]);
        assert!(!watching.is_needed() && watching.left_behind().is_empty());
    }
}
