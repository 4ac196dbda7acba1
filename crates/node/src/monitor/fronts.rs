//! One front for each login: the account and the identity that was let in. A front that has no connection is kept for a
//! moment, because the next command of the same person is often close behind, and then ended.

use super::offer::Offer;
use super::seats::{Seat, SeatId, Seats};
use super::timers::{Timer, Timers};
use super::wakes::{Key, Owner, Wakes};
use fleetgate_policy::Login;
use fleetgate_policy::grant::Identity;
use fleetgate_sys::Errno;
use fleetgate_wire::node::Connection;
use fleetgate_wire::node::front::ToFront;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long a front without a connection stays: its memory is promised back.
const IDLE: Duration = Duration::from_secs(3);
/// The most fronts: each is a process.
pub const MAX_FRONTS: usize = 4096;

/// Whose front it is. The uid too: an account that was made anew under the name is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Whose {
    login: Login,
    uid: u32,
    identity: String,
}

impl Whose {
    /// This login's.
    pub fn new(login: &Login, uid: u32, identity: &Identity) -> Whose {
        Whose {
            login: login.clone(),
            uid,
            identity: identity.to_string(),
        }
    }
}

/// All fronts.
#[derive(Default)]
pub struct Fronts {
    seats: HashMap<Whose, SeatId>,
    table: HashMap<SeatId, Front>,
}

struct Front {
    whose: Whose,
    connections: HashSet<Connection>,
    idle: Option<Timer>,
}

impl Fronts {
    /// The front of this login, started if there is none, with this connection among its own.
    pub fn seat(
        &mut self,
        whose: Whose,
        connection: Connection,
        offer: &Offer,
        seats: &mut Seats,
        wakes: &Wakes,
        timers: &mut Timers,
    ) -> Result<SeatId, Errno> {
        let id = match self.seats.get(&whose) {
            Some(id) => *id,
            None if self.table.len() >= MAX_FRONTS => return Err(Errno::EAGAIN),
            None => {
                let id = seats.start(Seat::Front, wakes)?;
                let settings = offer.settings.clone();
                seats.say(id, &ToFront::Begin { settings }, Vec::new(), wakes);
                self.seats.insert(whose.clone(), id);
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
    pub fn left(&mut self, id: SeatId, connection: Connection, timers: &mut Timers) {
        if let Some(front) = self.table.get_mut(&id) {
            front.connections.remove(&connection);
            if front.connections.is_empty() && front.idle.is_none() {
                front.idle = Some(timers.after(IDLE, Key::new(Owner::Starts, id)));
            }
        }
    }

    /// It had no connection for a while.
    pub fn idle(&mut self, id: SeatId, seats: &mut Seats) {
        if self.table.get(&id).is_some_and(|f| f.connections.is_empty()) {
            self.forget(id);
            seats.dismiss(id);
        }
    }

    /// It ended, or is to be used no more; the connections that it had.
    pub fn forget(&mut self, id: SeatId) -> Vec<Connection> {
        let Some(front) = self.table.remove(&id) else {
            return Vec::new();
        };
        if self.seats.get(&front.whose) == Some(&id) {
            self.seats.remove(&front.whose);
        }
        front.connections.into_iter().collect()
    }

    /// All of them.
    pub fn ids(&self) -> Vec<SeatId> {
        self.table.keys().copied().collect()
    }

    /// Whether this process is a front.
    pub fn is(&self, id: SeatId) -> bool {
        self.table.contains_key(&id)
    }
}
