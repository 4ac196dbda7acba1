//! The state that the proxy's tasks share: the newest cluster state and inventory, the way to auth, the tunnels. Each part
//! has one task that writes it; the others have the newest by a watch.

use crate::audit::Audit;
use crate::config::Config;
use crate::dial_rates::DialRates;
use crate::error::ServerError;
use crate::identity::Identity;
use crate::open_dials::OpenDials;
use crate::prefixed::PrefixedStream;
use crate::quota::{Quota, Slot, Turns};
use crate::reachable::Reachable;
use crate::recorder::Recorder;
use crate::state::{Inventory, InventoryNode, View, now};
use crate::strangers::{self, Strangers};
use crate::tunnels::Tunnels;
use fleetgate_net::h2::Channel;
use fleetgate_net::otlp::Exporter;
use fleetgate_net::tls::{self, H2, HTTP1, PROXY, Shown, TUNNEL};
use fleetgate_net::{Credentials, Trust};
use fleetgate_policy::address::Network;
use fleetgate_policy::cluster::{self, Name, Subject, Target};
use fleetgate_ssh::key::HostKey;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Notify, oneshot, watch};
use tokio::time::{sleep_until, timeout};

/// So long after its start a proxy waits for nodes that it knows and that have not dialled it yet.
pub const AFTER_START: Duration = Duration::from_secs(30);
/// How long a session waits for the connection of a node that is about to dial.
pub const NODE_WAIT: Duration = Duration::from_secs(10);

/// Connections of one user, node or other machine beyond `sessions_per_user`, since each session may come by one of its own.
pub const CONNECTIONS_BESIDE: usize = 64;
/// What is on its way between a session on a node without fleetgate and its user, each way.
pub const BETWEEN: usize = 64 * 1024;

/// The state that the tasks share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// This proxy's name.
    pub(crate) name: Name,
    /// Who it is; renewed by `auth`.
    pub(crate) identity: watch::Sender<Identity>,
    /// What it shows and whom it believes; made anew when either changes.
    pub(crate) tls: watch::Sender<tls::Server>,
    /// A certificate that was made elsewhere.
    pub(crate) public_credentials: Option<Credentials>,
    /// What it proves itself with by SSH; its certificate is renewed by `auth`.
    pub(crate) host_key: watch::Sender<Arc<HostKey>>,
    /// To the task that speaks SSH.
    pub(crate) local: UnboundedSender<Local>,
    /// The state; written by `auth`.
    pub(crate) view: watch::Sender<View>,
    /// The inventory; written by `auth`.
    pub(crate) inventory: watch::Sender<Inventory>,
    /// The connection to auth, while there is one.
    pub(crate) auth: watch::Sender<Option<Channel>>,
    /// Another one, for what nodes have recorded, which would hold up everything else; made by `recordings`.
    pub(crate) recordings: Mutex<Option<Channel>>,
    /// Nodes whose connection came, went or told something new: `auth` reports them.
    pub(crate) reports: Notify,
    pub(crate) tunnels: Tunnels,
    /// Whether plain sshds were reached.
    pub(crate) reachable: Reachable,
    /// Those who have not shown who they are.
    pub(crate) strangers: Arc<Strangers>,
    /// Those of them who are passed on to auth.
    pub(crate) auth_relay_slots: Strangers,
    /// Turns of theirs at the handshake with auth.
    pub(crate) auth_relay_turns: Turns<Network>,
    /// Users' sessions, counted.
    pub(crate) sessions: Quota<Name>,
    /// What users may dial.
    pub(crate) dial_rates: DialRates,
    /// Connections of those who have shown who they are, counted by whom their certificate names.
    pub(crate) certified: Quota<String>,
    /// Those of users that are open, for the audit log.
    pub(crate) dials: Arc<OpenDials>,
    pub(crate) audit: Arc<Audit>,
    /// Records sessions on plain sshds.
    pub(crate) recorder: Recorder,
    /// Gets every connection's steps, where the configuration names one.
    pub(crate) collector: OnceLock<Exporter>,
    /// All nodes of the inventory were told since the start; written by `auth`.
    pub(crate) inventory_is_whole: watch::Sender<bool>,
    /// The proxy drains: it accepts no connection, and serves those that it has.
    pub(crate) leaving: watch::Sender<bool>,
    /// The proxy stops, and ends what it serves.
    pub(crate) stopping: watch::Sender<bool>,
    /// Connections of users: a proxy that drains ends with the last of them.
    pub(crate) user_connections: watch::Sender<usize>,
    /// Since when this process serves.
    pub(crate) began: Instant,
}

/// A connection of a user's, counted in [`Shared::user_connections`] for as long as this is kept.
pub(crate) struct UserConnection(Arc<Shared>);

/// What the task that speaks SSH gets from the others. It is bounded by the places of strangers and of sessions.
pub(crate) enum Local {
    /// A connection that begins with `S`.
    Ssh(
        PrefixedStream<TcpStream>,
        SocketAddr,
        strangers::StrangerSlot,
        UserConnection,
    ),
    /// A session on a node without fleetgate; who hears why it has ended.
    Plain(
        DuplexStream,
        SocketAddr,
        Arc<InventoryNode>,
        oneshot::Sender<String>,
    ),
}

impl Shared {
    /// Shows the newest certificate, and believes the newest authorities.
    pub(crate) fn renew_tls(&self) -> Result<(), String> {
        let made = tls_server(
            &self.view.borrow(),
            &self.identity.borrow(),
            self.public_credentials.as_ref(),
        );
        self.tls.send_replace(made.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Waits until the proxy drains.
    pub(crate) async fn left(&self) {
        // An error would say that the shared state is gone, and this is part of it.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving).await;
    }

    /// Waits until the proxy stops.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Whether the proxy drains.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Counts a user's connection.
    pub(crate) fn count_user(self: &Arc<Shared>) -> UserConnection {
        self.user_connections
            .send_modify(|user_connections| *user_connections += 1);
        UserConnection(self.clone())
    }

    /// A place for a connection of somebody who has shown who he is; why there is none. Only whoever ends old ones gets new
    /// ones, so nobody takes the descriptors of all others.
    pub(crate) fn certified(&self, identity: &cluster::Identity) -> Result<Slot<String>, String> {
        let who = identity.subject.to_string();
        self.certified.take(&who).ok_or_else(|| {
            format!(
                "{who} has as many connections as may be (sessions_per_user, and {CONNECTIONS_BESIDE} more)"
            )
        })
    }

    /// The words of the lock that holds against this certificate, if there is one: on its user, his device or his roles, or
    /// on its machine.
    pub(crate) fn locked(&self, identity: &cluster::Identity) -> Option<String> {
        let whose = match &identity.subject {
            Subject::User(user) => Target::User(user.clone()),
            Subject::Node(node) => Target::Node(node.clone()),
            Subject::Proxy(proxy) => Target::Proxy(proxy.clone()),
            Subject::Auth => return None,
        };
        let device = identity.device.clone().map(Target::Device);
        let roles = identity.roles.iter().cloned().map(Target::Role);
        let view = self.view.borrow();
        let lock = std::iter::once(whose)
            .chain(device)
            .chain(roles)
            .find_map(|target| view.state.locks.on(&target, now(), identity.serial).cloned());
        lock.map(|lock| lock.refusal().words)
    }

    /// Waits until no user is connected.
    pub(crate) async fn empty(&self) {
        let _ = self
            .user_connections
            .subscribe()
            .wait_for(|user_connections| *user_connections == 0)
            .await;
    }

    /// Waits for a node that is about to dial this proxy: one that restarts, or any that is known where the proxy itself has
    /// just begun. It comes back when there is a way, when nothing is to be expected, or after [`NODE_WAIT`]. Tunnels up to
    /// `after` were tried already.
    pub(crate) async fn await_node(&self, node: &Name, after: u64) {
        let waiting = async {
            let mut inventory = self.inventory.subscribe();
            let mut whole = self.inventory_is_whole.subscribe();
            loop {
                let arrived = self.tunnels.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                inventory.borrow_and_update();
                whole.borrow_and_update();
                if !self.is_expected(node, after) {
                    return;
                }
                tokio::select! {
                    () = arrived => {}
                    _ = inventory.changed() => {}
                    _ = whole.changed() => {}
                    // What is expected only of a fresh proxy is not expected any more.
                    () = sleep_until((self.began + AFTER_START).into()), if self.is_fresh() => {}
                }
            }
        };
        let _ = timeout(NODE_WAIT, waiting).await;
    }

    fn is_fresh(&self) -> bool {
        self.began.elapsed() < AFTER_START
    }

    fn is_expected(&self, node: &Name, after: u64) -> bool {
        // A process that drains is dialled by nobody any more.
        if self.is_leaving() {
            return false;
        }
        let is_there = self.tunnels.to(node).is_some_and(|tunnel| tunnel.number > after);
        match self.inventory.borrow().get(node) {
            Some(known) if known.node.plain => false,
            // Before auth has heard of the node from this proxy, it may not have all of the node's labels.
            Some(known) if is_there => self.is_fresh() && !known.node.connected,
            Some(_) => self.is_fresh() || self.tunnels.left_lately(node),
            None if is_there => false,
            None => self.is_fresh() && !*self.inventory_is_whole.borrow(),
        }
    }
}

impl Drop for UserConnection {
    fn drop(&mut self) {
        self.0
            .user_connections
            .send_modify(|user_connections| *user_connections -= 1);
    }
}

/// What this proxy shows and whom it believes, by TLS.
pub(crate) fn tls_server(
    view: &View,
    identity: &Identity,
    given: Option<&Credentials>,
) -> Result<tls::Server, ServerError> {
    let failed = |e: tls::Error| ServerError(e.to_string());
    let trust = Trust::new(&view.state.trust.tls_ca).map_err(failed)?;
    let shown = Shown::new()
        .name(PROXY, &identity.credentials)
        .otherwise(given.unwrap_or(&identity.credentials));
    tls::Server::new(shown, Some(&trust), &[TUNNEL, H2, HTTP1]).map_err(failed)
}
