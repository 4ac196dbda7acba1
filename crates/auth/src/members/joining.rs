//! How a machine gets in: with a token, or as the machine that auth itself is on. Its certificates are made first, so that no
//! token is used up for a machine that gets none.

use super::removal::not_ended;
use super::{MAX_MEMBERS, member_key};
use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::documents::{Kind, Member, Token};
use crate::error::{Refused, Result};
use crate::issue;
use crate::ledger::Plan;
use crate::secret::Secret;
use crate::service::Service;
use crate::users::labels;
use fleetgate_net::{Pin, x509};
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1;
use fleetgate_ssh::key::PublicKey;
use serde_json::json;

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
            earlier_host_keys: Vec::new(),
            labels,
            address: None,
            version: request.version.chars().take(MAX_VERSION).collect(),
            made: now,
            token: token.as_ref().map_or(String::new(), |(_, t)| t.id.clone()),
        };
        self.may_join(&self.cache(), kind, &name, &key, token.as_ref().map(|(_, t)| t))?;
        // Certificates first: a token is not burnt for a machine that gets none.
        let certified = self
            .certify_member((kind, &name), &public, &host_keys, now)
            .await?;
        self.change(|cache| {
            let found = match &token {
                Some((hash, _)) => Some((hash, cache.tokens.get(hash).ok_or_else(token_gone)?)),
                None => None,
            };
            self.may_join(cache, kind, &name, &key, found.as_ref().map(|(_, t)| &t.document))?;
            not_ended(cache, kind, &name, certified.serial)?;
            let at = member_key(kind, &name);
            let known = cache.members(kind).get(name.as_str());
            let event = self
                .event(event::JOINED, caller)
                .node(name.as_str())
                .with("kind", kind.name())
                .with("token", member.token.as_str())
                .with("key", key.as_str())
                .with("labels", json!(member.labels));
            // The same machine again, perhaps with other host keys. Where it was removed, nothing of it is known.
            let earlier = known.map(|m| m.document.with_host_keys(member.host_keys.clone(), now));
            let member = Member {
                earlier_host_keys: earlier.map_or_else(Vec::new, |m| m.earlier_host_keys),
                ..member.clone()
            };
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
            tls_chain: certified.tls_chain,
            host_certificates: certified.host_certificates,
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
}

fn token_gone() -> Refused {
    Refused::unproven("the token was removed: make another with fleetgate token add")
}
