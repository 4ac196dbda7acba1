//! The labels of a container and its pod, within bounds. Who may make a pod chooses them, and they are written to logs and
//! terminals.

use crate::error::Reason;
use fleetgate_containers::{ContainerRecord, Weighed};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most labels of a container and its pod together.
pub const MAX_LABELS: usize = 256;
/// The most bytes of them: what Kubernetes takes is a fraction of it.
pub const MAX_BYTES: usize = 16 << 10;
/// What the names begin with that only Kubernetes and its runtimes give.
const KUBERNETES: &str = "io.kubernetes.";

/// What a container runtime says about one container.
#[derive(Debug, PartialEq, Eq)]
pub struct Labels {
    known: BTreeMap<String, String>,
    /// Names that only Kubernetes gives, and that the pod alone has: whoever made it chose them, so they are none.
    dropped: BTreeSet<String>,
}

impl Labels {
    /// Of a container and its pod. Who made the pod chooses the pod's; a container's are chosen by Kubernetes, and count more.
    pub fn new(pod: HashMap<String, String>, container: HashMap<String, String>) -> Result<Labels, Reason> {
        let all: BTreeMap<String, String> = pod.into_iter().chain(container.clone()).collect();
        let words = || all.iter().flat_map(|(key, value)| [key, value]);
        if all.len() > MAX_LABELS || words().map(String::len).sum::<usize>() > MAX_BYTES {
            return Err(Reason::Labels);
        }
        if !words().all(|word| word.bytes().all(|byte| (b' '..=b'~').contains(&byte))) {
            return Err(Reason::Unprintable);
        }
        let (known, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) = all
            .into_iter()
            .partition(|(key, _)| !key.starts_with(KUBERNETES) || container.contains_key(key));
        Ok(Labels {
            known,
            dropped: dropped.into_keys().collect(),
        })
    }

    /// The container has them. Of a name that Kubernetes gives, what its runtime wrote is believed.
    pub fn add_to(&self, found: &mut ContainerRecord) {
        for (key, value) in &self.known {
            if !(key.starts_with(KUBERNETES) && found.labels.contains_key(key)) {
                found.labels.insert(key.clone(), value.clone());
            }
        }
        found.labels_are_all = self.dropped.iter().all(|key| found.labels.contains_key(key));
    }
}

impl Weighed for Labels {
    fn bytes(&self) -> usize {
        let known = self.known.iter().flat_map(|(key, value)| [key, value]);
        known.chain(&self.dropped).map(String::len).sum()
    }
}
