//! Whether somebody may see a session, as the cluster's signed state says now.

use crate::monitor::open_login::OpenLogin;
use crate::monitor::timers::unix_seconds;
use crate::monitor::tools::Tools;
use crate::monitor::views::Viewer;
use fleetgate_policy::cluster::{Reason, RecordingRight, Refusal};

impl Viewer {
    /// Of this login; none: it is not the cluster's.
    pub(in crate::monitor) fn of(open_login: &OpenLogin) -> Option<Viewer> {
        let all = open_login.cluster_logins.iter();
        Some(Viewer {
            name: open_login.user()?,
            identities: all.map(|one| (one.identity.clone(), one.expires)).collect(),
        })
    }

    /// Whether he has this right about a session of `owner`'s as `login`.
    pub(in crate::monitor) fn may(
        &self,
        tools: &Tools,
        right: RecordingRight,
        owner: Option<&str>,
        login: &str,
        skew: u64,
    ) -> Result<(), Refusal> {
        let Some(cluster) = &tools.cluster else {
            return Err(Refusal {
                reason: Reason::Role,
                rule: "the node".to_owned(),
                words: "this node has left the cluster".to_owned(),
            });
        };
        let now = unix_seconds();
        self.identities.iter().try_for_each(|(identity, expires)| {
            cluster.may_see((identity, *expires), right, (owner, login), (now, skew))
        })
    }
}
