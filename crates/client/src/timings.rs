//! What a connection waited for: steps with their times, and in each the round trips and the requests that went out.
//! It is told; it measures and prints nothing.

use std::time::{SystemTime, UNIX_EPOCH};

/// Steps that are kept, at most: a connection that begins anew again and again has no more to tell.
pub const MAX_STEPS: usize = 64;

/// All of one connection.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    steps: Vec<Step>,
    open: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it was for: "tcp", "tls", "key exchange", "login and command".
    pub name: &'static str,
    /// From where to where: "client-proxy", "client-node".
    pub leg: &'static str,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// How often the other side was waited for.
    pub round_trips: u32,
    /// What was asked of it, in order.
    pub requests: Vec<&'static str>,
}

impl Timings {
    /// A step begins, and the one before it ends.
    pub fn begin(&mut self, name: &'static str, leg: &'static str) {
        self.end();
        if self.steps.len() == MAX_STEPS {
            return;
        }
        let start = nanoseconds();
        self.steps.push(Step {
            name,
            leg,
            start,
            end: start,
            round_trips: 0,
            requests: Vec::new(),
        });
        self.open = true;
    }

    /// The other side is waited for.
    pub fn round_trip(&mut self) {
        if let Some(step) = self.now() {
            step.round_trips += 1;
        }
    }

    /// Something is asked of it.
    pub fn request(&mut self, what: &'static str) {
        if let Some(step) = self.now().filter(|s| s.requests.len() < MAX_STEPS) {
            step.requests.push(what);
        }
    }

    /// The step is over.
    pub fn end(&mut self) {
        if let Some(step) = self.now() {
            step.end = nanoseconds();
        }
        self.open = false;
    }

    /// A step that another process had for this connection.
    pub fn extend(&mut self, step: Step) {
        self.end();
        if self.steps.len() < MAX_STEPS {
            self.steps.push(step);
        }
    }

    /// Whether a step is under way.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// All steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Round trips in sum.
    pub fn round_trips(&self) -> u32 {
        self.steps.iter().map(|s| s.round_trips).sum()
    }

    fn now(&mut self) -> Option<&mut Step> {
        self.steps.last_mut().filter(|_| self.open)
    }
}

fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Timings {
    /// Of steps that are over.
    pub(crate) fn of(steps: Vec<Step>) -> Timings {
        Timings { steps, open: false }
    }
}
