//! Sessions that are watched: what their filters are, whose they are, and what is still to be said to the watcher. It
//! starts no process: the loop does ([`super::node`]).

use fleetgate_calls::audit::{Level, selection, with_pass};
use fleetgate_calls::filter::{Answers, Program, compile};
use fleetgate_policy::{Audit, Stance, Watching as Wanted};
use fleetgate_sys::{Fd, net, socket};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::exec::Watch;
use fleetgate_wire::node::Connection;
use fleetgate_wire::node::watch::Watched;
use std::collections::HashMap;
use std::sync::Arc;

/// Whose a watched session is.
#[derive(Clone, Debug)]
pub struct Whose {
    /// The connection that it came by.
    pub connection: Connection,
    /// The account.
    pub login: String,
    /// What the watcher was told.
    pub watched: Watched,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Watching {
    filters: HashMap<u8, Arc<Program>>,
    sessions: HashMap<SessionId, Whose>,
    /// Which listeners the watcher holds.
    keys: HashMap<u64, SessionId>,
    /// Sessions that the watcher is not told of yet, with its end of the introduction.
    waiting: Vec<(Watched, Fd)>,
}

impl Watching {
    /// A session is to be watched: what its order says, and the descriptor beside it.
    pub fn begin(
        &mut self,
        connection: Connection,
        login: &str,
        session: SessionId,
        wanted: Wanted,
    ) -> Result<Option<(Watch, Fd)>, String> {
        let level = match wanted.audit {
            Audit::None => return Ok(None),
            Audit::Commands => 1,
            Audit::Files => 2,
            Audit::Full => 3,
        };
        let (filter, pass) = self.filter(level)?;
        let (ours, theirs) = socket::pair().map_err(|e| format!("making a socket: {e}"))?;
        let watched = Watched {
            session,
            level,
            refuse_io_uring: wanted.io_uring == Stance::Refuse,
        };
        self.waiting.push((watched.clone(), ours));
        let whose = Whose {
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
    fn filter(&mut self, level: u8) -> Result<(Vec<u8>, u64), String> {
        let told = match level {
            1 => Level::Commands,
            2 => Level::Files,
            _ => Level::Full,
        };
        let program = match self.filters.get(&level) {
            Some(program) => program.clone(),
            None => {
                let made = compile(&selection(told), &Answers::notify()).map_err(|e| e.to_string())?;
                let program = Arc::new(made);
                self.filters.insert(level, program.clone());
                program
            }
        };
        let mut pass = [0; 8];
        net::random(&mut pass).map_err(|e| format!("random numbers: {e}"))?;
        let pass = u64::from_ne_bytes(pass);
        let steps = with_pass(told, &program, pass).ok_or("the filter lets no helper pass")?;
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
    pub fn take_waiting(&mut self) -> Vec<(Watched, Fd)> {
        std::mem::take(&mut self.waiting)
    }

    /// Whose a session is.
    pub fn whose(&self, session: &SessionId) -> Option<&Whose> {
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
    pub fn left_behind(&mut self) -> Vec<(u64, Watched)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_wire::exec::MAX_FILTER;

    fn wanted(audit: Audit) -> Wanted {
        Wanted {
            audit,
            ..Wanted::default()
        }
    }

    #[test]
    fn each_level_has_a_filter_that_fits_an_order() {
        let mut watching = Watching::default();
        assert!(matches!(
            watching.begin(1, "ada", [0; 16], Wanted::default()),
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
        let mut watching = Watching::default();
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
