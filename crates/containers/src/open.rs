//! What a session helper needs to enter a container that was found.

use crate::error::{Error, Unusable};
use crate::on_disk::is_roots;
use crate::{ContainerRecord, cgroups, process, settings};
use fleetgate_sys::Fd;
use fleetgate_sys::namespaces::kind;
use fleetgate_wire::container::{Container, InsideUser};
use std::ffi::CString;

/// What the caller wants otherwise than the container has it.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Whom to be inside: `NAME`, `UID`, either with `:GROUP`; `:GROUP` alone: the container's own user.
    pub user: Option<String>,
    /// The working directory.
    pub directory: Option<String>,
}

/// A container that can be entered.
#[derive(Debug)]
pub struct OpenContainer {
    /// The order's part about it.
    pub container: Container,
    /// Its first process.
    pub first: Fd,
    /// Its root.
    pub root: Fd,
    /// Its cgroup in the hierarchy of version 2, which the helper is born in.
    pub cgroup: Option<Fd>,
}

/// Opens it. Nothing is entered, and nothing is kept of a container that ended meanwhile.
pub fn open(found: &ContainerRecord, wanted: &Overrides) -> Result<OpenContainer, Error> {
    opened(found, wanted).map_err(|why| Error::Unusable {
        name: found.display_name().to_owned(),
        why,
    })
}

fn opened(found: &ContainerRecord, wanted: &Overrides) -> Result<OpenContainer, Unusable> {
    let first = process::open(found.pid, found.started)?;
    let kinds = process::foreign_namespaces(found.pid)?;
    if kinds & !kind::CGROUP == 0 {
        return Err(Unusable::NoContainer(found.pid));
    }
    let mut container = match &found.config {
        // Where a bundle lies is for whoever started the container to say, and its configuration gives capabilities.
        Some(config) if !is_roots(config) => return Err(Unusable::NotRoots(config.clone())),
        Some(config) => settings::read(config)?,
        None if found.runtime.has_configuration() => return Err(Unusable::NoConfiguration),
        None => settings::unknown(process::bounds(found.pid)?),
    };
    let groups = cgroups::of(found.pid)?;
    let root = process::root(found.pid)?;
    container.namespaces = kinds;
    container.cgroups = groups.tasks;
    let text = |what: &str| {
        CString::new(what).map_err(|_| Unusable::System("a NUL in a name", fleetgate_sys::Errno::EINVAL))
    };
    if let Some(user) = &wanted.user {
        let name = match (user.strip_prefix(':'), &container.user) {
            // Another group alone.
            (Some(group), InsideUser::Numbers { ids }) if !group.is_empty() => {
                text(&format!("{}:{group}", ids.uid))?
            }
            _ => text(user)?,
        };
        container.user = InsideUser::Named { name };
        // Another user than its own: root has what the container may have, others what their programs' files give them.
        let bounding = container.capabilities.bounding;
        container.capabilities.inheritable = 0;
        container.capabilities.ambient = 0;
        container.capabilities.effective = bounding;
        container.capabilities.permitted = bounding;
    }
    if let Some(directory) = &wanted.directory {
        container.directory = Some(text(directory)?);
    }
    // Everything above was read by number; the process still runs, so the number was its own.
    process::check_running(&first)?;
    Ok(OpenContainer {
        container,
        first,
        root,
        cgroup: groups.unified,
    })
}
