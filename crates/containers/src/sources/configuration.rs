//! What a container's configuration says of who it is. Its annotations are written by its runtime, and by whoever made the pod or
//! the image; only what the runtime itself wrote says who a container is.

use super::MAX_CONTAINERS;
use crate::find::{
    ContainerRecord, KUBERNETES_OF_CONTAINERD, MANAGER, Runtime, SANDBOX_OF_CRI_O, is_by_cri_o,
};
use crate::on_disk::{document, is_believed_at};
use crate::remembered::{Remembered, Weighed};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the names of labels begin with that only Kubernetes and its runtimes give.
const KUBERNETES: &str = "io.kubernetes.";
/// What containerd's part for Kubernetes writes of each container, over whatever a pod's annotations say.
const WRITTEN_BY_CONTAINERD: [&str; 6] = [
    "io.kubernetes.cri.container-name",
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri.image-name",
    "io.kubernetes.cri.sandbox-id",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.cri.sandbox-namespace",
];
/// The same of CRI-O, which takes the last four from what the kubelet says of a container.
const WRITTEN_BY_CRI_O: [&str; 10] = [
    MANAGER,
    "io.kubernetes.cri-o.ContainerID",
    "io.kubernetes.cri-o.ContainerType",
    "io.kubernetes.cri-o.Name",
    SANDBOX_OF_CRI_O,
    "io.kubernetes.cri-o.SandboxName",
    "io.kubernetes.container.name",
    "io.kubernetes.pod.name",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.pod.uid",
];
/// The most labels that one document may have, and the most bytes of them; of more, none is taken. Whoever made an image or a pod
/// may write as many as he likes.
const MAX_LABELS: usize = 256;
const MAX_BYTES: usize = 16 << 10;
/// The most bytes of labels that are remembered.
const MAX_REMEMBERED: usize = 16 << 20;

type Labels = BTreeMap<String, String>;

/// The same of a configuration, for who looks for a container.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: Value,
    mounts: Value,
}

/// What a configuration says of who a container is.
struct Described {
    /// What containerd writes for Kubernetes. It counts only for a container of its.
    by_containerd: Labels,
    /// The same of CRI-O.
    by_cri_o: Labels,
    /// The other annotations.
    plain: Labels,
    /// Those are all that there are.
    are_all: bool,
    /// Where its `/etc/hostname` is kept: Docker keeps all of a container there, wherever its containers are.
    hostname: Option<PathBuf>,
}

impl Weighed for Described {
    fn bytes(&self) -> usize {
        let hostname = self.hostname.as_ref().map_or(0, |place| place.as_os_str().len());
        length(&self.by_containerd) + length(&self.by_cri_o) + length(&self.plain) + hostname
    }
}

impl Described {
    fn new(read: &Annotated) -> Described {
        let (plain, are_all) = plain(&read.annotations);
        Described {
            by_containerd: taken(&read.annotations, &|key| WRITTEN_BY_CONTAINERD.contains(&key)).0,
            by_cri_o: taken(&read.annotations, &|key| WRITTEN_BY_CRI_O.contains(&key)).0,
            plain,
            are_all,
            hostname: place_of_hostname(&read.mounts),
        }
    }
}

/// The labels of a JSON object whose names `is_wanted` wants, and whether those are all; none, if they are too many or too long.
fn taken(object: &Value, is_wanted: &dyn Fn(&str) -> bool) -> (Labels, bool) {
    let (mut labels, mut bytes, mut are_all) = (Labels::new(), 0, true);
    for (key, value) in object.as_object().into_iter().flatten() {
        let Some(value) = value.as_str() else { continue };
        if !is_wanted(key) {
            are_all = false;
            continue;
        }
        bytes += key.len() + value.len();
        if labels.len() == MAX_LABELS || bytes > MAX_BYTES {
            return (Labels::new(), false);
        }
        labels.insert(key.clone(), value.to_owned());
    }
    (labels, are_all)
}

/// The labels of a JSON object, but for what only Kubernetes and its runtimes give; and whether those are all.
fn plain(object: &Value) -> (Labels, bool) {
    taken(object, &|key| !key.starts_with(KUBERNETES) && key != MANAGER)
}

fn length(labels: &Labels) -> usize {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The directory that `/etc/hostname` is mounted from.
fn place_of_hostname(mounts: &Value) -> Option<PathBuf> {
    let mut all = mounts.as_array().into_iter().flatten();
    let mount = all.find(|mount| mount["destination"] == "/etc/hostname")?;
    Some(Path::new(mount["source"].as_str()?).parent()?.to_owned())
}

impl ContainerRecord {
    /// Of the annotations of its configuration those are labels that whoever started it wrote.
    pub(super) fn annotate(&mut self) {
        static DESCRIBED: Remembered = Remembered::new(2 * MAX_CONTAINERS, MAX_REMEMBERED);
        let Some(config) = self.config.as_deref() else {
            return;
        };
        // What others than root may change gives it neither a name nor labels. What was read when nobody else could is believed
        // while the file is the same, whoever may change it now.
        let described = DESCRIBED.of(config, || {
            let believed = Some(config).filter(|config| is_believed_at(config));
            let read = believed.and_then(document::<Annotated>).ok_or(())?;
            Ok::<_, ()>(Described::new(&read))
        });
        let Ok(described) = described else { return };
        let place = described.hostname.as_ref();
        self.docker = place.filter(|place| place.ends_with(&self.id)).cloned();
        self.annotations_are_all = described.are_all;
        let is_by_podman = described
            .by_cri_o
            .get(MANAGER)
            .is_some_and(|manager| manager == "libpod");
        self.labels = match self.namespace.as_deref() {
            Some(KUBERNETES_OF_CONTAINERD) => described.by_containerd.clone(),
            None if is_by_cri_o(&described.by_cri_o) => {
                self.runtime = Runtime::Kubernetes;
                described.by_cri_o.clone()
            }
            // Wherever Podman's storage is, its own containers say that they are, unless their image says otherwise. Its
            // annotations are the image's.
            None if is_by_podman || self.storage.is_some() => {
                self.runtime = Runtime::Podman;
                Labels::new()
            }
            _ => described.plain.clone(),
        };
        // Others keep more labels elsewhere.
        self.labels_are_all = described.are_all
            && self.namespace.is_none()
            && matches!(self.runtime, Runtime::Runc | Runtime::Crun);
    }

    /// Docker's labels are besides what its configuration says, and no more. An image's author chooses some.
    pub(super) fn label(&mut self, labels: &Value) {
        let (labels, are_all) = plain(labels);
        self.labels.extend(labels);
        self.labels_are_all = are_all && self.annotations_are_all;
    }
}
