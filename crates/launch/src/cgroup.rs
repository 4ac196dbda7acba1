//! One cgroup (v2) per session: where it is made, what was used in it, what an earlier node left.
//!
//! Only in a subtree that is ours: one that systemd delegated to the service (`Delegate=yes`), or `/fleetgate` where this
//! process is in the hierarchy's root. Nobody is ever moved: a session's first process is born in its cgroup
//! (CLONE_INTO_CGROUP), because writing cgroup.procs takes 5 ms. The session reaper removes a session's cgroup at its end.

mod end;

pub(crate) use end::{kill, remove};
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::process::id;
use fleetgate_sys::{Errno, Fd, exe};
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The subgroup that systemd may have put the service's own processes into (DelegateSubgroup=).
const SUBGROUP: &str = "monitor";
/// The directory that is ours in the hierarchy's root.
const OF_THE_ROOT: &str = "fleetgate";
/// Beside the service: the guardian's.
const OF_THE_GUARDIAN: &str = "fleetgate-guardian";
/// A session's cgroup is `session-NAMESPACE.PID-NUMBER`: of the monitor's process, and of the namespace in which that is
/// its number. Another node may share the hierarchy from a container of its own.
const PREFIX: &str = "session-";
/// An empty cgroup of another pid namespace is taken to be forgotten after so long.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// The most of one of the kernel's files that is read.
const MAX_FILE: usize = 64 << 10;

/// What a session used. None: it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Processor time, in microseconds.
    pub cpu_micros: Option<u64>,
    /// The most memory at once, in bytes.
    pub memory: Option<u64>,
    /// Bytes read from block devices.
    pub read: Option<u64>,
    /// Bytes written to them.
    pub written: Option<u64>,
}

/// What is known of a session that ended: by its cgroup, and where that does not say by its process.
pub fn used(cgroup: Option<&Path>, process: Option<fleetgate_sys::process::Usage>) -> Used {
    let own = cgroup.map(by_cgroup).unwrap_or_default();
    Used {
        cpu_micros: own.cpu_micros.or(process.map(|u| u.cpu_micros)),
        memory: own.memory.or(process.and_then(own_memory)),
        read: own.read.or(process.map(|u| u.read)),
        written: own.written.or(process.map(|u| u.written)),
    }
}

fn by_cgroup(cgroup: &Path) -> Used {
    let io = read(&cgroup.join("io.stat"));
    let sum = |name| io.as_deref().map(|text| sum(text, name));
    Used {
        cpu_micros: read(&cgroup.join("cpu.stat")).and_then(|text| field(&text, "usage_usec")),
        memory: read(&cgroup.join("memory.peak")).and_then(|text| text.trim().parse().ok()),
        read: sum("rbytes="),
        written: sum("wbytes="),
    }
}

/// The value of `name VALUE`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// The sum of all `nameVALUE` words.
fn sum(text: &str, name: &str) -> u64 {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix(name));
    words
        .filter_map(|value| value.parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// Why there are none.
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No cgroup v2 is mounted, or this process is in none.
    NoHierarchy,
    /// The service's cgroup is somebody else's to divide.
    NotDelegated(PathBuf),
    /// The kernel does not let us.
    System(PathBuf, Errno),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NoHierarchy => f.write_str("no cgroup v2 hierarchy is mounted"),
            Unusable::NotDelegated(path) => write!(
                f,
                "{} is not delegated to this service: run it as a systemd unit with Delegate=yes",
                path.display()
            ),
            Unusable::System(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

/// How many this process has made, whoever asked.
static MADE: Mutex<u64> = Mutex::new(0);

/// Makes sessions' cgroups.
#[derive(Debug)]
pub struct Cgroups {
    base: PathBuf,
    /// The number of this process's pid namespace.
    namespace: String,
    /// One made ahead, so that no session waits for the file system.
    spare: Option<SessionCgroup>,
}

/// A cgroup that nothing is in yet. Dropping it leaves the directory; [`SessionCgroup::remove`] does not.
#[derive(Debug)]
pub struct SessionCgroup {
    /// Its directory.
    pub path: PathBuf,
    /// The same, open.
    pub directory: Fd,
}

impl SessionCgroup {
    /// Nothing was born in it.
    pub fn remove(self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

impl Cgroups {
    /// Finds the place, and removes what an earlier node left that is empty.
    pub fn find() -> Result<Cgroups, Unusable> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = own_directory(&own, &mounts).ok_or(Unusable::NoHierarchy)?;
        let base = match &own {
            Own::Root(root) => root.join(OF_THE_ROOT),
            Own::Below(path) => delegated(path)?,
        };
        Cgroups::at(base)
    }

    /// Makes them in `base`, which is made if need be.
    pub fn at(base: PathBuf) -> Result<Cgroups, Unusable> {
        if let Err(e) = std::fs::create_dir(&base)
            && e.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(Unusable::System(base, e.into()));
        }
        // Memory is counted where that may be switched on; a group with processes of its own may not (EBUSY).
        let _ = std::fs::write(base.join("cgroup.subtree_control"), "+memory");
        let mut this = Cgroups {
            base,
            namespace: namespace(),
            spare: None,
        };
        this.sweep();
        // Whether it can be done is known now, not at the first login.
        this.spare = Some(this.make()?);
        Ok(this)
    }

    /// Where they are.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// A cgroup for one session.
    pub fn take(&mut self) -> Result<SessionCgroup, Unusable> {
        match self.spare.take() {
            // Somebody may have tidied up: an empty directory looks forgotten.
            Some(made) if made.path.exists() => Ok(made),
            _ => self.make(),
        }
    }

    /// Makes the next one ahead: when nothing else is to be done.
    pub fn refill(&mut self) {
        if self.spare.is_none() {
            self.spare = self.make().ok();
        }
    }

    fn make(&mut self) -> Result<SessionCgroup, Unusable> {
        let number = {
            let mut made = MADE.lock().expect("no panic is survived");
            *made += 1;
            *made
        };
        let path = self
            .base
            .join(format!("{PREFIX}{}.{}-{number}", self.namespace, id()));
        std::fs::create_dir(&path).map_err(|e| Unusable::System(path.clone(), e.into()))?;
        match open(&path) {
            Ok(directory) => Ok(SessionCgroup { path, directory }),
            Err(e) => {
                let _ = std::fs::remove_dir(&path);
                Err(Unusable::System(path, e))
            }
        }
    }

    /// Removes empty cgroups of monitors that are gone. What is not empty belongs to a session that goes on; the
    /// session reaper's note of it has the path.
    fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.base) else {
            return;
        };
        // Until this process has made one, those with its number are of another that had it.
        let made = MADE.lock().expect("no panic is survived");
        for entry in entries.flatten() {
            let name = entry.file_name();
            let maker = name.to_str().and_then(|name| {
                let (maker, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
                let (namespace, pid) = maker.split_once('.')?;
                Some((namespace, pid.parse::<i32>().ok()?))
            });
            let left = maker.is_some_and(|(namespace, pid)| match namespace == self.namespace {
                true => (pid == id() && *made == 0) || !Path::new(&format!("/proc/{pid}")).exists(),
                // Whether that process lives cannot be seen from here. A spare of its is made anew when it is needed.
                false => age(&entry).is_some_and(|age| age > FORGOTTEN),
            });
            if left {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
}

/// How long ago it was made.
fn age(entry: &std::fs::DirEntry) -> Option<Duration> {
    entry.metadata().ok()?.modified().ok()?.elapsed().ok()
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            spare.remove();
        }
    }
}

/// What the kernel counted for the process itself; none where that cannot be told from what it began with.
fn own_memory(usage: fleetgate_sys::process::Usage) -> Option<u64> {
    let floor = fleetgate_sys::process::high_water().ok()?;
    (usage.memory > floor).then_some(usage.memory)
}

/// Where this process is.
#[derive(Debug, PartialEq, Eq)]
enum Own {
    /// In the root of the hierarchy that is mounted there.
    Root(PathBuf),
    /// In this directory.
    Below(PathBuf),
}

/// From /proc/self/cgroup and /proc/self/mountinfo. Lines of the first are `0::PATH` for version 2; of the second
/// `ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS … - TYPE …`, with octal escapes.
fn own_directory(own: &str, mounts: &str) -> Option<Own> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if point.contains('\\') {
            return None;
        }
        let inside = match root {
            "/" => path,
            root => path
                .strip_prefix(root)
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))?,
        };
        match inside.trim_matches('/') {
            "" => Some(Own::Root(point.into())),
            inside => Some(Own::Below(Path::new(point).join(inside))),
        }
    })
}

/// A cgroup outside of the service's own, beside it, for what must outlive the service. None: there is no place for it.
pub fn outside() -> Option<Fd> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = beside(&own_directory(&own, &mounts)?)?;
    let made = match std::fs::create_dir(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(Errno::from(e)),
        _ => open(&path),
    };
    made.inspect_err(|e| {
        tracing::warn!(
            "{}: {e}: the guardian of watched sessions ends with the service's cgroup",
            path.display()
        );
    })
    .ok()
}

/// Beside the service, which is the directory or, where that is the monitor's own, the one above it.
fn beside(own: &Own) -> Option<PathBuf> {
    Some(match own {
        Own::Root(root) => root.join(OF_THE_GUARDIAN),
        Own::Below(path) if path.ends_with(SUBGROUP) => path.parent()?.parent()?.join(OF_THE_GUARDIAN),
        Own::Below(path) => path.parent()?.join(OF_THE_GUARDIAN),
    })
}

/// The directory that systemd gave to the service: its processes' own, or the one above their subgroup. systemd marks
/// it with an extended attribute.
fn delegated(own: &Path) -> Result<PathBuf, Unusable> {
    let above = own.parent().filter(|_| own.ends_with(SUBGROUP));
    for path in above.into_iter().chain([own]) {
        let directory = open(path).map_err(|e| Unusable::System(path.to_owned(), e))?;
        if [c"trusted.delegate", c"user.delegate"]
            .into_iter()
            .any(|name| exe::has_attribute(&directory, name))
        {
            return Ok(path.to_owned());
        }
    }
    Err(Unusable::NotDelegated(own.to_owned()))
}

/// What `pid:[4026531836]` has in its brackets; `0` where /proc does not say.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    if digits.is_empty() { "0".to_owned() } else { digits }
}

fn open(path: &Path) -> Result<Fd, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    file::openat(file::CWD, &path, flags::O_RDONLY | flags::O_DIRECTORY, 0)
}

fn read(path: &Path) -> Option<String> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let fd = file::openat(file::CWD, &path, 0, 0).ok()?;
    String::from_utf8(file::read_up_to(&fd, MAX_FILE).ok()?).ok()
}

#[cfg(test)]
mod tests;
