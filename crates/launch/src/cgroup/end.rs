//! A session's cgroup at its end: what is left in it is killed or waited for, then the directory goes.

use fleetgate_sys::{Errno, Fd, file, process};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Kills every process in the cgroup. cgroup.kill is of Linux 5.14; before that each is killed by its pidfd,
/// again until a pass finds none that is new, because they may fork meanwhile.
pub(crate) fn kill(cgroup: &Path) -> Result<(), Errno> {
    match std::fs::write(cgroup.join("cgroup.kill"), "1") {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && cgroup.exists() => {}
        Err(e) => return Err(e.into()),
    }
    for _ in 0..MAX_PASSES {
        let list = std::fs::read_to_string(cgroup.join("cgroup.procs"))?;
        let mut killed = 0;
        for pid in list.lines().filter_map(|line| line.parse::<i32>().ok()) {
            if process::pidfd_open(pid).is_ok_and(|pidfd| process::signal(&pidfd, 9).is_ok()) {
                killed += 1;
            }
        }
        if killed == 0 {
            break;
        }
    }
    Ok(())
}

/// A cgroup that forks faster than it is killed is given up after this many passes.
const MAX_PASSES: u32 = 64;

/// Removes the directory; a descriptor to watch (its POLLPRI says that something changed) when it is not empty.
pub(crate) fn remove(cgroup: &Path) -> Result<Option<Fd>, Errno> {
    match std::fs::remove_dir(cgroup).map_err(Errno::from) {
        Ok(()) | Err(Errno::ENOENT) => Ok(None),
        Err(Errno::EBUSY | Errno::ENOTEMPTY) => {
            let path = CString::new(cgroup.join("cgroup.events").as_os_str().as_bytes())
                .map_err(|_| Errno::EINVAL)?;
            let events = file::openat(file::CWD, &path, 0, 0)?;
            // Reading makes the next change news; one that came before the read is seen by the second try.
            let _ = file::read_to_end(&events, 4096)?;
            match std::fs::remove_dir(cgroup) {
                Ok(()) => Ok(None),
                Err(_) => Ok(Some(events)),
            }
        }
        Err(e) => Err(e),
    }
}
