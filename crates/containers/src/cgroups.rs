//! The cgroups that a container's processes are in: where a session is born or moved to, and whether they stand still.

use crate::error::Unusable;
use crate::process::{of_process, read};
use fleetgate_sys::{Fd, exe, file};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where a session of a container belongs.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// In the hierarchy of version 2, open.
    pub unified: Option<Fd>,
    /// `tasks` in those of version 1.
    pub tasks: Vec<CString>,
}

/// A hierarchy that is mounted, or a part of it.
struct Hierarchy {
    /// Of version 1: its controllers, or its name, among what else stands there. None: version 2.
    options: Option<Vec<String>>,
    /// What of it is mounted.
    root: String,
    place: PathBuf,
}

/// The cgroups of process `pid`. Those that are this process's own are left out: they would be no change.
pub fn of(pid: i32) -> Result<Cgroups, Unusable> {
    let theirs = read(format!("/proc/{pid}/cgroup")).map_err(of_process("reading its cgroups"))?;
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let mut out = Cgroups::default();
    for line in theirs.lines().filter(|line| !own.lines().any(|own| own == *line)) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let controllers: Vec<&str> = controllers.split(',').filter(|name| !name.is_empty()).collect();
        let Some(path) = find(&controllers, path)? else {
            // One with a name and no controller limits nothing.
            if matches!(controllers[..], [name] if name.starts_with("name=")) {
                continue;
            }
            return Err(Unusable::NoCgroup(line.to_owned()));
        };
        if is_frozen(&controllers, &path) {
            return Err(Unusable::Paused);
        }
        if controllers.is_empty() {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            let opened = exe::open_place(file::CWD, &name);
            out.unified = Some(opened.map_err(|errno| of_process("opening its cgroup")(errno.into()))?);
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

/// A cgroup's directory. Where a hierarchy is mounted is remembered, because the list of all mounts is long; it is read
/// again when the cgroup is not there.
fn find(controllers: &[&str], path: &str) -> Result<Option<PathBuf>, Unusable> {
    static MOUNTED: Mutex<Vec<Hierarchy>> = Mutex::new(Vec::new());
    let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = place(controllers, path, &mounted).filter(|place| place.is_dir());
    if known.is_some() {
        return Ok(known);
    }
    let mounts = read("/proc/self/mountinfo")
        .map_err(|e| Unusable::System("reading where cgroups are mounted", e.into()))?;
    *mounted = hierarchies(&mounts);
    Ok(place(controllers, path, &mounted))
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

/// Of a hierarchy with these controllers, the directory of the cgroup `path`. Several places may have parts of it.
fn place(controllers: &[&str], path: &str, hierarchies: &[Hierarchy]) -> Option<PathBuf> {
    // A path that leads up is of a cgroup outside of this process's cgroup namespace.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let is_it = |options: &Option<Vec<String>>| match options {
        None => controllers.is_empty(),
        // A security module and the mount add options of theirs (`seclabel`), so no list is equal to another.
        Some(options) => {
            !controllers.is_empty()
                && controllers
                    .iter()
                    .all(|name| options.iter().any(|option| option == name))
        }
    };
    let fits = hierarchies.iter().filter(|hierarchy| is_it(&hierarchy.options));
    fits.filter_map(|hierarchy| {
        let below = Path::new(path).strip_prefix(&hierarchy.root).ok()?;
        Some(hierarchy.place.join(below))
    })
    .next()
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
            let options = match kind {
                "cgroup2" => None,
                "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
                _ => return None,
            };
            Some(Hierarchy {
                options,
                root: unescaped(root),
                place: PathBuf::from(unescaped(place)),
            })
        })
        .collect()
}

/// A path as the table of mounts writes it: what would end a field stands there as `\040`.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 24 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
        33 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        34 31 0:30 /docker/one /sys/fs/cgroup/part rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:30 /docker/two /sys/fs/cgroup/other\\040part rw - cgroup cgroup rw,cpu,cpuacct\n\
        36 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,seclabel,memory\n\
        37 31 0:32 / /mnt/\u{fffd} rw - fuse bad rw\n";

    #[test]
    fn a_cgroup_is_a_directory_of_its_hierarchy() {
        let all = hierarchies(MOUNTS);
        let at = |controllers: &str, path| {
            let controllers: Vec<&str> = controllers.split(',').filter(|name| !name.is_empty()).collect();
            place(&controllers, path, &all)
        };
        let there = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at("", "/box"), there("/sys/fs/cgroup/unified/box"));
        assert_eq!(at("name=systemd", "/a/b"), there("/sys/fs/cgroup/systemd/a/b"));
        // Only parts of it are mounted.
        assert_eq!(
            at("cpu,cpuacct", "/docker/one/in"),
            there("/sys/fs/cgroup/part/in")
        );
        assert_eq!(
            at("cpu,cpuacct", "/docker/two"),
            there("/sys/fs/cgroup/other part")
        );
        assert_eq!(at("cpu,cpuacct", "/docker/onetwo"), None);
        // With SELinux.
        assert_eq!(at("memory", "/a"), there("/sys/fs/cgroup/memory/a"));
        assert_eq!(at("pids", "/a"), None);
        assert_eq!(at("", "/../up"), None);
    }
}
