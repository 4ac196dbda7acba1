//! `Transport`: one SSH connection to a node, and the nodes that somebody may reach. The decision comes first; a node is
//! touched only after a yes. Then frames go from one stream to the other, one at a time: what the reader does not take
//! is not read from the writer. SSH bytes are never looked at.

use crate::gate::Gate;
use crate::places::Place;
use crate::state::{Known, SKEW, View, now};
use crate::steps::Steps;
use crate::tunnels::Tunnel;
use fleetgate_net::h2::{self, AUTH_MESSAGE, Caller, TRANSPORT_MESSAGE};
use fleetgate_policy::cluster::{
    Allowed, Attempt, Identity, Labels, Name, Reason, Refusal, Selector, decide, decide_identity, logins_of,
};
use fleetgate_proto::v1::denied::Reason as Why;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{Denied, Dial, Frame, Node, NodesReply, NodesRequest, Via};
use fleetgate_ssh::key::Certificate;
use serde_json::json;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

mod client;
mod open;
mod plain;
mod rate;
mod session;
mod streams;

use client::{ClientSide, FromClient};
pub(crate) use open::OpenDials;
use open::Told;
pub(crate) use rate::DialRates;
use session::{FromNode, Session};
pub(crate) use streams::{NodeFrames, Streams};
pub use streams::{UNANSWERED, UNANSWERED_OF_ONE};

/// How long a client has for its first frame, and a node for its answer.
pub const FIRST: Duration = Duration::from_secs(10);
/// How long a session that did not begin may take to give the client's frames back.
const GIVEN_BACK: Duration = Duration::from_secs(1);
/// A login's longest name.
pub const LOGIN_MAX: usize = 255;

/// The service.
pub(crate) struct Dialling(pub(crate) Arc<Gate>);

/// The service, with its bounds.
pub(crate) fn service(gate: Arc<Gate>) -> TransportServer<Dialling> {
    TransportServer::new(Dialling(gate))
        .max_decoding_message_size(TRANSPORT_MESSAGE)
        // The list of a large fleet's nodes: 410 KB for 10,000 with two labels each.
        .max_encoding_message_size(AUTH_MESSAGE)
}

/// Who dials, out of the connection's certificate.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) identity: Arc<Identity>,
    expires: Option<u64>,
    source: Option<SocketAddr>,
}

/// What lets a user through: the decision, a place, and the way.
pub(crate) struct Entry {
    /// Of the user: what is counted is counted by it.
    pub(crate) name: Name,
    node: Name,
    pub(crate) place: Place<Name>,
    pub(crate) way: Way,
}

/// The way to a node.
pub(crate) enum Way {
    /// The connection that it dialled.
    Tunnel(Arc<Tunnel>),
    /// A plain sshd: SSH ends here.
    Plain(Arc<Known>),
}

impl User {
    /// By a certificate of SSH that was checked.
    pub(crate) fn by_ssh(identity: &Identity, certificate: &Certificate, source: SocketAddr) -> User {
        User {
            identity: Arc::new(identity.clone()),
            expires: certificate.expires(0),
            source: Some(source),
        }
    }

    /// What he counts by, whatever the number of his connections and certificates.
    fn name(&self, gate: &Gate) -> Name {
        self.identity.user().unwrap_or(&gate.name).clone()
    }
}

#[tonic::async_trait]
impl Transport for Dialling {
    type DialStream = Going;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<Going>, Status> {
        let user = who(&request)?;
        let gate = self.0.clone();
        let from_client = FromClient::new(request.into_inner());
        let client = from_client.side();
        let opening = async move {
            let opened = open(gate.clone(), user, from_client).await;
            opened.map_err(|denied| match leaves(&gate, &denied) {
                // Not an answer: the client asks by another connection, which is to the new process.
                true => Failed::Leaving(Status::unavailable(denied.words)),
                false => Failed::Denied(denied),
            })
        };
        Ok(Response::new(Going {
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
        Ok(Response::new(NodesReply { nodes }))
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

/// The nodes of which any account is the user's by a role. Who comes in nowhere, by the decision of a dial, is refused. What
/// else a role asks for (a second factor, a device) is said when one of them is dialled, and so are locks on single nodes
/// and accounts.
fn reachable(gate: &Gate, user: &User, selector: &Selector) -> Result<Vec<Node>, Refusal> {
    let view = gate.view.borrow();
    let nowhere = Labels::default();
    let name = decide_identity(&attempt(&view, user, &gate.name, &nowhere, ""))?;
    let roles: Vec<_> = user
        .identity
        .roles
        .iter()
        .filter_map(|role| view.state.roles.get(role))
        .filter(|role| role.logins_for(name).next().is_some())
        .collect();
    let may = |node: &Name, labels: &Labels| {
        selector.matches(node, labels)
            && roles
                .iter()
                .any(|role| role.nodes.iter().any(|nodes| nodes.matches(node, labels)))
    };
    let inventory = gate.inventory.borrow();
    let mut nodes: Vec<Node> = inventory
        .iter()
        .filter(|(name, known)| may(name, &known.labels))
        .map(|(_, known)| Node {
            host_keys: Vec::new(),
            ..known.node.clone()
        })
        .collect();
    // Who is connected here is known here first.
    for name in gate.tunnels.names() {
        let Some(tunnel) = gate.tunnels.to(&name) else {
            continue;
        };
        match nodes.binary_search_by(|node| node.name.as_str().cmp(name.as_str())) {
            Ok(at) => {
                nodes[at].connected = true;
                nodes[at].seen = now();
            }
            Err(at) if !inventory.contains_key(&name) && may(&name, &tunnel.labels()) => {
                let facts = tunnel.facts();
                let node = Node {
                    name: name.to_string(),
                    labels: facts.labels,
                    connected: true,
                    seen: now(),
                    version: facts.version,
                    address: facts.address,
                    ..Node::default()
                };
                nodes.insert(at, node);
            }
            Err(_) => {}
        }
    }
    Ok(nodes)
}

/// What the client reads.
pub(crate) struct Going {
    stage: Stage,
    /// Behind the stage: nobody else reads what the client sends by then.
    _client: ClientSide,
}

enum Stage {
    /// Until a node answers, or nobody does.
    Opening(Pin<Box<dyn Future<Output = Result<Session, Failed>> + Send>>),
    /// Frames of the node.
    Open(Box<Session>),
    /// The last frame was sent.
    Over,
}

/// Why there is no session.
enum Failed {
    /// What the client is told.
    Denied(Denied),
    /// This process drains, and the node is connected to the next one alone.
    Leaving(Status),
}

/// What the node reads: the dial, then the client's frames.
pub(crate) struct ToNode {
    first: Option<Frame>,
    from_client: Option<FromClient>,
    received: Arc<AtomicU64>,
    end: oneshot::Receiver<()>,
    /// Takes the client's frames back where the node took none of them.
    back: Option<oneshot::Sender<FromClient>>,
}

/// Why there is no session with a node.
pub(crate) struct NoSession {
    pub(crate) denied: Denied,
    /// The node leaves this connection, and may have dialled another one.
    pub(crate) node_leaves: bool,
}

async fn open(gate: Arc<Gate>, user: User, from_client: FromClient) -> Result<Session, Denied> {
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
    let mut steps = Steps::begin(&gate, &mut dial);
    let entry = enter(&gate, &user, &dial).await;
    steps.ended("decide", 0);
    let entry = entry.inspect_err(|denied| {
        if !leaves(&gate, denied) {
            tell_denied(&gate, &user, &dial, denied);
        }
    })?;
    let Entry {
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
    let serde_json::Value::Object(who) = who else {
        unreachable!("it is an object")
    };
    dial.via = Some(Via {
        source,
        proxy: gate.name.to_string(),
        user: user.identity.user().map(ToString::to_string).unwrap_or_default(),
    });
    let (agent, login) = (dial.agent, dial.login.clone());
    let received = Arc::new(AtomicU64::new(dial.ssh.len() as u64));
    let (from_node, end, left) = match way {
        Way::Tunnel(tunnel) => {
            let begun = begin(&gate, &name, tunnel, &dial, from_client, &received).await;
            let (frames, end) = begun.inspect_err(|denied| {
                if denied.reason() == Why::Busy {
                    tell_denied(&gate, &user, &dial, denied);
                }
            })?;
            (FromNode::Tunnel(frames), end, None)
        }
        Way::Plain(known) => {
            let (to_node, end, _) = ToNode::new(dial, from_client, received.clone());
            let (leg, left) = plain::begin(&gate, user.source, known, agent, to_node)?;
            (FromNode::Plain(leg), end, Some(left))
        }
    };
    gate.audit.tell("dial", &who);
    steps.ended("open a stream", 1);
    let told = Told::new(gate.clone(), who, received);
    let refused = until_refused(gate, user, node, login);
    Ok(Session::begin(from_node, end, steps, told, place, refused, left))
}

/// The node that is meant, and its labels.
fn target(gate: &Gate, dial: &Dial) -> Result<(Name, Labels), Denied> {
    if dial.login.len() > LOGIN_MAX {
        return Err(denied(Why::Protocol, "the login's name is longer than 255 bytes"));
    }
    let unknown = |name: &str| denied(Why::Node, &format!("there is no node {name}: see fleetgate ls"));
    let node = Name::parse(&dial.node).map_err(|why| denied(Why::Node, &why))?;
    let labels = labels_of(gate, &node).ok_or_else(|| unknown(node.as_str()))?;
    Ok((node, labels))
}

/// As auth has them; a node that auth has not told of yet speaks for itself.
pub(crate) fn labels_of(gate: &Gate, node: &Name) -> Option<Labels> {
    let known: Option<Arc<Known>> = gate.inventory.borrow().get(node).cloned();
    match known {
        Some(known) => Some(known.labels.clone()),
        None => gate.tunnels.to(node).map(|tunnel| tunnel.labels()),
    }
}

/// Lets a user through when it is his turn, and the node is there.
pub(crate) async fn enter(gate: &Gate, user: &User, dial: &Dial) -> Result<Entry, Denied> {
    gate.dial_rates.wait(&user.name(gate)).await?;
    await_node(gate, dial, 0).await;
    admit(gate, user, dial)
}

/// Whether this user may, and how he gets there. No node hears of it.
fn admit(gate: &Gate, user: &User, dial: &Dial) -> Result<Entry, Denied> {
    let (node, labels) = target(gate, dial)?;
    decision(&gate.view.borrow(), user, &node, &labels, &dial.login).map_err(|refusal| refused(&refusal))?;
    let name = user.name(gate);
    let place = gate.sessions.take(&name).ok_or_else(|| {
        let most = gate.config.sessions_per_user;
        denied(
            Why::Busy,
            &format!("{name} has {most} connections to nodes open: close some"),
        )
    })?;
    let known: Option<Arc<Known>> = gate.inventory.borrow().get(&node).cloned();
    let way = match known {
        Some(known) if known.node.plain => Way::Plain(known),
        _ => Way::Tunnel(gate.tunnels.to(&node).ok_or_else(|| {
            let why = match gate.is_leaving() {
                true => {
                    "is not connected to this process of the proxy, which has been replaced: connect again"
                }
                false => "is not connected to this proxy: is it up?",
            };
            denied(Why::Offline, &format!("{node} {why}"))
        })?),
    };
    Ok(Entry {
        name,
        node,
        place,
        way,
    })
}

/// Whether the node may well be there, or known, for the process that has taken this one's place.
fn leaves(gate: &Gate, denied: &Denied) -> bool {
    gate.is_leaving() && matches!(denied.reason(), Why::Offline | Why::Node)
}

/// Waits for the node that is meant, if it is about to dial; see [`Gate::await_node`].
pub(crate) async fn await_node(gate: &Gate, dial: &Dial, after: u64) {
    if let Ok(node) = Name::parse(&dial.node) {
        gate.await_node(&node, after).await;
    }
}

/// A session by this tunnel, or by the one that the node dials next, if it is about to leave this one. Nobody was let in
/// by then: a client's first flight has no login in it.
async fn begin(
    gate: &Gate,
    user: &Name,
    mut tunnel: Arc<Tunnel>,
    dial: &Dial,
    mut from_client: FromClient,
    received: &Arc<AtomicU64>,
) -> Result<(NodeFrames, oneshot::Sender<()>), Denied> {
    loop {
        let (to_node, end, back) = ToNode::new(dial.clone(), from_client, received.clone());
        let failed = match session(&tunnel, user, &dial.node, to_node).await {
            Ok(frames) => return Ok((frames, end)),
            Err(failed) => failed,
        };
        let unread = timeout(GIVEN_BACK, back).await;
        let (Ok(Ok(frames)), Some(next)) = (unread, newer(gate, dial, &tunnel, failed.node_leaves).await)
        else {
            return Err(failed.denied);
        };
        (from_client, tunnel) = (frames, next);
    }
}

/// The tunnel that a node has dialled since this one, which it leaves.
pub(crate) async fn newer(
    gate: &Gate,
    dial: &Dial,
    tunnel: &Tunnel,
    node_leaves: bool,
) -> Option<Arc<Tunnel>> {
    if !node_leaves {
        return None;
    }
    await_node(gate, dial, tunnel.number).await;
    let node = Name::parse(&dial.node).ok()?;
    gate.tunnels.to(&node).filter(|next| next.number > tunnel.number)
}

/// A stream to a node for what `to_node` has to send.
pub(crate) async fn session<S>(
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

fn attempt<'a>(
    view: &'a View,
    user: &'a User,
    node: &'a Name,
    labels: &'a Labels,
    login: &'a str,
) -> Attempt<'a> {
    Attempt {
        identity: &user.identity,
        expires: user.expires,
        cluster: &view.state.cluster,
        roles: &view.state.roles,
        locks: &view.state.locks,
        node,
        labels,
        login,
        now: now(),
        skew: SKEW,
    }
}

/// An empty login is any that the user may have there: plain ssh's ProxyCommand need not say which, and the node decides by
/// what SSH says.
pub(crate) fn decision(
    view: &View,
    user: &User,
    node: &Name,
    labels: &Labels,
    login: &str,
) -> Result<Allowed, Refusal> {
    let ask = |login: &str| decide(&attempt(view, user, node, labels, login));
    let Some(name) = user.identity.user().filter(|_| login.is_empty()) else {
        return ask(login);
    };
    let roles = user
        .identity
        .roles
        .iter()
        .filter_map(|role| view.state.roles.get(role));
    let mut answers: Vec<_> = logins_of(roles, name).iter().map(|login| ask(login)).collect();
    let missing = |answer: &Result<Allowed, Refusal>| {
        // What he lacks everywhere else says more than that one of the accounts is not his.
        answer
            .as_ref()
            .is_err_and(|refusal| refusal.reason != Reason::Role)
    };
    match answers
        .iter()
        .position(Result::is_ok)
        .or_else(|| answers.iter().position(missing))
        .or(answers.len().checked_sub(1))
    {
        Some(best) => answers.swap_remove(best),
        None => ask(login),
    }
}

/// Comes back when the user may no longer be there: a lock, a role that is gone, the certificate's or the second factor's
/// end. Asked again whenever the state changes and when time runs out.
pub(crate) async fn until_refused(gate: Arc<Gate>, user: User, node: Name, login: String) -> Refusal {
    let mut view = gate.view.subscribe();
    loop {
        // At once too: since it was decided that he may, the node may have taken its time.
        let labels = labels_of(&gate, &node).unwrap_or_default();
        let until = match decision(&view.borrow_and_update(), &user, &node, &labels, &login) {
            Ok(allowed) => allowed.until,
            // A second factor that has grown too old ends nothing that is open.
            Err(refusal) if refusal.reason == Reason::Mfa => None,
            Err(refusal) => return refusal,
        };
        let left = Duration::from_secs(until.map_or(u64::MAX >> 32, |until| until.saturating_sub(now())));
        tokio::select! {
            _ = view.changed() => {}
            // One more second: `until` itself is still allowed.
            () = tokio::time::sleep(left + Duration::from_secs(1)) => {}
        }
    }
}

impl Stream for Going {
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
                            Failed::Denied(denied) => Ok(last(denied)),
                            Failed::Leaving(status) => Err(status),
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

impl ToNode {
    /// With what ends it, and what brings the client's frames back where the node took none.
    #[allow(clippy::type_complexity)]
    fn new(
        dial: Dial,
        from_client: FromClient,
        received: Arc<AtomicU64>,
    ) -> (ToNode, oneshot::Sender<()>, oneshot::Receiver<FromClient>) {
        let (end, ended) = oneshot::channel();
        let (back, brought) = oneshot::channel();
        let to_node = ToNode {
            first: Some(Frame {
                kind: Some(Kind::Dial(dial)),
            }),
            from_client: Some(from_client),
            received,
            end: ended,
            back: Some(back),
        };
        (to_node, end, brought)
    }
}

impl Drop for ToNode {
    fn drop(&mut self) {
        if let (Some(from_client), Some(back)) = (self.from_client.take(), self.back.take()) {
            // Mostly nobody waits for it.
            let _ = back.send(from_client);
        }
    }
}

impl Stream for ToNode {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        // The other direction is over, so this one is: whoever sent on would find nobody.
        if self.from_client.is_some() && Pin::new(&mut self.end).poll(cx).is_ready() {
            self.from_client = None;
        }
        loop {
            let Some(from_client) = &self.from_client else {
                return Poll::Ready(None);
            };
            match from_client.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    // From here on the node has what no other could be given.
                    self.back = None;
                    match &frame.kind {
                        // A kind that this proxy does not know, a second dial, or what only the other side says.
                        None | Some(Kind::Dial(_) | Kind::Opened(_) | Kind::Denied(_)) => {}
                        Some(_) => {
                            self.received.fetch_add(ssh_length(&frame), Relaxed);
                            return Poll::Ready(Some(frame));
                        }
                    }
                }
                Poll::Ready(None | Some(Err(_))) => self.from_client = None,
            }
        }
    }
}

fn tell_denied(gate: &Gate, user: &User, dial: &Dial, denied: &Denied) {
    let fields = json!({
        "user": user.identity.user().map(Name::as_str),
        "node": dial.node.chars().take(LOGIN_MAX).collect::<String>(),
        "login": dial.login.chars().take(LOGIN_MAX).collect::<String>(),
        "source": user.source.map(|address| address.to_string()),
        "reason": denied.words,
        "rule": denied.rule,
    });
    let has_line = |address: SocketAddr| gate.strangers.has_line(address.ip(), "dial_denied", true);
    if let serde_json::Value::Object(fields) = fields
        && user.source.is_none_or(has_line)
    {
        gate.audit.tell("dial_denied", &fields);
    }
}

fn ssh_length(frame: &Frame) -> u64 {
    match &frame.kind {
        Some(Kind::Ssh(bytes)) => bytes.len() as u64,
        _ => 0,
    }
}

fn last(denied: Denied) -> Frame {
    Frame {
        kind: Some(Kind::Denied(denied)),
    }
}

pub(crate) fn denied(reason: Why, words: &str) -> Denied {
    Denied {
        reason: reason.into(),
        words: words.to_owned(),
        rule: String::new(),
    }
}

fn refused(refusal: &Refusal) -> Denied {
    let reason = match refusal.reason {
        Reason::Role => Why::Role,
        Reason::Lock => Why::Lock,
        Reason::Mfa => Why::Mfa,
        Reason::Device => Why::Device,
        Reason::Expired => Why::Expired,
    };
    Denied {
        reason: reason.into(),
        words: refusal.words.clone(),
        rule: refusal.rule.clone(),
    }
}
