//! A node of the cluster: its tunnel to the proxy, and what it does with the sessions in it.

use super::{World, frame, leaf};
use bytes::Bytes;
use fleetgate_net::Credentials;
use fleetgate_net::h2::{self, AUTH_MESSAGE, Caller, Routes, Tuning};
use fleetgate_net::testing::name;
use fleetgate_net::tls::{self, TUNNEL};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::tunnel_server::{Tunnel, TunnelServer};
use fleetgate_proto::v1::{
    Dial, Frame, FromNode, NodeFacts, NodeStatement, Opened, RecordingKept, RecordingPart, Statement, ToNode,
    frame::Kind, from_node, to_node,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// What a node does with a session.
#[derive(Clone, Copy, PartialEq)]
pub enum Behaviour {
    /// Says Opened, then sends everything back; after the client's end, its own.
    Echo,
    /// Says Opened, then sends without an end.
    Pour,
    /// Reads nothing.
    Stall,
    /// Says Opened and its end, and ends the stream when the proxy has ended its side.
    End,
    /// Answers when [`Node::answers`] lets it, and then as an echo.
    Late,
    /// Never opens its Control stream.
    Mute,
    /// Reads what the client says, and takes the session when [`Node::answers`] lets it no more: it leaves.
    Leave,
    /// Is asked for its Control stream, which [`Node::left`] tells, and opens it when [`Node::answers`] lets it.
    Slow,
}

/// A node's side that the test holds.
pub struct Node {
    pub told: mpsc::UnboundedReceiver<ToNode>,
    pub say: mpsc::Sender<FromNode>,
    pub dials: mpsc::UnboundedReceiver<Dial>,
    /// Sessions that the proxy has left: whether it ended its side, or reset the stream.
    pub left: mpsc::UnboundedReceiver<bool>,
    pub read: Arc<AtomicU64>,
    pub answers: Arc<Notify>,
    /// Streams that its recordings are to go by.
    pub recordings: mpsc::UnboundedReceiver<GivenRecordings>,
    pub vanish: Option<oneshot::Sender<()>>,
    pub ended: Option<oneshot::Receiver<()>>,
}

/// A stream for recordings, by which the test gives some.
pub struct GivenRecordings {
    pub kept: Streaming<RecordingKept>,
    pub give: mpsc::Sender<RecordingPart>,
}

impl Node {
    /// Waits until the node was told of the lock that [`World::lock`] makes: the proxy has it by then.
    pub async fn hears_of_the_lock(&mut self) {
        loop {
            let told = self.told.recv().await.expect("the node hears of the lock");
            if matches!(told.kind, Some(to_node::Kind::State(state))
                if String::from_utf8_lossy(&state.document).contains("stolen laptop"))
            {
                return;
            }
        }
    }
}

impl World {
    /// A node whose tunnel is there.
    pub async fn node(&self, node: &str, behaviour: Behaviour) -> Node {
        let node = self.dialled(node, behaviour).await;
        // It is there when auth hears of it.
        loop {
            let report = self.auth.reported.lock().await.recv().await.unwrap();
            let said = report.statement.as_ref();
            let said = said.and_then(|s| NodeStatement::read(&s.document).ok());
            let facts = said.and_then(|said| said.facts);
            if report.connected && facts.is_some_and(|facts| facts.version == "1") {
                return node;
            }
            self.passed.lock().unwrap().push(report);
        }
    }

    /// A node that has made its connection.
    pub async fn dialled(&self, node: &str, behaviour: Behaviour) -> Node {
        let (key, chain) = leaf(&self.cluster, Subject::Node(name(node)), &tls::node_name(node));
        let credentials = Credentials::new(key, &chain).unwrap();
        let (stream, peer) = self.tls(Some(&credentials), TUNNEL).await;
        assert_eq!(peer.alpn.as_deref(), Some(TUNNEL));
        let (told, states) = mpsc::unbounded_channel();
        let (say, says) = mpsc::channel(16);
        let (arrive, dials) = mpsc::unbounded_channel();
        let (leave_session, left) = mpsc::unbounded_channel();
        let (records, recordings) = mpsc::unbounded_channel();
        let read = Arc::new(AtomicU64::new(0));
        let answers = Arc::new(Notify::new());
        let serving = Serving {
            behaviour,
            told,
            says: Mutex::new(Some(says)),
            arrive,
            leave: leave_session,
            records,
            read: read.clone(),
            answers: answers.clone(),
        };
        let service = TunnelServer::new(serving).max_decoding_message_size(AUTH_MESSAGE);
        let routes = Arc::new(Routes::new().with(service));
        let caller = Caller {
            peer: Some(Arc::new(peer)),
            address: None,
        };
        let (gone, ended) = oneshot::channel();
        let (leave, leaving) = oneshot::channel::<()>();
        tokio::spawn(async move {
            tokio::select! {
                end = h2::serve(stream, caller, routes, Tuning::TUNNEL, std::future::pending()) => { let _ = end; }
                _ = leaving => {}
            }
            let _ = gone.send(());
        });
        let facts = NodeFacts {
            labels: [("env".to_owned(), "test".to_owned())].into(),
            version: "1".to_owned(),
            ..NodeFacts::default()
        };
        say.send(FromNode {
            kind: Some(from_node::Kind::Facts(facts.clone())),
        })
        .await
        .unwrap();
        let statement = NodeStatement {
            facts: Some(facts),
            ..NodeStatement::default()
        };
        say.send(FromNode {
            kind: Some(from_node::Kind::Statement(Statement {
                document: statement.document(),
                ..Statement::default()
            })),
        })
        .await
        .unwrap();
        Node {
            told: states,
            say,
            dials,
            left,
            read,
            answers,
            recordings,
            vanish: Some(leave),
            ended: Some(ended),
        }
    }
}

struct Serving {
    behaviour: Behaviour,
    told: mpsc::UnboundedSender<ToNode>,
    says: Mutex<Option<mpsc::Receiver<FromNode>>>,
    arrive: mpsc::UnboundedSender<Dial>,
    leave: mpsc::UnboundedSender<bool>,
    records: mpsc::UnboundedSender<GivenRecordings>,
    read: Arc<AtomicU64>,
    answers: Arc<Notify>,
}

/// Frames of a task.
pub struct Frames(mpsc::Receiver<Frame>);

impl Stream for Frames {
    type Item = Result<Frame, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// Parts of recordings.
pub struct Given(mpsc::Receiver<RecordingPart>);

impl Stream for Given {
    type Item = Result<RecordingPart, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|part| part.map(Ok))
    }
}

pub struct Says(mpsc::Receiver<FromNode>);

impl Stream for Says {
    type Item = Result<FromNode, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|says| says.map(Ok))
    }
}

#[tonic::async_trait]
impl Tunnel for Serving {
    type SessionStream = Frames;
    type ControlStream = Says;
    type RecordingsStream = Given;

    async fn recordings(
        &self,
        request: Request<Streaming<RecordingKept>>,
    ) -> Result<Response<Self::RecordingsStream>, Status> {
        let (give, parts) = mpsc::channel(1);
        let kept = request.into_inner();
        let _ = self.records.send(GivenRecordings { kept, give });
        Ok(Response::new(Given(parts)))
    }

    async fn session(&self, request: Request<Streaming<Frame>>) -> Result<Response<Frames>, Status> {
        let mut from = request.into_inner();
        let (send, frames) = mpsc::channel(1);
        let (behaviour, arrive, read) = (self.behaviour, self.arrive.clone(), self.read.clone());
        let leave = self.leave.clone();
        let Some(Frame {
            kind: Some(Kind::Dial(dial)),
        }) = from.message().await.unwrap()
        else {
            panic!("the first frame is the dial");
        };
        let first = dial.ssh.clone();
        let node = dial.node.clone();
        let _ = arrive.send(dial);
        if behaviour == Behaviour::Late {
            self.answers.notified().await;
        }
        if behaviour == Behaviour::Leave {
            loop {
                tokio::select! {
                    () = self.answers.notified() => return Err(Status::unavailable("it leaves")),
                    Ok(Some(frame)) = from.message() => if let Some(Kind::Ssh(bytes)) = &frame.kind {
                        read.fetch_add(bytes.len() as u64, Relaxed);
                    },
                }
            }
        }
        tokio::spawn(async move {
            let opened = Kind::Opened(Opened {
                node,
                terminated: false,
            });
            let _ = send.send(frame(opened)).await;
            match behaviour {
                Behaviour::Leave => {}
                Behaviour::Echo | Behaviour::Late | Behaviour::Mute | Behaviour::Slow => {
                    let _ = send.send(frame(Kind::Ssh(first))).await;
                    let is_ended = loop {
                        let frame = match from.message().await {
                            Ok(Some(frame)) => frame,
                            end => break end.is_ok(),
                        };
                        if let Some(Kind::Ssh(bytes)) = &frame.kind {
                            read.fetch_add(bytes.len() as u64, Relaxed);
                        }
                        if send.send(frame).await.is_err() {
                            break false;
                        }
                    };
                    let _ = leave.send(is_ended);
                }
                Behaviour::Pour => {
                    let lump = Bytes::from(vec![7; 32 * 1024]);
                    while send.send(frame(Kind::Ssh(lump.clone()))).await.is_ok() {
                        read.fetch_add(lump.len() as u64, Relaxed);
                    }
                    let _ = leave.send(false);
                }
                Behaviour::End => {
                    let _ = send.send(frame(Kind::SshEnd(true))).await;
                    while from.message().await.unwrap().is_some() {}
                }
                Behaviour::Stall => {
                    // Until the proxy has enough of it.
                    send.closed().await;
                    drop(from);
                }
            }
        });
        Ok(Response::new(Frames(frames)))
    }

    async fn control(&self, request: Request<Streaming<ToNode>>) -> Result<Response<Says>, Status> {
        if self.behaviour == Behaviour::Mute {
            return std::future::pending().await;
        }
        if self.behaviour == Behaviour::Slow {
            let _ = self.leave.send(true);
            self.answers.notified().await;
        }
        let mut from = request.into_inner();
        let told = self.told.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = from.message().await {
                let _ = told.send(message);
            }
        });
        Ok(Response::new(Says(self.says.lock().unwrap().take().unwrap())))
    }
}
