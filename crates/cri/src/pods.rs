//! Labels of pods, for who looks at containers: which of them are asked about, and what is remembered.

use crate::client::Look;
use crate::error::{Error, Reason};
use crate::labels::Labels;
use fleetgate_containers::{ContainerRecord, KubernetesRuntime, Remembered, Weighed};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most containers whose labels are remembered.
pub const REMEMBERED: usize = 512;
/// The most bytes of them: as many of the largest labels.
const REMEMBERED_BYTES: usize = 8 << 20;
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

/// What is remembered about a container: its labels, or why it has none that could be taken, which does not change either.
struct Answer(Result<Labels, Error>);

impl Weighed for Answer {
    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Weighed::bytes)
    }
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
            remembered: Remembered::new(REMEMBERED, REMEMBERED_BYTES),
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
                answered |= !labels.as_ref().is_err_and(|e| e.reason == Reason::Silent);
                match labels {
                    Err(e) if !e.reason.stays() => Err(e),
                    labels => Ok(Answer(labels)),
                }
            };
            let answer = match &found.config {
                Some(config) => self.remembered.of(config, ask),
                None => ask().map(Arc::new),
            };
            match answer.as_ref().map(|answer| &answer.0) {
                Ok(Ok(labels)) => labels.add_to(found),
                Ok(Err(e)) | Err(e) => {
                    found.labels_are_all = false;
                    found.labels_missing = Some(e.to_string());
                }
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
