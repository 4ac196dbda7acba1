//! What runtimes leave on the disk: where, and in which form.
//!
//! - runc writes ROOT/ID/state.json, crun ROOT/ID/status; each names the first process, when it began, and the bundle. Docker,
//!   containerd, CRI-O and Podman start one of the two, with a root of their own.
//! - containerd has TASKS/NAMESPACE/ID with the number of the first process, for runtimes that are neither.
//! - Names that people gave are kept apart: by Docker and by Podman in files of their own, by Kubernetes in annotations.
//! - systemd-machined has a file for each machine, LXC a cgroup.

use crate::find::{ContainerRecord, Runtime};
use crate::process;
use fleetgate_sys::file::flags;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most of one file that is read.
const MAX_FILE: u64 = 4 << 20;
/// The most containers of one root.
const MAX_CONTAINERS: usize = 4096;

/// What is read of runc's state. Of these documents only what is used is kept: all of them are read for each launch, and the
/// most of their text is of no interest.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RuncState {
    init_process_pid: Value,
    init_process_start: Value,
    config: RuncConfig,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RuncConfig {
    labels: Value,
}

/// The same of crun's.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct CrunStatus {
    pid: Value,
    process_start_time: Value,
    bundle: Value,
}

/// The same of a configuration, for who looks for a container.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: Value,
}

/// Where they are looked for. Those that are not there are passed over.
#[derive(Clone, Debug)]
pub struct SearchPaths {
    /// Directories with one directory for each container, of runc or crun.
    pub runtimes: Vec<PathBuf>,
    /// Directories of such directories: containerd's, one for each of its namespaces.
    pub runtime_namespaces: Vec<PathBuf>,
    /// containerd's tasks.
    pub tasks: Vec<PathBuf>,
    /// Docker's containers.
    pub docker: Vec<PathBuf>,
    /// Podman's and CRI-O's containers.
    pub storage: Vec<PathBuf>,
    /// systemd-machined's files.
    pub machines: Vec<PathBuf>,
    /// Hierarchies of cgroups.
    pub cgroups: Vec<PathBuf>,
}

impl Default for SearchPaths {
    fn default() -> SearchPaths {
        let all = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        SearchPaths {
            runtimes: all(&[
                "/run/runc",
                "/run/crun",
                "/run/docker/runtime-runc/moby",
                "/run/docker/runtime-crun/moby",
            ]),
            runtime_namespaces: all(&["/run/containerd/runc"]),
            tasks: all(&["/run/containerd/io.containerd.runtime.v2.task"]),
            docker: all(&["/var/lib/docker/containers"]),
            storage: all(&["/var/lib/containers/storage/overlay-containers"]),
            machines: all(&["/run/systemd/machines"]),
            cgroups: all(&[
                "/sys/fs/cgroup",
                "/sys/fs/cgroup/unified",
                "/sys/fs/cgroup/systemd",
            ]),
        }
    }
}

impl SearchPaths {
    /// Nowhere: for who names places himself.
    pub fn none() -> SearchPaths {
        SearchPaths {
            runtimes: Vec::new(),
            runtime_namespaces: Vec::new(),
            tasks: Vec::new(),
            docker: Vec::new(),
            storage: Vec::new(),
            machines: Vec::new(),
            cgroups: Vec::new(),
        }
    }

    /// All that is there, as it was written down: whether it runs is looked at later. Called for each launch in a container.
    pub fn read(&self) -> Vec<ContainerRecord> {
        let mut all = Vec::new();
        for root in &self.runtimes {
            let known = all.len();
            of_runtime(root, &mut all);
            // Docker's are in containerd's namespace `moby`.
            let namespace = root
                .file_name()
                .filter(|name| *name == "moby")
                .map(|_| "moby".to_owned());
            all[known..]
                .iter_mut()
                .for_each(|found| found.namespace.clone_from(&namespace));
        }
        for root in self.runtime_namespaces.iter().flat_map(|all| directories(all)) {
            let known = all.len();
            of_runtime(&root, &mut all);
            for found in &mut all[known..] {
                found.runtime = Runtime::Containerd;
                found.namespace = id_of(&root);
            }
        }
        for namespace in self.tasks.iter().flat_map(|tasks| directories(tasks)) {
            of_tasks(&namespace, &mut all);
        }
        for root in &self.machines {
            of_machines(root, &mut all);
        }
        for root in &self.cgroups {
            of_lxc(root, &mut all);
        }
        self.name(&mut all);
        all
    }

    /// Adds the names that people gave, and their labels.
    fn name(&self, all: &mut [ContainerRecord]) {
        let stored: Vec<Value> = self
            .storage
            .iter()
            .filter_map(|root| document(&root.join("containers.json")))
            .collect();
        for found in all {
            for root in &self.docker {
                if let Some(config) = document::<Value>(&root.join(&found.id).join("config.v2.json")) {
                    let name = config["Name"].as_str().unwrap_or_default();
                    found.name(name.trim_start_matches('/'));
                    found.label(&config["Config"]["Labels"]);
                    found.runtime = Runtime::Docker;
                }
            }
            let entries = stored.iter().filter_map(Value::as_array).flatten();
            let id = found.id.clone();
            for entry in entries.filter(|entry| entry["id"] == id.as_str()) {
                for name in entry["names"].as_array().into_iter().flatten() {
                    found.name(name.as_str().unwrap_or_default());
                }
                found.runtime = Runtime::Podman;
            }
            // Kubernetes: POD/CONTAINER, and with the pod's namespace in front; by dots where a slash may not be.
            let annotation = |keys: [&str; 2]| keys.iter().find_map(|key| found.labels.get(*key).cloned());
            let pod = annotation(["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"]);
            let inside = annotation(["io.kubernetes.cri.container-name", "io.kubernetes.container.name"]);
            let namespace = annotation([
                "io.kubernetes.cri.sandbox-namespace",
                "io.kubernetes.pod.namespace",
            ]);
            if let (Some(pod), Some(inside)) = (pod, inside) {
                let mut parts = vec![pod, inside];
                for _ in 0..2 {
                    found.name(&parts.join("/"));
                    found.name(&parts.join("."));
                    parts.splice(0..0, namespace.clone());
                }
                found.runtime = Runtime::Kubernetes;
            }
            // Ids are unique in a namespace of containerd's.
            if let (Some(namespace), true) = (found.namespace.clone(), found.names.is_empty()) {
                found.name(&found.id.clone());
                found.name(&format!("{namespace}/{}", found.id));
                found.name(&format!("{namespace}.{}", found.id));
            }
        }
    }
}

/// The directories in one that are root's.
fn directories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|kept| kept.is_dir() && is_believed(kept.uid())))
        .take(MAX_CONTAINERS)
        .collect()
}

fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // A fifo must hold nobody up, and a link leads wherever its owner likes; what is no regular file is not read.
    let how = flags::O_NONBLOCK | flags::O_NOCTTY | flags::O_NOFOLLOW;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(how)
        .open(path)
        .ok()?;
    let kept = file.metadata().ok()?;
    if !kept.is_file() || !is_believed(kept.uid()) {
        return None;
    }
    // In one read: a length of 0 is that of a file of the kernel's.
    let length = usize::try_from(kept.len().min(MAX_FILE)).ok()?;
    let mut out = String::with_capacity(length.max(1000) + 40);
    file.take(MAX_FILE + 1).read_to_string(&mut out).ok()?;
    (out.len() as u64 <= MAX_FILE).then_some(out)
}

/// Whether files of this user's are believed: who may write them says which process somebody enters, and as whom.
fn is_believed(uid: u32) -> bool {
    uid == 0 || cfg!(test) && uid == fleetgate_sys::process::effective_uid()
}

/// The same of a path; tests keep theirs where others may write.
fn is_believed_at(path: &Path) -> bool {
    cfg!(test) || is_roots(path)
}

/// Whether nobody but root can change the file, or put another in its place: each directory and each link on the way to it is
/// root's.
pub fn is_roots(path: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| {
        let parts = path.components().rev().map(|part| part.as_os_str().to_owned());
        parts.collect::<Vec<OsString>>()
    };
    // What is still to be walked, the next part last.
    let (mut left, mut at, mut links) = (parts(path), PathBuf::new(), 0);
    if !path.is_absolute() {
        return false;
    }
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let Ok(kept) = fs::symlink_metadata(&next) else {
            return false;
        };
        if kept.uid() != 0 {
            return false;
        }
        if kept.is_symlink() {
            links += 1;
            let Ok(target) = fs::read_link(&next) else {
                return false;
            };
            if links > MAX_LINKS {
                return false;
            }
            // An absolute one begins with the root, which replaces what was walked.
            left.extend(parts(&target));
            continue;
        }
        let open_to_others = kept.mode() & OTHERS_WRITE != 0;
        if open_to_others && !(kept.is_dir() && kept.mode() & STICKY != 0) {
            return false;
        }
        at = next;
    }
    true
}

/// A document of the disk; none: it is not there, too long, or none.
pub fn document<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&text(path)?).ok()
}

fn id_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn number(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok().filter(|pid| *pid > 0)
}

fn of_runtime(root: &Path, all: &mut Vec<ContainerRecord>) {
    for path in directories(root) {
        let Some(id) = id_of(&path) else { continue };
        let runc = || {
            let state: RuncState = document(&path.join("state.json"))?;
            let mut labels = state.config.labels.as_array().into_iter().flatten();
            let bundle = labels.find_map(|label| label.as_str()?.strip_prefix("bundle=").map(PathBuf::from));
            let pid = number(&state.init_process_pid)?;
            Some((Runtime::Runc, pid, state.init_process_start.as_u64(), bundle))
        };
        let crun = || {
            let status: CrunStatus = document(&path.join("status"))?;
            let pid = number(&status.pid)?;
            let bundle = status.bundle.as_str().map(PathBuf::from);
            Some((Runtime::Crun, pid, status.process_start_time.as_u64(), bundle))
        };
        let Some((runtime, pid, started, bundle)) = runc().or_else(crun) else {
            continue;
        };
        let mut found = ContainerRecord::new(id, runtime, pid);
        found.started = started;
        // crun keeps a copy of the configuration; runc leaves it where the bundle is.
        found.config = [Some(path.clone()), bundle]
            .into_iter()
            .flatten()
            .map(|directory| directory.join("config.json"))
            .find(|config| config.is_file());
        found.annotate();
        all.push(found);
    }
}

fn of_tasks(directory: &Path, all: &mut Vec<ContainerRecord>) {
    let namespace = id_of(directory);
    for path in directories(directory) {
        let is_known = |id: &String| {
            all.iter()
                .any(|found| found.id == *id && found.namespace == namespace)
        };
        let Some(id) = id_of(&path).filter(|id| !is_known(id)) else {
            continue;
        };
        let Some(pid) = text(&path.join("init.pid")).and_then(|pid| pid.trim().parse().ok()) else {
            continue;
        };
        let mut found = ContainerRecord::new(id, Runtime::Containerd, pid);
        found.namespace.clone_from(&namespace);
        found.config = Some(path.join("config.json")).filter(|config| config.is_file());
        found.annotate();
        all.push(found);
    }
}

/// Lines of NAME=VALUE.
fn of_machines(root: &Path, all: &mut Vec<ContainerRecord>) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).take(MAX_CONTAINERS) {
        let Some(text) = text(&path) else {
            continue;
        };
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        };
        // A user may register processes of his own as a machine, under any name.
        if field("UID").is_some_and(|uid| uid != "0") {
            continue;
        }
        let leader = field("LEADER").and_then(|pid| pid.parse().ok());
        if let (Some("container"), Some(name), Some(pid)) = (field("CLASS"), field("NAME"), leader) {
            all.push(ContainerRecord::new(name.to_owned(), Runtime::Machined, pid));
        }
    }
}

/// A cgroup for each container, the first process being the one that is 1 inside.
fn of_lxc(root: &Path, all: &mut Vec<ContainerRecord>) {
    for path in directories(root) {
        let Some(name) = id_of(&path).and_then(|id| id.strip_prefix("lxc.payload.").map(str::to_owned))
        else {
            continue;
        };
        if all.iter().any(|found| found.id == name) {
            continue;
        }
        let pids = text(&path.join("cgroup.procs")).unwrap_or_default();
        let first = pids.lines().filter_map(|pid| pid.parse().ok()).find(|pid: &i32| {
            process::read(format!("/proc/{pid}/status")).is_ok_and(|status| {
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
                numbers.is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
            })
        });
        if let Some(pid) = first {
            all.push(ContainerRecord::new(name, Runtime::Lxc, pid));
        }
    }
}

impl ContainerRecord {
    /// Labels of a JSON object.
    fn label(&mut self, labels: &Value) {
        let all: BTreeMap<String, String> = labels
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .take(MAX_CONTAINERS)
            .collect();
        self.labels.extend(all);
    }

    /// The annotations of its configuration are labels.
    fn annotate(&mut self) {
        // What others than root may change gives it neither a name nor labels.
        let config = self.config.as_deref().filter(|config| is_believed_at(config));
        if let Some(config) = config.and_then(document::<Annotated>) {
            self.label(&config.annotations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path =
                std::env::temp_dir().join(format!("fleetgate-containers-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("made");
            Place(path)
        }

        fn write(&self, name: &str, content: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().expect("one")).expect("made");
            fs::write(path, content).expect("written");
        }

        fn path(&self, name: &str) -> Vec<PathBuf> {
            vec![self.0.join(name)]
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// As Docker 24 and containerd's shim leave it, as far as it is read.
    #[test]
    fn docker_s_names_belong_to_runc_s_states() {
        let place = Place::new("docker");
        let bundle = place.0.join("bundle");
        let state = json!({ "id": "4f5e6d", "init_process_pid": 4711, "init_process_start": 99,
            "config": { "labels": [format!("bundle={}", bundle.display())] } });
        place.write("moby/4f5e6d/state.json", &state.to_string());
        place.write("bundle/config.json", "{\"annotations\":{\"a\":\"b\"}}");
        place.write(
            "containers/4f5e6d/config.v2.json",
            "{\"Name\":\"/web\",\"Config\":{\"Labels\":{\"app\":\"shop\",\"n\":1}}}",
        );
        // Neither is one.
        place.write("moby/broken/state.json", "{");
        place.write("moby/none/state.json", "{\"init_process_pid\":-4}");
        let roots = SearchPaths {
            runtimes: place.path("moby"),
            docker: place.path("containers"),
            ..SearchPaths::none()
        };
        let all = roots.read();
        let [found] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!((found.display_name(), found.id.as_str()), ("web", "4f5e6d"));
        assert_eq!(
            (found.pid, found.started, found.runtime),
            (4711, Some(99), Runtime::Docker)
        );
        assert_eq!(found.config, Some(bundle.join("config.json")));
        assert_eq!(found.labels.get("app").map(String::as_str), Some("shop"));
        assert_eq!(found.labels.get("a").map(String::as_str), Some("b"));
    }

    #[test]
    fn kubernetes_names_have_a_pod_in_front() {
        let place = Place::new("kubernetes");
        let config = json!({ "annotations": { "io.kubernetes.cri.sandbox-name": "shop-7d", "io.kubernetes.cri.container-name":
            "web", "io.kubernetes.cri.sandbox-namespace": "prod" } });
        place.write("tasks/k8s.io/abcdef/init.pid", "77\n");
        place.write("tasks/k8s.io/abcdef/config.json", &config.to_string());
        let roots = SearchPaths {
            tasks: place.path("tasks"),
            ..SearchPaths::none()
        };
        let all = roots.read();
        assert_eq!((all[0].pid, all[0].runtime), (77, Runtime::Kubernetes));
        assert_eq!(
            all[0].names,
            [
                "shop-7d/web",
                "shop-7d.web",
                "prod/shop-7d/web",
                "prod.shop-7d.web"
            ]
        );
    }

    #[test]
    fn an_id_may_be_in_two_namespaces_of_containerd() {
        let place = Place::new("namespaces");
        let state = |pid: i32| format!("{{\"init_process_pid\":{pid}}}");
        place.write("runc/default/web/state.json", &state(7));
        place.write("runc/staging/web/state.json", &state(8));
        place.write("tasks/staging/web/init.pid", "8\n");
        place.write("tasks/other/web/init.pid", "9\n");
        let roots = SearchPaths {
            runtime_namespaces: place.path("runc"),
            tasks: place.path("tasks"),
            ..SearchPaths::none()
        };
        let mut all: Vec<(i32, String)> = roots
            .read()
            .into_iter()
            .map(|found| (found.pid, found.names[1].clone()))
            .collect();
        all.sort();
        let name = |pid, name: &str| (pid, name.to_owned());
        assert_eq!(
            all,
            [
                name(7, "default/web"),
                name(8, "staging/web"),
                name(9, "other/web")
            ]
        );
    }

    #[test]
    fn machines_and_podman_and_a_fifo_in_the_way() {
        let place = Place::new("others");
        place.write("machines/user", "NAME=db\nCLASS=container\nUID=1000\nLEADER=5\n");
        place.write("machines/vm", "NAME=vm\nCLASS=vm\nLEADER=5\n");
        place.write("machines/box", "# comment\nNAME=box\nCLASS=container\nLEADER=6\n");
        place.write(
            "crun/beef/status",
            "{\"pid\":8,\"process-start-time\":7,\"bundle\":\"/nowhere\"}",
        );
        place.write(
            "storage/containers.json",
            "[{\"id\":\"beef\",\"names\":[\"db\"]}]",
        );
        fs::create_dir_all(place.0.join("crun/hole")).expect("made");
        let fifo = place.0.join("crun/hole/status");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo runs").success());
        let roots = SearchPaths {
            runtimes: place.path("crun"),
            storage: place.path("storage"),
            machines: place.path("machines"),
            ..SearchPaths::none()
        };
        let all = roots.read();
        let of = |name: &str| {
            all.iter()
                .find(|found| found.display_name() == name)
                .map(|found| (found.pid, found.runtime))
        };
        assert_eq!(of("db"), Some((8, Runtime::Podman)));
        assert_eq!(of("box"), Some((6, Runtime::Machined)));
        assert_eq!(all.len(), 2, "{all:?}");
    }
}
