//! A cgroup around one server: what the whole of it costs, in processor time and in memory.
//!
//! Whatever a server starts is born into its group and is counted with it, also after it ended: the monitor, lobby,
//! fronts, resolver and helpers of ours, the processes that sshd and dropbear fork, and the users' programs. The
//! group's `cpu.stat` has `usage_usec` in cgroup v2 whether or not the cpu controller is enabled, and it counts to the
//! microsecond what a process used up to its end; a parent counts its children's groups in. Memory is the sum of the
//! processes' proportional set sizes, and of the images that they hold ([`super::images`]). Nothing here starts a server.

use super::images::Images;
use crate::shell::{Result, read_text, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server is at rest when its processor time stays within `REST_USED` for `REST`.
const REST: Duration = Duration::from_millis(25);
const REST_USED: u64 = 100;
/// How long a server may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(20);

/// A cgroup of our own; its processes end with it.
pub struct Group {
    /// Where cgroup v2 is mounted.
    pub hierarchy: PathBuf,
    path: PathBuf,
}

/// What a server has in memory.
pub struct Memory {
    /// Kilobytes (PSS) of its processes, without their images.
    pub own: f64,
    /// The images.
    pub images: Images,
}

impl Memory {
    /// Kilobytes of all.
    pub fn kilobytes(&self) -> f64 {
        self.own + self.images.kilobytes()
    }
}

impl Group {
    /// A new, empty one.
    pub fn new(name: &str) -> Result<Group> {
        let hierarchy = hierarchy()?;
        let path = hierarchy.join(format!("fleetgate-bench-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e} (is this root?)", path.display()))?;
        Ok(Group { hierarchy, path })
    }

    /// The file that takes the id of a process which shall be in it.
    pub fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Microseconds of processor time that everything in it has used so far.
    pub fn cpu(&self) -> Result<u64> {
        let text = read_text(&self.path.join("cpu.stat"))?;
        let used = text.lines().find_map(|l| l.strip_prefix("usage_usec "));
        used.and_then(|n| n.trim().parse().ok())
            .ok_or_else(|| format!("{}/cpu.stat has no usage_usec", self.path.display()))
    }

    /// The same, once it is at rest: what outlives a client's connection is still part of what that cost.
    pub fn cpu_at_rest(&self) -> Result<u64> {
        let until = Instant::now() + REST_WITHIN;
        let mut last = self.cpu()?;
        while Instant::now() < until {
            sleep(REST);
            let now = self.cpu()?;
            if now - last <= REST_USED {
                return Ok(now);
            }
            last = now;
        }
        Err(format!("{} does not come to rest", self.path.display()))
    }

    /// The processes in it and in the groups that the server made below it.
    pub fn processes(&self) -> Result<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        for group in below(&self.path) {
            // A session's group may go while it is looked for.
            let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()));
        }
        Ok(found)
    }

    /// Those of them that have `word` on their command line.
    pub fn running(&self, word: &str) -> Result<Vec<u32>> {
        let has = |id: &u32| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            words.split(|b| *b == 0).any(|w| w == word.as_bytes())
        };
        Ok(self.processes()?.into_iter().filter(has).collect())
    }

    /// What its processes have in memory, without those that run the program `left_out`.
    pub fn memory(&self, left_out: &Path) -> Result<Memory> {
        let processes = self.processes()?;
        let images = Images::of(&processes)?;
        let mut own = 0.0;
        for process in processes {
            let proc = PathBuf::from(format!("/proc/{process}"));
            if std::fs::read_link(proc.join("exe")).is_ok_and(|exe| exe == left_out) {
                continue;
            }
            own += images.without(&proc)?;
        }
        Ok(Memory { own, images })
    }

    /// An error if a process that descends from `server` is not in it, and so is not counted.
    pub fn has_all_of(&self, server: u32) -> Result {
        let mut parents = BTreeMap::new();
        let entries = std::fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?;
        for id in entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            parents.extend(parent(&stat).map(|p| (id, p)));
        }
        let inside = self.processes()?;
        match outside(server, &parents, &inside) {
            None => Ok(()),
            Some(id) => Err(format!(
                "process {id} of {} is not in its group",
                self.path.display()
            )),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // By id: `cgroup.kill` is younger than the kernels we run on. What is forked meanwhile is met next time, and a
        // group goes only when its last process is reaped.
        for _ in 0..200 {
            let left = self.processes().unwrap_or_default();
            if !left.is_empty() {
                let ids = left.iter().map(u32::to_string);
                let mut kill = Command::new("kill");
                let _ = run(kill.arg("-KILL").args(ids).stderr(Stdio::null()));
            }
            for group in below(&self.path).iter().rev() {
                let _ = std::fs::remove_dir(group);
            }
            if !self.path.exists() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// Where cgroup v2 is, alone or beside v1.
fn hierarchy() -> Result<PathBuf> {
    let mounts = read_text(Path::new("/proc/mounts"))?;
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let at = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(at))
    });
    found.ok_or_else(|| "servers are measured in cgroups: cgroup v2 has to be mounted".to_owned())
}

/// A group and all groups below it, parents first.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(group) = found.get(next).cloned() {
        let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
        found.extend(
            entries
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .map(|e| e.path()),
        );
        next += 1;
    }
    found
}

/// The parent, from /proc/PID/stat: the name, in parentheses, may hold anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// A descendant of `server`, or itself, that is not `inside`.
fn outside(server: u32, parents: &BTreeMap<u32, u32>, inside: &BTreeSet<u32>) -> Option<u32> {
    let descends = |mut id: u32| {
        // No line of parents is longer than there are processes.
        for _ in 0..parents.len() {
            if id == server {
                return true;
            }
            let Some(parent) = parents.get(&id) else { break };
            id = *parent;
        }
        false
    };
    let mut all = parents.keys().copied();
    all.find(|id| descends(*id) && !inside.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(parent("7 (a) b) (c) S 3 7 7 0 -1"), Some(3));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn a_descendant_that_left_the_group_is_found() {
        // 10 is the server, 11 its child, 12 its grandchild; 20 is somebody else's.
        let parents = BTreeMap::from([(10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(outside(10, &parents, &BTreeSet::from([10, 11, 12])), None);
        assert_eq!(outside(10, &parents, &BTreeSet::from([10, 11])), Some(12));
        assert_eq!(outside(10, &parents, &BTreeSet::new()), Some(10));
    }
}
