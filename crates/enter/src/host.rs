//! What the machine's root does before a container is entered: by the machine's own /proc and cgroup files, because those
//! that are mounted inside may be anything.

use alloc::format;
use fleetgate_session::exec::{Stop, process_settings, refused};
use fleetgate_session::order::failure;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::{Errno, net};
use fleetgate_wire::Reason;
use fleetgate_wire::container::Container;
use fleetgate_wire::exec::Resources;

/// The cgroups of hierarchies of version 1 (that of version 2 is where this process was born), limits, score, umask, label.
pub fn apply_limits(container: &Container) -> Result<(), Stop> {
    for group in &container.cgroups {
        // 0 means the writing process.
        write(group, b"0").map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENODEV => Stop::from(failure(Reason::Ended, errno, "the container")),
            errno => failure(Reason::System, errno, &group.to_string_lossy()).into(),
        })?;
    }
    if let Some(label) = &container.label {
        let path = [b"/proc/self/attr/", label.file.to_bytes()].concat();
        let path = alloc::ffi::CString::new(path).unwrap_or_default();
        write(&path, label.text.to_bytes())
            .map_err(refused("setting the label of the container's security module"))?;
    }
    process_settings::apply(&Resources {
        limits: container.limits.clone(),
        umask: None,
        nice: None,
        oom_score_adj: container.oom_score_adj,
        keyring: false,
        loginuid: false,
    })?;
    net::umask(container.umask.unwrap_or(0o022));
    Ok(())
}

fn write(path: &core::ffi::CStr, text: &[u8]) -> Result<(), Errno> {
    let file = file::openat(file::CWD, path, flags::O_WRONLY, 0)?;
    file::write_all(file.raw(), text)
}

/// The words of a failure about something inside.
pub fn in_container(what: &str) -> alloc::string::String {
    format!("{what}, in the container")
}
