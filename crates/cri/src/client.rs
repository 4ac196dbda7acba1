//! One look at container runtimes: the connections that it needs, and the time that it has for all of them.

use crate::bounded::BoundedStream;
use crate::error::{Error, Reason};
use crate::labels::Labels;
use fleetgate_containers::is_roots_socket;
use fleetgate_net::h2::{Channel, Tuning, connect};
use fleetgate_proto::cri::runtime_service_client::RuntimeServiceClient;
use fleetgate_proto::cri::{
    Container, ContainerFilter, ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxFilter,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

/// How long one look may take, however many containers it asks about.
pub const TIME: Duration = Duration::from_millis(500);
/// The most that a container runtime may send for one answer. Annotations of a pod come with it, of which Kubernetes takes 256 KB.
pub const ANSWER: usize = 384 << 10;

/// A look that is under way. A runtime and connections are made when something is asked, and go with this value.
pub struct Look {
    runtime: Runtime,
    end: Instant,
    connections: Vec<(PathBuf, Result<Connection, Error>)>,
}

/// To one container runtime.
struct Connection {
    client: RuntimeServiceClient<Channel>,
    /// How many bytes it may still send for this answer.
    left: Arc<AtomicUsize>,
    /// The pod that was asked about last: its containers follow each other.
    pod: Option<PodSandbox>,
}

impl Look {
    /// Begins now. An error says what this process lacks.
    pub fn begin() -> Result<Look, Reason> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Look {
            runtime: runtime.map_err(|e| Reason::Here(e.to_string()))?,
            end: Instant::now() + TIME,
            connections: Vec::new(),
        })
    }

    /// What the container runtime at `socket` says about the container `id`.
    pub fn labels(&mut self, socket: &Path, id: &str) -> Result<Labels, Error> {
        let at = match self.connections.iter().position(|(path, _)| path == socket) {
            Some(at) => at,
            None => {
                let connected = self.runtime.block_on(Connection::open(socket, self.end));
                self.connections
                    .push((socket.to_owned(), connected.map_err(|reason| reason.of(socket))));
                self.connections.len() - 1
            }
        };
        let connection = self.connections[at].1.as_mut().map_err(|e| e.clone())?;
        let answer = async { timeout_at(self.end, connection.labels(id)).await };
        let answer = self.runtime.block_on(answer).unwrap_or(Err(Reason::Silent));
        if answer == Err(Reason::TooMuch) {
            // That connection is of no more use. The containers behind this one are asked about on another.
            drop(self.connections.swap_remove(at));
        }
        answer.map_err(|reason| reason.of(socket))
    }
}

impl Connection {
    async fn open(socket: &Path, end: Instant) -> Result<Connection, Reason> {
        if !socket.exists() {
            return Err(Reason::Absent);
        }
        if !is_believed(socket) {
            return Err(Reason::NotRoots);
        }
        let connecting = |e: std::io::Error| Reason::Connecting(e.to_string());
        let stream = timeout_at(end, UnixStream::connect(socket)).await;
        let stream = stream.map_err(|_| Reason::Silent)?.map_err(connecting)?;
        // The kernel's word on who listens, whatever was done to the path meanwhile.
        let listener = stream.peer_cred().map_err(connecting)?.uid();
        if listener != 0 && !cfg!(test) {
            return Err(Reason::Listener(listener));
        }
        let (stream, left) = BoundedStream::new(stream, ANSWER);
        let channel = connect(stream, Tuning::HERE).await;
        let channel = channel.map_err(|e| Reason::refused(&e.to_string()))?;
        Ok(Connection {
            client: RuntimeServiceClient::new(channel).max_decoding_message_size(ANSWER),
            left,
            pod: None,
        })
    }

    async fn labels(&mut self, id: &str) -> Result<Labels, Reason> {
        let container = self.container(id).await?;
        if self
            .pod
            .as_ref()
            .is_none_or(|pod| pod.id != container.pod_sandbox_id)
        {
            self.pod = Some(self.pod(&container.pod_sandbox_id).await?);
        }
        let pod = self.pod.as_ref().map(|pod| pod.labels.clone());
        Labels::new(pod.unwrap_or_default(), container.labels)
    }

    async fn container(&mut self, id: &str) -> Result<Container, Reason> {
        self.expect_answer()?;
        let filter = Some(ContainerFilter { id: id.to_owned() });
        let answer = self
            .client
            .list_containers(ListContainersRequest { filter })
            .await;
        let all = answer
            .map_err(|status| self.reason(&status))?
            .into_inner()
            .containers;
        // The beginning of an id fits too.
        let container = all.into_iter().find(|container| container.id == id);
        container.ok_or(Reason::NoContainer)
    }

    async fn pod(&mut self, id: &str) -> Result<PodSandbox, Reason> {
        self.expect_answer()?;
        let filter = Some(PodSandboxFilter { id: id.to_owned() });
        let answer = self
            .client
            .list_pod_sandbox(ListPodSandboxRequest { filter })
            .await;
        let all = answer.map_err(|status| self.reason(&status))?.into_inner().items;
        let pod = all.into_iter().find(|pod| pod.id == id);
        pod.ok_or_else(|| Reason::refused("it knows a container and not the container's pod"))
    }

    /// It may say so much again; not if it has said too much.
    fn expect_answer(&self) -> Result<(), Reason> {
        if self.left.load(Relaxed) == 0 {
            return Err(Reason::TooMuch);
        }
        self.left.store(ANSWER, Relaxed);
        Ok(())
    }

    fn reason(&self, status: &Status) -> Reason {
        match self.left.load(Relaxed) {
            0 => Reason::TooMuch,
            // The message itself is longer, by what it says at its beginning.
            _ if status.code() == Code::OutOfRange => Reason::TooMuch,
            _ => Reason::refused(&fleetgate_net::h2::words(status)),
        }
    }
}

/// Tests keep theirs where others may write.
fn is_believed(socket: &Path) -> bool {
    cfg!(test) || is_roots_socket(socket)
}
