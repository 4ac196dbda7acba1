//! What runc, crun and containerd write down of their containers: one directory for each.

use super::{MAX_CONTAINERS, id_of};
use crate::find::{ContainerRecord, Runtime};
use crate::on_disk::{directories, document, text};
use crate::remembered::{Remembered, Weighed};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

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

/// The most bytes of states that are remembered: more than as many of the usual length have.
const MAX_REMEMBERED: usize = 4 << 20;

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

impl Weighed for State {
    fn bytes(&self) -> usize {
        self.bundle.as_ref().map_or(0, |bundle| bundle.as_os_str().len())
    }
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

/// The storage that a bundle is in, as Podman and CRI-O have it: STORAGE/ID/userdata.
fn storage_of(bundle: &Path) -> Option<PathBuf> {
    let container = bundle.parent().filter(|_| bundle.ends_with("userdata"))?;
    Some(container.parent()?.to_owned())
}

/// Those in the directory of a runtime's, which may be that of a namespace of containerd's.
pub(super) fn of_runtime(root: &Path, namespace: Option<&str>, all: &mut Vec<ContainerRecord>) {
    static STATES: Remembered = Remembered::new(2 * MAX_CONTAINERS, MAX_REMEMBERED);
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
        found.namespace = namespace.map(str::to_owned);
        found.started = state.started;
        found.storage = state.bundle.as_deref().and_then(storage_of);
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

pub(super) fn of_tasks(directory: &Path, all: &mut Vec<ContainerRecord>) {
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
