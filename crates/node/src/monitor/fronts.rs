//! One front for each login: the account and the proofs that it was let in by. A front that has no connection is kept for a
//! moment, because the next command of the same person is often close behind, and then ended.
//!
//! A front asks for its own connections, and the parts that do what it asks check it against the grant. A message about
//! another front's connection is as if it were about none.

use super::Monitor;
use super::connections::{PendingRequest, quoted};
use super::forwards::EndedForward;
use super::live;
use super::timers::{Timer, Timers, now};
use super::wakes::{Key, Owner, Wakes};
use super::workers::{WorkerId, WorkerKind, Workers};
use crate::config::host_keys::MAX_PROOFS;
use crate::config::offer::Offer;
use fleetgate_policy::grant::Proofs;
use fleetgate_policy::{AccountName, Denied, Kind, Permits};
use fleetgate_sys::{Errno, clock};
use fleetgate_wire::node::front::{FromFront, RequestKind, ToFront};
use fleetgate_wire::node::{Blob, ConnectionNumber};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::time::Duration;

/// How long a front without a connection stays: its memory is promised back.
const IDLE: Duration = Duration::from_secs(3);
/// The most fronts: each is a process.
pub const MAX_FRONTS: usize = 4096;

/// Whose front it is. The uid too: an account that was made anew under the name is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrontOwner {
    login: AccountName,
    uid: u32,
    proofs: String,
}

impl FrontOwner {
    /// This login's.
    pub fn new(login: &AccountName, uid: u32, proofs: &Proofs) -> FrontOwner {
        FrontOwner {
            login: login.clone(),
            uid,
            proofs: proofs.to_string(),
        }
    }
}

/// All fronts.
#[derive(Default)]
pub struct Fronts {
    workers: HashMap<FrontOwner, WorkerId>,
    table: HashMap<WorkerId, Front>,
}

struct Front {
    whose: FrontOwner,
    connections: HashSet<ConnectionNumber>,
    idle: Option<Timer>,
}

impl Fronts {
    /// The front of this login, started if there is none, with this connection among its own.
    pub fn get_or_start(
        &mut self,
        whose: FrontOwner,
        connection: ConnectionNumber,
        offer: &Offer,
        workers: &mut Workers,
        wakes: &Wakes,
        timers: &mut Timers,
    ) -> Result<WorkerId, Errno> {
        let id = match self.workers.get(&whose) {
            Some(id) => *id,
            None if self.table.len() >= MAX_FRONTS => return Err(Errno::EAGAIN),
            None => {
                let id = workers.start(WorkerKind::Front, wakes)?;
                let settings = offer.settings.clone();
                workers.say(id, &ToFront::Begin { settings }, Vec::new(), wakes);
                self.workers.insert(whose.clone(), id);
                self.table.insert(
                    id,
                    Front {
                        whose,
                        connections: HashSet::new(),
                        idle: None,
                    },
                );
                id
            }
        };
        if let Some(front) = self.table.get_mut(&id) {
            front.connections.insert(connection);
            if let Some(timer) = front.idle.take() {
                timers.cancel(timer);
            }
        }
        Ok(id)
    }

    /// A connection of it ended.
    pub fn left(&mut self, id: WorkerId, connection: ConnectionNumber, timers: &mut Timers) {
        if let Some(front) = self.table.get_mut(&id) {
            front.connections.remove(&connection);
            if front.connections.is_empty() && front.idle.is_none() {
                front.idle = Some(timers.after(IDLE, Key::new(Owner::IdleFronts, id)));
            }
        }
    }

    /// It had no connection for a while.
    pub fn idle(&mut self, id: WorkerId, workers: &mut Workers) {
        if self.table.get(&id).is_some_and(|f| f.connections.is_empty()) {
            self.forget(id);
            workers.dismiss(id);
        }
    }

    /// It ended, or is to be used no more; the connections that it had.
    pub fn forget(&mut self, id: WorkerId) -> Vec<ConnectionNumber> {
        let Some(front) = self.table.remove(&id) else {
            return Vec::new();
        };
        if self.workers.get(&front.whose) == Some(&id) {
            self.workers.remove(&front.whose);
        }
        front.connections.into_iter().collect()
    }

    /// All of them.
    pub fn ids(&self) -> Vec<WorkerId> {
        self.table.keys().copied().collect()
    }

    /// Whether this process is a front.
    pub fn is(&self, id: WorkerId) -> bool {
        self.table.contains_key(&id)
    }
}

/// The most proofs of host keys that one connection gets in its life.
pub const MAX_PROOFS_OF_CONNECTION: usize = 4 * MAX_PROOFS;

impl Monitor {
    /// A frame of a front's.
    pub(crate) fn front_says(&mut self, front: WorkerId, frame: &[u8]) {
        if !self.fronts.is(front) {
            return;
        }
        let message = match fleetgate_wire::decode::<FromFront>(frame) {
            Ok(message) => message,
            Err(e) => return self.violated(WorkerKind::Front, front, None, &e.to_string()),
        };
        let Some(connection) = about(&message) else {
            // Ready: the only message that is about no connection.
            return self.workers.ready(front);
        };
        // Of one that hung up only its end is heard.
        let is_end = matches!(message, FromFront::Closed { .. } | FromFront::Forwarded { .. });
        let hung_up = is_end && self.connections.was_of_front(connection, front);
        let offer = self.offer.clone();
        let known = match hung_up {
            true => self.connections.get(connection),
            false => self.connections.of_front(connection, front),
        };
        let Some(known) = known else { return };
        // A client that closed its end does not show as a hang-up (EPOLLHUP is both directions), and a front that was
        // taken over would not tell: whoever is gone asks for nothing.
        let is_request = matches!(
            message,
            FromFront::Start { .. } | FromFront::Network { .. } | FromFront::Signal { .. }
        );
        if is_request && known.is_left() {
            return self.hung_up(connection);
        }
        match message {
            FromFront::Ready => {}
            FromFront::Sign { exchange, .. } => self.sign_when_due(connection, exchange.into()),
            FromFront::Start { ticket, start, .. } => {
                self.request(connection, PendingRequest::Session(ticket, start))
            }
            FromFront::Network { ticket, what, .. } => {
                self.request(connection, PendingRequest::Network(ticket, what))
            }
            FromFront::Signal { ticket, name, .. } => {
                if let Some(open_login) = known.open_login() {
                    self.sessions.signal(&mut self.tools, open_login, ticket, &name);
                }
            }
            FromFront::HangUp { ticket, .. } => {
                if let Some(open_login) = known.open_login() {
                    self.sessions.hang_up(open_login, ticket);
                }
                live::channel_closed(&mut self.tools, (connection, ticket));
            }
            FromFront::Viewed {
                ticket, viewer, at, ..
            } => live::seen_since(&mut self.tools, (connection, ticket), viewer, at),
            FromFront::ViewerSlow { ticket, viewer, .. } => {
                live::too_slow(&mut self.tools, (connection, ticket), viewer);
            }
            FromFront::NotRecorded { ticket, .. } => self.recorder_is_stuck(connection, ticket),
            FromFront::LeaveNothing { ticket, .. } => {
                if let Some(open_login) = known.open_login() {
                    self.sessions.leave_nothing(open_login, ticket);
                }
            }
            FromFront::Forwarded {
                to,
                sent,
                received,
                onward_ssh,
                ..
            } => self.forwarded(connection, &to, (sent, received), onward_ssh),
            FromFront::Denied { kind, what, .. } => {
                let what = what.to_string_lossy().into_owned();
                if let Some(open_login) = known.open_login() {
                    let what = match rule_against(&kind, &open_login.grant.permits) {
                        Some(rule) => format!("{what}: {rule}"),
                        None => what,
                    };
                    open_login.tell_denied(&self.tools.audit, &self.tools.metrics, what);
                }
            }
            FromFront::Prove { ticket, keys, .. } => {
                let signatures = prove(known, &offer, &keys);
                let message = ToFront::Proved {
                    connection,
                    ticket,
                    signatures,
                };
                self.tools.to_fronts.say(connection, message, Vec::new());
            }
            FromFront::Closed {
                why, received, sent, ..
            } => self.end_with(connection, &quoted(&why), received, sent),
        }
    }

    fn forwarded(
        &mut self,
        connection: ConnectionNumber,
        to: &CStr,
        (sent, received): (u64, u64),
        onward_ssh: bool,
    ) {
        if let Some(open_login) = self.connections.get(connection).and_then(|c| c.open_login()) {
            let ended = EndedForward {
                connection,
                login: open_login.grant.login.to_string(),
                to: to.to_string_lossy().into_owned(),
                sent,
                received,
                onward_ssh,
            };
            if self.tools.recordings.is_of(connection) {
                let mut line = Vec::new();
                ended.event().write_line(clock::wall(), &mut line);
                self.tools.recordings.event_of_connection(connection, &line);
            }
            open_login.forwards.tell(&self.tools.audit, now(), ended);
        }
    }
}

/// Proofs of these host keys over the monitor's own session id; all or none. Each is a signature, made on the one thread
/// that all logins share: a connection gets no more of them than a client may want.
fn prove(
    known: &mut crate::monitor::connections::Connection,
    offer: &crate::config::offer::Offer,
    keys: &[Blob],
) -> Option<Vec<Blob>> {
    if keys.len() > MAX_PROOFS || known.proofs + keys.len() > MAX_PROOFS_OF_CONNECTION {
        return None;
    }
    known.proofs += keys.len();
    let id = known.exchanges.session_id()?;
    let one = |key: &Blob| {
        let bytes = known
            .offer
            .keys
            .prove(id, &key.bytes)
            .or_else(|| offer.keys.prove(id, &key.bytes))?;
        Some(Blob { bytes })
    };
    keys.iter().map(one).collect()
}

/// Fronts refuse what is not worth asking for without knowing why: the rule, for the audit log.
fn rule_against(kind: &RequestKind, permits: &Permits) -> Option<Denied> {
    let kind = match kind {
        RequestKind::Shell => Kind::Shell,
        RequestKind::Exec => Kind::Exec,
        RequestKind::Sftp => Kind::Sftp,
        RequestKind::Terminal => Kind::Pty,
        RequestKind::ConnectTcp => Kind::ConnectTcp,
        RequestKind::ConnectUnix => Kind::ConnectUnix,
        RequestKind::Listen => Kind::ListenTcp,
        RequestKind::Agent => Kind::Agent,
        RequestKind::X11 => Kind::X11,
        // A session is refused where no kind of program is allowed: there may be a rule against each.
        RequestKind::Session | RequestKind::Unable => return None,
    };
    permits.allow_kind(kind).err()
}

/// The connection that a message is about.
fn about(message: &FromFront) -> Option<ConnectionNumber> {
    match message {
        FromFront::Ready => None,
        FromFront::Sign { connection, .. }
        | FromFront::Start { connection, .. }
        | FromFront::Signal { connection, .. }
        | FromFront::Network { connection, .. }
        | FromFront::Forwarded { connection, .. }
        | FromFront::Denied { connection, .. }
        | FromFront::Prove { connection, .. }
        | FromFront::HangUp { connection, .. }
        | FromFront::LeaveNothing { connection, .. }
        | FromFront::NotRecorded { connection, .. }
        | FromFront::Viewed { connection, .. }
        | FromFront::ViewerSlow { connection, .. }
        | FromFront::Closed { connection, .. } => Some(*connection),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_policy::Rule;

    #[test]
    fn a_refused_request_is_told_with_the_rule_against_its_kind() {
        let mut permits = Permits::all();
        permits.forbid(&[Kind::Pty], &Rule::new("line 3"));
        for (kind, has_rule) in [
            (RequestKind::Terminal, true),
            (RequestKind::Shell, false),
            (RequestKind::Unable, false),
        ] {
            let rule = rule_against(&kind, &permits).map(|denied| denied.to_string());
            assert_eq!(
                rule.is_some_and(|rule| rule.contains("line 3")),
                has_rule,
                "{kind:?}"
            );
        }
    }
}
