//! The cgroups that a container's processes are in: where a session is born or moved to, and whether they stand still.

use crate::error::Unusable;
use crate::process::{of_process, read};
use fleetgate_sys::{Fd, exe, file};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where a session of a container belongs.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// In the hierarchy of version 2, open.
    pub unified: Option<Fd>,
    /// `tasks` in those of version 1.
    pub tasks: Vec<CString>,
}

/// A hierarchy that is mounted: its controllers (none: version 2), what of it is mounted, where.
struct Hierarchy {
    controllers: Vec<String>,
    root: String,
    place: PathBuf,
}

/// The cgroups of process `pid`. Those that are this process's own are left out: they would be no change.
pub fn of(pid: i32) -> Result<Cgroups, Unusable> {
    let theirs = read(format!("/proc/{pid}/cgroup")).map_err(of_process("reading its cgroups"))?;
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let mut out = Cgroups::default();
    for line in theirs.lines().filter(|line| !own.lines().any(|own| own == *line)) {
        let Some((controllers, path)) = place(line, mounted()?) else {
            continue;
        };
        if is_frozen(&controllers, &path) {
            return Err(Unusable::Paused);
        }
        if controllers.is_empty() {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            let opened = exe::open_place(file::CWD, &name);
            out.unified = Some(opened.map_err(|errno| Unusable::System("opening its cgroup", errno))?);
        } else {
            // A thread that moves itself by this file takes no lock of all processes. By `cgroup.procs` it does, and waits for
            // every processor where nobody took that lock for a while: 5.6 ms, and not 0.03.
            let tasks = path.join("tasks");
            out.tasks
                .push(CString::new(tasks.as_os_str().as_bytes()).unwrap_or_default());
        }
    }
    Ok(out)
}

/// The hierarchies, read once: the list of all mounts is long, and these are mounted when a machine starts.
fn mounted() -> Result<&'static [Hierarchy], Unusable> {
    static MOUNTED: OnceLock<Vec<Hierarchy>> = OnceLock::new();
    if let Some(known) = MOUNTED.get() {
        return Ok(known);
    }
    let mounts = read("/proc/self/mountinfo")
        .map_err(|e| Unusable::System("reading where cgroups are mounted", e.into()))?;
    Ok(MOUNTED.get_or_init(|| hierarchies(&mounts)))
}

/// Whether the freezer, of either version, holds what is in this cgroup. Other hierarchies have none: nothing is opened there.
fn is_frozen(controllers: &[&str], path: &Path) -> bool {
    let text = |name: &str| read(path.join(name)).unwrap_or_default();
    match controllers {
        // A group above may hold it, too.
        [] => {
            text("cgroup.events").lines().any(|line| line == "frozen 1")
                || text("cgroup.freeze").trim() == "1"
        }
        of if of.contains(&"freezer") => ["FROZEN", "FREEZING"].contains(&text("freezer.state").trim()),
        _ => false,
    }
}

/// A line of /proc/PID/cgroup, `NUMBER:CONTROLLERS:PATH`, as its controllers and a directory of this machine.
fn place<'a>(line: &'a str, hierarchies: &[Hierarchy]) -> Option<(Vec<&'a str>, PathBuf)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let controllers: Vec<&str> = controllers.split(',').filter(|name| !name.is_empty()).collect();
    let hierarchy = hierarchies
        .iter()
        .find(|hierarchy| hierarchy.controllers == controllers)?;
    let below = match hierarchy.root.as_str() {
        "/" => path,
        root => path.strip_prefix(root)?,
    };
    // A path that leads up is of a cgroup outside of this process's cgroup namespace.
    if below.split('/').any(|part| part == "..") {
        return None;
    }
    Some((controllers, hierarchy.place.join(below.trim_start_matches('/'))))
}

/// Those of /proc/self/mountinfo.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    mounts
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, place) = (mount.next()?, mount.next()?);
            let mut filesystem = filesystem.split(' ');
            let (kind, _source, options) = (filesystem.next()?, filesystem.next()?, filesystem.next()?);
            let controllers = match kind {
                "cgroup2" => Vec::new(),
                "cgroup" => options
                    .split(',')
                    // What is no controller is an option of every file system, or of this one's mount.
                    .filter(|word| !["rw", "ro", "xattr", "clone_children", "noprefix"].contains(word))
                    .filter(|word| !word.starts_with("release_agent="))
                    .map(str::to_owned)
                    .collect(),
                _ => return None,
            };
            Some(Hierarchy {
                controllers,
                root: root.to_owned(),
                place: PathBuf::from(place),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 24 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
        33 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        34 31 0:30 /docker/one /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";

    #[test]
    fn a_line_is_a_directory_of_its_hierarchy() {
        let all = hierarchies(MOUNTS);
        let at = |line| place(line, &all).map(|(_, path)| path);
        assert_eq!(at("0::/box"), Some(PathBuf::from("/sys/fs/cgroup/unified/box")));
        assert_eq!(
            at("5:name=systemd:/a/b"),
            Some(PathBuf::from("/sys/fs/cgroup/systemd/a/b"))
        );
        // Only a part of it is mounted.
        assert_eq!(
            at("4:cpu,cpuacct:/docker/one/in"),
            Some(PathBuf::from("/sys/fs/cgroup/cpu/in"))
        );
        assert_eq!(at("4:cpu,cpuacct:/docker/other"), None);
        assert_eq!(at("7:pids:/a"), None);
        assert_eq!(at("0::/../up"), None);
        assert_eq!(at("nonsense"), None);
    }
}
