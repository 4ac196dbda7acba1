//! One container by what a person calls it, or all of them.

use crate::error::{Error, Unusable};
use crate::process;
use crate::sources::{K3S, SearchPaths};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The fewest characters of an id that stand for it.
const SHORTEST: usize = 4;
/// The namespace of containerd's that Kubernetes has.
const KUBERNETES: &str = "k8s.io";
/// The annotation of CRI-O's with a container's pod.
const SANDBOX_OF_CRI_O: &str = "io.kubernetes.cri-o.SandboxID";
/// How many are named to who asked for one that is not there.
const NAMED: usize = 8;

/// Who started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// runc, by hand.
    Runc,
    /// crun, by hand.
    Crun,
    /// containerd, with another runtime.
    Containerd,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// Kubernetes, by containerd or CRI-O.
    Kubernetes,
    /// systemd-nspawn, or what else registers with systemd-machined.
    Machined,
    /// LXC.
    Lxc,
    /// A process that somebody named.
    Process,
}

impl Runtime {
    /// Whether its containers have a configuration. One that is gone says nothing of what who enters may do.
    pub const fn has_configuration(self) -> bool {
        !matches!(self, Runtime::Machined | Runtime::Lxc | Runtime::Process)
    }

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Runc => "runc",
            Runtime::Crun => "crun",
            Runtime::Containerd => "containerd",
            Runtime::Docker => "docker",
            Runtime::Podman => "podman",
            Runtime::Kubernetes => "kubernetes",
            Runtime::Machined => "machined",
            Runtime::Lxc => "lxc",
            Runtime::Process => "process",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A container runtime that Kubernetes uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesRuntime {
    /// containerd in its usual place.
    Containerd,
    /// The containerd that k3s brings.
    K3s,
    /// CRI-O.
    CriO,
}

/// A container as it was written down.
#[derive(Clone, Debug)]
pub struct ContainerRecord {
    /// Its id at its runtime.
    pub id: String,
    /// What people call it, the best first; none: by its id alone.
    pub names: Vec<String>,
    /// containerd's namespace that it is in.
    pub namespace: Option<String>,
    /// Who started it.
    pub runtime: Runtime,
    /// Its first process.
    pub pid: i32,
    /// When that began, in clock ticks since boot; none: the runtime does not say.
    pub started: Option<u64>,
    /// Its labels and annotations.
    pub labels: BTreeMap<String, String>,
    /// Those are all of them: what keeps them was read.
    pub labels_are_all: bool,
    /// Why the labels are not known that Kubernetes has for it; none: nobody asked, or they are among its labels.
    pub labels_missing: Option<String>,
    /// Its configuration, in the form of the Open Container Initiative.
    pub config: Option<PathBuf>,
    /// Where Docker keeps it, as far as its configuration says.
    pub(crate) docker: Option<PathBuf>,
    /// Podman's or CRI-O's containers, where its bundle is among them.
    pub(crate) storage: Option<PathBuf>,
}

impl ContainerRecord {
    pub(crate) fn new(id: String, runtime: Runtime, pid: i32) -> ContainerRecord {
        ContainerRecord {
            id,
            names: Vec::new(),
            namespace: None,
            runtime,
            pid,
            started: None,
            labels: BTreeMap::new(),
            labels_are_all: false,
            labels_missing: None,
            config: None,
            docker: None,
            storage: None,
        }
    }

    /// The process `pid`, taken for a container.
    pub fn process(pid: i32) -> ContainerRecord {
        ContainerRecord::new(pid.to_string(), Runtime::Process, pid)
    }

    pub(crate) fn name(&mut self, name: &str) {
        if !name.is_empty() && self.names.iter().all(|known| known != name) {
            self.names.push(name.to_owned());
        }
    }

    /// What to call it.
    pub fn display_name(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }

    /// Whether this is a name of it that people gave, and not its id or the beginning of that. What runc and crun start by hand has
    /// an id that somebody chose, and no other name.
    pub fn has_name(&self, name: &str) -> bool {
        match self.names.is_empty() {
            true => self.id == name,
            false => self.names.iter().any(|known| known == name),
        }
    }

    /// What it may be called in a login by SSH, where a name has no slash; the id last.
    pub fn login_names(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().chain([&self.id]);
        names.map(String::as_str).filter(|name| !name.contains('/'))
    }

    /// Which container runtime of Kubernetes can tell more labels of it; none: none can. They have none either for the container
    /// that only holds a pod's namespaces.
    pub fn kubernetes(&self) -> Option<KubernetesRuntime> {
        let is = |key: &str, value: &str| self.labels.get(key).is_some_and(|own| own == value);
        let types = [
            "io.kubernetes.cri.container-type",
            "io.kubernetes.cri-o.ContainerType",
        ];
        if types.into_iter().any(|key| is(key, "sandbox")) {
            return None;
        }
        match self.namespace.as_deref() {
            Some(KUBERNETES) => match &self.config {
                Some(config) if config.starts_with(K3S) => Some(KubernetesRuntime::K3s),
                _ => Some(KubernetesRuntime::Containerd),
            },
            // Podman writes the same of a container in a pod of its own.
            None if self.labels.contains_key(SANDBOX_OF_CRI_O) && !is("io.container.manager", "libpod") => {
                Some(KubernetesRuntime::CriO)
            }
            _ => None,
        }
    }

    /// Whether its first process runs.
    pub fn runs(&self) -> bool {
        let began = process::start_time(self.pid);
        began.is_some() && self.started.is_none_or(|started| began == Some(started))
    }
}

/// All that run, by their names.
pub fn list(roots: &SearchPaths) -> Vec<ContainerRecord> {
    let mut all = roots.read();
    all.retain(ContainerRecord::runs);
    all.sort_by(|a, b| (a.display_name(), &a.id).cmp(&(b.display_name(), &b.id)));
    all
}

/// The one that `name` stands for: its name or id, or the beginning of its id where that is long enough and no other begins so.
pub fn find(roots: &SearchPaths, name: &str) -> Result<ContainerRecord, Error> {
    find_among(&roots.read(), name).cloned()
}

/// The same of those that were read before.
pub fn find_among<'a>(all: &'a [ContainerRecord], name: &str) -> Result<&'a ContainerRecord, Error> {
    let fit = candidates(all, name);
    if let [one] = fit[..] {
        // Whoever opens it sees whether it runs.
        return Ok(one);
    }
    let running: Vec<&ContainerRecord> = fit.iter().copied().filter(|found| found.runs()).collect();
    match running[..] {
        [one] => Ok(one),
        [] if fit.is_empty() => Err(Error::None {
            name: name.to_owned(),
            there: all
                .iter()
                .filter(|found| found.runs())
                .take(NAMED)
                .map(|found| found.display_name().to_owned())
                .collect(),
        }),
        [] => Err(Error::Unusable {
            name: name.to_owned(),
            why: Unusable::Ended,
        }),
        _ => Err(Error::Several {
            name: name.to_owned(),
            fit: running.iter().map(|found| found.id.clone()).collect(),
        }),
    }
}

/// Those with this name or id; if there are none, those whose id begins so.
fn candidates<'a>(all: &'a [ContainerRecord], name: &str) -> Vec<&'a ContainerRecord> {
    let is_called =
        |found: &&ContainerRecord| found.id == name || found.names.iter().any(|known| known == name);
    let exact: Vec<&ContainerRecord> = all.iter().filter(is_called).collect();
    match exact.is_empty() && name.len() >= SHORTEST {
        true => all.iter().filter(|found| found.id.starts_with(name)).collect(),
        false => exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_started_a_container_says_who_knows_its_labels() {
        let of = |namespace: Option<&str>, config: &str, labels: &[(&str, &str)]| {
            let mut found = ContainerRecord::new("web".to_owned(), Runtime::Runc, 1);
            found.namespace = namespace.map(str::to_owned);
            found.config = Some(config.into());
            let pairs = labels.iter();
            found.labels = pairs
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect();
            found.kubernetes()
        };
        let (k8s, usual) = (
            Some("k8s.io"),
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io/web",
        );
        assert_eq!(of(k8s, usual, &[]), Some(KubernetesRuntime::Containerd));
        let below_k3s = "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/web/config.json";
        assert_eq!(of(k8s, below_k3s, &[]), Some(KubernetesRuntime::K3s));
        let of_cri_o = ("io.kubernetes.cri-o.SandboxID", "pod");
        assert_eq!(of(None, usual, &[of_cri_o]), Some(KubernetesRuntime::CriO));
        // Podman's pods; Docker's labels, which images choose; the container that holds a pod's namespaces.
        let by_podman = ("io.container.manager", "libpod");
        assert_eq!(of(None, usual, &[of_cri_o, by_podman]), None);
        assert_eq!(of(Some("moby"), usual, &[of_cri_o]), None);
        assert_eq!(
            of(k8s, usual, &[("io.kubernetes.cri.container-type", "sandbox")]),
            None
        );
        assert_eq!(of(None, usual, &[]), None);
    }
}
