//! One container by what a person calls it, or all of them.

use crate::error::{Error, NAMED, SHORTEST, Unusable};
use crate::sources::{K3S, SearchPaths};
use crate::{cgroups, process};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The namespace of containerd's that Kubernetes has.
pub(crate) const KUBERNETES_OF_CONTAINERD: &str = "k8s.io";
/// The annotation that says who started a container, of those that share runc and crun.
pub(crate) const MANAGER: &str = "io.container.manager";
/// The annotation of CRI-O's with a container's pod.
pub(crate) const SANDBOX_OF_CRI_O: &str = "io.kubernetes.cri-o.SandboxID";

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
    /// Its labels, and those of its annotations that whoever started it wrote.
    pub labels: BTreeMap<String, String>,
    /// Those are all of them: what keeps them was read.
    pub labels_are_all: bool,
    /// Why the labels are not known that Kubernetes has for it; none: nobody asked, or they are among its labels.
    pub labels_missing: Option<String>,
    /// Its configuration, in the form of the Open Container Initiative.
    pub config: Option<PathBuf>,
    /// All annotations of its configuration are labels.
    pub(crate) annotations_are_all: bool,
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
            annotations_are_all: false,
            docker: None,
            storage: None,
        }
    }

    /// The process `pid`, taken for a container.
    pub fn process(pid: i32) -> ContainerRecord {
        ContainerRecord::new(pid.to_string(), Runtime::Process, pid)
    }

    pub(crate) fn name(&mut self, name: &str) {
        if !name.is_empty() && is_printable(name) && self.names.iter().all(|known| known != name) {
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
            Some(KUBERNETES_OF_CONTAINERD) => match &self.config {
                Some(config) if config.starts_with(K3S) => Some(KubernetesRuntime::K3s),
                _ => Some(KubernetesRuntime::Containerd),
            },
            None if is_by_cri_o(&self.labels) => Some(KubernetesRuntime::CriO),
            _ => None,
        }
    }

    /// Whether its first process runs.
    pub fn runs(&self) -> bool {
        let began = process::start_time(self.pid);
        began.is_some() && self.started.is_none_or(|started| began == Some(started))
    }

    /// Whether its processes stand still.
    pub fn is_paused(&self) -> bool {
        matches!(cgroups::of(self.pid), Err(Unusable::Paused))
    }
}

/// Whether these annotations are of a container that CRI-O started. Podman writes the pod of a container in a pod of its own.
pub(crate) fn is_by_cri_o(annotations: &BTreeMap<String, String>) -> bool {
    match annotations.get(MANAGER).map(String::as_str) {
        Some("cri-o") => true,
        Some("libpod") => false,
        _ => annotations.contains_key(SANDBOX_OF_CRI_O),
    }
}

/// Whether a name can be shown: names come to terminals and logs, and what cannot be seen, or turns the direction of a line, makes
/// one look like another.
pub(crate) fn is_printable(name: &str) -> bool {
    let is_unseen = |c: char| {
        matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    !name.chars().any(|c| c.is_control() || is_unseen(c))
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
        [] if fit.is_empty() => Err(none_of(all, name)),
        [] => Err(Error::Unusable {
            name: name.to_owned(),
            why: Unusable::Ended,
        }),
        _ => Err(Error::Several {
            name: name.to_owned(),
            fit: running
                .iter()
                .map(|found| format!("{} ({})", found.id, found.runtime))
                .collect(),
        }),
    }
}

/// Why none of them is meant by `name`, with what may have been.
fn none_of(all: &[ContainerRecord], name: &str) -> Error {
    let name = name.to_owned();
    let mut near = all
        .iter()
        .filter(|found| is_near(found.display_name(), &name) && found.runs());
    if let (Some(meant), None) = (near.next(), near.next()) {
        let meant = meant.display_name().to_owned();
        return Error::Mistyped { name, meant };
    }
    let begins = |found: &ContainerRecord| found.id.starts_with(&name) && found.runs();
    if (1..SHORTEST).contains(&name.len()) && all.iter().any(begins) {
        return Error::ShortId { name };
    }
    // The first by name, one more than is said. A sort would be a large part of `fleetgate-exec`.
    let mut there: Vec<String> = Vec::new();
    for found in all {
        let own = found.display_name();
        let at = there.iter().take_while(|other| other.as_str() <= own).count();
        if at <= NAMED && found.runs() {
            there.insert(at, own.to_owned());
            there.truncate(NAMED + 1);
        }
    }
    Error::None { name, there }
}

/// Whether one letter more, less or another makes one of the other, or two that changed places; or nothing but capitals.
fn is_near(one: &str, other: &str) -> bool {
    let same = |(a, b): &(&u8, &u8)| a.eq_ignore_ascii_case(b);
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let front = one.iter().zip(other).take_while(same).count();
    let (one, other) = (&one[front..], &other[front..]);
    let back = one.iter().rev().zip(other.iter().rev()).take_while(same).count();
    match (&one[..one.len() - back], &other[..other.len() - back]) {
        ([], []) => true,
        ([] | [_], [] | [_]) => front + back > 1,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
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
    fn one_that_is_not_there_is_told_with_what_may_be_meant() {
        let own = process_id();
        let found = |id: &str, name: &str| {
            let mut found = ContainerRecord::new(id.to_owned(), Runtime::Docker, own);
            found.name(name);
            found
        };
        let said = |all: &[ContainerRecord], name: &str| {
            let error = find_among(all, name).expect_err(name);
            error.to_string()
        };
        let few = [found("b1f0", "web-1"), found("a0c1", "db")];
        for (name, words) in [
            ("nothing", "runs here; there are db, web-1"),
            ("Web-1", "did you mean web-1?"),
            ("wbe-1", "did you mean web-1?"),
            ("web1", "did you mean web-1?"),
            ("b1f", "of an id the first 4 characters are needed"),
            ("", "there are db, web-1"),
        ] {
            let said = said(&few, name);
            assert!(
                said.contains(words) && said.contains(&format!("no container {name:?}")),
                "{name}: {said}"
            );
        }
        let names = ["h", "c", "b", "i", "a", "d", "g", "e", "f"].map(|name| name.repeat(8));
        let mut many = names.map(|name| found(&name, &name)).to_vec();
        let tail = "eeeeeeee, ffffffff, gggggggg, hhhhhhhh and more";
        assert!(
            said(&many, "nothing").ends_with(tail),
            "{}",
            said(&many, "nothing")
        );
        many.pop();
        assert!(said(&many, "nothing").ends_with("hhhhhhhh, iiiiiiii"));
        // Of two that are near nobody knows which was meant.
        let near = [found("1", "web-1"), found("2", "web-2")];
        assert!(said(&near, "web-9").ends_with("there are web-1, web-2"));
        let mut twice = [found("1", "web"), found("2", "web")];
        twice[1].runtime = Runtime::Podman;
        assert_eq!(
            said(&twice, "web"),
            "\"web\" may be any of 1 (docker), 2 (podman): say more of its id"
        );
    }

    fn process_id() -> i32 {
        fleetgate_sys::process::id()
    }

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
