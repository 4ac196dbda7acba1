//! The ends of connections, and of processes that ask for what they may not: whatever hung on one goes with it.

use super::{GRACE_MARGIN, Stage};
use crate::monitor::Monitor;
use crate::monitor::audit::Event;
use crate::monitor::live;
use crate::monitor::metrics::LoginResult;
use crate::monitor::strangers::StrangerEvent;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use crate::monitor::workers::{WorkerId, WorkerKind};
use fleetgate_policy::strangers::Offence;
use fleetgate_wire::node::ConnectionNumber;
use std::ffi::CStr;
use std::time::Duration;

/// How long a front has to say what a connection that hung up carried.
pub(crate) const FRONTS_REPORT: Duration = Duration::from_millis(500);
/// The most of a process's own text that goes into the log.
pub const MAX_QUOTED: usize = 512;

/// A text of the lobby's or a front's, for the log: no line of its own, and no longer than its bound.
pub(crate) fn quoted(said: &CStr) -> String {
    let all = said.to_bytes();
    let head = String::from_utf8_lossy(&all[..all.len().min(MAX_QUOTED)]);
    let mut text = String::with_capacity(head.len());
    for c in head.chars() {
        match c {
            '"' | '\'' => text.push(c),
            c => text.extend(c.escape_debug()),
        }
    }
    text
}

impl Monitor {
    /// Its socket hung up, or it is not logged in in time.
    pub(crate) fn connection_woken(&mut self, number: ConnectionNumber) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let now = now();
        let late = known.deadline.is_some_and(|timer| timer.is_due(now));
        // The lobby ends it a little earlier, and the end of the socket may be here before its message.
        let over = known
            .deadline
            .is_some_and(|timer| timer.is_due(now + GRACE_MARGIN));
        let locked = late && known.parting.is_some();
        let why = match (late, &known.stage) {
            (_, Stage::Open(..)) if locked => "its front did not end it",
            (_, Stage::Open(..)) => return self.hung_up(number),
            (true, Stage::LoggingIn(_)) => "it did not log in in time",
            (true, _) => "the lobby did not hand it over in time",
            (false, Stage::LoggingIn(_)) if over => "the time to log in is over",
            (false, _) => "it was closed",
        };
        self.charge_for_end(number);
        self.end(number, why);
    }

    /// Its socket is dead: all that hung on it goes now. Its front may still report the bytes that it carried, for
    /// which the record waits a moment.
    pub(crate) fn hung_up(&mut self, number: ConnectionNumber) {
        // A proxy ends connections of users who are locked. What these run is ended too, as long as it is known whose it is.
        self.look_at_next();
        let Some(known) = self.connections.get(number) else {
            return;
        };
        if known.hung_up {
            return self.end(number, "it was closed");
        }
        known.hung_up = true;
        known.waiting.clear();
        self.tools.wakes.forget(&known.socket);
        let timer = self
            .tools
            .timers
            .after(FRONTS_REPORT, Key::new(Owner::Connections, number));
        known.deadline = Some(timer);
        let cluster_logins = known
            .open_login()
            .map_or(&[][..], |open_login| &open_login.cluster_logins);
        self.sessions.connection_ended(number, cluster_logins);
        live::connection_over(&mut self.tools, number);
        self.networks.connection_ended(number);
    }

    /// A connection ends, and all that hung on it: its grant, its networking helper, its sessions' terminals and pipes.
    pub(crate) fn end(&mut self, number: ConnectionNumber, why: &str) {
        self.end_with(number, why, 0, 0);
    }

    pub(crate) fn end_with(&mut self, number: ConnectionNumber, why: &str, received: u64, sent: u64) {
        if let Some(Stage::LoggingIn(login)) = self.connections.get(number).map(|c| &mut c.stage) {
            let unreported_refusal = login.unreported_refusal();
            self.tell_refusals(number, unreported_refusal);
        }
        let parting = self.connections.get(number).and_then(|c| c.parting.take());
        let why = parting.as_deref().unwrap_or(why);
        let Some(known) = self.connections.end(number) else {
            return;
        };
        self.tools.pam_turns.leave(number);
        // Others may hold the socket a moment longer: it is not to wake us again.
        self.tools.wakes.forget(&known.socket);
        if let Some(timer) = known.deadline {
            self.tools.timers.cancel(timer);
        }
        let (login, via) = (known.account_name(), known.proxy());
        self.tools.spans.take(number);
        match known.stage {
            Stage::LoggingIn(_) | Stage::Moving => self.tools.metrics.login(LoginResult::Abandoned),
            Stage::Accepted(open_login, front) | Stage::Open(open_login, front) => {
                open_login.tell_further_denials(&self.tools.audit);
                open_login
                    .forwards
                    .tell_further(&self.tools.audit, number, open_login.grant.login.as_str());
                self.sessions.connection_ended(number, &open_login.cluster_logins);
                live::connection_over(&mut self.tools, number);
                self.networks.connection_ended(number);
                self.fronts.left(front, number, &mut self.tools.timers);
            }
        }
        self.tools.metrics.connection_ended();
        let lasted = now().saturating_sub(known.since);
        let line = StrangerEvent {
            source: known.source.ip(),
            tunnelled: via.is_some(),
            what: "connection_ended",
            is_user: false,
        };
        if login.is_none() && !self.has_line(line) {
            tracing::debug!(connection = number, source = %known.source, "a connection ended: {why}");
            return;
        }
        tracing::info!(
            connection = number, source = %known.source, login = login.as_deref().unwrap_or(""),
            "a connection ended: {why}"
        );
        let event = Event::ConnectionEnded {
            connection: number,
            source: known.source,
            login,
            reason: why.to_owned(),
            received,
            sent,
            lasted,
            via,
        };
        self.untold_ends.push((number, event));
        self.tell_ends(false);
    }

    /// Tells of connections that ended. A session that is being launched starts whatever became of its connection: the end
    /// is told behind it, so that whoever reads the log knows the connection's last session when he reads of its end.
    /// `all`: the node ends, and nothing is waited for.
    pub(crate) fn tell_ends(&mut self, all: bool) {
        let sessions = &self.sessions;
        let due = |end: &mut (ConnectionNumber, Event)| all || !sessions.is_beginning(end.0);
        for (_, event) in self.untold_ends.extract_if(.., due) {
            self.tools.audit.tell(event);
        }
    }

    /// A process asked for what no honest one asks for: it is taken over, or broken, and ends with all its connections.
    pub(crate) fn violated(
        &mut self,
        what: WorkerKind,
        worker: WorkerId,
        connection: Option<ConnectionNumber>,
        why: &str,
    ) {
        let name = what.name();
        tracing::error!(connection, "the {name} asked for what it may not: {why}");
        self.workers
            .end(worker, &format!("it asked for what it may not: {why}"));
        let theirs = match what {
            WorkerKind::Lobby => self.connections.numbers(|c| c.front().is_none()),
            WorkerKind::Tunnel => self
                .connections
                .numbers(|c| c.via.as_ref().is_some_and(|via| via.worker == worker)),
            _ => self.connections.numbers(|c| c.front() == Some(worker)),
        };
        for number in theirs {
            self.end(number, &format!("the {name} asked for what it may not"));
        }
    }

    /// A connection that is not logged in ends by its peer's doing: what that costs its source.
    pub(crate) fn charge_for_end(&mut self, number: ConnectionNumber) {
        let grace = self.tools.config.limits.login_grace.0;
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let Stage::LoggingIn(login) = &known.stage else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn words_of_a_worker_begin_no_line_and_have_a_bound() {
        let said = |bytes: Vec<u8>| quoted(&CString::new(bytes).expect("no zero byte"));
        assert_eq!(said(b"it's \"over\"".to_vec()), "it's \"over\"");
        assert_eq!(
            said(b"a\nERROR forged\x1b[2J".to_vec()),
            "a\\nERROR forged\\u{1b}[2J"
        );
        assert_eq!(said("a\u{202e}b".into()), "a\\u{202e}b");
        assert_eq!(said(vec![b'x'; 100_000]).len(), MAX_QUOTED);
        // The longest that an escape makes of a byte.
        assert_eq!(said(vec![1; 100_000]).len(), MAX_QUOTED * "\\u{1}".len());
    }
}
