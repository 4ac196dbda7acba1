//! An auth service of the cluster: it tells what the test has it tell, and keeps what it was told.

use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::testing::Cluster;
use fleetgate_net::tls::{AUTH, H2, RELAY, Server, Shown};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::cluster_server::{self, ClusterServer};
use fleetgate_proto::v1::{
    AuditFrom, AuditPosition, Empty, NodeChange, NodeReport, ReachReport, RecordingFrom, RecordingKept,
    RenewFor, Renewed, SignHostReply, SignHostRequest, SignLoginReply, SignLoginRequest, Signed, WatchReply,
    WatchRequest,
};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// What auth was told, and what it tells.
pub struct Auth {
    pub replies: watch::Sender<WatchReply>,
    pub nodes: mpsc::UnboundedSender<NodeChange>,
    told_nodes: Mutex<Option<mpsc::UnboundedReceiver<NodeChange>>>,
    pub reports: mpsc::UnboundedSender<NodeReport>,
    pub reported: tokio::sync::Mutex<mpsc::UnboundedReceiver<NodeReport>>,
    /// So many reports are not taken.
    pub refuses: AtomicU64,
    pub reaches: mpsc::UnboundedSender<ReachReport>,
    pub reached: tokio::sync::Mutex<mpsc::UnboundedReceiver<ReachReport>>,
    pub batches: mpsc::UnboundedSender<AuditFrom>,
    pub audited: tokio::sync::Mutex<mpsc::UnboundedReceiver<AuditFrom>>,
    /// Handshakes that go on.
    pub handshakes: AtomicU64,
    /// How long each takes, in milliseconds.
    pub handshake: AtomicU64,
    /// So many batches of nodes are not kept.
    pub keeps_not: AtomicU64,
    takes: mpsc::UnboundedSender<TakenRecordings>,
    /// Streams of recordings.
    pub taken: tokio::sync::Mutex<mpsc::UnboundedReceiver<TakenRecordings>>,
}

/// A stream of recordings, which the test answers.
pub struct TakenRecordings {
    pub parts: tonic::Streaming<RecordingFrom>,
    pub say: mpsc::UnboundedSender<RecordingKept>,
}

impl Auth {
    /// Its members know `first`, and no node.
    pub(super) fn new(first: Signed) -> Auth {
        let (reports, reported) = mpsc::unbounded_channel();
        let (reaches, reached) = mpsc::unbounded_channel();
        let (batches, audited) = mpsc::unbounded_channel();
        let (nodes, told_nodes) = mpsc::unbounded_channel();
        let (takes, taken) = mpsc::unbounded_channel();
        let whole = NodeChange {
            begin: true,
            complete: true,
            ..NodeChange::default()
        };
        nodes.send(whole).unwrap();
        Auth {
            replies: watch::Sender::new(WatchReply {
                state: Some(first),
                fresh: None,
            }),
            nodes,
            told_nodes: Some(told_nodes).into(),
            reports,
            reported: reported.into(),
            refuses: AtomicU64::new(0),
            reaches,
            reached: reached.into(),
            batches,
            audited: audited.into(),
            handshakes: AtomicU64::new(0),
            handshake: AtomicU64::new(0),
            keeps_not: AtomicU64::new(0),
            takes,
            taken: taken.into(),
        }
    }
}

/// Fewer than auth's own 64, and as many as a proxy has at once: what is beyond is turned away.
const HANDSHAKES_OF_ONE: u64 = 26;

/// Serves it on a loopback port: to members, and to users whose connections a proxy passes on.
pub(super) async fn serve(cluster: &Cluster, auth: Arc<Auth>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let own = cluster.server(AUTH, Subject::Auth);
    let server = Server::new(
        Shown::new().name(AUTH, &own),
        Some(&cluster.trust()),
        &[H2, RELAY],
    )
    .unwrap();
    let routes = Arc::new(Routes::new().with(ClusterServer::from_arc(auth.clone())));
    tokio::spawn(async move {
        while let Ok((tcp, address)) = listener.accept().await {
            let (server, routes, auth) = (server.clone(), routes.clone(), auth.clone());
            tokio::spawn(async move {
                // As auth bounds them by the address.
                let others = auth.handshakes.fetch_add(1, SeqCst);
                let accepted = match others < HANDSHAKES_OF_ONE {
                    true => {
                        tokio::time::sleep(Duration::from_millis(auth.handshake.load(SeqCst))).await;
                        server.accept(tcp).await.ok()
                    }
                    false => None,
                };
                auth.handshakes.fetch_sub(1, SeqCst);
                let Some((mut stream, peer)) = accepted else {
                    return;
                };
                let caller = |peer, address| Caller {
                    peer: Some(Arc::new(peer)),
                    address: Some(address),
                };
                let ever = std::future::pending();
                if peer.alpn.as_deref() != Some(RELAY) {
                    let _ = h2::serve(stream, caller(peer, address), routes, Tuning::AUTH, ever).await;
                    return;
                }
                let is_proxy = peer
                    .identity
                    .is_some_and(|i| matches!(i.subject, Subject::Proxy(_)));
                assert!(is_proxy, "somebody else passes connections on");
                let Ok(source) = fleetgate_net::relay::read(&mut stream).await else {
                    return;
                };
                let Ok((stream, peer)) = server.accept(stream).await else {
                    return;
                };
                let _ = h2::serve(stream, caller(peer, source), routes, Tuning::AUTH, ever).await;
            });
        }
    });
    address
}

/// Follows a watch.
pub struct Following<T>(Pin<Box<dyn Future<Output = (T, watch::Receiver<T>)> + Send>>);

impl<T: Clone + Send + Sync + 'static> Following<T> {
    fn new(mut watched: watch::Receiver<T>) -> Following<T> {
        watched.mark_changed();
        Following(Box::pin(next(watched)))
    }
}

async fn next<T: Clone>(mut watched: watch::Receiver<T>) -> (T, watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    let value = watched.borrow_and_update().clone();
    (value, watched)
}

impl<T: Clone + Send + Sync + 'static> Stream for Following<T> {
    type Item = Result<T, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((value, watched)) => {
                self.0 = Box::pin(next(watched));
                Poll::Ready(Some(Ok(value)))
            }
        }
    }
}

/// What is sent by hand.
pub struct Sent<T>(mpsc::UnboundedReceiver<T>);

impl<T> Stream for Sent<T> {
    type Item = Result<T, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|item| item.map(Ok))
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Auth {
    type WatchStream = Following<WatchReply>;
    type WatchNodesStream = Sent<NodeChange>;
    type RecordingsStream = Sent<RecordingKept>;

    async fn recordings(
        &self,
        request: Request<tonic::Streaming<RecordingFrom>>,
    ) -> Result<Response<Self::RecordingsStream>, Status> {
        let (say, kept) = mpsc::unbounded_channel();
        let parts = request.into_inner();
        let _ = self.takes.send(TakenRecordings { parts, say });
        Ok(Response::new(Sent(kept)))
    }

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Following::new(self.replies.subscribe())))
    }

    async fn watch_nodes(&self, _: Request<WatchRequest>) -> Result<Response<Sent<NodeChange>>, Status> {
        let told = self.told_nodes.lock().unwrap().take();
        told.map(|told| Response::new(Sent(told)))
            .ok_or_else(|| Status::unavailable("once"))
    }

    async fn report(&self, request: Request<NodeReport>) -> Result<Response<Empty>, Status> {
        let _ = self.reports.send(request.into_inner());
        let left = self
            .refuses
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(Status::permission_denied("a later one is known")),
            Err(_) => Ok(Response::new(Empty {})),
        }
    }

    async fn report_reach(&self, request: Request<ReachReport>) -> Result<Response<Empty>, Status> {
        let _ = self.reaches.send(request.into_inner());
        Ok(Response::new(Empty {}))
    }

    async fn renew(&self, request: Request<RenewFor>) -> Result<Response<Renewed>, Status> {
        Ok(Response::new(Renewed {
            refused: format!("not today, {}", request.into_inner().name),
            ..Renewed::default()
        }))
    }

    async fn audit(&self, request: Request<AuditFrom>) -> Result<Response<AuditPosition>, Status> {
        let from = request.into_inner();
        let batch = from.batch.clone().unwrap();
        let key = fleetgate_net::x509::Certificate::read(&batch.certificate)
            .unwrap()
            .public_key()
            .unwrap();
        let signed = fleetgate_proto::signed::audit(&from.source, &batch);
        key.verify(&signed, &batch.signature)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        let keeps_not = || {
            self.keeps_not
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        };
        if from.source != "p1" && keeps_not().is_ok() {
            return Err(Status::unavailable("the disk is full"));
        }
        let position = AuditPosition {
            offset: batch.offset + batch.lines.len() as u64,
            log: batch.log,
        };
        let _ = self.batches.send(from);
        Ok(Response::new(position))
    }

    async fn sign_login(&self, _: Request<SignLoginRequest>) -> Result<Response<SignLoginReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn sign_host(&self, _: Request<SignHostRequest>) -> Result<Response<SignHostReply>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}
