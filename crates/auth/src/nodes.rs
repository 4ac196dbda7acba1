//! The inventory: which nodes there are, what they say of themselves, and whether they are connected. A proxy passes on what
//! a node signed and is believed in nothing else. What changes with every heartbeat is in memory; when nodes were last heard of
//! is written every half minute, in few documents.

use crate::authorities::SKEW;
use crate::book::{self, Book};
use crate::caller::Caller;
use crate::documents::Member;
use crate::error::{Refused, Result};
use crate::reach::Reach;
use crate::service::Service;
use crate::state::FRESH_EVERY;
use bytes::Bytes;
use fleetgate_net::{Pin, x509};
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::PublicKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// A proxy that does not report a node for so many seconds has lost it.
pub const SILENT: u64 = 90;
/// How old a node's statement may be, in seconds: a proxy can claim for so long that a node is connected which is not. Nodes
/// sign anew whenever freshness is published.
pub const STATED: u64 = 3 * FRESH_EVERY.as_secs();
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
    reach: Reach,
    /// When it was last written, in milliseconds since boot.
    written: Option<u64>,
}

/// What a node said of itself, and to whom.
#[derive(Clone, Debug, Default, PartialEq)]
struct Presence {
    labels: Labels,
    version: String,
    address: String,
    serial: u64,
    seen: u64,
    /// When that was said: the newest statement's times.
    said: Times,
    /// By which proxies.
    by: BTreeMap<String, LastReport>,
    /// Its time was not written yet.
    unwritten: bool,
}

/// Which of two statements of a node is the later one: by when auth had signed its state, then by its own clock.
type Times = (u64, u64);

/// What a proxy last passed on of a node.
#[derive(Clone, Debug, PartialEq)]
struct LastReport {
    /// When, in milliseconds since boot; none: it said that the node is gone.
    at: Option<u64>,
    times: Times,
    /// Of the statement with its signature and key: the same one again needs no second look.
    digest: [u8; 32],
}

impl Presence {
    fn is_connected(&self) -> bool {
        self.by.values().any(|heard| heard.at.is_some())
    }
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
        let mut node = shown(name, &member.document, present.nodes.get(name), now);
        show_reach(&mut node, &present.reach);
        Some(node)
    }

    /// All nodes that `wanted` chooses.
    pub fn all(&self, book: &Book, wanted: &Selector, now: u64) -> Vec<v1::Node> {
        let present = self.locked();
        let each = book.nodes.iter().filter_map(|(name, member)| {
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

    /// Tells whoever watches how a node is now.
    pub fn tell(&self, book: &Book, name: &str, now: u64) {
        if let Some(node) = self.shown(book, name, now) {
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
    /// A node that is connected to the proxy, with what it signed of itself, or is not connected to it any more.
    pub fn report(&self, caller: &Caller, report: v1::NodeReport) -> Result<()> {
        let (now, uptime) = (self.now(), self.ledger.uptime());
        let proxy = caller.proxy(self)?;
        let book = self.book();
        let member = book.nodes.get(&report.name).ok_or_else(|| {
            Refused::missing(format!(
                "the node {} is not known here: it was removed, and has to join again",
                report.name.chars().take(64).collect::<String>()
            ))
        })?;
        let Some(key) = &member.document.key else {
            return Err(Refused::forbidden(format!(
                "{} is a plain sshd: an administrator says what its labels are, and no proxy",
                report.name
            )));
        };
        let mut present = self.inventory.locked();
        if !report.connected {
            let known = present.nodes.get_mut(&report.name);
            if let Some(presence) = known
                && let Some(heard) = presence.by.get_mut(proxy.as_str())
            {
                let was = heard.at.take().is_some();
                let is_lost = was && !presence.is_connected();
                drop(present);
                if is_lost {
                    self.inventory.tell(&book, &report.name, now);
                }
            }
            return Ok(());
        }
        let unproven =
            |why: &str| Refused::unproven(format!("what the node {} says of itself: {why}", report.name));
        let statement = report
            .statement
            .as_ref()
            .ok_or_else(|| unproven("it signed nothing"))?;
        let digest = digest(statement);
        let presence = present.nodes.entry(report.name.clone()).or_default();
        let known = presence.by.get_mut(proxy.as_str());
        if let Some(heard) = known.filter(|heard| heard.digest == digest) {
            is_recent(heard.times, now).map_err(unproven)?;
            let is_back = heard.at.replace(uptime).is_none();
            presence.seen = now;
            presence.unwritten = true;
            drop(present);
            if is_back {
                self.inventory.tell(&book, &report.name, now);
            }
            return Ok(());
        }
        let said = proven(statement, key).map_err(|why| unproven(&why))?;
        if said.node != report.name {
            return Err(unproven("another node signed it"));
        }
        if said.proxy != proxy.as_str() {
            return Err(unproven("it is for another proxy"));
        }
        let times = (said.as_of, said.millis);
        is_recent(times, now).map_err(unproven)?;
        if presence
            .by
            .get(proxy.as_str())
            .is_some_and(|heard| times <= heard.times && !is_ahead(heard.times, now))
        {
            return Err(unproven("a later one is known"));
        }
        let facts = said.facts.unwrap_or_default();
        if facts.serial > self.published.borrow().state.serial {
            return Err(unproven("it has a state that there is not"));
        }
        let pairs = facts.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let labels = Labels::of(pairs).map_err(Refused::invalid)?;
        if facts.version.len() > MAX_TEXT || facts.address.len() > MAX_TEXT {
            return Err(Refused::invalid(format!(
                "version and address of a node have at most {MAX_TEXT} bytes"
            )));
        }
        let mut changed = !presence.is_connected();
        // What it said to this proxy before may be older than what it said to another since.
        if times >= presence.said || is_ahead(presence.said, now) {
            changed |= (&presence.labels, &presence.version, &presence.address)
                != (&labels, &facts.version, &facts.address);
            presence.said = times;
            presence.labels = labels;
            presence.version = facts.version;
            presence.address = facts.address;
            presence.serial = facts.serial;
        }
        let at = Some(uptime);
        presence
            .by
            .insert(proxy.to_string(), LastReport { at, times, digest });
        presence.seen = now;
        presence.unwritten = true;
        drop(present);
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
        let (now, uptime) = (self.now(), self.ledger.uptime());
        let over = |since: u64, seconds: u64| uptime.saturating_sub(since) >= seconds * 1000;
        let (lost, shards) = {
            let mut present = self.inventory.locked();
            let mut lost = Vec::new();
            for (name, presence) in &mut present.nodes {
                let before = presence.is_connected();
                for heard in presence.by.values_mut() {
                    heard.at = heard.at.filter(|at| !over(*at, SILENT));
                }
                if before && !presence.is_connected() {
                    lost.push(name.clone());
                }
                // An older statement is refused for its age.
                presence
                    .by
                    .retain(|_, heard| heard.at.is_some() || is_recent(heard.times, now).is_ok());
            }
            lost.extend(present.reach.expire(uptime));
            let due = present.written.is_none_or(|at| over(at, WRITTEN_EVERY));
            (
                lost,
                match due {
                    true => present.unwritten(uptime),
                    false => Vec::new(),
                },
            )
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
    fn unwritten(&mut self, uptime: u64) -> Vec<(usize, BTreeMap<String, u64>)> {
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

/// What a statement says, if the key that the node is known by signed it.
fn proven(statement: &v1::Statement, key: &str) -> std::result::Result<v1::NodeStatement, String> {
    if Pin::of(&statement.key).to_string() != key {
        return Err("it is signed by another key than the node's".to_owned());
    }
    let public = x509::PublicKey::from_spki(&statement.key).map_err(|e| e.to_string())?;
    public
        .verify(&signed::statement(&statement.document), &statement.signature)
        .map_err(|e| e.to_string())?;
    v1::NodeStatement::read(&statement.document).map_err(|e| e.to_string())
}

/// Whether it was said before the clock was set back: then it tells nothing about what is later.
fn is_ahead((as_of, _): Times, now: u64) -> bool {
    as_of > now.saturating_add(SKEW)
}

fn is_recent((as_of, _): Times, now: u64) -> std::result::Result<(), &'static str> {
    match (is_ahead((as_of, 0), now), now.saturating_sub(as_of) > STATED) {
        (true, _) => Err("it is from the future"),
        (_, true) => Err("it is too old"),
        _ => Ok(()),
    }
}

fn digest(statement: &v1::Statement) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in [&statement.document, &statement.signature, &statement.key] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context
        .finish()
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes")
}

fn shard(name: &str) -> usize {
    // FNV-1a: the same at every start, and nobody gains by choosing names.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash % SHARDS as u64) as usize
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
