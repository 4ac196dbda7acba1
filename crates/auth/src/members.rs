//! Machines: certificates that they get and renew, and their end. A name belongs to a key: nobody
//! else gets it while it is known.

use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::clock_watch::all_ended;
use crate::documents::{Kind, Member, Token};
use crate::error::{Refused, Result};
use crate::issue;
use crate::ledger::Plan;
use crate::proof::{gone, key_of};
use crate::secret::Secret;
use crate::service::Service;
use crate::users::labels;
use fleetgate_net::{Pin, x509};
use fleetgate_policy::cluster::{Lock, Name, REMOVED, Subject, Target};
use fleetgate_proto::{signed, v1};
use fleetgate_ssh::key::PublicKey;
use fleetgate_store::{Key, Step};
use serde_json::json;

/// The most nodes, and the most proxies.
pub const MAX_MEMBERS: usize = 65_536;
/// The longest version that a machine says of itself.
const MAX_VERSION: usize = 64;

impl Service {
    /// A machine's first certificates.
    pub async fn join(&self, caller: &Caller, request: v1::JoinRequest) -> Result<v1::JoinReply> {
        let known = Secret::parse(&request.secret).and_then(|secret| {
            let hash = secret.hash();
            let token = self.cache().tokens.get(&hash)?.document.clone();
            Some((hash, token))
        });
        let Some((hash, token)) = known else {
            // Only who has none is a guesser: a rack of machines behind one address joins at once.
            let refused = self.guess(caller).err().unwrap_or_else(|| {
                Refused::unproven(
                    "the token is not known: it was removed, its time is long over, or it is not whole",
                )
            });
            let event = self.event(event::JOIN_REFUSED, caller);
            return Err(self.refuse(caller, false, event, refused).await);
        };
        let kind = token.kind;
        let joined = self.enter(caller, kind, &request, Some((hash, token))).await;
        match joined {
            Ok(joined) => Ok(joined),
            Err(refused) => {
                let event = self
                    .event(event::JOIN_REFUSED, caller)
                    .node(&request.name.chars().take(64).collect::<String>());
                Err(self.refuse(caller, false, event, refused).await)
            }
        }
    }

    /// The same without a token: for the machine that auth itself is on.
    pub(crate) async fn join_here(
        &self,
        caller: &Caller,
        kind: Kind,
        request: v1::JoinRequest,
    ) -> Result<v1::JoinReply> {
        self.enter(caller, kind, &request, None).await
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

    async fn enter(
        &self,
        caller: &Caller,
        kind: Kind,
        request: &v1::JoinRequest,
        token: Option<(String, Token)>,
    ) -> Result<v1::JoinReply> {
        let name = Name::parse(&request.name).map_err(Refused::invalid)?;
        let public = x509::PublicKey::from_spki(&request.tls_public)
            .map_err(|e| Refused::invalid(format!("the TLS key: {e}")))?;
        let host_keys = issue::host_keys(&request.host_keys)?;
        let key = Pin::of(public.spki()).to_string();
        let token_labels = match &token {
            Some((_, token)) => token.labels.clone().into_iter().collect(),
            None => Default::default(),
        };
        let (cluster, now) = (self.cluster(), self.now());
        let mut labels = labels(&request.labels)?;
        if let Some((_, token)) = &token {
            labels.extend(token.labels.clone());
        }
        let member = Member {
            key: Some(key.clone()),
            host_keys: host_keys.iter().map(PublicKey::line).collect(),
            labels,
            address: None,
            version: request.version.chars().take(MAX_VERSION).collect(),
            made: now,
            token: token.as_ref().map_or(String::new(), |(_, t)| t.id.clone()),
        };
        self.may_join(&self.cache(), kind, &name, &key, token.as_ref().map(|(_, t)| t))?;
        // Certificates first: a token is not burnt for a machine that gets none.
        self.note_time(now).await?;
        let serial = self.cache().last_serial();
        let tls_chain =
            issue::member(&self.signers, &cluster, (kind, &name), public.spki(), now, serial).await?;
        let names = self.host_names(kind, &name);
        let host_certificates = issue::hosts(
            &self.signers,
            &cluster,
            &names,
            &host_keys,
            (now, crate::validity::MEMBER_LIFETIME),
        )
        .await?;
        self.change(|cache| {
            let found = match &token {
                Some((hash, _)) => Some((hash, cache.tokens.get(hash).ok_or_else(token_gone)?)),
                None => None,
            };
            self.may_join(cache, kind, &name, &key, found.as_ref().map(|(_, t)| &t.document))?;
            not_ended(cache, kind, &name, serial)?;
            let at = member_key(kind, &name);
            let known = cache.members(kind).get(name.as_str());
            let event = self
                .event(event::JOINED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("token", member.token.as_str())
                .with("key", key.as_str())
                .with("labels", json!(member.labels));
            let plan = Plan::new(())
                .step(cache::replace(at, known.map(|m| m.revision), &member))
                .event(event);
            Ok(match found {
                None => plan,
                Some((hash, stored)) => {
                    let at = cache::key(&["tokens", hash]);
                    plan.step(match stored.document.reusable {
                        true => cache::unchanged(at, Some(stored.revision)),
                        false => {
                            let used = Token {
                                last: Some((now, name.to_string())),
                                ..stored.document.clone()
                            };
                            cache::replace(at, Some(stored.revision), &used)
                        }
                    })
                }
            })
        })
        .await?;
        if kind == Kind::Node {
            self.inventory.tell(&self.cache(), name.as_str(), now);
        }
        Ok(v1::JoinReply {
            cluster: cluster.to_string(),
            kind: kind.name().to_string(),
            name: name.to_string(),
            tls_chain,
            host_certificates,
            state: Some(self.published().signed),
            labels: token_labels,
        })
    }

    fn may_join(
        &self,
        cache: &StateCache,
        kind: Kind,
        name: &Name,
        key: &str,
        token: Option<&Token>,
    ) -> Result<()> {
        let now = self.now();
        if let Some(token) = token {
            if now >= token.expires {
                return Err(Refused::unproven(
                    "the token's time is over: make another with fleetgate token add",
                ));
            }
            if let Some((at, by)) = &token.last {
                return Err(Refused::unproven(format!(
                    "the token was used at {} by {by}: it is good once; make another with fleetgate token add",
                    crate::clock::rfc3339(at * 1000)
                )));
            }
            if let Some(wanted) = token.name.as_ref().filter(|wanted| *wanted != name) {
                return Err(Refused::forbidden(format!(
                    "the token is for the name {wanted}, not for {name}: join with --name {wanted}"
                )));
            }
        }
        self.machine_locked(kind, name, now)?;
        self.free_name(cache, kind, name)?;
        let members = cache.members(kind);
        match members.get(name.as_str()) {
            // The same machine again: after its state was lost in part, or a join whose answer did not arrive.
            Some(known) if known.document.key.as_deref() == Some(key) => Ok(()),
            Some(known) => Err(Refused::exists(format!(
                "the name {name} belongs to another {} with another key since {}: take another name, or, if that one \
                 is gone, remove it first (fleetgate node rm {name})",
                kind.name(),
                crate::clock::rfc3339(known.document.made * 1000)
            ))),
            None if members.len() >= MAX_MEMBERS => Err(Refused::busy(format!(
                "the cluster has {MAX_MEMBERS} machines of this kind, which is the most"
            ))),
            None => Ok(()),
        }
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
    fn machine_locked(&self, kind: Kind, name: &Name, now: u64) -> Result<()> {
        let published = self.published();
        match published.state.locks.on(&target(kind, name), now, u64::MAX) {
            Some(lock) => Err(Refused::forbidden(lock.refusal().words)),
            None => Ok(()),
        }
    }

    /// Newer certificates for a machine that has some: a node's by way of its proxy, or a proxy's own.
    pub async fn renew(&self, caller: &Caller, request: v1::RenewFor) -> Result<v1::Renewed> {
        caller.proxy(self)?;
        match self.renewed(caller, request).await {
            // What the machine is to be told is an answer; what is wrong with the service is not.
            Err(refused) if refused.kind != crate::RefusedKind::Unavailable => Ok(v1::Renewed {
                refused: refused.words,
                ..v1::Renewed::default()
            }),
            other => other,
        }
    }

    async fn renewed(&self, caller: &Caller, request: v1::RenewFor) -> Result<v1::Renewed> {
        let renew = request
            .renew
            .ok_or_else(|| Refused::invalid("nothing to renew was sent"))?;
        let now = self.now();
        let (kind, name, member) = self.member_of(&request.name, &renew.tls_certificate, now)?;
        self.machine_locked(kind, &name, now)?;
        let present = x509::Certificate::read(&renew.tls_certificate).and_then(|c| c.public_key());
        let signs = present.and_then(|key| key.verify(&signed::renew(&renew), &renew.signature));
        signs.map_err(|e| Refused::unproven(format!("the request of {name}: {e}")))?;
        // Behind the signature: nobody else uses up what the machine may.
        self.renewals
            .take(&(kind, name.clone()), self.ledger.uptime())
            .map_err(|seconds| {
                Refused::later(&format!("{name} renews its certificates too often"), seconds)
            })?;
        let public = x509::PublicKey::from_spki(&renew.tls_public)
            .map_err(|e| Refused::invalid(format!("the TLS key: {e}")))?;
        let host_keys = issue::host_keys(&renew.host_keys)?;
        let cluster = self.cluster();
        self.note_time(now).await?;
        let serial = self.cache().last_serial();
        let tls_chain =
            issue::member(&self.signers, &cluster, (kind, &name), public.spki(), now, serial).await?;
        let names = self.host_names(kind, &name);
        let host_certificates = issue::hosts(
            &self.signers,
            &cluster,
            &names,
            &host_keys,
            (now, crate::validity::MEMBER_LIFETIME),
        )
        .await?;
        let key = Pin::of(public.spki()).to_string();
        self.change(|cache| {
            let stored = cache.members(kind).get(name.as_str());
            let stored = stored
                .filter(|s| s.document.key == member.key)
                .ok_or_else(|| gone(&name))?;
            not_ended(cache, kind, &name, serial)?;
            let renewed = Member {
                key: Some(key.clone()),
                host_keys: host_keys.iter().map(PublicKey::line).collect(),
                ..stored.document.clone()
            };
            let event = self
                .event(event::RENEWED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("key", key.as_str());
            let at = member_key(kind, &name);
            let step = match renewed == stored.document {
                true => cache::unchanged(at, Some(stored.revision)),
                false => cache::replace(at, Some(stored.revision), &renewed),
            };
            Ok(Plan::new(()).step(step).event(event))
        })
        .await?;
        Ok(v1::Renewed {
            tls_chain,
            host_certificates,
            refused: String::new(),
        })
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

    /// The machine is none of the cluster's any more; another may have its name. The last proxy goes by force alone.
    pub async fn remove_node(&self, caller: &Caller, name: &str, force: bool) -> Result<()> {
        let name = Name::parse(name).map_err(Refused::invalid)?;
        let millis = self.ledger.millis();
        self.change(|cache| {
            // Nodes first: proxies are few, and few are removed.
            let mut kinds = [Kind::Node, Kind::Proxy].into_iter();
            let found = kinds.find_map(|k| Some((k, cache.members(k).get(name.as_str())?)));
            let (kind, stored) = found.ok_or_else(|| {
                Refused::missing(format!(
                    "there is no node {name}: fleetgate node ls shows those there are"
                ))
            })?;
            if kind == Kind::Proxy && cache.proxies.len() == 1 && !force {
                return Err(Refused::state(format!(
                    "{name} is the cluster's only proxy: without it nobody reaches a node or logs in, and no machine joins. \
                     Let another proxy join first (fleetgate token add --kind proxy), or remove it with --force"
                )));
            }
            let event = self
                .event(event::NODE_REMOVED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("before", member_in_event(&stored.document));
            // Its certificates live on for days. The lock ends its tunnels now, or those that nodes have to it, and lets alone
            // the machine that joins by this name later.
            Ok(Plan::new(())
                .step(Step::remove(member_key(kind, &name), stored.revision))
                .step(end_machine(cache, kind, &name, millis, &caller.by()))
                .publish(cache, millis)
                .event(event))
        })
        .await?;
        self.inventory.forget(name.as_str());
        Ok(())
    }

    /// A plain sshd that trusts the user authority.
    pub async fn register_node(&self, caller: &Caller, request: v1::RegisterNodeRequest) -> Result<v1::Node> {
        let name = Name::parse(&request.name).map_err(Refused::invalid)?;

        let host_keys = issue::host_keys(&request.host_keys)?;
        let member = Member {
            key: None,
            host_keys: host_keys.iter().map(PublicKey::line).collect(),
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

/// A lock on the certificates of a machine that is removed, in a plan that publishes. A later one takes its place.
fn end_machine(cache: &StateCache, kind: Kind, name: &Name, millis: u64, by: &str) -> Step {
    let (id, now) = (removed_id(kind, name), millis / 1000);
    let lock = Lock {
        id: id.clone(),
        target: target(kind, name),
        // Whoever joins behind this change does so by the state that has the lock, or a later one.
        serial_before: Some(cache.next_serial(millis)),
        expires: Some(all_ended(cache, now, crate::validity::MEMBER_LIFETIME)),
        reason: REMOVED.to_owned(),
        created: now,
        by: by.to_owned(),
    };
    cache::put(cache::key(&["locks", id.as_str()]), &lock)
}

/// Refuses a certificate that a removal has ended while it was made.
fn not_ended(cache: &StateCache, kind: Kind, name: &Name, serial: u64) -> Result<()> {
    let ended = cache.locks.get(removed_id(kind, name).as_str());
    match ended.and_then(|lock| lock.document.serial_before) {
        Some(before) if serial < before => Err(Refused::busy(format!(
            "{name} was removed at this very moment: try again"
        ))),
        _ => Ok(()),
    }
}

/// A lock's target that is this machine.
fn target(kind: Kind, name: &Name) -> Target {
    match kind {
        Kind::Node => Target::Node(name.clone()),
        Kind::Proxy => Target::Proxy(name.clone()),
    }
}

/// A node and a proxy that had the same name one after the other have a lock each.
fn removed_id(kind: Kind, name: &Name) -> Name {
    let whole = name.as_str();
    // Of the longest names the end is a digest: two that begin alike have a lock each. It is longer than any that is whole.
    let told = match whole.char_indices().nth(96) {
        None => whole.to_string(),
        Some(_) => {
            let digest = ring::digest::digest(&ring::digest::SHA256, whole.as_bytes());
            let begin: String = whole.chars().take(80).collect();
            let end = fleetgate_policy::text::hex(&digest.as_ref()[..8]);
            format!("{begin}-{end}")
        }
    };
    let word = match kind {
        Kind::Node => "removed",
        Kind::Proxy => "proxy-removed",
    };
    Name::parse(&format!("{word}-{told}")).expect("a name behind a word is one")
}

fn token_gone() -> Refused {
    Refused::unproven("the token was removed: make another with fleetgate token add")
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
    fn machines_whose_long_names_begin_alike_have_a_lock_each() {
        let id = |kind, name: &str| removed_id(kind, &Name::parse(name).expect("a name")).to_string();
        let long = "a".repeat(fleetgate_policy::cluster::MAX_NAME - 1);
        let names = [
            "web1",
            &"a".repeat(96),
            &"a".repeat(97),
            &format!("{long}b"),
            &format!("{long}c"),
        ];
        let ids: std::collections::BTreeSet<String> = [Kind::Node, Kind::Proxy]
            .into_iter()
            .flat_map(|kind| names.map(|name| id(kind, name)))
            .collect();
        assert_eq!(ids.len(), 2 * names.len());
        assert_eq!(id(Kind::Node, "web1"), "removed-web1");
        // No whole name is told like one that was cut.
        let cut = id(Kind::Node, names[3]);
        let alike = cut.strip_prefix("removed-").expect("the word");
        assert_ne!(id(Kind::Node, alike), cut);
    }

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
