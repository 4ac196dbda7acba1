//! What runtimes leave on the disk: where, and in which form.
//!
//! - runc writes ROOT/ID/state.json, crun ROOT/ID/status; each names the first process, when it began, and the bundle. Docker,
//!   containerd, CRI-O and Podman start one of the two, with a root of their own.
//! - containerd has TASKS/NAMESPACE/ID with the number of the first process, for runtimes that are neither.
//! - Names that people gave are kept apart: by Docker and by Podman in files of their own, by Kubernetes in annotations.
//! - systemd-machined has a file for each machine, LXC a cgroup for what watches a container.

mod configuration;
mod machines;
mod runtimes;
#[cfg(test)]
mod tests;

use crate::find::{ContainerRecord, Runtime};
use crate::on_disk::{directories, document, is_believed_at};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where the containerd of k3s keeps what others keep in `/run/containerd`; its runc has the usual place.
pub const K3S: &str = "/run/k3s/containerd";
/// The two lists of a storage. Podman has those in the second that go when they end (`--rm`, and so those of systemd's units).
const STORED: [&str; 2] = ["containers.json", "volatile-containers.json"];
/// The most containers of one root.
pub const MAX_CONTAINERS: usize = 4096;

/// Where they are looked for. Those that are not there are passed over.
#[derive(Clone, Debug)]
pub struct SearchPaths {
    /// Directories with one directory for each container, of runc or crun.
    pub runtimes: Vec<PathBuf>,
    /// Directories of such directories: containerd's, one for each of its namespaces.
    pub runtime_namespaces: Vec<PathBuf>,
    /// containerd's tasks.
    pub tasks: Vec<PathBuf>,
    /// Docker's containers, besides those whose configuration says where they are.
    pub docker: Vec<PathBuf>,
    /// Podman's and CRI-O's containers, besides those that are where their bundle is.
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
            tasks: ["/run/containerd", K3S]
                .map(|state| Path::new(state).join("io.containerd.runtime.v2.task"))
                .into(),
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
            runtimes::of_runtime(root, &mut all);
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
            runtimes::of_runtime(&root, &mut all);
            for found in &mut all[known..] {
                found.runtime = Runtime::Containerd;
                found.in_namespace(id_of(&root));
            }
        }
        for namespace in self.tasks.iter().flat_map(|tasks| directories(tasks)) {
            runtimes::of_tasks(&namespace, &mut all);
        }
        for root in &self.machines {
            machines::of_machines(root, &mut all);
        }
        for root in &self.cgroups {
            machines::of_lxc(root, &mut all);
        }
        self.name(&mut all);
        all
    }

    /// Adds the names that people gave, and their labels.
    fn name(&self, all: &mut [ContainerRecord]) {
        // Podman has a directory for each of its storage drivers, wherever its storage is.
        let bundles = all.iter().filter_map(|found| found.storage.as_ref());
        let roots: BTreeSet<&PathBuf> = self.storage.iter().chain(bundles).collect();
        let stored: Vec<Value> = roots
            .into_iter()
            .filter(|root| self.storage.contains(root) || is_believed_at(root))
            .flat_map(|root| STORED.map(|name| root.join(name)))
            .filter_map(|file| document(&file))
            .collect();
        for found in all {
            let usual: Vec<PathBuf> = self.docker.iter().map(|root| root.join(&found.id)).collect();
            let own = found.docker.take();
            let own = own.filter(|place| !usual.contains(place) && is_believed_at(place));
            for place in usual.into_iter().chain(own) {
                if let Some(config) = document::<Value>(&place.join("config.v2.json")) {
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
}
