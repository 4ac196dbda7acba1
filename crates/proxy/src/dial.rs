//! `Transport`: one SSH connection to a node, and the nodes that somebody may reach. The decision comes first; a node is
//! touched only after a yes. Then frames go from one stream to the other, one at a time: what the reader does not take
//! is not read from the writer. SSH bytes are never looked at.

use crate::denial::{Why, denied, refused};
use crate::open_dials::DialRecord;
use crate::quota::Slot;
use crate::shared::Shared;
use crate::state::{InventoryNode, now};
use crate::steps::Steps;
use crate::streams::NodeFrames;
pub use crate::streams::{UNANSWERED, UNANSWERED_OF_ONE};
use crate::tunnels::Tunnel;
use fleetgate_net::h2::{self, AUTH_MESSAGE, Caller, TRANSPORT_MESSAGE};
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{Denied, Dial, Frame, NodesReply, NodesRequest, Via};
use serde_json::json;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

pub(crate) mod access;
mod client;
mod plain;
mod session;
mod to_node;

use access::{User, decision, labels_of, reachable, until_refused};
use client::{ClientSide, FromClient};
use session::{FramesFromNode, Session};
use to_node::{FramesToNode, GivenBack};

/// How long a client has for its first frame, and a node for its answer.
pub const FIRST: Duration = Duration::from_secs(10);
/// How long a session that did not begin may take to give the client's frames back.
const GIVEN_BACK: Duration = Duration::from_secs(1);
/// A login's longest name.
pub const LOGIN_MAX: usize = 255;

/// The service.
pub(crate) struct DialService(pub(crate) Arc<Shared>);

/// The service, with its bounds.
pub(crate) fn service(shared: Arc<Shared>) -> TransportServer<DialService> {
    TransportServer::new(DialService(shared))
        .max_decoding_message_size(TRANSPORT_MESSAGE)
        // The list of a large fleet's nodes: 410 KB for 10,000 with two labels each.
        .max_encoding_message_size(AUTH_MESSAGE)
}

/// What lets a user through: the decision, a place, and the way.
pub(crate) struct Admission {
    /// Of the user: what is counted is counted by it.
    pub(crate) name: Name,
    node: Name,
    pub(crate) place: Slot<Name>,
    pub(crate) way: Route,
}

/// The way to a node.
pub(crate) enum Route {
    /// The connection that it dialled.
    Tunnel(Arc<Tunnel>),
    /// A plain sshd: SSH ends here.
    Plain(Arc<InventoryNode>),
}

#[tonic::async_trait]
impl Transport for DialService {
    type DialStream = DialReply;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<DialReply>, Status> {
        let user = who(&request)?;
        let shared = self.0.clone();
        let from_client = FromClient::new(request.into_inner());
        let client = from_client.side();
        let opening = async move {
            let opened = open(shared.clone(), user, from_client).await;
            opened.map_err(|denied| match leaves(&shared, &denied) {
                // Not an answer: the client asks by another connection, which is to the new process.
                true => DialFailure::Leaving(Status::unavailable(denied.words)),
                false => DialFailure::Denied(denied),
            })
        };
        Ok(Response::new(DialReply {
            stage: Stage::Opening(Box::pin(opening)),
            _client: client,
        }))
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let user = who(&request)?;
        let selector = match request.get_ref().selector.trim() {
            "" => Selector::all(),
            text => Selector::parse(text).map_err(Status::invalid_argument)?,
        };
        let nodes = reachable(&self.0, &user, &selector)
            .map_err(|refusal| Status::permission_denied(refusal.words))?;
        let proxies = Vec::new();
        Ok(Response::new(NodesReply { nodes, proxies }))
    }
}

fn who<T>(request: &Request<T>) -> Result<User, Status> {
    let caller = Caller::of(request)?;
    let peer = caller.peer.as_deref();
    let nobody = || Status::unauthenticated("no certificate was shown: run fleetgate login");
    let identity = peer.and_then(|peer| peer.identity.clone()).ok_or_else(nobody)?;
    let certificate = peer
        .and_then(|peer| peer.certificate.as_ref())
        .ok_or_else(nobody)?;
    Ok(User {
        identity: Arc::new(identity),
        expires: Some(certificate.validity().end),
        source: caller.address,
    })
}

/// What the client reads.
pub(crate) struct DialReply {
    stage: Stage,
    /// Behind the stage: nobody else reads what the client sends by then.
    _client: ClientSide,
}

enum Stage {
    /// Until a node answers, or nobody does.
    Opening(Pin<Box<dyn Future<Output = Result<Session, DialFailure>> + Send>>),
    /// Frames of the node.
    Open(Box<Session>),
    /// The last frame was sent.
    Over,
}

/// Why there is no session.
enum DialFailure {
    /// What the client is told.
    Denied(Denied),
    /// This process drains, and the node is connected to the next one alone.
    Leaving(Status),
}

/// Why there is no session with a node.
pub(crate) struct NoSession {
    pub(crate) denied: Denied,
    /// The node leaves this connection, and may have dialled another one.
    pub(crate) node_leaves: bool,
}

async fn open(shared: Arc<Shared>, user: User, from_client: FromClient) -> Result<Session, Denied> {
    let first = timeout(FIRST, from_client.next()).await;
    let Ok(Some(Ok(Frame {
        kind: Some(Kind::Dial(mut dial)),
    }))) = first
    else {
        return Err(denied(
            Why::Protocol,
            "the first frame is to be a dial, within 10 s",
        ));
    };
    let mut steps = Steps::begin(&shared, &mut dial);
    let entry = enter(&shared, &user, &dial).await;
    steps.ended("decide", 0);
    let entry = entry.inspect_err(|denied| {
        if !leaves(&shared, denied) {
            record_denial(&shared, &user, &dial, denied);
        }
    })?;
    let Admission {
        name,
        node,
        place,
        way,
    } = entry;

    let source = user.source.map(|address| address.to_string()).unwrap_or_default();
    let who = json!({
        "user": user.identity.user().map(Name::as_str),
        "node": node.as_str(),
        "login": dial.login,
        "source": source,
    });
    dial.via = Some(Via {
        source,
        proxy: shared.name.to_string(),
        user: user.identity.user().map(ToString::to_string).unwrap_or_default(),
    });
    let login = dial.login.clone();
    let received = Arc::new(AtomicU64::new(dial.ssh.len() as u64));
    let (from_node, end, left) = match way {
        Route::Tunnel(tunnel) => {
            let begun = begin(&shared, &name, tunnel, &dial, from_client, &received).await;
            let (frames, end) = begun.inspect_err(|denied| {
                if denied.reason() == Why::Busy {
                    record_denial(&shared, &user, &dial, denied);
                }
            })?;
            (FramesFromNode::Tunnel(frames), end, None)
        }
        Route::Plain(known) => {
            let (to_node, end, _) = FramesToNode::new(dial, from_client.into(), received.clone());
            let (leg, left) = plain::begin(&shared, user.source, known, to_node)?;
            (FramesFromNode::Plain(leg), end, Some(left))
        }
    };
    shared.audit.tell("dial", &[&who]);
    steps.ended("open a stream", 1);
    let told = DialRecord::new(shared.dials.clone(), who, received);
    let refused = until_refused(shared, user, node, login);
    Ok(Session::begin(from_node, end, steps, told, place, refused, left))
}

/// The node that is meant, and its labels.
fn target(shared: &Shared, dial: &Dial) -> Result<(Name, Labels), Denied> {
    if dial.login.len() > LOGIN_MAX {
        return Err(denied(Why::Protocol, "the login's name is longer than 255 bytes"));
    }
    let unknown = |name: &str| denied(Why::Node, &format!("there is no node {name}: see fleetgate ls"));
    let node = Name::parse(&dial.node).map_err(|why| denied(Why::Node, &why.to_string()))?;
    let labels = labels_of(shared, &node).ok_or_else(|| unknown(node.as_str()))?;
    Ok((node, labels))
}

/// Lets a user through when it is his turn, and the node is there.
pub(crate) async fn enter(shared: &Shared, user: &User, dial: &Dial) -> Result<Admission, Denied> {
    shared.dial_rates.wait(&user.name(shared)).await?;
    await_node(shared, dial, 0).await;
    admit(shared, user, dial)
}

/// Whether this user may, and how he gets there. No node hears of it.
fn admit(shared: &Shared, user: &User, dial: &Dial) -> Result<Admission, Denied> {
    let (node, labels) = target(shared, dial)?;
    decision(&shared.view.borrow(), user, &node, &labels, &dial.login)
        .map_err(|refusal| refused(&refusal))?;
    let name = user.name(shared);
    let place = shared.sessions.take(&name).ok_or_else(|| {
        let most = shared.config.sessions_per_user;
        denied(
            Why::Busy,
            &format!("{name} has {most} connections to nodes open: close some"),
        )
    })?;
    let known: Option<Arc<InventoryNode>> = shared.inventory.borrow().get(&node).cloned();
    let way = match known {
        Some(known) if known.node.plain => Route::Plain(known),
        _ => Route::Tunnel(shared.tunnels.to(&node).ok_or_else(|| {
            let why = match shared.is_leaving() {
                true => {
                    "is not connected to this process of the proxy, which has been replaced: connect again"
                }
                false => "is not connected to this proxy: is it up?",
            };
            denied(Why::Offline, &format!("{node} {why}"))
        })?),
    };
    Ok(Admission {
        name,
        node,
        place,
        way,
    })
}

/// Whether the node may well be there, or known, for the process that has taken this one's place.
fn leaves(shared: &Shared, denied: &Denied) -> bool {
    shared.is_leaving() && matches!(denied.reason(), Why::Offline | Why::Node)
}

/// Waits for the node that is meant, if it is about to dial; see [`Shared::await_node`].
pub(crate) async fn await_node(shared: &Shared, dial: &Dial, after: u64) {
    if let Ok(node) = Name::parse(&dial.node) {
        shared.await_node(&node, after).await;
    }
}

/// A session by this tunnel, or by the one that the node dials next, if it is about to leave this one. Nobody was let in
/// by then: a client's first flight has no login in it.
async fn begin(
    shared: &Shared,
    user: &Name,
    mut tunnel: Arc<Tunnel>,
    dial: &Dial,
    from_client: FromClient,
    received: &Arc<AtomicU64>,
) -> Result<(NodeFrames, oneshot::Sender<Duration>), Denied> {
    let mut from_client = GivenBack::from(from_client);
    loop {
        let (to_node, end, back) = FramesToNode::new(dial.clone(), from_client, received.clone());
        let failed = match open_session(&tunnel, user, &dial.node, to_node).await {
            Ok(frames) => return Ok((frames, end)),
            Err(failed) => failed,
        };
        let unread = timeout(GIVEN_BACK, back).await;
        let (Ok(Ok(frames)), Some(next)) = (unread, newer(shared, dial, &tunnel, failed.node_leaves).await)
        else {
            return Err(failed.denied);
        };
        (from_client, tunnel) = (frames, next);
    }
}

/// The tunnel that a node has dialled since this one, which it leaves.
pub(crate) async fn newer(
    shared: &Shared,
    dial: &Dial,
    tunnel: &Tunnel,
    node_leaves: bool,
) -> Option<Arc<Tunnel>> {
    if !node_leaves {
        return None;
    }
    await_node(shared, dial, tunnel.number).await;
    let node = Name::parse(&dial.node).ok()?;
    shared
        .tunnels
        .to(&node)
        .filter(|next| next.number > tunnel.number)
}

/// A stream to a node for what `to_node` has to send.
pub(crate) async fn open_session<S>(
    tunnel: &Tunnel,
    user: &Name,
    node: &str,
    to_node: S,
) -> Result<NodeFrames, NoSession>
where
    S: Stream<Item = Frame> + Send + 'static,
{
    let place = tunnel
        .streams
        .wait(user, node)
        .await
        .map_err(|denied| NoSession {
            denied,
            node_leaves: false,
        })?;
    let mut client = TunnelClient::new(tunnel.channel.clone())
        .max_decoding_message_size(TRANSPORT_MESSAGE)
        .max_encoding_message_size(TRANSPORT_MESSAGE);
    match timeout(FIRST, client.session(to_node)).await {
        Ok(Ok(answer)) => Ok(NodeFrames::new(answer.into_inner(), place)),
        Ok(Err(status)) => {
            place.over();
            Err(NoSession {
                denied: denied(
                    Why::Offline,
                    &format!("{node} does not answer: {}", h2::words(&status)),
                ),
                node_leaves: status.code() == Code::Unavailable || !tunnel.channel.takes_requests(),
            })
        }
        Err(_) => Err(NoSession {
            denied: denied(
                Why::Offline,
                &format!("{node} does not answer within {} s", FIRST.as_secs()),
            ),
            node_leaves: false,
        }),
    }
}

impl Stream for DialReply {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(session) => self.stage = Stage::Open(Box::new(session)),
                    Err(failed) => {
                        self.stage = Stage::Over;
                        return Poll::Ready(Some(match failed {
                            DialFailure::Denied(denied) => Ok(last(denied)),
                            DialFailure::Leaving(status) => Err(status),
                        }));
                    }
                },
                Stage::Open(session) => {
                    let (frame, is_last) = ready!(session.poll_next(cx));
                    if is_last {
                        self.stage = Stage::Over;
                    }
                    return Poll::Ready(frame.map(Ok));
                }
            }
        }
    }
}

/// Waits until this Unix second.
pub(crate) async fn until(at: u64) {
    tokio::time::sleep(Duration::from_secs(at.saturating_sub(now()))).await;
}

fn record_denial(shared: &Shared, user: &User, dial: &Dial, denied: &Denied) {
    let fields = json!({
        "user": user.identity.user().map(Name::as_str),
        "node": dial.node.chars().take(LOGIN_MAX).collect::<String>(),
        "login": dial.login.chars().take(LOGIN_MAX).collect::<String>(),
        "source": user.source.map(|address| address.to_string()),
        "reason": denied.words,
        "rule": denied.rule,
    });
    let has_line = |address: SocketAddr| shared.strangers.has_line(address.ip(), "dial_denied", true);
    if user.source.is_none_or(has_line) {
        shared.audit.tell("dial_denied", &[&fields]);
    }
}

fn last(denied: Denied) -> Frame {
    Frame {
        kind: Some(Kind::Denied(denied)),
    }
}
