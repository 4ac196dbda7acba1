//! Machines: certificates that they get ([`joining`]) and renew ([`renewal`]), and their end ([`removal`]). A name belongs to a
//! key: nobody else gets it while it is known. This file has what all of them ask, and nodes with a plain sshd.

mod joining;
mod removal;
mod renewal;

use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::documents::{Kind, Member};
use crate::error::{Refused, Result};
use crate::issue;
use crate::ledger::Plan;
use crate::proof::{gone, key_of};
use crate::service::Service;
use crate::users::labels;
use bytes::Bytes;
use fleetgate_net::x509;
use fleetgate_policy::cluster::{Name, Subject, Target};
use fleetgate_proto::v1;
use fleetgate_ssh::key::PublicKey;
use fleetgate_store::Key;
use serde_json::json;

/// The most nodes, and the most proxies.
pub const MAX_MEMBERS: usize = 65_536;

/// What a machine gets that joins or renews.
struct Certified {
    tls_chain: Vec<Bytes>,
    host_certificates: Vec<Bytes>,
    /// The state's, when they were made.
    serial: u64,
}

impl Service {
    /// A machine's certificates: the TLS chain for its key, and one for each of its host keys.
    async fn certify_member(
        &self,
        (kind, name): (Kind, &Name),
        public: &x509::PublicKey,
        host_keys: &[PublicKey],
        now: u64,
    ) -> Result<Certified> {
        self.note_time(now).await?;
        let (cluster, serial) = (self.cluster(), self.cache().last_serial());
        let tls_chain =
            issue::member(&self.signers, &cluster, (kind, name), public.spki(), now, serial).await?;
        let names = self.host_names(kind, name);
        let times = (now, crate::validity::MEMBER_LIFETIME);
        let host_certificates = issue::hosts(&self.signers, &cluster, &names, host_keys, times).await?;
        Ok(Certified {
            tls_chain,
            host_certificates,
            serial,
        })
    }

    /// The names that users give to ssh. A proxy's are the ones that the cluster tells where its proxies are, and not
    /// what it says itself: it shall not be any node.
    fn host_names(&self, kind: Kind, name: &Name) -> Vec<String> {
        let mut names = issue::names(&self.cluster(), name);
        if kind == Kind::Proxy {
            let published = self.published();
            let hosts = published.state.proxies.iter().map(|address| host_of(address));
            names.extend(hosts.map(str::to_owned).filter(|host| host != name.as_str()));
        }
        names
    }

    /// That no host certificate in this name is another machine's: users know machines by name alone.
    fn free_name(&self, cache: &StateCache, kind: Kind, name: &Name) -> Result<()> {
        let other = match kind {
            Kind::Node => Kind::Proxy,
            Kind::Proxy => Kind::Node,
        };
        if cache.members(other).contains_key(name.as_str()) {
            return Err(Refused::exists(format!(
                "the name {name} belongs to a {}: take another name",
                other.name()
            )));
        }
        let published = self.published.borrow();
        if name.as_str().ends_with(&format!(".{}", published.state.cluster)) {
            return Err(Refused::invalid(format!(
                "the name {name} ends like those by which plain ssh knows the cluster's machines: leave out .{}",
                published.state.cluster
            )));
        }
        let mut proxies = published.state.proxies.iter();
        if kind == Kind::Node && proxies.any(|address| host_of(address) == name.as_str()) {
            return Err(Refused::exists(format!(
                "{name} is where users find the cluster's proxy: take another name for the node"
            )));
        }
        Ok(())
    }

    /// Refuses a machine that a lock holds. One on older certificates alone, of a machine that was removed, is none here.
    pub(crate) fn machine_locked(&self, kind: Kind, name: &Name, now: u64) -> Result<()> {
        let published = self.published();
        match published.state.locks.on(&target(kind, name), now, u64::MAX) {
            Some(lock) => Err(Refused::forbidden(lock.refusal().words)),
            None => Ok(()),
        }
    }

    /// Whose certificate it is: of a machine that is known, with the key that it is known by. So the certificate itself
    /// need not be verified: the name is bound to the key, and the key signs.
    pub(crate) fn member_of(
        &self,
        claimed: &str,
        certificate: &[u8],
        now: u64,
    ) -> Result<(Kind, Name, Member)> {
        let certificate =
            x509::Certificate::read(certificate).map_err(|e| Refused::invalid(e.to_string()))?;
        let identity = certificate
            .identity()
            .map_err(|e| Refused::invalid(e.to_string()))?;
        let (kind, name) = match identity.map(|i| i.subject) {
            Some(Subject::Node(name)) => (Kind::Node, name),
            Some(Subject::Proxy(name)) => (Kind::Proxy, name),
            _ => return Err(Refused::unproven("the certificate is no node's and no proxy's")),
        };
        if name.as_str() != claimed {
            return Err(Refused::unproven(format!(
                "the certificate is for {name}, and the request for another machine"
            )));
        }
        if now >= certificate.validity().end {
            return Err(Refused::unproven(format!(
                "the certificate of {name} has expired: compare the clocks, or join again with a new token"
            )));
        }
        let member = key_of(&self.cache(), kind, &name, &certificate)?.clone();
        Ok((kind, name, member))
    }

    /// A plain sshd that trusts the user authority.
    pub async fn register_node(&self, caller: &Caller, request: v1::RegisterNodeRequest) -> Result<v1::Node> {
        let name = Name::parse(&request.name).map_err(Refused::invalid)?;

        let host_keys = issue::host_keys(&request.host_keys)?;
        let member = Member {
            key: None,
            host_keys: host_keys.iter().map(PublicKey::line).collect(),
            earlier_host_keys: Vec::new(),
            labels: labels(&request.labels)?,
            address: Some(address(&request.address)?),
            version: String::new(),
            made: self.now(),
            token: String::new(),
        };
        self.change(|cache| {
                self.free_name(cache, Kind::Node, &name)?;
            let known = cache.nodes.get(name.as_str());
                if known.is_some_and(|k| k.document.address.is_none()) {
                    return Err(Refused::exists(format!(
                        "{name} is a node with fleetgate already: take another name, or remove it first (fleetgate node rm \
                         {name})"
                    )));
                }
                if known.is_none() && cache.nodes.len() >= MAX_MEMBERS {
                    return Err(Refused::busy(format!("the cluster has {MAX_MEMBERS} nodes, which is the most")));
                }
                let event = self.event(event::NODE_REGISTERED, caller).node(name.as_str());
                let event = match known {
                    Some(known) => event.with("before", member_in_event(&known.document)),
                    None => event,
                };
                Ok(Plan::new(())
                    .step(cache::replace(
                        member_key(Kind::Node, &name),
                        known.map(|k| k.revision),
                        &member,
                    ))
                    .event(event.with("after", member_in_event(&member))))
            })
            .await?;
        let cache = self.cache();
        self.inventory.tell(&cache, name.as_str(), self.now());
        let shown = self.inventory.shown(&cache, name.as_str(), self.now());
        shown.ok_or_else(|| gone(&name))
    }
}

/// Where a machine stands.
pub fn member_key(kind: Kind, name: &Name) -> Key {
    cache::key(&["members", kind.name(), name.as_str()])
}

fn address(text: &str) -> Result<String> {
    let wrong =
        || Refused::invalid("the address of a node is HOST:PORT, \"db1.example:22\" or \"[2001:db8::1]:22\"");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    let right = !bare.is_empty() && bare.len() <= 255 && bare.chars().all(plain) && !bare.starts_with('-');
    match right && port != 0 && (bare.len() != host.len() || !host.contains(':')) {
        true => Ok(text.to_string()),
        false => Err(wrong()),
    }
}

/// The host of `host:port`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A lock's target that is this machine.
fn target(kind: Kind, name: &Name) -> Target {
    match kind {
        Kind::Node => Target::Node(name.clone()),
        Kind::Proxy => Target::Proxy(name.clone()),
    }
}

fn member_in_event(member: &Member) -> serde_json::Value {
    json!({
        "key": member.key,
        "host_keys": member.host_keys,
        "labels": member.labels,
        "address": member.address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_plain_nodes() {
        for good in ["db1:22", "db1.example:2222", "192.0.2.1:22", "[2001:db8::1]:22"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "db1",
            "db1:",
            ":22",
            "db1:0",
            "db1:65536",
            "2001:db8::1:22",
            "-oProxy:22",
            "a b:22",
            "a\n:22",
        ] {
            assert!(address(bad).is_err(), "{bad:?}");
        }
    }
}
