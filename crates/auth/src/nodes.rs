//! The inventory: which nodes there are, what they say of themselves, and whether they are connected. What changes with
//! every heartbeat is in memory; when nodes were last heard of is written every half minute, in few documents.

use crate::book::{self, Book};
use crate::caller::Caller;
use crate::documents::Member;
use crate::error::{Refused, Result};
use crate::service::Service;
use bytes::Bytes;
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_proto::v1;
use fleetgate_ssh::key::PublicKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// A proxy that does not report a node for so many seconds has lost it.
pub const SILENT: u64 = 90;
/// How often it is written when nodes were last heard of, in seconds.
pub const WRITTEN_EVERY: u64 = 30;
/// Into how many documents.
const SHARDS: usize = 64;
/// Changes that wait for a proxy; one that falls behind is told everything anew.
const MAX_WAITING: usize = 4096;
/// The longest version and address that a node says of itself.
const MAX_TEXT: usize = 300;

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
struct Present {
    nodes: HashMap<String, Presence>,
    written: u64,
}

/// What a node said of itself, and to whom.
#[derive(Clone, Debug, Default, PartialEq)]
struct Presence {
    labels: Labels,
    version: String,
    address: String,
    serial: u64,
    seen: u64,
    /// By which proxies, and when they last said so.
    by: BTreeMap<String, u64>,
    /// Its time was not written yet.
    unwritten: bool,
}

impl Inventory {
    /// With what was written of it.
    pub fn new(book: &Book) -> Inventory {
        let mut present = Present::default();
        for (name, seen) in book.seen.values().flat_map(|shard| &shard.document) {
            let presence = Presence {
                seen: *seen,
                ..Presence::default()
            };
            present.nodes.insert(name.clone(), presence);
        }
        Inventory {
            present: Mutex::new(present),
            changes: broadcast::channel(MAX_WAITING).0,
        }
    }

    /// Changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// A node as it is.
    pub fn shown(&self, book: &Book, name: &str, now: u64) -> Option<v1::Node> {
        let member = book.nodes.get(name)?;
        let present = self.locked();
        Some(shown(name, &member.document, present.nodes.get(name), now))
    }

    /// All nodes that `wanted` chooses.
    pub fn all(&self, book: &Book, wanted: &Selector, now: u64) -> Vec<v1::Node> {
        let present = self.locked();
        let each = book.nodes.iter().filter_map(|(name, member)| {
            let name = Name::parse(name).ok()?;
            let presence = present.nodes.get(name.as_str());
            let labels = labels(&member.document, presence);
            let fits = wanted.matches(&name, &labels);
            fits.then(|| shown(name.as_str(), &member.document, presence, now))
        });
        each.collect()
    }

    /// A node's labels: its own, and over them those that it was given.
    pub fn labels(&self, member: &Member, name: &str) -> Labels {
        labels(member, self.locked().nodes.get(name))
    }

    /// Tells whoever watches how a node is now.
    pub fn tell(&self, book: &Book, name: &str, now: u64) {
        if let Some(node) = self.shown(book, name, now) {
            // Nobody watches: then nobody is told.
            let _ = self.changes.send(Change::Node(Box::new(node)));
        }
    }

    /// A node is gone.
    pub fn forget(&self, name: &str) {
        self.locked().nodes.remove(name);
        let _ = self.changes.send(Change::Removed(name.to_string()));
    }

    /// Whether every node of the cluster that runs fleetgate has a state of this serial or a later one.
    pub fn all_have(&self, book: &Book, serial: u64) -> bool {
        let present = self.locked();
        let mut joined = book.nodes.iter().filter(|(_, m)| m.document.key.is_some());
        joined.all(|(name, _)| present.nodes.get(name).is_some_and(|p| p.serial >= serial))
    }

    fn locked(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// A proxy's word about a node that is connected to it, or is not any more.
    pub fn report(&self, caller: &Caller, report: v1::NodeReport) -> Result<()> {
        let now = self.now();
        let published = self.published();
        let proxy = caller.proxy(&published, now)?;
        let facts = report.facts.unwrap_or_default();
        let pairs = facts.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let labels = Labels::of(pairs).map_err(Refused::invalid)?;
        if facts.version.len() > MAX_TEXT || facts.address.len() > MAX_TEXT {
            return Err(Refused::invalid(format!(
                "version and address of a node have at most {MAX_TEXT} bytes"
            )));
        }
        let book = self.book();
        if !book.nodes.contains_key(&report.name) {
            return Err(Refused::missing(format!(
                "the node {} is not known here: it was removed, and has to join again",
                report.name.chars().take(64).collect::<String>()
            )));
        }
        let changed = {
            let mut present = self.inventory.locked();
            let presence = present.nodes.entry(report.name.clone()).or_default();
            let before = presence.clone();
            match report.connected {
                true => presence.by.insert(proxy.to_string(), now),
                false => presence.by.remove(proxy.as_str()),
            };
            if report.connected {
                presence.labels = labels;
                presence.version = facts.version;
                presence.address = facts.address;
                presence.serial = facts.serial;
            }
            presence.seen = now;
            presence.unwritten = true;
            before.by.is_empty() != presence.by.is_empty()
                || (before.labels, before.version, before.address)
                    != (
                        presence.labels.clone(),
                        presence.version.clone(),
                        presence.address.clone(),
                    )
        };
        if changed {
            self.inventory.tell(&book, &report.name, now);
        }
        Ok(())
    }

    /// The nodes that a selector chooses.
    pub fn nodes(&self, request: &v1::NodesRequest) -> Result<v1::NodesReply> {
        let wanted = match request.selector.trim() {
            "" => Selector::all(),
            text => Selector::parse(text).map_err(Refused::invalid)?,
        };
        Ok(v1::NodesReply {
            nodes: self.inventory.all(&self.book(), &wanted, self.now()),
        })
    }

    /// Who was not heard of is not connected; and what was heard is written now and then.
    pub(crate) async fn turn_inventory(&self) -> Result<()> {
        let now = self.now();
        let (lost, shards) = {
            let mut present = self.inventory.locked();
            let mut lost = Vec::new();
            for (name, presence) in &mut present.nodes {
                let before = presence.by.len();
                presence.by.retain(|_, at| now.saturating_sub(*at) < SILENT);
                if before > 0 && presence.by.is_empty() {
                    lost.push(name.clone());
                }
            }
            let due = now.saturating_sub(present.written) >= WRITTEN_EVERY;
            (lost, if due { present.unwritten(now) } else { Vec::new() })
        };
        let steps: Vec<_> = {
            let book = self.book();
            for name in &lost {
                self.inventory.tell(&book, name, now);
            }
            let known = |shard: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
                shard
                    .into_iter()
                    .filter(|(name, _)| book.nodes.contains_key(name))
                    .collect()
            };
            shards
                .into_iter()
                .map(|(shard, times)| book::put(book::key(&["seen", &format!("{shard:02}")]), &known(times)))
                .collect()
        };
        if !steps.is_empty() {
            self.ledger.attempt(steps, Vec::new()).await?;
        }
        Ok(())
    }
}

impl Present {
    /// The shards in which something is new, whole.
    fn unwritten(&mut self, now: u64) -> Vec<(usize, BTreeMap<String, u64>)> {
        self.written = now;
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
    (hash % SHARDS as u64) as usize
}

fn labels(member: &Member, presence: Option<&Presence>) -> Labels {
    let mut labels = presence.map_or_else(Labels::new, |p| p.labels.clone());
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
    let connected = presence.is_some_and(|p| !p.by.is_empty());
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
    }
}

/// A key that was written down as a line.
fn blob(line: &str) -> Option<Bytes> {
    let key = PublicKey::from_line(line).ok()?;
    Some(key.blob().to_vec().into())
}
