//! The labels of a container and its pod, within bounds. Who may make a pod chooses them, and they are written to logs and
//! terminals.

use crate::error::Reason;
use fleetgate_containers::ContainerRecord;
use std::collections::{BTreeMap, HashMap};

/// The most labels of a container and its pod together.
pub const MAX_LABELS: usize = 256;
/// The most bytes of them: what Kubernetes takes is a fraction of it.
pub const MAX_BYTES: usize = 16 << 10;
/// What the names begin with that only Kubernetes and its runtimes give.
const KUBERNETES: &str = "io.kubernetes.";

/// What a container runtime says about one container.
#[derive(Debug, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Of a container and its pod. Who made the pod chooses the pod's; a container's are chosen by Kubernetes, and count more.
    pub fn new(pod: HashMap<String, String>, container: HashMap<String, String>) -> Result<Labels, Reason> {
        let all: BTreeMap<String, String> = pod.into_iter().chain(container).collect();
        let words = || all.iter().flat_map(|(key, value)| [key, value]);
        if all.len() > MAX_LABELS || words().map(String::len).sum::<usize>() > MAX_BYTES {
            return Err(Reason::Labels);
        }
        if !words().all(|word| word.bytes().all(|byte| (b' '..=b'~').contains(&byte))) {
            return Err(Reason::Unprintable);
        }
        Ok(Labels(all))
    }

    /// The container has them. Of a name that Kubernetes gives, what its runtime wrote is believed, and no label of a pod's.
    pub fn add_to(&self, found: &mut ContainerRecord) {
        for (key, value) in &self.0 {
            if !(key.starts_with(KUBERNETES) && found.labels.contains_key(key)) {
                found.labels.insert(key.clone(), value.clone());
            }
        }
        found.labels_are_all = true;
    }
}
