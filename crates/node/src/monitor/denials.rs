//! Refusals after the login, for the audit log: each connection has the first ones told one by one, and the number of all
//! others with its end. A client can have as many refused as it likes, and its front may say that it did: neither is to
//! fill the log, or the queue that other people's events wait in. It refuses nothing itself.

use super::Monitor;
use super::audit::{Audit, Event};
use super::metrics::Metrics;
use super::open_login::OpenLogin;
use fleetgate_launch::LaunchOutcome;
use fleetgate_wire::node::ConnectionNumber;

/// Refusals of one connection that have a line of their own.
pub const MAX_DENIAL_LINES: u64 = 100;

impl Monitor {
    /// No forward of this connection is opened: a session that is refused so late has a line of its own (`session_refused`).
    pub(super) fn tell_refused_forwards(&mut self, connection: ConnectionNumber, launched: &LaunchOutcome) {
        let Err(why) = launched else { return };
        if let Some(open_login) = self.connections.get(connection).and_then(|c| c.open_login()) {
            open_login.tell_denied(
                &self.tools.audit,
                &self.tools.metrics,
                format!("forwarding: {why}"),
            );
        }
    }
}

impl OpenLogin {
    /// Something was refused: what, and by which rule.
    pub fn tell_denied(&mut self, audit: &Audit, metrics: &Metrics, what: String) {
        metrics.denied();
        self.denials += 1;
        if self.denials <= MAX_DENIAL_LINES {
            self.tell_line(audit, what);
        }
    }

    /// The connection ends: what has no line of its own.
    pub fn tell_further_denials(&self, audit: &Audit) {
        let further = self.denials.saturating_sub(MAX_DENIAL_LINES);
        if further > 0 {
            self.tell_line(
                audit,
                format!("{further} further refusals, of which only the number is told"),
            );
        }
    }

    fn tell_line(&self, audit: &Audit, what: String) {
        audit.tell(Event::Denied {
            connection: self.connection,
            login: self.grant.login.to_string(),
            what,
        });
    }
}
