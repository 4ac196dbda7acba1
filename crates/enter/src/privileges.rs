//! Becoming the container's user, with the container's capabilities and no others.
//!
//! The bounding set is the container's, so nothing that is executed can have more. One capability is kept for a while where
//! programs may gain privileges: binding this process by the container's filter takes CAP_SYS_ADMIN. It is given up before
//! there is anything that the container can see.

use fleetgate_session::exec::{Stop, refused};
use fleetgate_sys::Errno;
use fleetgate_sys::credentials::{self, CapabilitySets};
use fleetgate_wire::common::Ids;
use fleetgate_wire::container::Container;

const ADMINISTER: u64 = 1 << credentials::ADMINISTER;

/// What this process does as that user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It executes a program, which makes the program's capabilities anew.
    Execute,
    /// It goes on itself. Nothing takes away what an exec would: a user who is not root has what passes an exec, and no more.
    Serve,
}

/// Takes the ids and the capabilities.
pub fn become_user(container: &Container, ids: &Ids, then: Then) -> Result<(), Stop> {
    let wanted = &container.capabilities;
    if container.no_new_privileges {
        credentials::set_no_new_privileges().map_err(refused("setting no_new_privs"))?;
    }
    credentials::bound_capabilities(wanted.bounding).map_err(refused("bounding the capabilities"))?;
    match credentials::set_groups(&ids.groups) {
        // A user namespace that its user made may forbid it: then nobody inside has any.
        Err(Errno::EPERM) if container.namespaces & fleetgate_sys::namespaces::kind::USER != 0 => {}
        set => set.map_err(refused("setting the supplementary groups"))?,
    }
    credentials::keep_permitted().map_err(refused("keeping capabilities for the container's"))?;
    let unmapped = |step| {
        move |errno| match errno {
            Errno::EINVAL => {
                refused("the container's user namespace does not have this user or group")(errno)
            }
            errno => refused(step)(errno),
        }
    };
    credentials::set_group_ids(ids.gid).map_err(unmapped("setting the group id"))?;
    credentials::set_user_ids(ids.uid).map_err(unmapped("setting the user id"))?;
    let has = credentials::permitted_capabilities().map_err(refused("reading the capabilities"))?;
    let mut sets = own_sets(container, has);
    match then {
        Then::Execute if binds(container) => {
            sets.effective |= ADMINISTER & has;
            sets.permitted |= ADMINISTER & has;
        }
        Then::Serve if ids.uid != 0 => {
            let kept = wanted.ambient & wanted.inheritable & wanted.permitted & has;
            sets = CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: kept,
            };
        }
        _ => {}
    }
    credentials::set_capabilities(sets).map_err(refused("setting the capabilities"))?;
    for capability in (0..64).filter(|capability| wanted.ambient >> capability & 1 == 1) {
        // As with runc: what is not permitted and inheritable, too, does not become ambient.
        let _ = credentials::raise_ambient(capability);
    }
    // Changing ids sets it to fs.suid_dumpable.
    credentials::set_dumpable(false).map_err(refused("closing the process to tracing"))
}

/// Gives up what was kept for the filter, which binds this process by now.
pub fn forget_binding(container: &Container) -> Result<(), Stop> {
    if !binds(container) {
        return Ok(());
    }
    let has = credentials::permitted_capabilities();
    has.and_then(|has| credentials::set_capabilities(own_sets(container, has)))
        .map_err(refused(
            "the container's seccomp profile forbids giving up a capability (capset), and none is taken inside",
        ))
}

/// Whether it takes CAP_SYS_ADMIN to bind a process by the container's filter.
fn binds(container: &Container) -> bool {
    !container.filter.is_empty() && !container.no_new_privileges
}

/// The container's own, of those that this process `has`.
fn own_sets(container: &Container, has: u64) -> CapabilitySets {
    let wanted = &container.capabilities;
    CapabilitySets {
        effective: wanted.effective & has,
        permitted: (wanted.permitted | wanted.effective) & has,
        inheritable: wanted.inheritable & has,
    }
}
