//! What runtimes leave on the disk: where, and in which form.
//!
//! - runc writes ROOT/ID/state.json, crun ROOT/ID/status; each names the first process, when it began, and the bundle. Docker,
//!   containerd, CRI-O and Podman start one of the two, with a root of their own.
//! - containerd has TASKS/NAMESPACE/ID with the number of the first process, for runtimes that are neither.
//! - Names that people gave are kept apart: by Docker and by Podman in files of their own, by Kubernetes in annotations.
//! - systemd-machined has a file for each machine, LXC a cgroup.

use crate::find::{ContainerRecord, Runtime};
use crate::on_disk::{directories, directories_called, document, is_believed_at, text};
use crate::process;
use crate::remembered::Remembered;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The most containers of one root.
pub const MAX_CONTAINERS: usize = 4096;

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
                .for_each(|found| found.in_namespace(namespace.clone()));
        }
        for root in self.runtime_namespaces.iter().flat_map(|all| directories(all)) {
            let known = all.len();
            of_runtime(&root, &mut all);
            for found in &mut all[known..] {
                found.runtime = Runtime::Containerd;
                found.in_namespace(id_of(&root));
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
                    found.labels_are_all = true;
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
                // Podman keeps them in a database.
                found.labels_are_all = false;
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

fn id_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn number(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok().filter(|pid| *pid > 0)
}

/// What a runtime has written of a container.
#[derive(Clone)]
struct State {
    runtime: Runtime,
    pid: i32,
    started: Option<u64>,
    bundle: Option<PathBuf>,
}

/// What runc keeps of one.
fn by_runc(path: &Path) -> Option<State> {
    let state: RuncState = document(path)?;
    let mut labels = state.config.labels.as_array().into_iter().flatten();
    Some(State {
        runtime: Runtime::Runc,
        pid: number(&state.init_process_pid)?,
        started: state.init_process_start.as_u64(),
        bundle: labels.find_map(|label| label.as_str()?.strip_prefix("bundle=").map(PathBuf::from)),
    })
}

/// What crun keeps of one.
fn by_crun(path: &Path) -> Option<State> {
    let status: CrunStatus = document(path)?;
    Some(State {
        runtime: Runtime::Crun,
        pid: number(&status.pid)?,
        started: status.process_start_time.as_u64(),
        bundle: status.bundle.as_str().map(PathBuf::from),
    })
}

fn of_runtime(root: &Path, all: &mut Vec<ContainerRecord>) {
    static STATES: Remembered = Remembered::new(2 * MAX_CONTAINERS);
    for path in directories(root) {
        let Some(id) = id_of(&path) else { continue };
        let state = |file: &str, read: fn(&Path) -> Option<State>| {
            let file = path.join(file);
            STATES.of(&file, || read(&file).ok_or(()))
        };
        let Ok(state) = state("state.json", by_runc).or_else(|()| state("status", by_crun)) else {
            continue;
        };
        let mut found = ContainerRecord::new(id, state.runtime, state.pid);
        found.started = state.started;
        // crun keeps a copy of the configuration; runc leaves it where the bundle is.
        found.config = [Some(&path), state.bundle.as_ref()]
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
    const BEGINNING: &str = "lxc.payload.";
    for path in directories_called(root, BEGINNING) {
        let Some(name) = id_of(&path).and_then(|id| id.strip_prefix(BEGINNING).map(str::to_owned)) else {
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

/// The texts of a JSON object.
fn strings(object: &Value) -> BTreeMap<String, String> {
    let entries = object.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .take(MAX_CONTAINERS)
        .collect()
}

impl ContainerRecord {
    /// It is in this namespace of containerd's, which has more labels.
    fn in_namespace(&mut self, namespace: Option<String>) {
        self.labels_are_all &= namespace.is_none();
        self.namespace = namespace;
    }

    /// Labels of a JSON object.
    fn label(&mut self, labels: &Value) {
        self.labels.extend(strings(labels));
    }

    /// The annotations of its configuration are labels.
    fn annotate(&mut self) {
        static LABELS: Remembered = Remembered::new(2 * MAX_CONTAINERS);
        let Some(config) = self.config.as_deref() else {
            return;
        };
        // What others than root may change gives it neither a name nor labels. What was read when nobody else could is believed
        // while the file is the same, whoever may change it now.
        let labels = LABELS.of(config, || {
            let believed = Some(config).filter(|config| is_believed_at(config));
            let read = believed.and_then(document::<Annotated>).ok_or(())?;
            Ok::<_, ()>(strings(&read.annotations))
        });
        if let Ok(labels) = labels {
            self.labels.extend((*labels).clone());
            // Others keep more labels elsewhere.
            self.labels_are_all =
                self.namespace.is_none() && matches!(self.runtime, Runtime::Runc | Runtime::Crun);
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
