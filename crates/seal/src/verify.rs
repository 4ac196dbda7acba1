//! Whether and how a running process is sealed, told from outside by what the kernel says of its executable. It
//! changes nothing and believes no path: a path is a name, not the file.

use crate::Strategy;
use fleetgate_sys::exe::{self, OVERLAY_MAGIC};
use fleetgate_sys::{Errno, Fd, file, memfd};
use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The process.
    pub pid: i32,
    /// How it is sealed; `None` when it is not.
    pub sealed: Option<Strategy>,
    /// A sentence.
    pub why: String,
}

/// Why nothing could be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There is no such process.
    NoProcess(i32),
    /// It has no executable: a thread of the kernel's, or it has ended.
    NoExecutable(i32),
    /// The kernel does not let us look.
    Denied(i32, Errno),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Unknown::NoExecutable(pid) => {
                write!(
                    f,
                    "process {pid} has no executable: it has ended or is the kernel's"
                )
            }
            Unknown::Denied(pid, errno) => write!(
                f,
                "/proc/{pid}/exe: {errno}; looking at another user's process takes root"
            ),
        }
    }
}

impl std::error::Error for Unknown {}

/// Looks at one process.
pub fn verify(pid: i32) -> Result<Verification, Unknown> {
    let path = CString::new(format!("/proc/{pid}/exe")).unwrap_or_default();
    let exe = exe::open_read(file::CWD, &path).map_err(|errno| match errno {
        Errno::ENOENT if std::fs::metadata(format!("/proc/{pid}")).is_ok() => Unknown::NoExecutable(pid),
        Errno::ENOENT | Errno::ESRCH => Unknown::NoProcess(pid),
        errno => Unknown::Denied(pid, errno),
    })?;
    let (sealed, why) = judge(&exe).map_err(|errno| Unknown::Denied(pid, errno))?;
    Ok(Verification { pid, sealed, why })
}

fn judge(exe: &Fd) -> Result<(Option<Strategy>, String), Errno> {
    // Only a memfd (and a file on hugetlbfs or tmpfs, where the same seals mean the same) answers this.
    if memfd::is_final(exe) {
        let why = "an anonymous file in memory; its content and size are sealed";
        return Ok((Some(Strategy::Memfd), why.to_owned()));
    }
    if memfd::seals(exe).is_ok_and(|s| s & memfd::CONTENT_SEALS != 0) {
        return Ok((
            None,
            "an anonymous file in memory, not all of whose seals are set".to_owned(),
        ));
    }
    let (magic, _) = exe::filesystem(exe)?;
    if magic == OVERLAY_MAGIC {
        return overlay(exe);
    }
    let seen = exe::identity(exe)?;
    Ok((
        None,
        if seen.links == 0 {
            "a file without a name: no path leads to it, but root can open it through /proc and write to it"
                .to_owned()
        } else if seen.uid == 0 && seen.mode & 0o022 == 0 {
            "a file that root can write to".to_owned()
        } else {
            format!("a file that user {} can write to", seen.uid)
        },
    ))
}

fn overlay(exe: &Fd) -> Result<(Option<Strategy>, String), Errno> {
    if !exe::is_read_only(exe)? {
        return Ok((None, "a file on an overlay that can be written to".to_owned()));
    }
    match mount_id(exe) {
        Some(id) if mount_tables().iter().any(|table| has_mount(table, id)) => Ok((
            None,
            "a file on an overlay that is attached somewhere, so it can be remounted".to_owned(),
        )),
        Some(_) => Ok((
            Some(Strategy::Overlay),
            "a file seen through a read-only overlay that no mount table shows".to_owned(),
        )),
        None => Err(Errno::ENODATA),
    }
}

/// The mount an open file was found on.
fn mount_id(fd: &Fd) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.raw())).ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// The mount table of every mount namespace that a process lives in and that we may look at.
fn mount_tables() -> Vec<String> {
    let mut seen = HashSet::new();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
        })
        .filter_map(|entry| {
            let namespace = std::fs::read_link(entry.path().join("ns/mnt")).ok()?;
            seen.insert(namespace).then_some(())?;
            std::fs::read_to_string(entry.path().join("mountinfo")).ok()
        })
        .collect()
}

fn has_mount(table: &str, id: u64) -> bool {
    table
        .lines()
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .any(|found| found == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_found_out_is_said() {
        assert_eq!(verify(i32::MAX), Err(Unknown::NoProcess(i32::MAX)));
        let own = verify(std::process::id() as i32).expect("this test");
        assert_eq!(own.sealed, None);
    }

    #[test]
    fn mounts_are_found_by_number() {
        let table = "21 1 0:20 / /proc rw\n210 1 0:20 / /x rw\n";
        assert!(has_mount(table, 21) && has_mount(table, 210));
        assert!(!has_mount(table, 2) && !has_mount(table, 1));
    }
}
