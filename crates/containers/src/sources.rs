//! What runtimes leave on the disk: where, and in which form.
//!
//! - runc writes ROOT/ID/state.json, crun ROOT/ID/status; each names the first process, when it began, and the bundle. Docker,
//!   containerd, CRI-O and Podman start one of the two, with a root of their own.
//! - containerd has TASKS/NAMESPACE/ID with the number of the first process, for runtimes that are neither.
//! - Names that people gave are kept apart: by Docker and by Podman in files of their own, by Kubernetes in annotations that its
//!   runtimes write. Other annotations are chosen by whoever made a pod or an image, so who started a container is decided first.
//! - systemd-machined has a file for each machine, LXC a cgroup for what watches a container.

mod configuration;
mod machines;
mod names;
mod runtimes;
#[cfg(test)]
mod tests;

use crate::find::{ContainerRecord, Runtime, is_printable};
use crate::on_disk::directories;
use std::path::{Path, PathBuf};

/// Where the containerd of k3s keeps what others keep in `/run/containerd`; its runc has the usual place.
pub const K3S: &str = "/run/k3s/containerd";
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
            // Docker's are in containerd's namespace `moby`.
            let namespace = id_of(root).filter(|name| name == "moby");
            runtimes::of_runtime(root, namespace.as_deref(), &mut all);
        }
        for root in self.runtime_namespaces.iter().flat_map(|all| directories(all)) {
            let known = all.len();
            runtimes::of_runtime(&root, id_of(&root).as_deref(), &mut all);
            for found in &mut all[known..] {
                found.runtime = Runtime::Containerd;
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
        // An id is shown where there is no name.
        all.retain(|found| is_printable(&found.id));
        self.name(&mut all);
        all
    }
}

fn id_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}
