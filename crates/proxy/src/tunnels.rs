//! The tunnels: connections that nodes dialled out, by the node's name. `tunnel_control` serves each; sessions are `dial`'s.

use crate::state::labels_of;
use crate::streams::Streams;
use fleetgate_net::h2::Channel;
use fleetgate_policy::cluster::{Labels, Name};
use fleetgate_proto::v1::{NodeFacts, NodeStatement, Statement};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// The longest of what a node signs of itself: its labels, and little else.
pub const STATEMENT_MAX: usize = 64 << 10;
/// For so long after its tunnel ended a node may be about to dial again.
pub const REDIAL_WINDOW: Duration = Duration::from_secs(30);
/// The most nodes whose tunnel's end is remembered.
const MAX_DEPARTED: usize = 16_384;
/// One node's connection.
pub(crate) struct Tunnel {
    /// Later ones have higher numbers.
    pub(crate) number: u64,
    /// Where it serves.
    pub(crate) channel: Channel,
    /// Its sessions, counted by user.
    pub(crate) streams: Arc<Streams>,
    pub(crate) facts: watch::Sender<NodeFacts>,
    last_statement: Mutex<Option<LastStatement>>,
    /// A newer one has taken its place.
    pub(crate) replaced: watch::Sender<bool>,
}

/// The last statement that the node signed about itself, for auth.
struct LastStatement {
    statement: Statement,
    /// Its content without the times.
    facts: Option<NodeFacts>,
    /// Auth did not take it. A node that has just started signs by the state on its disk first, which may be older than what it
    /// signed before it ended; in a moment it has the newest one, and signs anew.
    refused: bool,
}

/// All of them, by the node's name. Of one node the newest counts; older ones go on until their sessions have ended.
#[derive(Default)]
pub(crate) struct Tunnels {
    registry: Mutex<Registry>,
    /// Told when one came.
    pub(crate) arrived: Notify,
}

#[derive(Default)]
struct Registry {
    newest: HashMap<Name, Arc<Tunnel>>,
    last: u64,
    /// Whose tunnel came, went or told something new since it was last reported.
    changed: HashSet<Name>,
    /// When the last tunnel of a node that has none ended.
    departed: HashMap<Name, Instant>,
}

impl Tunnel {
    /// What the node last told of itself.
    pub(crate) fn facts(&self) -> NodeFacts {
        self.facts.borrow().clone()
    }

    /// What it last signed of itself.
    pub(crate) fn statement(&self) -> Option<Statement> {
        let last = self.last_statement.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|last| last.statement.clone())
    }

    /// Keeps what it signed; whether it says anything new. Whether it is signed rightly is asked by auth.
    pub(crate) fn says(&self, statement: Statement) -> bool {
        if statement.encoded_len() > STATEMENT_MAX {
            return false;
        }
        let facts = NodeStatement::decode(&statement.document[..])
            .ok()
            .and_then(|s| s.facts);
        let mut last = self.last_statement.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = last
            .as_ref()
            .is_none_or(|known| known.refused || known.facts != facts);
        *last = Some(LastStatement {
            statement,
            facts,
            refused: false,
        });
        is_news
    }

    /// Auth did not take this statement: the next one is news. True: there is one already.
    pub(crate) fn is_outdated(&self, statement: &Statement) -> bool {
        let mut last = self.last_statement.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_mut() {
            Some(last) if last.statement == *statement => {
                last.refused = true;
                false
            }
            last => last.is_some(),
        }
    }

    /// Its labels, as far as it told.
    pub(crate) fn labels(&self) -> Labels {
        labels_of(self.facts.borrow().labels.iter())
    }
}

impl Tunnels {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to a node, if there is one that takes sessions.
    pub(crate) fn to(&self, node: &Name) -> Option<Arc<Tunnel>> {
        let registry = self.lock();
        registry
            .newest
            .get(node)
            .filter(|tunnel| tunnel.channel.takes_requests())
            .cloned()
    }

    /// Whether a node's tunnel ended a moment ago, so that it may be about to dial again.
    pub(crate) fn left_lately(&self, node: &Name) -> bool {
        let registry = self.lock();
        registry.newest.contains_key(node) || registry.departed.get(node).is_some_and(is_in_redial_window)
    }

    /// How many nodes have one.
    pub(crate) fn count(&self) -> usize {
        self.lock().newest.len()
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

    /// A node's newest tunnel: the one before it is replaced.
    pub(crate) fn enter(&self, node: &Name, channel: Channel) -> Arc<Tunnel> {
        let mut registry = self.lock();
        registry.last += 1;
        let tunnel = Arc::new(Tunnel {
            number: registry.last,
            channel,
            streams: Arc::default(),
            facts: watch::Sender::new(NodeFacts::default()),
            last_statement: Mutex::default(),
            replaced: watch::Sender::new(false),
        });
        registry.changed.insert(node.clone());
        registry.departed.remove(node);
        if let Some(older) = registry.newest.insert(node.clone(), tunnel.clone()) {
            older.replaced.send_replace(true);
        }
        drop(registry);
        self.arrived.notify_waiters();
        tunnel
    }

    /// It ended.
    pub(crate) fn leave(&self, node: &Name, tunnel: &Tunnel) {
        let mut registry = self.lock();
        if registry
            .newest
            .get(node)
            .is_some_and(|newest| newest.number == tunnel.number)
        {
            registry.newest.remove(node);
            registry.changed.insert(node.clone());
            if registry.departed.len() >= MAX_DEPARTED {
                registry.departed.retain(|_, at| is_in_redial_window(at));
            }
            if registry.departed.len() < MAX_DEPARTED {
                registry.departed.insert(node.clone(), Instant::now());
            }
        }
    }
}

fn is_in_redial_window(at: &Instant) -> bool {
    at.elapsed() < REDIAL_WINDOW
}
