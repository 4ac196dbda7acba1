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
    Allowed, Attempt, Identity, Labels, Name, Reason, Refusal, Selector, decide, logins_of,
};
use fleetgate_proto::v1::denied::Reason as Why;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{Denied, Dial, Frame, Node, NodesReply, NodesRequest, Via};
use fleetgate_ssh::key::Certificate;
use serde_json::json;
use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

mod plain;

use plain::PlainLeg;

/// How long a client has for its first frame, and a node for its answer.
pub const FIRST: Duration = Duration::from_secs(10);
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
    node: Name,
    allowed: Allowed,
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
}

#[tonic::async_trait]
impl Transport for Dialling {
    type DialStream = Going;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<Going>, Status> {
        let user = who(&request)?;
        let opening = open(self.0.clone(), user, request.into_inner());
        Ok(Response::new(Going::Opening(Box::pin(opening))))
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let user = who(&request)?;
        let selector = match request.get_ref().selector.trim() {
            "" => Selector::all(),
            text => Selector::parse(text).map_err(Status::invalid_argument)?,
        };
        Ok(Response::new(NodesReply {
            nodes: reachable(&self.0, &user, &selector),
        }))
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

/// The nodes of which any account is the user's by a role. What else a role asks for (a second factor, a device) is said
/// when one of them is dialled.
fn reachable(gate: &Gate, user: &User, selector: &Selector) -> Vec<Node> {
    let view = gate.view.borrow();
    let Some(name) = user.identity.user() else {
        return Vec::new();
    };
    if user.identity.cluster != view.state.cluster {
        return Vec::new();
    }
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
    nodes
}

/// What the client reads.
pub(crate) enum Going {
    /// Until a node answers, or nobody does.
    Opening(Pin<Box<dyn Future<Output = Result<Session, Denied>> + Send>>),
    /// Frames of the node.
    Open(Box<Session>),
    /// The last frame was sent.
    Over,
}

/// An open session: what the node sends, and what ends it.
pub(crate) struct Session {
    from_node: FromNode,
    /// When the decision no longer holds.
    refused: Pin<Box<dyn Future<Output = Refusal> + Send>>,
    steps: Steps,
    told: Told,
    /// The other direction ends with this one.
    _end: oneshot::Sender<()>,
    _place: Place<Name>,
}

/// A node with fleetgate sends frames; from a plain sshd come bytes.
enum FromNode {
    Tunnel(Streaming<Frame>),
    Plain(PlainLeg),
}

/// What is told to the audit log when the session ends, however it ends.
struct Told {
    gate: Arc<Gate>,
    who: serde_json::Map<String, serde_json::Value>,
    begun: Instant,
    received: Arc<AtomicU64>,
    sent: u64,
    reason: Cow<'static, str>,
}

/// What the node reads: the dial, then the client's frames.
pub(crate) struct ToNode {
    first: Option<Frame>,
    from_client: Option<Streaming<Frame>>,
    received: Arc<AtomicU64>,
    end: oneshot::Receiver<()>,
}

async fn open(gate: Arc<Gate>, user: User, mut from_client: Streaming<Frame>) -> Result<Session, Denied> {
    let first = timeout(FIRST, from_client.message()).await;
    let Ok(Ok(Some(Frame {
        kind: Some(Kind::Dial(mut dial)),
    }))) = first
    else {
        return Err(denied(
            Why::Protocol,
            "the first frame is to be a dial, within 10 s",
        ));
    };
    let mut steps = Steps::begin(&gate, &mut dial);
    let entry = admit(&gate, &user, &dial);
    steps.ended("decide", 0);
    let entry = entry.inspect_err(|denied| tell_denied(&gate, &user, &dial, denied))?;
    let Entry {
        node,
        allowed,
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
    let (end, ended) = oneshot::channel();
    let to_node = ToNode {
        first: Some(Frame {
            kind: Some(Kind::Dial(dial)),
        }),
        from_client: Some(from_client),
        received: received.clone(),
        end: ended,
    };
    let from_node = match way {
        Way::Tunnel(tunnel) => FromNode::Tunnel(session(&tunnel, node.as_str(), to_node).await?),
        Way::Plain(known) => FromNode::Plain(plain::begin(&gate, user.source, known, agent, to_node)?),
    };
    gate.audit.tell("dial", &who);
    steps.ended("open a stream", 1);
    Ok(Session {
        from_node,
        refused: Box::pin(until_refused(gate.clone(), user, node, login, allowed.until)),
        steps,
        told: Told {
            gate,
            who,
            begun: Instant::now(),
            received,
            sent: 0,
            reason: Cow::Borrowed("the client left"),
        },
        _end: end,
        _place: place,
    })
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

/// Whether this user may, and how he gets there. No node hears of it.
pub(crate) fn admit(gate: &Gate, user: &User, dial: &Dial) -> Result<Entry, Denied> {
    let (node, labels) = target(gate, dial)?;
    let allowed = decision(&gate.view.borrow(), user, &node, &labels, &dial.login)
        .map_err(|refusal| refused(&refusal))?;
    let name = user.identity.user().cloned().unwrap_or_else(|| gate.name.clone());
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
            denied(
                Why::Offline,
                &format!("{node} is not connected to this proxy: is it up?"),
            )
        })?),
    };
    Ok(Entry {
        node,
        allowed,
        place,
        way,
    })
}

/// A stream to a node for what `to_node` has to send.
pub(crate) async fn session<S>(tunnel: &Tunnel, node: &str, to_node: S) -> Result<Streaming<Frame>, Denied>
where
    S: Stream<Item = Frame> + Send + 'static,
{
    let mut client = TunnelClient::new(tunnel.channel.clone())
        .max_decoding_message_size(TRANSPORT_MESSAGE)
        .max_encoding_message_size(TRANSPORT_MESSAGE);
    match timeout(FIRST, client.session(to_node)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(denied(
            Why::Offline,
            &format!("{node} does not answer: {}", h2::words(&status)),
        )),
        Err(_) => Err(denied(
            Why::Offline,
            &format!("{node} does not answer within {} s", FIRST.as_secs()),
        )),
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
    let ask = |login: &str| {
        decide(&Attempt {
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
        })
    };
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
pub(crate) async fn until_refused(
    gate: Arc<Gate>,
    user: User,
    node: Name,
    login: String,
    mut until: Option<u64>,
) -> Refusal {
    let mut view = gate.view.subscribe();
    loop {
        let left = Duration::from_secs(until.map_or(u64::MAX >> 32, |until| until.saturating_sub(now())));
        tokio::select! {
            _ = view.changed() => {}
            // One more second: `until` itself is still allowed.
            () = tokio::time::sleep(left + Duration::from_secs(1)) => {}
        }
        let labels = labels_of(&gate, &node).unwrap_or_default();
        match decision(&view.borrow_and_update(), &user, &node, &labels, &login) {
            // A second factor that has grown too old ends nothing that is open.
            Ok(allowed) => until = allowed.until,
            Err(refusal) if refusal.reason == Reason::Mfa => until = None,
            Err(refusal) => return refusal,
        }
    }
}

impl Stream for Going {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut *self {
                Going::Over => return Poll::Ready(None),
                Going::Opening(opening) => match opening.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(session)) => *self = Going::Open(Box::new(session)),
                    Poll::Ready(Err(denied)) => {
                        *self = Going::Over;
                        return Poll::Ready(Some(Ok(last(denied))));
                    }
                },
                Going::Open(session) => {
                    if let Poll::Ready(refusal) = session.refused.as_mut().poll(cx) {
                        session.told.reason = Cow::Owned(refusal.words.clone());
                        *self = Going::Over;
                        return Poll::Ready(Some(Ok(last(refused(&refusal)))));
                    }
                    return match session.from_node.poll_next(cx) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Some(Ok(frame))) => {
                            session.told.sent += ssh_length(&frame);
                            match session.steps.pass(frame) {
                                Some(frame) => Poll::Ready(Some(Ok(frame))),
                                None => continue,
                            }
                        }
                        Poll::Ready(None) => {
                            session.told.reason = Cow::Borrowed("the node ended it");
                            *self = Going::Over;
                            Poll::Ready(None)
                        }
                        Poll::Ready(Some(Err(status))) => {
                            session.told.reason = Cow::Borrowed("the node is gone");
                            *self = Going::Over;
                            let words = format!("the connection to the node broke: {}", h2::words(&status));
                            Poll::Ready(Some(Ok(last(denied(Why::Offline, &words)))))
                        }
                    };
                }
            }
        }
    }
}

impl FromNode {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Status>>> {
        match self {
            FromNode::Tunnel(frames) => Pin::new(frames).poll_next(cx),
            FromNode::Plain(leg) => leg.poll_next(cx).map(|frame| frame.map(Ok)),
        }
    }
}

/// Waits until this Unix second.
pub(crate) async fn until(at: u64) {
    tokio::time::sleep(Duration::from_secs(at.saturating_sub(now()))).await;
}

impl Stream for ToNode {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        // The other direction is over, so this one is: whoever sent on would find nobody.
        if Pin::new(&mut self.end).poll(cx).is_ready() {
            self.from_client = None;
        }
        loop {
            let Some(from_client) = &mut self.from_client else {
                return Poll::Ready(None);
            };
            match Pin::new(from_client).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match &frame.kind {
                    // A kind that this proxy does not know, a second dial, or what only the other side says.
                    None | Some(Kind::Dial(_) | Kind::Opened(_) | Kind::Denied(_)) => {}
                    Some(_) => {
                        self.received.fetch_add(ssh_length(&frame), Relaxed);
                        return Poll::Ready(Some(frame));
                    }
                },
                Poll::Ready(None | Some(Err(_))) => self.from_client = None,
            }
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.who
            .insert("received".to_owned(), self.received.load(Relaxed).into());
        self.who.insert("sent".to_owned(), self.sent.into());
        let lasted = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.who.insert("lasted_ms".to_owned(), lasted.into());
        self.who.insert("reason".to_owned(), self.reason.as_ref().into());
        self.gate.audit.tell("dial_ended", &self.who);
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
    if let serde_json::Value::Object(fields) = fields {
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
