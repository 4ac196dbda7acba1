//! A container's first process: whether it still is the one that was written down, its namespaces, and whose they are.

use crate::error::Unusable;
use fleetgate_sys::namespaces::kind;
use fleetgate_sys::{Errno, Fd, file, process};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// What nearly every file of the kernel's fits into.
const LINES: usize = 4000;

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

/// What a file of /proc or of a cgroup says. They have no length, and the standard library would feel its way by 32 bytes. Names
/// in them are anybody's: a byte that is no text is replaced, and makes nothing unreadable.
pub fn read(path: impl AsRef<Path>) -> std::io::Result<String> {
    let mut bytes = Vec::with_capacity(LINES);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// What it means that a file of the process in /proc cannot be read: before it is gone, and after.
pub fn of_process(doing: &'static str) -> impl Fn(std::io::Error) -> Unusable {
    move |e| match Errno::from(e) {
        Errno::ENOENT | Errno::ESRCH => Unusable::Ended,
        errno => Unusable::System(doing, errno),
    }
}

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
    let stat = read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
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
            Err(e) => return Err(of_process("reading its namespaces")(e)),
        }
    }
    Ok(kinds)
}

/// By the link's text, `mnt:[4026531841]`: asking for the file behind it makes the kernel make one.
fn number(pid: &str, name: &str) -> std::io::Result<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
    let text = link
        .to_str()
        .and_then(|text| text.strip_prefix(name)?.strip_prefix(":[")?.strip_suffix(']'));
    text.and_then(|number| number.parse().ok()).ok_or_else(|| {
        std::io::Error::other(format!(
            "/proc/{pid}/ns/{name} is no namespace: {}",
            link.display()
        ))
    })
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

/// What a process is bound by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most capabilities that a program of it can have.
    pub capabilities: u64,
    /// Whether its programs gain none by being executed.
    pub no_new_privileges: bool,
}

/// Those of `pid`.
pub fn bounds(pid: i32) -> Result<Bounds, Unusable> {
    const DOING: &str = "reading what it is bound by";
    let status = read(format!("/proc/{pid}/status")).map_err(of_process(DOING))?;
    let odd = || Unusable::System(DOING, Errno::EINVAL);
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.map(str::trim).ok_or_else(odd)
    };
    Ok(Bounds {
        capabilities: u64::from_str_radix(field("CapBnd:")?, 16).map_err(|_| odd())?,
        no_new_privileges: field("NoNewPrivs:")? != "0",
    })
}

/// The directory that is its root.
pub fn root(pid: i32) -> Result<Fd, Unusable> {
    let path = CString::new(format!("/proc/{pid}/root")).unwrap_or_default();
    let how = file::flags::O_PATH | file::flags::O_DIRECTORY;
    file::openat(file::CWD, &path, how, 0).map_err(|errno| of_process("opening its root")(errno.into()))
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
    fn a_name_that_is_no_text_hides_nothing() {
        let path = std::env::temp_dir().join(format!("fleetgate-status-{}", process::id()));
        std::fs::write(&path, b"Name:\t\xff\xfe\nCapBnd:\t1f\n").expect("written");
        let text = read(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(text.lines().nth(1), Some("CapBnd:\t1f"));
        assert!(read(&path).is_err());
        assert!(matches!(bounds(i32::MAX), Err(Unusable::Ended)));
    }

    #[test]
    fn this_process_is_in_no_container() {
        assert_eq!(foreign_namespaces(process::id()).expect("it runs"), 0);
        assert!(matches!(foreign_namespaces(i32::MAX), Err(Unusable::Ended)));
    }
}
