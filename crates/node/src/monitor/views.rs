//! Who sees which session of somebody else's, as a part of the monitor's tools. It decides nothing and tells nobody
//! (`monitor::live` does).

use super::audit::Event;
use super::timers::Timer;
use fleetgate_policy::cluster::Identity;
use fleetgate_sys::Fd;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::Ticket;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// Everybody who sees a session of somebody else's.
#[derive(Default)]
pub struct Views {
    pub(super) all: BTreeMap<u32, View>,
    pub(super) last: u32,
    /// Sessions that are over, of which somebody is to hear.
    over: Vec<SessionId>,
}

/// A session, and a number on its connection.
pub(super) type Place = (ConnectionNumber, Ticket);

/// Somebody who sees one.
pub(super) struct View {
    pub(super) session: SessionId,
    /// Whose the session is.
    pub(super) owner: Option<String>,
    /// The account that it runs as.
    pub(super) of_login: String,
    /// The session's place, and the viewer's.
    pub(super) shown: Place,
    pub(super) seen: Place,
    pub(super) viewer: Viewer,
    pub(super) login: String,
    pub(super) source: SocketAddr,
    pub(super) types: bool,
    /// He may play its recording, too.
    pub(super) plays: bool,
    /// To cut it.
    pub(super) cut: Fd,
    pub(super) stage: Stage,
    /// So long he waits for the first that he sees.
    pub(super) patience: Timer,
}

/// How far he is.
pub(super) enum Stage {
    /// The session's front is to say since when he sees it.
    Coming(Fd),
    /// The recorder is to write what was shown before.
    Recorded(Fd, u64),
    /// He sees it.
    Sees(Instant),
}

/// Somebody who sees sessions of others: what his certificates say.
pub(super) struct Viewer {
    /// The user.
    pub(super) name: String,
    /// Each with its end.
    pub(super) identities: Vec<(Identity, Option<u64>)>,
}

impl Views {
    /// A session is over.
    pub fn session_over(&mut self, session: &SessionId) {
        if self.all.values().any(|view| view.session == *session) {
            self.over.push(*session);
        }
    }

    /// Those that are over since the last call.
    pub(super) fn take_over(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.over)
    }
}

impl View {
    /// It began, as an event.
    pub(super) fn begun(&self) -> Event {
        let (connection, login) = (self.seen.0, self.login.clone());
        let (session, source) = (self.session, self.source);
        let (user, owner) = (Some(self.viewer.name.clone()), self.owner.clone());
        match self.types {
            true => Event::SessionJoined {
                connection,
                login,
                session,
                source,
                user,
                owner,
            },
            false => Event::SessionWatched {
                connection,
                login,
                session,
                source,
                user,
                owner,
            },
        }
    }

    /// It is over; none: it had not begun.
    pub(super) fn over(&self, why: &str) -> Option<Event> {
        let Stage::Sees(since) = self.stage else {
            return None;
        };
        Some(Event::ViewerLeft {
            connection: self.seen.0,
            login: self.login.clone(),
            session: self.session,
            user: Some(self.viewer.name.clone()),
            reason: why.to_owned(),
            lasted: since.elapsed(),
        })
    }
}
