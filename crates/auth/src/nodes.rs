//! What proxies report of nodes. A proxy passes on what a node signed and is believed in nothing else. When nodes were last
//! heard of is written every half minute, in few documents.

use crate::cache;
use crate::caller::Caller;
use crate::error::{Refused, Result};
use crate::inventory::{LastReport, Times};
use crate::service::Service;
use crate::state::FRESH_EVERY;
use crate::validity::SKEW;
use fleetgate_net::{Pin, x509};
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_proto::{signed, v1};
use std::collections::BTreeMap;

/// A proxy that does not report a node for so many seconds has lost it.
pub const SILENT: u64 = 90;
/// How old a node's statement may be, in seconds: a proxy can claim for so long that a node is connected which is not. Nodes
/// sign anew whenever freshness is published.
pub const STATED: u64 = 3 * FRESH_EVERY.as_secs();
/// How often it is written when nodes were last heard of, in seconds.
pub const WRITTEN_EVERY: u64 = 30;
/// The longest version and address that a node says of itself.
const MAX_TEXT: usize = 300;

impl Service {
    /// A node that is connected to the proxy, with what it signed of itself, or is not connected to it any more.
    pub fn report(&self, caller: &Caller, report: v1::NodeReport) -> Result<()> {
        let (now, uptime) = (self.now(), self.ledger.uptime());
        let proxy = caller.proxy(self)?;
        let cache = self.cache();
        let member = cache.nodes.get(&report.name).ok_or_else(|| {
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
                    self.inventory.tell(&cache, &report.name, now);
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
                self.inventory.tell(&cache, &report.name, now);
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
            self.inventory.tell(&cache, &report.name, now);
        }
        Ok(())
    }

    /// The nodes and proxies that a selector chooses.
    pub fn nodes(&self, request: &v1::NodesRequest) -> Result<v1::NodesReply> {
        let wanted = match request.selector.trim() {
            "" => Selector::all(),
            text => Selector::parse(text).map_err(Refused::invalid)?,
        };
        let cache = self.cache();
        let proxies = cache.proxies.iter().filter(|(name, _)| {
            // Proxies have no labels.
            Name::parse(name).is_ok_and(|name| wanted.matches(&name, &Labels::new()))
        });
        Ok(v1::NodesReply {
            proxies: proxies
                .map(|(name, member)| v1::Proxy {
                    name: name.clone(),
                    version: member.document.version.clone(),
                })
                .collect(),
            nodes: self.inventory.all(&cache, &wanted, self.now()),
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
            let cache = self.cache();
            for name in &lost {
                self.inventory.tell(&cache, name, now);
            }
            let known = |shard: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
                shard
                    .into_iter()
                    .filter(|(name, _)| cache.nodes.contains_key(name))
                    .collect()
            };
            shards
                .into_iter()
                .map(|(shard, times)| {
                    cache::put(cache::key(&["seen", &format!("{shard:02}")]), &known(times))
                })
                .collect()
        };
        if !steps.is_empty() {
            self.ledger.attempt(steps, Vec::new()).await?;
        }
        Ok(())
    }

    /// Whether a proxy reaches a registered plain sshd.
    pub fn report_reach(&self, caller: &Caller, report: &v1::ReachReport) -> Result<()> {
        let (now, uptime) = (self.now(), self.ledger.uptime());
        let proxy = caller.proxy(self)?;
        let cache = self.cache();
        let is_plain = cache
            .nodes
            .get(&report.name)
            .is_some_and(|member| member.document.key.is_none());
        if !is_plain {
            return Err(Refused::missing(format!(
                "{} is no registered sshd",
                report.name.chars().take(64).collect::<String>()
            )));
        }
        if self
            .inventory
            .note_reach(&report.name, proxy.as_str(), report.reached, now, uptime)
        {
            self.inventory.tell(&cache, &report.name, now);
        }
        Ok(())
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
