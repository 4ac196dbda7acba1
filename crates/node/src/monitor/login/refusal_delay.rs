//! The least time that a refusal takes. What a login's decision needs is sometimes known already (somebody with that name
//! came a moment ago) and is sometimes quicker to find out, so the time of a refusal would tell who has an account here. It
//! delays nobody who is let in.

use super::{LoginAttempt, LoginContext, Step};
use crate::monitor::timers;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_wire::node::Verdict;
use std::time::Duration;

/// A refusal takes so much longer than the slowest look-up of a name took lately, at least: for key files.
const FLOOR: Duration = Duration::from_millis(20);

/// When the request that is being decided came, and the refusal that waits.
#[derive(Default)]
pub struct RefusalDelay {
    since: Option<Duration>,
    held: Option<(Duration, Verdict)>,
}

impl RefusalDelay {
    /// A request came whose refusal is to take its time; asked again, it is the same request.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(timers::now);
    }

    /// Whether a refusal waits.
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// The refusal that waited, if its time has come.
    pub fn take(&mut self) -> Option<Verdict> {
        let (until, verdict) = self.held.take()?;
        if until <= timers::now() {
            return Some(verdict);
        }
        self.held = Some((until, verdict));
        None
    }
}

impl LoginAttempt {
    /// The step as it is, or nothing yet: a refusal that would come too soon is held, and its connection woken for it.
    pub fn delay_refusal(&mut self, step: Step, context: &mut LoginContext<'_>) -> Step {
        let Step::Say(verdict) = step else { return step };
        let is_refusal = matches!(
            verdict,
            Verdict::Rejected { partial: false, .. } | Verdict::Refused { .. } | Verdict::End { .. }
        );
        let since = self.refusal_delay.since.take().filter(|_| is_refusal);
        let until = since.map(|since| since + context.tools.names.slowest() + FLOOR);
        match until.filter(|until| *until > timers::now()) {
            Some(until) => {
                let key = Key::new(Owner::Logins, context.connection);
                context.tools.timers.at(until, key);
                self.refusal_delay.held = Some((until, verdict));
                Step::Wait
            }
            None => Step::Say(verdict),
        }
    }
}
