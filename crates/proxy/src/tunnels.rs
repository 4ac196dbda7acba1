//! The nodes' connections: each node dialled out, and serves what this proxy asks on the connection that it made. One
//! Control stream for each tells the node the cluster's state and takes what it has to say. Sessions are `dial`'s.

use crate::auth;
use crate::gate::Gate;
use crate::queue::{Queue, queue};
use crate::state::{labels_of, now};
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{Peer, Stream};
use fleetgate_policy::cluster::{Labels, Name, Subject, Target};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{NodeFacts, ToNode, from_node, to_node};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// The largest message of a node's Control stream: a batch of audit events, or its facts.
pub const CONTROL_MESSAGE: usize = 1 << 20;
/// What may wait for a node that does not read its Control stream; then it is given up.
pub const CONTROL_WAITING: usize = 64;
/// How long a tunnel that was told to leave has for the sessions on it.
pub const DRAIN: Duration = Duration::from_secs(3600);
/// The same when the proxy stops or the node is locked: it is told, and no more.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// One node's connection.
pub(crate) struct Tunnel {
    number: u64,
    /// Where it serves.
    pub(crate) channel: Channel,
    facts: watch::Sender<NodeFacts>,
    /// A newer one has taken its place.
    replaced: watch::Sender<bool>,
}

/// All of them, by the node's name. Of one node the newest counts; older ones go on until their sessions have ended.
#[derive(Default)]
pub(crate) struct Tunnels(Mutex<Registry>);

#[derive(Default)]
struct Registry {
    newest: HashMap<Name, Arc<Tunnel>>,
    last: u64,
    /// Whose tunnel came, went or told something new since it was last reported.
    changed: HashSet<Name>,
}

impl Tunnel {
    /// What the node last told of itself.
    pub(crate) fn facts(&self) -> NodeFacts {
        self.facts.borrow().clone()
    }

    /// Its labels, as far as it told.
    pub(crate) fn labels(&self) -> Labels {
        labels_of(self.facts.borrow().labels.iter())
    }
}

impl Tunnels {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to a node, if there is one.
    pub(crate) fn to(&self, node: &Name) -> Option<Arc<Tunnel>> {
        self.lock().newest.get(node).cloned()
    }

    /// Whose tunnel is there.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.lock().newest.keys().cloned().collect()
    }

    /// What is to be reported, once.
    pub(crate) fn take_changed(&self) -> HashSet<Name> {
        std::mem::take(&mut self.lock().changed)
    }

    /// Reports it (again).
    pub(crate) fn changed(&self, node: &Name) {
        self.lock().changed.insert(node.clone());
    }

    fn enter(&self, node: &Name, channel: Channel) -> Arc<Tunnel> {
        let mut registry = self.lock();
        registry.last += 1;
        let tunnel = Arc::new(Tunnel {
            number: registry.last,
            channel,
            facts: watch::Sender::new(NodeFacts::default()),
            replaced: watch::Sender::new(false),
        });
        registry.changed.insert(node.clone());
        if let Some(older) = registry.newest.insert(node.clone(), tunnel.clone()) {
            older.replaced.send_replace(true);
        }
        tunnel
    }

    fn leave(&self, node: &Name, tunnel: &Tunnel) {
        let mut registry = self.lock();
        if registry
            .newest
            .get(node)
            .is_some_and(|newest| newest.number == tunnel.number)
        {
            registry.newest.remove(node);
            registry.changed.insert(node.clone());
        }
    }
}

/// Leaves the registry when the task ends, however it ends.
struct Entered<'a> {
    gate: &'a Gate,
    node: &'a Name,
    tunnel: Arc<Tunnel>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.gate.tunnels.leave(self.node, &self.tunnel);
        self.gate.reports.notify_one();
    }
}

/// One node's connection, from its handshake to its end.
pub(crate) async fn serve<IO>(gate: Arc<Gate>, stream: Stream<IO>, peer: Peer, address: SocketAddr)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let Some(Subject::Node(node)) = peer.identity.as_ref().map(|identity| identity.subject.clone()) else {
        tracing::info!(%address, "a tunnel without a node's certificate is refused");
        return;
    };
    let issued = peer.identity.as_ref().map_or(0, |identity| identity.issued);
    let expires = peer
        .certificate
        .as_ref()
        .map_or(0, |certificate| certificate.validity().end);
    drop(peer);
    let channel = match h2::connect(stream, Tuning::TUNNEL).await {
        Ok(channel) => channel,
        Err(error) => return tracing::info!(%node, %address, "the tunnel could not begin: {error}"),
    };
    // A task of its own: what the beginning needed is not kept for as long as the tunnel is.
    tokio::spawn(async move {
        let end = carry(&gate, channel, &node, issued, expires).await;
        tracing::info!(%node, %address, "the tunnel has ended: {end}");
    });
}

async fn carry(gate: &Gate, channel: Channel, node: &Name, issued: u64, expires: u64) -> String {
    let mut closed = channel.closed();
    let mut view = gate.view.subscribe();
    let (to_node, outgoing) = queue();
    tell_state(&to_node, &view.borrow_and_update().signed);
    let mut client = TunnelClient::new(channel.clone()).max_decoding_message_size(CONTROL_MESSAGE);
    let mut control = tokio::select! {
        answer = Box::pin(client.control(outgoing)) => match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return h2::words(&status),
        },
        why = closed.wait() => return why,
    };
    drop(client);
    if let Some(why) = locked(gate, node, issued) {
        // No tunnel comes of it; and yet the node was told, since its own port is to refuse everybody too.
        let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
        return why;
    }
    let entered = Entered {
        gate,
        node,
        tunnel: gate.tunnels.enter(node, channel),
    };
    gate.reports.notify_one();
    tracing::info!(%node, "a tunnel is there");
    let mut replaced = entered.tunnel.replaced.subscribe();
    let mut over = Box::pin(sleep(Duration::from_secs(expires.saturating_sub(now()))));
    let mut told_serial = view.borrow().state.serial;
    // One request of the node's at a time: while it waits for auth, no more is read.
    let mut asked: Option<Pin<Box<dyn Future<Output = Option<ToNode>> + Send + '_>>> = None;
    loop {
        let waiting = tokio::select! {
            message = control.message(), if asked.is_none() => match message {
                Ok(Some(message)) => {
                    match message.kind {
                        Some(from_node::Kind::Facts(facts)) => {
                            entered.tunnel.facts.send_replace(facts);
                            gate.tunnels.changed(node);
                            gate.reports.notify_one();
                        }
                        Some(from_node::Kind::Renew(renew)) => asked = Some(Box::pin(auth::renew(gate, node, renew))),
                        Some(from_node::Kind::Audit(batch)) => asked = Some(Box::pin(auth::audit(gate, node, batch))),
                        // A newer node says what this proxy does not know.
                        None => {}
                    }
                    0
                }
                Ok(None) => return "the node closed it".to_owned(),
                Err(status) => return h2::words(&status),
            },
            answer = async { match asked.as_mut() {
                Some(asked) => asked.await,
                None => std::future::pending().await,
            }} => {
                asked = None;
                answer.map_or(0, |answer| to_node.push(answer))
            }
            changed = view.changed() => {
                if changed.is_err() {
                    return "the proxy stops".to_owned();
                }
                if let Some(why) = locked(gate, node, issued) {
                    // The node hears it before its tunnel ends: its own port is to refuse everybody too.
                    tell_state(&to_node, &view.borrow_and_update().signed);
                    let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
                    return why;
                }
                let view = view.borrow_and_update();
                match &view.fresh {
                    Some(fresh) if view.state.serial == told_serial => {
                        to_node.push(ToNode { kind: Some(to_node::Kind::Fresh(fresh.clone())) })
                    }
                    _ => {
                        told_serial = view.state.serial;
                        tell_state(&to_node, &view.signed)
                    }
                }
            }
            () = &mut over => return "the node's certificate has expired, and it asked for no newer one".to_owned(),
            why = closed.wait() => return why,
            () = async { _ = replaced.wait_for(|replaced| *replaced).await.is_ok() } => {
                to_node.push(ToNode { kind: Some(to_node::Kind::Leaving(true)) });
                let drained = tokio::time::timeout(DRAIN, closed.wait());
                return drained.await.map_or("a newer one took its place".to_owned(), |why| why);
            }
            () = gate.left() => {
                to_node.push(ToNode { kind: Some(to_node::Kind::Leaving(true)) });
                let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
                return "the proxy stops".to_owned();
            }
        };
        if waiting > CONTROL_WAITING {
            return format!("the node does not read: {waiting} messages wait");
        }
    }
}

fn tell_state(to_node: &Queue<ToNode>, state: &fleetgate_proto::v1::Signed) -> usize {
    to_node.push(ToNode {
        kind: Some(to_node::Kind::State(state.clone())),
    })
}

/// Why this node's connection may not be, if it may not.
fn locked(gate: &Gate, node: &Name, issued: u64) -> Option<String> {
    let view = gate.view.borrow();
    let lock = view.state.locks.on(&Target::Node(node.clone()), now(), issued)?;
    Some(lock.refusal().words)
}
