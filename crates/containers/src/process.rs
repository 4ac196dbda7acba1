//! A container's first process: whether it still is the one that was written down, its namespaces, and whose they are.

use crate::error::Unusable;
use fleetgate_sys::namespaces::kind;
use fleetgate_sys::{Errno, Fd, file, process};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// Each kind of namespace and its file in /proc/PID/ns.
const KINDS: [(i32, &str); 8] = [
    (kind::USER, "user"),
    (kind::MOUNT, "mnt"),
    (kind::PROCESS, "pid"),
    (kind::NETWORK, "net"),
    (kind::IPC, "ipc"),
    (kind::HOST_NAME, "uts"),
    (kind::CGROUP, "cgroup"),
    (kind::TIME, "time"),
];

/// A descriptor of the process `pid`, if it began at `started` (in clock ticks since boot, as the kernel counts): looked at
/// again when the descriptor is open, so a number that somebody else has now is not taken for it.
pub fn open(pid: i32, started: Option<u64>) -> Result<Fd, Unusable> {
    let pidfd = process::pidfd_open(pid).map_err(|errno| match errno {
        Errno::ESRCH | Errno::EINVAL => Unusable::Ended,
        errno => Unusable::System("opening its first process", errno),
    })?;
    let now = start_time(pid).ok_or(Unusable::Ended)?;
    match started {
        Some(started) if started != now => Err(Unusable::Ended),
        _ => Ok(pidfd),
    }
}

/// When a process that runs began; none: there is none, or it has ended and nobody has asked how.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let rest = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        // The 22nd of all, the third being behind us.
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// The kinds of namespaces of `pid` that are not this process's own.
pub fn foreign_namespaces(pid: i32) -> Result<i32, Unusable> {
    static OWN: OnceLock<[Option<u64>; KINDS.len()]> = OnceLock::new();
    let own = OWN.get_or_init(|| KINDS.map(|(_, name)| number("self", name).ok()));
    let pid = pid.to_string();
    let mut kinds = 0;
    for ((kind, name), own) in KINDS.into_iter().zip(own) {
        // Without one of its own, this kernel has no such kind.
        let Some(own) = own else { continue };
        match number(&pid, name) {
            Ok(theirs) if theirs != *own => kinds |= kind,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Unusable::Ended),
            Err(e) => return Err(Unusable::System("reading its namespaces", e.into())),
        }
    }
    Ok(kinds)
}

fn number(pid: &str, name: &str) -> std::io::Result<u64> {
    std::fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|ns| ns.ino())
}

/// Whether the process behind `pidfd` still runs: what was read by its number was then its own.
pub fn check_running(pidfd: &Fd) -> Result<(), Unusable> {
    match process::signal(pidfd, 0) {
        // It runs, and may not be signalled: that was not asked.
        Ok(()) | Err(Errno::EPERM) => Ok(()),
        Err(Errno::ESRCH) => Err(Unusable::Ended),
        Err(errno) => Err(Unusable::System("looking whether it still runs", errno)),
    }
}

/// The most capabilities that a program of `pid` can have.
pub fn bounding(pid: i32) -> Result<u64, Unusable> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| Unusable::Ended)?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .ok_or(Unusable::Ended)
}

/// The directory that is its root.
pub fn root(pid: i32) -> Result<Fd, Unusable> {
    let path = CString::new(format!("/proc/{pid}/root")).unwrap_or_default();
    let how = file::flags::O_PATH | file::flags::O_DIRECTORY;
    file::openat(file::CWD, &path, how, 0).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ESRCH => Unusable::Ended,
        errno => Unusable::System("opening its root", errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_beginning() {
        let own = process::id();
        let began = start_time(own).expect("it runs");
        assert!(open(own, Some(began)).is_ok());
        assert!(open(own, None).is_ok());
        assert!(matches!(open(own, Some(began + 1)), Err(Unusable::Ended)));
        assert!(matches!(open(i32::MAX, None), Err(Unusable::Ended)));
    }

    #[test]
    fn this_process_is_in_no_container() {
        assert_eq!(foreign_namespaces(process::id()).expect("it runs"), 0);
        assert!(matches!(foreign_namespaces(i32::MAX), Err(Unusable::Ended)));
    }
}
