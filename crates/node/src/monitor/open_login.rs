//! A connection after its login: what every request on it is checked against.

use super::containers::{Entry, SeenLabels};
use super::forwards::ToldForwards;
use crate::config::cluster::ClusterLogin;
use fleetgate_launch::within_pam::SharedPam;
use fleetgate_policy::cluster::Name;
use fleetgate_policy::{Grant, OnwardSsh, Permits};
use fleetgate_wire::container::Window;
use fleetgate_wire::node::{ConnectionAddresses, ConnectionNumber};
use std::sync::Arc;

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
    /// The labels of its container, by which roles let it in last; none: no role looks at them.
    pub container_labels: Option<Arc<SeenLabels>>,
    /// What it calls its container may be an id.
    pub container_by_id: bool,
    /// The account's number when it was let in. An account that has another one since is not the same.
    pub uid: u32,
    /// With PAM: the session that its first session and its networking helper share. It begins with the conversation that
    /// let it in.
    pub pam: Arc<SharedPam>,
    /// So many requests were refused on it.
    pub denials: u64,
    /// What was told of its forwarded connections.
    pub forwards: ToldForwards,
}

impl OpenLogin {
    /// The container that it leads into, for a launch there.
    pub fn entry(&self) -> Option<Entry> {
        self.grant.login.container().map(|name| Entry {
            name: name.to_owned(),
            labels: self.container_labels.clone(),
            by_id: self.container_by_id,
            window: Window::default(),
        })
    }

    /// The role because of which its forwarded connections may not go on to SSH servers, if one says so and none other.
    pub fn refuses_onward_ssh(&self) -> Option<&Name> {
        let refuses = |one: &&ClusterLogin| one.allowed.onward_ssh == OnwardSsh::Refuse;
        self.cluster_logins.iter().find(refuses)?.allowed.roles.first()
    }

    /// The user of the cluster, for the audit log.
    pub fn user(&self) -> Option<String> {
        self.cluster_logins
            .iter()
            .find_map(|cluster_login| cluster_login.user().map(ToString::to_string))
    }
}
