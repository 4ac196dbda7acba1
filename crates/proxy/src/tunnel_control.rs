//! One node's connection, from its handshake to its end: the node dialled out, and serves what this proxy asks on the
//! connection that it made. One Control stream tells the node the cluster's state and takes what it has to say.

use crate::auth;
use crate::log_turns::LogTurns;
use crate::queue::{Queue, queue};
use crate::quota::Slot;
use crate::recordings::Relay;
use crate::shared::Shared;
use crate::state::{View, now};
use crate::tunnels::Tunnel;
use fleetgate_net::backoff::random;
use fleetgate_net::h2::{self, Channel, Tuning};
use fleetgate_net::tls::{Peer, Stream};
use fleetgate_policy::cluster::{Name, Subject, Target};
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{ToNode, from_node, to_node};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

/// The largest message of a node's Control stream: a batch of audit events, or its facts.
pub const CONTROL_MESSAGE: usize = 1 << 20;
/// What may wait for a node that does not read its Control stream; then it is given up.
pub const CONTROL_WAITING: usize = 64;
/// How long a node may take to open its Control stream.
pub const ANSWER: Duration = Duration::from_secs(10);
/// How long a tunnel that was told to leave has for the sessions on it.
pub const DRAIN: Duration = Duration::from_secs(3600);
/// So many nodes a second hear that the proxy drains: each of them dials at once.
const LEAVING_PER_SECOND: f64 = 1_000.0;
/// How long a tunnel has to end when the proxy stops or the node is locked: it is told, and no more.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// Leaves the registry when the task ends, however it ends.
struct Registration<'a> {
    shared: &'a Shared,
    node: &'a Name,
    tunnel: Arc<Tunnel>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.shared.tunnels.leave(self.node, &self.tunnel);
        self.shared.reports.notify_one();
    }
}

/// One node's connection, from its handshake to its end.
pub(crate) async fn serve<IO>(
    shared: Arc<Shared>,
    stream: Stream<IO>,
    peer: Peer,
    address: SocketAddr,
    certified: Option<Slot<String>>,
) where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let Some(Subject::Node(node)) = peer.identity.as_ref().map(|identity| identity.subject.clone()) else {
        tracing::info!(%address, "a tunnel without a node's certificate is refused");
        return;
    };
    let serial = peer.identity.as_ref().map_or(0, |identity| identity.serial);
    let expires = peer
        .certificate
        .as_ref()
        .map_or(0, |certificate| certificate.validity().end);
    drop(peer);
    let channel = match h2::connect(stream, Tuning::TUNNEL).await {
        Ok(channel) => channel,
        Err(error) => return tracing::info!(%node, %address, "the tunnel could not begin: {error}"),
    };
    let (closer, mut closed) = (channel.closer(), channel.closed());
    // A task of its own: what the beginning needed is not kept for as long as the tunnel is.
    tokio::spawn(async move {
        let end = carry(&shared, channel, &node, serial, expires).await;
        tracing::info!(%node, %address, "the tunnel has ended: {end}");
        drop(certified);
        // Sessions keep the connection. A node that may not be keeps none, though it does not obey: it was told why by now.
        tokio::select! {
            _ = until_locked(&shared, &node, serial) => closer.close(),
            _ = closed.wait() => {}
        }
    });
}

async fn carry(shared: &Arc<Shared>, channel: Channel, node: &Name, serial: u64, expires: u64) -> String {
    let mut closed = channel.closed();
    let mut view = shared.view.subscribe();
    let (to_node, outgoing) = queue();
    // A newer state may come while the node is asked, and it is to hear that one too.
    let mut told_serial = {
        let view = view.borrow_and_update();
        tell_state(&to_node, &view.signed);
        tell_fresh(&to_node, &view);
        view.state.serial
    };
    let mut client = TunnelClient::new(channel.clone()).max_decoding_message_size(CONTROL_MESSAGE);
    let mut control = tokio::select! {
        answer = Box::pin(client.control(outgoing)) => match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return h2::words(&status),
        },
        why = closed.wait() => return why,
        // Whether it is locked is looked at behind this: it is told the state that says so first.
        () = sleep(ANSWER) => return "the node did not answer".to_owned(),
    };
    drop(client);
    if let Some(why) = locked(shared, node, serial) {
        // No tunnel comes of it; and yet the node was told, since its own port is to refuse everybody too.
        let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
        return why;
    }
    let entered = Registration {
        shared,
        node,
        tunnel: shared.tunnels.enter(node, channel.clone()),
    };
    let recordings = Relay::start(shared, channel, node);
    shared.reports.notify_one();
    tracing::info!(%node, "a tunnel is there");
    let mut replaced = entered.tunnel.replaced.subscribe();
    let mut over = Box::pin(sleep(Duration::from_secs(expires.saturating_sub(now()))));
    let log_turns = Mutex::new(LogTurns::new(Instant::now()));
    // One request of the node's at a time: while it waits for auth, no more is read.
    let mut asked: Option<Pin<Box<dyn Future<Output = Option<ToNode>> + Send + '_>>> = None;
    // The proxy drains. The node dials it anew and ends this stream; the tunnel goes on with its sessions.
    let mut draining = DrainNotice::No;
    loop {
        let waiting = tokio::select! {
            message = control.message(), if asked.is_none() && !draining.is_told() => match message {
                Ok(Some(message)) => {
                    match message.kind {
                        Some(from_node::Kind::Facts(facts)) => _ = entered.tunnel.facts.send_replace(facts),
                        // The same again, signed anew, goes with the next heartbeat.
                        Some(from_node::Kind::Statement(statement)) => {
                            let is_news = entered.tunnel.says(statement);
                            if is_news {
                                shared.tunnels.changed(node);
                                shared.reports.notify_one();
                            }
                        }
                        Some(from_node::Kind::Renew(renew)) => asked = Some(Box::pin(auth::renew(shared, node, renew))),
                        Some(from_node::Kind::Audit(batch)) => {
                            let is_told = || log_turns.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
                            asked = Some(Box::pin(auth::audit(shared, node, batch, is_told)));
                        }
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
                if let Some(why) = locked(shared, node, serial) {
                    // The node hears it before its tunnel ends: its own port is to refuse everybody too.
                    tell_state(&to_node, &view.borrow_and_update().signed);
                    let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
                    return why;
                }
                let view = view.borrow_and_update();
                let mut waiting = 0;
                // Without a sign of freshness it is the state itself that came, perhaps the same one signed anew.
                if view.state.serial != told_serial || view.fresh.is_none() {
                    told_serial = view.state.serial;
                    waiting = tell_state(&to_node, &view.signed);
                }
                tell_fresh(&to_node, &view).max(waiting)
            }
            () = &mut over => return "the node's certificate has expired, and it asked for no newer one".to_owned(),
            why = closed.wait() => return why,
            () = async { _ = replaced.wait_for(|replaced| *replaced).await.is_ok() } => {
                drop(recordings);
                to_node.push(ToNode { kind: Some(to_node::Kind::Leaving(true)) });
                let drained = tokio::time::timeout(DRAIN, closed.wait());
                return tokio::select! {
                    drained = drained => drained.unwrap_or_else(|_| "a newer one took its place".to_owned()),
                    // The newer one is told.
                    why = until_locked(shared, node, serial) => why,
                };
            }
            () = shared.left(), if matches!(draining, DrainNotice::No) => {
                let nodes = shared.tunnels.count() as f64;
                let share = share(random());
                draining = DrainNotice::Soon(Box::pin(sleep(Duration::from_secs_f64(nodes / LEAVING_PER_SECOND * share))));
                0
            }
            () = draining.due() => {
                draining = DrainNotice::Told;
                to_node.push(ToNode { kind: Some(to_node::Kind::Leaving(true)) })
            }
            () = shared.stopped() => {
                if !draining.is_told() {
                    to_node.push(ToNode { kind: Some(to_node::Kind::Leaving(true)) });
                }
                let _ = tokio::time::timeout(LAST_WORDS, closed.wait()).await;
                return "the proxy stops".to_owned();
            }
        };
        if waiting > CONTROL_WAITING {
            return format!("the node does not read: {waiting} messages wait");
        }
    }
}

/// What a node was told of a proxy that drains.
enum DrainNotice {
    /// Nothing: the proxy serves.
    No,
    /// Nothing yet: not all nodes are to dial in one moment.
    Soon(Pin<Box<Sleep>>),
    /// That it leaves.
    Told,
}

impl DrainNotice {
    fn is_told(&self) -> bool {
        matches!(self, DrainNotice::Told)
    }

    /// Waits until the node is to be told.
    async fn due(&mut self) {
        match self {
            DrainNotice::Soon(sleep) => sleep.as_mut().await,
            _ => std::future::pending().await,
        }
    }
}

/// A number from 0 to 1.
fn share(random: u64) -> f64 {
    random as f64 / u64::MAX as f64
}

fn tell_state(to_node: &Queue<ToNode>, state: &fleetgate_proto::v1::Signed) -> usize {
    to_node.push(ToNode {
        kind: Some(to_node::Kind::State(state.clone())),
    })
}

/// That the state holds, where that is known: the node's statements are as of then.
fn tell_fresh(to_node: &Queue<ToNode>, view: &View) -> usize {
    view.fresh.as_ref().map_or(0, |fresh| {
        to_node.push(ToNode {
            kind: Some(to_node::Kind::Fresh(fresh.clone())),
        })
    })
}

/// Why this node's connection may not be, if it may not.
fn locked(shared: &Shared, node: &Name, serial: u64) -> Option<String> {
    let view = shared.view.borrow();
    let lock = view.state.locks.on(&Target::Node(node.clone()), now(), serial)?;
    Some(lock.refusal().words)
}

/// Waits until this node's connection may not be, and says why.
async fn until_locked(shared: &Shared, node: &Name, serial: u64) -> String {
    let mut view = shared.view.subscribe();
    loop {
        view.borrow_and_update();
        if let Some(why) = locked(shared, node, serial) {
            return why;
        }
        if view.changed().await.is_err() {
            // The proxy stops, and ends its connections.
            return std::future::pending().await;
        }
    }
}
