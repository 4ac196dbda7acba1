//! Becoming the user, for good.
//!
//! The helper does this itself, never the child between clone and exec: no process that runs as the user shares
//! memory with the server. Nothing here looks anything up.

use fleetgate_sys::{Errno, credentials};
use fleetgate_wire::common::Ids;

/// Which step was refused; its words go to the operator.
#[derive(Clone, Copy, Debug)]
pub struct StepFailure {
    /// What was tried.
    pub step: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
}

/// Makes this process the user's: groups, group id, user id, and no capability left unless that user is root.
/// Checked afterwards, because a process that goes on as root is worse than one that ends.
///
/// Where this process is not root it can serve its own user only; its groups stay as they are.
pub fn become_user(ids: &Ids) -> Result<(), StepFailure> {
    let at = |step| move |errno| StepFailure { step, errno };
    let own = credentials::user_ids().map_err(at("reading the user ids"))?;
    if own[1] != 0 {
        let groups = credentials::group_ids().map_err(at("reading the group ids"))?;
        let same = own == [ids.uid; 3] && groups == [ids.gid; 3];
        return if same {
            // Started with capabilities by a file or an ambient set: the user's program gets none of them.
            credentials::drop_capabilities().map_err(at("dropping the capabilities"))?;
            no_way_back(ids)
        } else {
            Err(at("becoming another user needs root")(Errno::EPERM))
        };
    }
    credentials::set_groups(&ids.groups).map_err(at("setting the supplementary groups"))?;
    credentials::set_group_ids(ids.gid).map_err(at("setting the group id"))?;
    credentials::set_user_ids(ids.uid).map_err(at("setting the user id"))?;
    if ids.uid != 0 {
        credentials::drop_capabilities().map_err(at("dropping the capabilities"))?;
    }
    let (uids, gids) = (
        credentials::user_ids().map_err(at("reading the user ids"))?,
        credentials::group_ids().map_err(at("reading the group ids"))?,
    );
    let left = credentials::permitted_capabilities().map_err(at("reading the capabilities"))?;
    if uids != [ids.uid; 3] || gids != [ids.gid; 3] || (ids.uid != 0 && left != 0) {
        return Err(at("the privileges did not drop")(Errno::EPERM));
    }
    no_way_back(ids)
}

/// Tries to become root again, which must fail. A process that could is told so and ends at once.
fn no_way_back(ids: &Ids) -> Result<(), StepFailure> {
    if ids.uid == 0
        || (credentials::set_user_ids(0).is_err() && (ids.gid == 0 || credentials::set_group_ids(0).is_err()))
    {
        return Ok(());
    }
    Err(StepFailure {
        step: "the privileges could come back",
        errno: Errno::EPERM,
    })
}
