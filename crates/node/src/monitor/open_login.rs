//! A connection after its login: what every request on it is checked against.

use super::forwards::ToldForwards;
use crate::config::cluster::ClusterLogin;
use fleetgate_launch::pam::PamSession;
use fleetgate_policy::{Grant, Permits};
use fleetgate_wire::node::{ConnectionAddresses, ConnectionNumber};

/// A login that was let in, on its one connection. Gone with it.
pub struct OpenLogin {
    /// The connection.
    pub connection: ConnectionNumber,
    /// Where from and where to.
    pub addresses: ConnectionAddresses,
    /// What was granted.
    pub grant: Grant,
    /// As whom of the cluster; none: by what the node trusts itself.
    pub cluster_logins: Vec<ClusterLogin>,
    /// What the grant permits without what roles take away.
    pub base: Permits,
    /// The account's number when it was let in. An account that has another one since is not the same.
    pub uid: u32,
    /// With PAM: the conversation that let it in, accepted and not opened. The connection's first session takes it, so
    /// that what the modules learnt (a ticket, a key) reaches it; later ones begin their own.
    pub pam: Option<PamSession>,
    /// So many requests were refused on it.
    pub denials: u64,
    /// What was told of its forwarded connections.
    pub forwards: ToldForwards,
}

impl OpenLogin {
    /// The user of the cluster, for the audit log.
    pub fn user(&self) -> Option<String> {
        self.cluster_logins
            .iter()
            .find_map(|cluster_login| cluster_login.user().map(ToString::to_string))
    }
}
