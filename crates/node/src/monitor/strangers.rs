//! Connections that are not logged in: what is told of them, in lines of their own or in sums, and when. What is remembered of their
//! sources is in `config::strangers`, the rules are `fleetgate_policy::strangers`'.

use super::Monitor;
use super::audit::Event;
use super::timers::now;
use super::wakes::{Key, Owner};
pub use crate::config::strangers::{StrangerEvent, Strangers};
use fleetgate_sys::{Fd, stream};

/// A number that nobody can guess. Should the kernel have none, the first of those that are greedy gives way.
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = fleetgate_sys::net::random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// What a refused client gets before the connection is closed; clients show text that comes before a version line.
const NOT_NOW: &[u8] =
    b"Not allowed at this time: too many failed logins or idle connections from your address\r\n";

impl Monitor {
    /// Whether this is told by itself. If not it is counted, and told in a sum.
    pub(crate) fn has_line(&mut self, line: StrangerEvent) -> bool {
        let has = self.tools.strangers.has_line(line);
        if self.strangers_timer.is_none() {
            self.plan_sums();
        }
        has
    }

    fn plan_sums(&mut self) {
        let key = Key::new(Owner::Strangers, 0);
        let due = self.tools.strangers.due();
        self.strangers_timer = due.map(|at| self.tools.timers.at(at.max(now()), key));
    }

    /// A window is over.
    pub(crate) fn sums_due(&mut self) {
        self.strangers_timer = None;
        self.tell_sums(false);
        self.plan_sums();
    }

    /// Tells the sums that are due; `all`: the node ends.
    pub(crate) fn tell_sums(&mut self, all: bool) {
        for (sum, tunnelled) in self.tools.strangers.take(all) {
            let source = sum.source.map(|source| source.short());
            tracing::info!(
                source,
                tunnelled,
                count = sum.count,
                "more of the same from strangers: {}",
                sum.what
            );
            self.tools.audit.tell(Event::Strangers {
                of: sum.what,
                source,
                tunnelled,
                count: sum.count,
                first: sum.first,
                last: sum.last,
            });
        }
    }
}

/// Says it as far as the socket takes it at once.
pub(crate) fn say_not_now(socket: &Fd) {
    let _ = stream::send_now(socket.raw(), NOT_NOW);
}
