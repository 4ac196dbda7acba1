//! Sessions that others may see: which they are. Who may is decided elsewhere (`monitor::live`).

use super::{Session, Sessions, State};
use crate::monitor::audit::digits;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::Ticket;

/// One that somebody asks for.
pub struct ShownSession {
    /// Its id.
    pub id: SessionId,
    /// Its connection, and its number there.
    pub place: (ConnectionNumber, Ticket),
    /// The account.
    pub login: String,
    /// The user of the cluster, if it is one's.
    pub user: Option<String>,
}

impl Sessions {
    /// The session whose id begins so and which shows something; an error is a sentence.
    pub fn shown(&self, id: &str) -> Result<ShownSession, String> {
        let mut found = self
            .all
            .values()
            .filter(|session| digits(&session.id).starts_with(id));
        let session = match (found.next(), found.next()) {
            (Some(session), None) => session,
            (Some(_), Some(_)) => {
                return Err(format!(
                    "{id} begins the ids of several sessions: give more of it"
                ));
            }
            (None, _) => {
                return Err(format!(
                    "no session with the id {id} runs here: `fleetgate sessions ls` lists those that run. One that began before \
                     the node was restarted cannot be seen by others"
                ));
            }
        };
        let is_shown = matches!(session.state, State::Running(_)) && !session.nobody_listens;
        if !is_shown || session.kill_when_running {
            return Err(format!("the session {id} is about to end, or its user is gone"));
        }
        if !session.has_terminal() {
            return Err(format!(
                "the session {id} has no terminal, so there is nothing to see of it; `fleetgate sessions play` shows its recording"
            ));
        }
        Ok(ShownSession {
            id: session.id,
            place: (session.connection, session.ticket),
            login: session.login.clone(),
            user: session.user.clone(),
        })
    }
}

impl Session {
    fn has_terminal(&self) -> bool {
        self.terminal.is_some() && self.shared.is_none()
    }
}
