//! What a proxy may ask for on the connection that was dialled to it: sessions, and one stream of the cluster's own
//! matters. A proxy is believed in where a client comes from. The node uses that for the rules about addresses,
//! as on its own port, and not for who the client is. The documents that the proxy passes on go to the monitor, which checks
//! them.

use crate::monitor_socket::MonitorSocket;
use crate::recordings::{self, Parts, StreamContext};
use crate::request::{AcceptedSession, Request as LoopRequest};
use crate::session::Outward;
use crate::text::c_string;
use bytes::Bytes;
use fleetgate_net::h2::TRANSPORT_MESSAGE;
use fleetgate_policy::cluster::MAX_STATE;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::to_node;
use fleetgate_proto::v1::tunnel_server::{Tunnel, TunnelServer};
use fleetgate_proto::v1::{Dial, Frame, FromNode, RecordingKept, Signed, ToNode, Via};
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::tunnel::{FromTunnel, MAX_FIRST, MAX_PIECE, ProxyStatement};
use fleetgate_worker::budget::{Budget, SHARE, SMALL_WORD, WORD};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{Body as HttpBody, Service, http};
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

/// How long a stream may take to its first frame.
const FIRST_FRAME: Duration = Duration::from_secs(10);
/// Words to a proxy that does not read them.
const POSTS: usize = 8;
/// The longest signature of a document: longer ones are none (`ssh::key`).
const MAX_SIGNATURE: usize = 2048;

/// What sessions and control streams of one connection need.
#[derive(Clone)]
pub(crate) struct ServiceContext {
    pub requests: mpsc::Sender<LoopRequest>,
    pub monitor: Arc<MonitorSocket>,
    pub node: Arc<str>,
    /// As its certificate says.
    pub proxy: Arc<str>,
    /// It is locked: what it says of the cluster's state is heard, and nothing else.
    pub only_state: bool,
    /// The monitor was asked to sign for this proxy.
    pub attested: Arc<AtomicBool>,
    /// True: no more.
    pub leave: watch::Receiver<bool>,
    /// False: its control stream ends.
    pub hears: watch::Receiver<bool>,
    /// Told when a control stream ended.
    pub gone: Arc<Notify>,
    /// Held while the pieces of a document are said, so that those of two proxies do not mix.
    pub documents: Arc<Mutex<()>>,
    /// What it may have the monitor do, with all connections to this proxy.
    pub share: Share,
    /// Told when the proxy leaves: it serves what it has, and another process takes what is new.
    pub left: Arc<Notify>,
}

/// What a proxy may have the monitor do: the connections to it share one.
#[derive(Clone)]
pub(crate) struct Share(Arc<std::sync::Mutex<Budget>>);

impl Default for Share {
    fn default() -> Share {
        Share(Arc::new(std::sync::Mutex::new(Budget::new(SHARE.0, SHARE.1))))
    }
}

impl Share {
    /// Waits until the proxy may say this. So one that says it without end is read slowly, and ends nobody else's sessions.
    async fn take(&self, word: &ToNode) {
        let cost = match &word.kind {
            Some(to_node::Kind::State(signed)) => WORD + signed.document.len() as u64,
            Some(to_node::Kind::Fresh(_) | to_node::Kind::Renewed(_)) => WORD,
            Some(to_node::Kind::Kept(_) | to_node::Kind::Unkept(_) | to_node::Kind::Leaving(_)) | None => {
                SMALL_WORD
            }
        };
        loop {
            let wait = self
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .wait(cost, boot());
            if wait.is_zero() {
                return;
            }
            sleep(wait).await;
        }
    }
}

/// The service with a bound for each kind of message.
#[derive(Clone)]
pub(crate) struct BoundedServer {
    sessions: TunnelServer<ServiceContext>,
    control: TunnelServer<ServiceContext>,
}

impl BoundedServer {
    pub(crate) fn new(serving: ServiceContext) -> BoundedServer {
        let serving = Arc::new(serving);
        BoundedServer {
            sessions: TunnelServer::from_arc(serving.clone()).max_decoding_message_size(TRANSPORT_MESSAGE),
            // A state and what is around it.
            control: TunnelServer::from_arc(serving).max_decoding_message_size(MAX_STATE + 4096),
        }
    }
}

impl NamedService for BoundedServer {
    const NAME: &'static str = <TunnelServer<ServiceContext> as NamedService>::NAME;
}

impl<B> Service<http::Request<B>> for BoundedServer
where
    B: HttpBody + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send + 'static,
    TunnelServer<ServiceContext>: Service<http::Request<B>>,
{
    type Response = <TunnelServer<ServiceContext> as Service<http::Request<B>>>::Response;
    type Error = <TunnelServer<ServiceContext> as Service<http::Request<B>>>::Error;
    type Future = <TunnelServer<ServiceContext> as Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        match request.uri().path().ends_with("/Control") {
            true => self.control.call(request),
            false => self.sessions.call(request),
        }
    }
}

/// Words to a proxy.
pub(crate) struct Posts {
    words: mpsc::Receiver<FromNode>,
    gone: Arc<Notify>,
}

impl Drop for Posts {
    fn drop(&mut self) {
        self.words.close();
        self.gone.notify_one();
    }
}

impl Stream for Posts {
    type Item = Result<FromNode, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.words.poll_recv(cx).map(|post| post.map(Ok))
    }
}

#[tonic::async_trait]
impl Tunnel for ServiceContext {
    type SessionStream = Outward;
    type ControlStream = Posts;
    type RecordingsStream = Parts;

    async fn session(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.only_state {
            let words = format!(
                "the proxy {} is locked or was removed: connect by another proxy of the cluster",
                self.proxy
            );
            return refused(Reason::Lock, &words);
        }
        let mut frames = request.into_inner();
        let first = timeout(FIRST_FRAME, frames.message()).await;
        let first =
            first.map_err(|_| Status::deadline_exceeded("the first frame did not come in time"))??;
        let Some(Kind::Dial(dial)) = first.and_then(|frame| frame.kind) else {
            return refused(Reason::Protocol, "the first frame of a session is Dial");
        };
        if *dial.node != *self.node {
            return refused(
                Reason::Node,
                &format!("this node is {}, not {}", self.node, dial.node),
            );
        }
        let (explains, vouched) = match self.vouched(&dial) {
            Ok(vouched) => (vouched.explain || !vouched.trace.is_empty(), vouched),
            Err(why) => return refused(Reason::Protocol, why),
        };
        let mut rest: Bytes = dial.ssh;
        let head = rest.split_to(rest.len().min(MAX_FIRST));
        let (answer, answered) = oneshot::channel();
        let ask = LoopRequest::Arrived {
            vouched,
            first: head.into(),
            explains,
            answer,
        };
        if self.requests.send(ask).await.is_err() {
            return refused(Reason::Offline, "the node ends");
        }
        match answered.await {
            Ok(Ok(AcceptedSession { socket, spans })) => Ok(Response::new(Outward::open(
                &self.node, socket, rest, frames, spans,
            ))),
            // The proxy gives it to the next process of this node, when that has dialled.
            Ok(Err(why)) if *self.leave.borrow() => Err(Status::unavailable(why)),
            Ok(Err(why)) => refused(Reason::Busy, &why),
            Err(_) => refused(Reason::Offline, "the node ends"),
        }
    }

    async fn recordings(
        &self,
        request: Request<Streaming<RecordingKept>>,
    ) -> Result<Response<Self::RecordingsStream>, Status> {
        if self.only_state || *self.leave.borrow() {
            return Err(Status::unavailable("no recordings are sent by this connection"));
        }
        let context = StreamContext {
            requests: self.requests.clone(),
            monitor: self.monitor.clone(),
            proxy: self.proxy.clone(),
            leave: self.leave.clone(),
        };
        Ok(Response::new(recordings::serve(request.into_inner(), context)))
    }

    async fn control(
        &self,
        request: Request<Streaming<ToNode>>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let (post, words) = mpsc::channel(POSTS);
        // The stream to a locked proxy is open, and says nothing.
        let silent = self.only_state.then(|| post.clone());
        if !self.only_state {
            let opened = self
                .requests
                .send(LoopRequest::Control(self.proxy.clone(), post.clone()))
                .await;
            opened.map_err(|_| Status::unavailable("the node ends"))?;
        }
        let serving = self.clone();
        let own = post.downgrade();
        drop(post);
        let mut hears = self.hears.clone();
        tokio::spawn(async move {
            let _silent = silent;
            let mut words = request.into_inner();
            while *hears.borrow() {
                tokio::select! {
                    word = words.message() => match word {
                        Ok(Some(ToNode { kind: Some(to_node::Kind::Leaving(_)) })) => {
                            if let Some(own) = own.upgrade() {
                                let _ = serving.requests.send(LoopRequest::Left(own)).await;
                            }
                            serving.left.notify_one();
                            // Another tunnel hears what there is to hear.
                            if *serving.leave.borrow() {
                                return;
                            }
                        }
                        Ok(Some(word)) => {
                            serving.share.take(&word).await;
                            serving.heard(word).await;
                        }
                        _ => return,
                    },
                    _ = hears.changed() => {}
                }
            }
        });
        Ok(Response::new(Posts {
            words,
            gone: self.gone.clone(),
        }))
    }
}

impl ServiceContext {
    fn vouched(&self, dial: &Dial) -> Result<ProxyStatement, &'static str> {
        const NONE: &str = "the proxy does not say whose connection it is";
        let via: &Via = dial.via.as_ref().ok_or(NONE)?;
        let source: SocketAddr = via.source.parse().map_err(|_| NONE)?;
        if !matches!(dial.trace.len(), 0 | 24) {
            return Err("a trace has 16 bytes, and 8 of its span");
        }
        Ok(ProxyStatement {
            source: source.into(),
            proxy: c_string(&self.proxy),
            user: c_string(&via.user),
            trace: dial.trace.to_vec(),
            explain: dial.explain,
        })
    }

    /// A word of the proxy's. A monitor that is gone ends this process; nothing has to be said here.
    async fn heard(&self, word: ToNode) {
        let is_state = matches!(word.kind, Some(to_node::Kind::State(_) | to_node::Kind::Fresh(_)));
        if self.only_state && !is_state {
            return;
        }
        match word.kind {
            // No honest proxy sends it, and it would end the tunnel, or leave pieces that spoil the next state.
            Some(to_node::Kind::State(Signed { document, signature }))
                if document.len() > MAX_STATE || signature.len() > MAX_SIGNATURE => {}
            Some(to_node::Kind::State(Signed { document, signature })) => {
                let _one_at_a_time = self.documents.lock().await;
                let mut pieces = document.chunks(MAX_PIECE).peekable();
                while let Some(piece) = pieces.next() {
                    let more = pieces.peek().is_some();
                    let word = FromTunnel::State {
                        piece: piece.to_vec(),
                        signature: if more { Vec::new() } else { signature.to_vec() },
                        more,
                    };
                    let _ = self.monitor.say(&word).await;
                }
                // Later states change the facts, for which the monitor signs by itself.
                if !self.attested.load(Ordering::Relaxed) {
                    self.attest().await;
                }
            }
            Some(to_node::Kind::Fresh(Signed { document, signature })) => {
                let word = FromTunnel::Fresh {
                    document: document.into(),
                    signature: signature.into(),
                };
                self.say_small(word).await;
                self.attest().await;
            }
            Some(to_node::Kind::Renewed(renewed)) => {
                let _ = self.requests.send(LoopRequest::Renewed).await;
                let blobs = |all: Vec<Bytes>| all.into_iter().map(|b| Blob { bytes: b.into() }).collect();
                let word = FromTunnel::Renewed {
                    tls_chain: blobs(renewed.tls_chain),
                    host_certificates: blobs(renewed.host_certificates),
                    refused: c_string(&renewed.refused),
                };
                self.say_small(word).await;
            }
            Some(to_node::Kind::Kept(kept)) => {
                let word = FromTunnel::AuditKept {
                    log: c_string(&kept.log),
                    offset: kept.offset,
                };
                let _ = self.requests.send(LoopRequest::Kept(kept)).await;
                self.say_small(word).await;
            }
            Some(to_node::Kind::Unkept(from)) => _ = self.requests.send(LoopRequest::Unkept(from)).await,
            // The first is its control stream's; another kind is a newer proxy's.
            Some(to_node::Kind::Leaving(_)) | None => {}
        }
    }

    /// Asks for what the node says of itself, as of the document that the monitor has just been sent.
    async fn attest(&self) {
        if !self.only_state {
            self.attested.store(true, Ordering::Relaxed);
            let proxy = c_string(&self.proxy);
            let _ = self.monitor.say(&FromTunnel::Attest { proxy }).await;
        }
    }

    /// What a proxy makes longer than a frame is dropped: no honest one does.
    async fn say_small(&self, word: FromTunnel) {
        if fleetgate_wire::encode(&word).len() <= MAX_PIECE {
            let _ = self.monitor.say(&word).await;
        }
    }
}

fn refused(reason: Reason, words: &str) -> Result<Response<Outward>, Status> {
    Ok(Response::new(Outward::denied(reason, words)))
}

/// The time since boot.
fn boot() -> Duration {
    let time = fleetgate_sys::clock::boot();
    Duration::new(time.sec.unsigned_abs(), time.nsec)
}
