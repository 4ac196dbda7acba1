//! A connection after its login: what every order on it is checked against.

use fleetgate_launch::pam::PamSession;
use fleetgate_policy::Grant;
use fleetgate_wire::node::{Connection, Ends};

/// A login that was let in, on its one connection. Gone with it.
pub struct Granted {
    /// The connection.
    pub connection: Connection,
    /// Where from and where to.
    pub ends: Ends,
    /// What was granted.
    pub grant: Grant,
    /// The account's number when it was let in. An account that has another one since is not the same.
    pub uid: u32,
    /// With PAM: the conversation that let it in, accepted and not opened. The connection's first session takes it, so
    /// that what the modules learnt (a ticket, a key) reaches it; later ones begin their own.
    pub pam: Option<PamSession>,
}
