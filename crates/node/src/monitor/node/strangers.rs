//! Connections that are not logged in, as the monitor's loop treats them: penalties of their sources, places, and sums in the
//! audit log.

use super::Node;
use crate::monitor::audit::Event;
use crate::monitor::connections::Stage;
use crate::monitor::strangers::Line;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_policy::strangers::Offence;
use fleetgate_sys::{Fd, stream};
use fleetgate_wire::node::Connection as Number;

/// What a refused client gets before the connection is closed; clients show text that comes before a version line.
const NOT_NOW: &[u8] =
    b"Not allowed at this time: too many failed logins or idle connections from your address\r\n";

impl Node {
    /// Whether this is told by itself. If not it is counted, and told in a sum.
    pub(super) fn has_line(&mut self, line: Line) -> bool {
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
    pub(super) fn sums_due(&mut self) {
        self.strangers_timer = None;
        self.tell_sums(false);
        self.plan_sums();
    }

    /// Tells the sums that are due; `all`: the node ends.
    pub(super) fn tell_sums(&mut self, all: bool) {
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

    /// A connection that is not logged in ends by its peer's doing: what that costs its source.
    pub(super) fn charge_for_end(&mut self, number: Number) {
        let grace = self.tools.config.limits.login_grace.0;
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let Stage::Login(login) = &known.stage else {
            return;
        };
        let offence = match now().saturating_sub(known.since) >= grace {
            true => Some(Offence::TooLate),
            false => login.offence_at_end(),
        };
        let (source, tunnelled) = (known.source.ip(), known.via.is_some());
        if let Some(offence) = offence {
            self.tools.strangers.offend(source, tunnelled, offence);
        }
    }
}

/// Says it as far as the socket takes it at once.
pub(super) fn say_not_now(socket: &Fd) {
    let _ = stream::send_now(socket.raw(), NOT_NOW);
}
