//! Names that people gave: to Docker and Podman, which keep them in files of their own, and to Kubernetes, whose runtimes write
//! them down.

use super::SearchPaths;
use crate::find::{ContainerRecord, KubernetesRuntime, Runtime};
use crate::on_disk::{document, is_believed_at};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The two lists of a storage. Podman has those in the second that go when they end (`--rm`, and so those of systemd's units).
const STORED: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// Whether an entry of a storage's list is CRI-O's, which has the same storage as Podman: it notes the pod, Podman does not.
fn is_of_cri_o(entry: &Value) -> bool {
    let noted = entry["metadata"].as_str().unwrap_or_default();
    let noted: Value = serde_json::from_str(noted).unwrap_or_default();
    noted["pod-id"].as_str().is_some_and(|pod| !pod.is_empty())
}

impl SearchPaths {
    /// Adds the names that people gave, and Docker's labels.
    pub(super) fn name(&self, all: &mut [ContainerRecord]) {
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
                    found.runtime = Runtime::Docker;
                }
            }
            let entries = stored.iter().filter_map(Value::as_array).flatten();
            let id = found.id.clone();
            for entry in entries.filter(|entry| entry["id"] == id.as_str() && !is_of_cri_o(entry)) {
                for name in entry["names"].as_array().into_iter().flatten() {
                    found.name(name.as_str().unwrap_or_default());
                }
                found.runtime = Runtime::Podman;
                // Podman keeps them in a database. Annotations come from the image, whatever they say.
                found.labels.clear();
                found.labels_are_all = false;
            }
            found.name_by_pod();
            // Ids are unique in a namespace of containerd's.
            if let (Some(namespace), true) = (found.namespace.clone(), found.names.is_empty()) {
                found.name(&found.id.clone());
                found.name(&format!("{namespace}/{}", found.id));
                found.name(&format!("{namespace}.{}", found.id));
            }
        }
    }
}

impl ContainerRecord {
    /// Kubernetes: POD/CONTAINER, and with the pod's namespace in front. A login by SSH has no slash. By dots there is only
    /// NAMESPACE.POD.CONTAINER, because names of pods may have dots: POD.CONTAINER of one namespace would pass for another's.
    fn name_by_pod(&mut self) {
        let keys = match self.kubernetes() {
            Some(KubernetesRuntime::CriO) => [
                "io.kubernetes.pod.namespace",
                "io.kubernetes.pod.name",
                "io.kubernetes.container.name",
            ],
            Some(KubernetesRuntime::Containerd | KubernetesRuntime::K3s) => [
                "io.kubernetes.cri.sandbox-namespace",
                "io.kubernetes.cri.sandbox-name",
                "io.kubernetes.cri.container-name",
            ],
            None => return,
        };
        // No part of such a name has a slash.
        let part = |key: &str| {
            self.labels
                .get(key)
                .filter(|part| !part.is_empty() && !part.contains('/'))
        };
        let [namespace, pod, container] = keys.map(part);
        let (Some(pod), Some(container)) = (pod, container) else {
            return;
        };
        let mut names = vec![format!("{pod}/{container}")];
        if let Some(namespace) = namespace {
            names.push(format!("{namespace}/{pod}/{container}"));
            // Kubernetes lets neither have one; then it is clear where the pod's name begins and ends.
            if !namespace.contains('.') && !container.contains('.') {
                names.push(format!("{namespace}.{pod}.{container}"));
            }
        }
        for name in names {
            self.name(&name);
        }
        self.runtime = Runtime::Kubernetes;
    }
}
