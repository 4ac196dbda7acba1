//! Forwarded connections that ended, for the audit log. The front says which there were, and a front that was taken over could
//! say so without end: each login has so many lines at once and so many more a second, and the sum of all others with its end.

use super::audit::{Audit, Event};
use fleetgate_wire::node::ConnectionNumber;
use std::time::Duration;

/// Lines that a login may have at once.
const AT_ONCE: u64 = 4096;
/// And each second.
const A_SECOND: u64 = 64;

/// What was told of a login's forwarded connections.
#[derive(Debug, Default)]
pub struct ToldForwards {
    told: u64,
    /// Since when lines are counted.
    since: Option<Duration>,
    untold: u64,
    sent: u64,
    received: u64,
    onward_ssh: bool,
}

/// One that ended, and whose it was.
pub struct EndedForward {
    /// The SSH connection that it was on.
    pub connection: ConnectionNumber,
    /// The account.
    pub login: String,
    /// Where it led, as the front says.
    pub to: String,
    /// Bytes that the client sent there.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
    /// It went on to an SSH server, as the front says: what was done there is in no recording of ours.
    pub onward_ssh: bool,
}

impl ToldForwards {
    /// Gives it a line, or adds it to the sum.
    pub fn tell(&mut self, audit: &Audit, now: Duration, ended: EndedForward) {
        if self.has_line(now) {
            return write(audit, ended);
        }
        self.untold += 1;
        self.sent = self.sent.saturating_add(ended.sent);
        self.received = self.received.saturating_add(ended.received);
        self.onward_ssh |= ended.onward_ssh;
    }

    /// The connection ends: what has no line of its own.
    pub fn tell_further(&self, audit: &Audit, connection: ConnectionNumber, login: &str) {
        if self.untold > 0 {
            let further = EndedForward {
                connection,
                login: login.to_owned(),
                to: format!(
                    "{} further connections, of which only the sum is told",
                    self.untold
                ),
                sent: self.sent,
                received: self.received,
                onward_ssh: self.onward_ssh,
            };
            write(audit, further);
        }
    }

    /// Whether one more has a line at this time.
    fn has_line(&mut self, now: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let room = AT_ONCE + now.saturating_sub(since).as_secs() * A_SECOND;
        // What was not used in a quiet time is not saved up.
        self.told = self.told.max(room - AT_ONCE);
        let has_line = self.told < room;
        self.told += u64::from(has_line);
        has_line
    }
}

fn write(audit: &Audit, ended: EndedForward) {
    audit.tell(ended.event());
}

impl EndedForward {
    /// As an event.
    pub fn event(&self) -> Event {
        Event::Forwarded {
            connection: self.connection,
            login: self.login.clone(),
            to: self.to.clone(),
            sent: self.sent,
            received: self.received,
            onward_ssh: self.onward_ssh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_without_end_have_some_lines_at_once_and_some_a_second() {
        let mut told = ToldForwards::default();
        let mut lines = |at: u64, tries: u64| {
            (0..tries)
                .filter(|_| told.has_line(Duration::from_secs(at)))
                .count() as u64
        };
        assert_eq!(lines(1000, 2 * AT_ONCE), AT_ONCE);
        assert_eq!(lines(1010, 2 * AT_ONCE), 10 * A_SECOND);
        // However long it was quiet, there are not more at once.
        assert_eq!(lines(100_000, 3 * AT_ONCE), AT_ONCE);
        assert_eq!(lines(100_000, 1), 0);
    }
}
