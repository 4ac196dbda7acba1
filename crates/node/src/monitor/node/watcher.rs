//! The watcher and its guardian: started with the first session that is watched, ended when none is left for a while,
//! started again when they die. What the watcher says is the audit log's.

use super::Node;
use crate::monitor::audit::{Event, Watched, What};
use crate::monitor::seats::{Seat, SeatId};
use crate::monitor::timers::{Timer, now};
use crate::monitor::wakes::{Key, Owner};
use fleetgate_calls::audit;
use fleetgate_sys::clock::Time;
use fleetgate_sys::socket;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::guard::Request;
use fleetgate_wire::node::watch::{FromWatcher, ToWatcher};
use std::time::Duration;

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
pub struct Pair {
    watcher: Option<SeatId>,
    guardian: Option<SeatId>,
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

impl Pair {
    pub(super) fn is_watcher(&self, seat: SeatId) -> bool {
        self.watcher == Some(seat)
    }
}

impl Node {
    /// Sessions that were begun in this turn.
    pub(super) fn watch_sessions(&mut self) {
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
        for seat in [Seat::Guardian, Seat::Watcher] {
            let place = match seat {
                Seat::Guardian => &mut self.watchers.guardian,
                _ => &mut self.watchers.watcher,
            };
            if place.is_some() {
                continue;
            }
            match self.seats.start(seat, &self.tools.wakes) {
                Ok(id) => *place = Some(id),
                Err(e) => {
                    tracing::error!("the {} is not started: {e}", seat.name());
                    return self.pause_watchers();
                }
            }
            if seat == Seat::Guardian {
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
                self.seats.say(guardian, &Request::Tracer, vec![one], wakes);
                self.seats.say(watcher, &ToWatcher::Guardian, vec![other], wakes);
            }
            Err(e) => {
                tracing::error!("the watcher has no guardian: {e}");
                self.seats.end(watcher, "it could be given no guardian");
            }
        }
    }

    fn introduce(&mut self) {
        let Some(watcher) = self.watchers.watcher.filter(|_| self.watchers.ready) else {
            return;
        };
        for (watched, socket) in self.tools.watching.take_waiting() {
            let word = ToWatcher::Session { watched };
            self.seats.say(watcher, &word, vec![socket], &self.tools.wakes);
        }
    }

    /// The watcher says something.
    pub(super) fn watcher_says(&mut self, seat: SeatId, frame: &[u8]) {
        let word = match fleetgate_wire::decode::<FromWatcher>(frame) {
            Ok(word) => word,
            Err(e) => {
                let why = format!("it asked for what it may not: {e}");
                return self.seats.end(seat, &why);
            }
        };
        match word {
            FromWatcher::Ready => {
                self.watchers.ready = true;
                self.join_watchers();
                for (key, watched) in self.tools.watching.left_behind() {
                    let word = ToWatcher::Adopt { key, watched };
                    self.seats.say(seat, &word, Vec::new(), &self.tools.wakes);
                }
                self.introduce();
            }
            FromWatcher::Holds { key, session } => self.tools.watching.holds(key, session),
            FromWatcher::Released { key } => self.tools.watching.released(key),
            FromWatcher::Seen { events } => {
                self.watchers.taken = self.watchers.taken.saturating_add(events.len() as u32);
                for seen in events {
                    let Some(event) = audit::event(&seen.event.to_string_lossy()) else {
                        return self.seats.end(seat, "it told of what no watcher tells");
                    };
                    let at = Time {
                        sec: seen.at.sec,
                        nsec: seen.at.nsec,
                    };
                    let what = What::Call {
                        event,
                        fields: seen.fields,
                    };
                    self.tell_watched(seen.session, what, Some(at));
                }
                self.have_more_told();
            }
            FromWatcher::Lost { session, count } => {
                self.tell_watched(session, What::Lost { count }, None);
            }
            FromWatcher::Gap {
                session,
                lasted_ms,
                calls,
            } => self.tell_watched(session, What::Gap { lasted_ms, calls }, None),
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
            let word = ToWatcher::More { events };
            self.seats.say(watcher, &word, Vec::new(), &self.tools.wakes);
        }
    }

    fn tell_watched(&mut self, session: SessionId, what: What, at: Option<Time>) {
        let Some(whose) = self.tools.watching.whose(&session) else {
            return;
        };
        let event = Event::Watched(Box::new(Watched {
            connection: whose.connection,
            session,
            login: whose.login.clone(),
            what,
        }));
        match at {
            Some(at) => self.tools.audit.tell_at(at, event),
            None => self.tools.audit.tell(event),
        }
    }

    fn perhaps_idle(&mut self) {
        if !self.tools.watching.is_needed() && self.watchers.idle.is_none() {
            self.watchers.idle = Some(self.tools.timers.after(IDLE, IDLE_KEY));
        }
    }

    /// A timer of theirs.
    pub(super) fn watcher_woken(&mut self, id: u64) {
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
        for seat in both.into_iter().flatten() {
            self.seats.dismiss(seat);
        }
    }

    /// One of them is gone. What it did the other one goes on with until the next is there.
    pub(super) fn watcher_gone(&mut self, seat: SeatId) {
        if self.watchers.watcher == Some(seat) {
            if !std::mem::take(&mut self.watchers.ready) {
                self.pause_watchers();
            }
            self.watchers.watcher = None;
            self.watchers.taken = 0;
        } else if self.watchers.guardian == Some(seat) {
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
