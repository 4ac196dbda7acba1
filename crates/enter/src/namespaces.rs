//! Entering the container's namespaces.

use fleetgate_session::exec::{Stop, refused};
use fleetgate_session::order::{OrderDescriptors, failure};
use fleetgate_sys::namespaces::{self, kind};
use fleetgate_sys::{Errno, Fd, credentials};
use fleetgate_wire::Reason;
use fleetgate_wire::container::Container;
use fleetgate_wire::order::Role;

/// What it takes to enter.
pub struct Entrance {
    first: Fd,
    root: Fd,
    kinds: i32,
}

impl Entrance {
    /// The descriptors of an order.
    pub fn take(container: &Container, given: &mut OrderDescriptors) -> Result<Entrance, Stop> {
        let mut need = |role, what| {
            given
                .take(role)
                .ok_or_else(|| failure(Reason::BadDescriptors, Errno::EBADF, what))
        };
        Ok(Entrance {
            first: need(Role::Container, "the container's first process")?,
            root: need(Role::Root, "the container's root")?,
            kinds: container.namespaces,
        })
    }

    /// Enters: all namespaces by one call, so that the kernel takes the user namespace in its place. This process stays
    /// where it is among processes; what it starts will be inside.
    pub fn enter(self) -> Result<(), Stop> {
        // The machine's groups mean something else inside, or nothing.
        credentials::set_groups(&[]).map_err(refused("giving up the groups"))?;
        if self.kinds != 0 {
            namespaces::enter_with(&self.first, self.kinds).map_err(|errno| match errno {
                Errno::ESRCH => Stop::from(failure(Reason::Ended, errno, "the container")),
                errno => refused("entering the container's namespaces")(errno),
            })?;
        }
        // Where the container was made by a chroot, the mount namespace's root is not its root.
        namespaces::set_root(&self.root).map_err(refused("entering the container's root"))?;
        if self.kinds & kind::USER != 0 {
            // Its root's. Where it has none, the ids of the machine's root mean nobody inside, and still have all power.
            let _ = credentials::set_group_ids(0);
            let _ = credentials::set_user_ids(0);
            // Changing ids sets it to fs.suid_dumpable.
            credentials::set_dumpable(false).map_err(refused("closing the process to tracing"))?;
        }
        Ok(())
    }
}
