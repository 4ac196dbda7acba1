//! The inventory: which nodes there are, what they say of themselves, and whether they are connected. What changes with every
//! heartbeat is in memory. It judges no report.

use crate::cache::StateCache;
use crate::documents::Member;
use crate::reach::Reach;
use bytes::Bytes;
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_proto::v1;
use fleetgate_ssh::key::PublicKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Into how many documents the times are written when nodes were last heard of.
const SHARDS: usize = 64;
/// Changes that wait for a proxy; one that falls behind is told everything anew.
const MAX_UNSENT_CHANGES: usize = 4096;

/// What is known of nodes beside their documents.
pub struct Inventory {
    present: Mutex<Present>,
    changes: broadcast::Sender<Change>,
}

/// A node changed, or is gone.
#[derive(Clone, Debug)]
pub enum Change {
    /// As it is now.
    Node(Box<v1::Node>),
    /// This one is gone.
    Removed(String),
}

#[derive(Default)]
pub(crate) struct Present {
    pub(crate) nodes: HashMap<String, Presence>,
    pub(crate) reach: Reach,
    /// When it was last written, in milliseconds since boot.
    pub(crate) written: Option<u64>,
}

/// What a node said of itself, and to whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Presence {
    pub(crate) labels: Labels,
    pub(crate) version: String,
    pub(crate) address: String,
    pub(crate) serial: u64,
    pub(crate) seen: u64,
    /// When that was said: the newest statement's times.
    pub(crate) said: Times,
    /// By which proxies.
    pub(crate) by: BTreeMap<String, LastReport>,
    /// Its time was not written yet.
    pub(crate) unwritten: bool,
}

/// Which of two statements of a node is the later one: by when auth had signed its state, then by its own clock.
pub(crate) type Times = (u64, u64);

/// What a proxy last passed on of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastReport {
    /// When, in milliseconds since boot; none: it said that the node is gone.
    pub(crate) at: Option<u64>,
    pub(crate) times: Times,
    /// Of the statement with its signature and key: the same one again needs no second look.
    pub(crate) digest: [u8; 32],
}

impl Presence {
    pub(crate) fn is_connected(&self) -> bool {
        self.by.values().any(|heard| heard.at.is_some())
    }
}

impl Inventory {
    /// With what was written of it.
    pub fn new(cache: &StateCache) -> Inventory {
        let mut present = Present::default();
        for (name, seen) in cache.seen.values().flat_map(|shard| &shard.document) {
            let presence = Presence {
                seen: *seen,
                ..Presence::default()
            };
            present.nodes.insert(name.clone(), presence);
        }
        Inventory {
            present: Mutex::new(present),
            changes: broadcast::channel(MAX_UNSENT_CHANGES).0,
        }
    }

    /// Changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// A node as it is.
    pub fn shown(&self, cache: &StateCache, name: &str, now: u64) -> Option<v1::Node> {
        let member = cache.nodes.get(name)?;
        let present = self.locked();
        let mut node = shown(name, &member.document, present.nodes.get(name), now);
        show_reach(&mut node, &present.reach);
        Some(node)
    }

    /// All nodes that `wanted` chooses.
    pub fn all(&self, cache: &StateCache, wanted: &Selector, now: u64) -> Vec<v1::Node> {
        let present = self.locked();
        let each = cache.nodes.iter().filter_map(|(name, member)| {
            let name = Name::parse(name).ok()?;
            let presence = present.nodes.get(name.as_str());
            let labels = labels(&member.document, presence);
            let fits = wanted.matches(&name, &labels);
            fits.then(|| {
                let mut node = shown(name.as_str(), &member.document, presence, now);
                show_reach(&mut node, &present.reach);
                node
            })
        });
        each.collect()
    }

    /// A node's labels: its own, and over them those that it was given.
    pub fn labels(&self, member: &Member, name: &str) -> Labels {
        labels(member, self.locked().nodes.get(name))
    }

    /// The same; none: the node has not said them since this service began.
    pub fn labels_if_known(&self, member: &Member, name: &str) -> Option<Labels> {
        let present = self.locked();
        let presence = present.nodes.get(name);
        let is_known = member.key.is_none() || presence.is_some_and(|p| p.said != Times::default());
        is_known.then(|| labels(member, presence))
    }

    /// Tells whoever watches how a node is now.
    pub fn tell(&self, cache: &StateCache, name: &str, now: u64) {
        if let Some(node) = self.shown(cache, name, now) {
            // Nobody watches: then nobody is told.
            let _ = self.changes.send(Change::Node(Box::new(node)));
        }
    }

    /// A node is gone.
    pub fn forget(&self, name: &str) {
        let mut present = self.locked();
        present.nodes.remove(name);
        present.reach.forget(name);
        drop(present);
        let _ = self.changes.send(Change::Removed(name.to_string()));
    }

    /// Whether a proxy reaches a plain sshd. True: what is shown of it has changed.
    pub fn note_reach(&self, node: &str, proxy: &str, reached: bool, now: u64, uptime: u64) -> bool {
        self.locked().reach.note(node, proxy, reached, now, uptime)
    }

    /// Whether every node of the cluster that runs fleetgate has a state of this serial or a later one.
    pub fn all_have(&self, cache: &StateCache, serial: u64) -> bool {
        let present = self.locked();
        let mut joined = cache.nodes.iter().filter(|(_, m)| m.document.key.is_some());
        joined.all(|(name, _)| present.nodes.get(name).is_some_and(|p| p.serial >= serial))
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    /// The shards in which something is new, whole.
    pub(crate) fn unwritten(&mut self, uptime: u64) -> Vec<(usize, BTreeMap<String, u64>)> {
        self.written = Some(uptime);
        let mut dirty = [false; SHARDS];
        for (name, presence) in &mut self.nodes {
            dirty[shard(name)] |= std::mem::take(&mut presence.unwritten);
        }
        let mut shards: BTreeMap<usize, BTreeMap<String, u64>> = BTreeMap::new();
        for (name, presence) in self.nodes.iter().filter(|(name, _)| dirty[shard(name)]) {
            shards
                .entry(shard(name))
                .or_default()
                .insert(name.clone(), presence.seen);
        }
        shards.into_iter().collect()
    }
}

fn shard(name: &str) -> usize {
    // FNV-1a: the same at every start, and nobody gains by choosing names.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    usize::try_from(hash % SHARDS as u64).expect("less than SHARDS")
}

fn labels(member: &Member, presence: Option<&Presence>) -> Labels {
    // Those of a plain sshd are an administrator's alone, whatever a node that had its name before said.
    let said = presence.filter(|_| member.key.is_some());
    let mut labels = said.map_or_else(Labels::new, |p| p.labels.clone());
    for (key, value) in &member.labels {
        // One too many is one that the node says of itself.
        if labels.set(key, value).is_err() {
            let given = member.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            return Labels::of(given).unwrap_or_default();
        }
    }
    labels
}

fn shown(name: &str, member: &Member, presence: Option<&Presence>, now: u64) -> v1::Node {
    let labels = labels(member, presence);
    let plain = member.key.is_none();
    let connected = presence.is_some_and(Presence::is_connected);
    let said = presence.map_or("", |p| &p.version);
    let address = presence.map_or("", |p| &p.address);
    v1::Node {
        name: name.to_string(),
        labels: labels
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        // A plain sshd tells nobody whether it is there.
        connected: plain || connected,
        seen: match connected {
            true => now,
            false => presence.map_or(0, |p| p.seen),
        },
        version: match said {
            "" => member.version.clone(),
            said => said.to_string(),
        },
        address: member.address.clone().unwrap_or_else(|| address.to_string()),
        host_keys: match plain {
            true => member.host_keys.iter().filter_map(|line| blob(line)).collect(),
            false => Vec::new(),
        },
        plain,
        unreached_since: 0,
    }
}

fn show_reach(node: &mut v1::Node, reach: &Reach) {
    if node.plain {
        node.unreached_since = reach.unreached_since(&node.name).unwrap_or(0);
    }
}

/// A key that was written down as a line.
fn blob(line: &str) -> Option<Bytes> {
    let key = PublicKey::from_line(line).ok()?;
    Some(key.blob().to_vec().into())
}
