//! Labels of pods, for who looks at containers: which of them are asked about, and what is remembered.

use crate::client::Look;
use crate::error::{Error, Reason};
use crate::labels::Labels;
use fleetgate_containers::{ContainerRecord, KubernetesRuntime, Remembered};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most containers whose labels are remembered; as many of the largest labels have 8 MB.
pub const REMEMBERED: usize = 512;
/// A container runtime that answered nothing in its time is not asked again for so long, so that not every session waits for it.
pub const PAUSE: Duration = Duration::from_secs(5);

/// Where the container runtimes listen.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// containerd.
    pub containerd: PathBuf,
    /// The containerd of k3s.
    pub k3s: PathBuf,
    /// CRI-O.
    pub cri_o: PathBuf,
}

/// The labels of pods on this machine. A container's and its pod's do not change from its start on.
pub struct PodLabels {
    sockets: Sockets,
    /// By the containers' configurations, which are other files for other containers.
    remembered: Remembered,
    /// Until when a container runtime is left alone.
    paused: Mutex<Option<(Instant, Error)>>,
}

impl Default for Sockets {
    fn default() -> Sockets {
        Sockets {
            containerd: "/run/containerd/containerd.sock".into(),
            k3s: "/run/k3s/containerd/containerd.sock".into(),
            cri_o: "/run/crio/crio.sock".into(),
        }
    }
}

impl Sockets {
    fn of(&self, runtime: KubernetesRuntime) -> &Path {
        match runtime {
            KubernetesRuntime::Containerd => &self.containerd,
            KubernetesRuntime::K3s => &self.k3s,
            KubernetesRuntime::CriO => &self.cri_o,
        }
    }
}

impl PodLabels {
    /// Nothing is known yet.
    pub fn new(sockets: Sockets) -> PodLabels {
        PodLabels {
            sockets,
            remembered: Remembered::new(REMEMBERED),
            paused: Mutex::new(None),
        }
    }

    /// Gives those of these containers that Kubernetes started the labels that it has for them, or the reason why they are not
    /// known. It takes half a second at most; containers of others cost nothing.
    pub fn add_to<'a>(&self, containers: impl IntoIterator<Item = &'a mut ContainerRecord>) {
        let mut look = None;
        let mut answered = false;
        for found in containers {
            let Some(runtime) = found.kubernetes() else {
                continue;
            };
            let socket = self.sockets.of(runtime);
            let mut ask = || {
                let labels = self.ask(&mut look, socket, &found.id, answered);
                answered |= labels.is_ok();
                labels
            };
            let labels = match &found.config {
                Some(config) => self.remembered.of(config, ask),
                None => ask().map(Arc::new),
            };
            match labels {
                Ok(labels) => labels.add_to(found),
                Err(e) => found.labels_missing = Some(e.to_string()),
            }
        }
    }

    /// Asks, but for a container runtime that is left alone. One that has answered in this look is busy and not silent.
    fn ask(&self, look: &mut Option<Look>, socket: &Path, id: &str, answered: bool) -> Result<Labels, Error> {
        self.check_pause(socket)?;
        let look = match look {
            Some(look) => look,
            None => look.insert(Look::begin().map_err(|reason| reason.of(socket))?),
        };
        let labels = look.labels(socket, id);
        if let Err(e) = &labels
            && e.reason == Reason::Silent
            && !answered
        {
            let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
            *paused = Some((Instant::now() + PAUSE, e.clone()));
        }
        labels
    }

    fn check_pause(&self, socket: &Path) -> Result<(), Error> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match &*paused {
            Some((until, e)) if e.socket == socket && Instant::now() < *until => Err(e.clone()),
            _ => Ok(()),
        }
    }
}
