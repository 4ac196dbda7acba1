//! Replacing authorities without joining anybody again. The next one is trusted before it signs: until every node has the
//! state that names it, or at most a quarter of the grace period. Then it signs, the one before is trusted until the grace
//! period is over, its private key is gone at once, and at last it is trusted no more.
//!
//! Nothing tells a plain sshd about the next user authority, and nobody could log in there when it signed. So where one is
//! registered it signs only after an administrator has said that it may.

use crate::audit::event;
use crate::authorities::{self, Life, fingerprint, make, public_key, secret_key};
use crate::cache::{self, StateCache, Stored};
use crate::caller::Caller;
use crate::documents::{Authority, Phase, Purpose};
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::service::Service;
use crate::validity::MEMBER_LIFETIME;
use fleetgate_policy::text::span;
use fleetgate_proto::v1;
use fleetgate_store::Step;
use serde_json::json;

/// Seconds that the next one is trusted at least before it signs: for those who watch.
pub const SETTLE: u64 = 5;
/// The longest that nodes are waited for that do not say that they know it.
pub const MAX_SETTLE: u64 = 86_400;
/// The longest grace period.
pub const MAX_GRACE: u64 = 366 * 86_400;
/// The most sshds that are named.
const SHOWN_SSHDS: usize = 8;

impl Service {
    /// All authorities.
    pub fn authorities(&self) -> v1::AuthoritiesReply {
        let cache = self.cache();
        let all = Purpose::ALL.into_iter().flat_map(|purpose| {
            cache
                .authorities_of(purpose)
                .map(|stored| shown(&cache, purpose, &stored.document))
                .collect::<Vec<_>>()
        });
        v1::AuthoritiesReply {
            authorities: all.collect(),
            done: Vec::new(),
        }
    }

    /// Begins to replace the authorities of these purposes. What is being replaced already is over sooner, if a grace period
    /// is named, or waits for plain sshds no longer.
    pub async fn rotate(&self, caller: &Caller, request: v1::RotateRequest) -> Result<v1::AuthoritiesReply> {
        let purposes = match request.kind.as_str() {
            "all" => Purpose::ALL.to_vec(),
            kind => vec![Purpose::parse(kind).ok_or_else(|| {
                Refused::invalid("an authority is \"user\", \"host\", \"tls\", \"state\" or \"all\"")
            })?],
        };
        let (cluster, now, millis) = (self.cluster(), self.now(), self.ledger.millis());
        let wanted = u64::from(request.grace);
        if wanted > MAX_GRACE {
            return Err(Refused::invalid("a grace period is a year at most"));
        }
        let done = self
            .change(|cache| {
                let mut plan = Plan::new(Vec::new());
                let (serial, mut is_new) = (cache.next_serial(millis), false);
                for &purpose in &purposes {
                    let mut all = cache.authorities_of(purpose);
                    if let Some(stored) = all.find(|s| s.document.phase != Phase::Active) {
                        let before = &stored.document;
                        if wanted == 0 && !request.sshds_ready {
                            return Err(runs(cache, purpose, before, now));
                        }
                        let after = changed(before, &request, now);
                        if after == *before {
                            continue;
                        }
                        plan.answer.push(told(cache, purpose, &after));
                        let event = self
                            .event(event::AUTHORITY_CHANGED, caller)
                            .with("kind", purpose.name())
                            .with("before", in_event(purpose, before))
                            .with("after", in_event(purpose, &after));
                        let at = public_key(purpose, &after.id);
                        plan = plan
                            .step(cache::replace(at, Some(stored.revision), &after))
                            .event(event);
                        // Machines renew what it signed before its new end.
                        is_new |= after.phase == Phase::Retired;
                        continue;
                    }
                    let grace = match wanted {
                        0 => lives(cache, purpose),
                        wanted => wanted,
                    };
                    let life = Life {
                        phase: Phase::Next,
                        made: now,
                        until: Some(now + settles(grace)),
                        grace,
                        since: serial,
                        sshds_ready: request.sshds_ready,
                    };
                    let (next, steps) = make(purpose, &cluster, life)?;
                    let event = self
                        .event(event::AUTHORITY_NEXT, caller)
                        .with("kind", purpose.name())
                        .with("after", in_event(purpose, &next));
                    plan.answer.push(told(cache, purpose, &next));
                    plan = plan.steps(steps).event(event);
                    is_new = true;
                }
                match plan.answer.is_empty() {
                    true => Err(Refused::state(
                        "this changes nothing: what is being replaced is over before that. See fleetgate ca status",
                    )),
                    false if is_new => Ok(plan.publish(cache, millis)),
                    false => Ok(plan),
                }
            })
            .await?;
        Ok(v1::AuthoritiesReply {
            done,
            ..self.authorities()
        })
    }

    /// Takes rotations on as far as it is time.
    pub(crate) async fn turn_authorities(&self) -> Result<()> {
        for purpose in Purpose::ALL {
            if self.due(&self.cache(), purpose) {
                self.take_on(purpose).await?;
            }
        }
        Ok(())
    }

    fn due(&self, cache: &StateCache, purpose: Purpose) -> bool {
        let mut all = cache.authorities_of(purpose).map(|s| &s.document);
        all.any(|authority| self.turns(cache, purpose, authority))
    }

    fn turns(&self, cache: &StateCache, purpose: Purpose, authority: &Authority) -> bool {
        let now = self.now();
        let over = authority.until.is_some_and(|until| now >= until) && self.is_clock_steady();
        match authority.phase {
            Phase::Active => false,
            Phase::Retired => over,
            Phase::Next if waits(cache, purpose, authority).is_some() => false,
            Phase::Next => {
                let settled = now >= authority.made + SETTLE;
                over || settled && self.inventory.all_have(cache, authority.since)
            }
        }
    }

    async fn take_on(&self, purpose: Purpose) -> Result<()> {
        let (now, millis) = (self.now(), self.ledger.millis());
        let event = |name| crate::audit::Event::new(name, millis).with("kind", purpose.name());
        self.ledger
            .change(|cache| {
                let mut plan = Plan::new(());
                let all: Vec<&Stored<Authority>> = cache.authorities_of(purpose).collect();
                let mut turned = all.iter().filter(|s| self.turns(cache, purpose, &s.document));
                let Some(stored) = turned.next() else {
                    return Ok(plan);
                };
                let authority = &stored.document;
                if authority.phase == Phase::Retired {
                    return Ok(plan
                        .step(Step::remove(public_key(purpose, &authority.id), stored.revision))
                        .step(Step::delete(secret_key(purpose, &authority.id)))
                        .event(event(event::AUTHORITY_REMOVED).with("before", in_event(purpose, authority)))
                        .publish(cache, millis));
                }
                let before = authorities::active(cache, purpose)?;
                let retired = Authority {
                    phase: Phase::Retired,
                    until: Some(now + authority.grace),
                    grace: authority.grace,
                    ..before.document.clone()
                };
                let active = Authority {
                    phase: Phase::Active,
                    until: None,
                    grace: 0,
                    sshds_ready: false,
                    ..authority.clone()
                };
                plan = plan
                    .step(cache::replace(
                        public_key(purpose, &retired.id),
                        Some(before.revision),
                        &retired,
                    ))
                    .step(Step::delete(secret_key(purpose, &retired.id)))
                    .step(cache::replace(
                        public_key(purpose, &active.id),
                        Some(stored.revision),
                        &active,
                    ))
                    .event(
                        event(event::AUTHORITY_ACTIVE)
                            .with("before", in_event(purpose, &retired))
                            .with("after", in_event(purpose, &active)),
                    );
                Ok(plan.publish(cache, millis))
            })
            .await
    }
}

/// How long what this authority signs may live: so long it has to be trusted after it signed last.
fn lives(cache: &StateCache, purpose: Purpose) -> u64 {
    let roles = cache.roles.values().map(|r| r.document.limits.lifetime.as_secs());
    let users = roles.max().unwrap_or(0).max(12 * 3600);
    match purpose {
        Purpose::User => users,
        Purpose::Host => MEMBER_LIFETIME,
        Purpose::Tls => MEMBER_LIFETIME.max(users),
        Purpose::State => 86_400,
    }
}

/// How long the next one is trusted before it signs.
fn settles(grace: u64) -> u64 {
    (grace / 4).clamp(SETTLE, MAX_SETTLE)
}

/// One that is being replaced, after a request while it is.
fn changed(before: &Authority, request: &v1::RotateRequest, now: u64) -> Authority {
    let mut after = before.clone();
    let is_next = before.phase == Phase::Next;
    after.sshds_ready |= request.sshds_ready && is_next;
    let grace = u64::from(request.grace);
    if grace > 0 {
        let wanted = now + if is_next { settles(grace) } else { grace };
        after.until = before.until.map(|until| until.min(wanted));
        after.grace = before.grace.min(grace);
    }
    after
}

fn runs(cache: &StateCache, purpose: Purpose, authority: &Authority, now: u64) -> Refused {
    if let Some(waits) = waits(cache, purpose, authority) {
        return Refused::state(waits);
    }
    let left = match authority.phase {
        Phase::Next => authority.grace,
        _ => 0,
    };
    Refused::state(format!(
        "the {} authority is being replaced already, until {} at the latest: wait for that, or end it sooner with --grace",
        purpose.name(),
        crate::clock::rfc3339((authority.until.unwrap_or(now) + left) * 1000)
    ))
}

/// What was done with this one.
fn told(cache: &StateCache, purpose: Purpose, authority: &Authority) -> String {
    let until = crate::clock::rfc3339(authority.until.unwrap_or_default() * 1000);
    let kind = purpose.name();
    match authority.phase {
        Phase::Next if waits(cache, purpose, authority).is_some() => format!(
            "the next {kind} authority is trusted; once it signs, the one before is trusted for {}",
            span(authority.grace)
        ),
        Phase::Next => format!(
            "the next {kind} authority signs from {until} on at the latest; the one before is trusted for {} after that",
            span(authority.grace)
        ),
        _ => format!(
            "the {kind} authority of before is trusted until {until}; the one that signs now stays: to replace it too, run \
             this again after that"
        ),
    }
}

/// What has to be done before the next one signs: plain sshds have no other way to learn it.
fn waits(cache: &StateCache, purpose: Purpose, authority: &Authority) -> Option<String> {
    if purpose != Purpose::User || authority.phase != Phase::Next || authority.sshds_ready {
        return None;
    }
    let plain = || {
        cache
            .nodes
            .iter()
            .filter(|(_, member)| member.document.key.is_none())
    };
    let names: Vec<&str> = plain().take(SHOWN_SSHDS).map(|(name, _)| name.as_str()).collect();
    let more = match plain().count() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "the next user authority waits for the plain sshds {}{more}: write what `fleetgate ca show user` prints to the \
             TrustedUserCAKeys file of each, then run `fleetgate ca rotate user --sshds-ready`",
            names.join(", ")
        )
    })
}

fn shown(cache: &StateCache, purpose: Purpose, authority: &Authority) -> v1::Authority {
    v1::Authority {
        kind: purpose.name().to_string(),
        phase: authority.phase.name().to_string(),
        fingerprint: fingerprint(purpose, authority),
        until: authority.until.unwrap_or(0),
        waits: waits(cache, purpose, authority).unwrap_or_default(),
        public: match purpose {
            Purpose::Tls => pem(&authority.public),
            _ => authority.public.clone(),
        },
    }
}

/// RFC 7468, of base64 in one line.
fn pem(base64: &str) -> String {
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for (at, c) in base64.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            out.push('\n');
        }
        out.push(c);
    }
    out.push_str("\n-----END CERTIFICATE-----\n");
    out
}

fn in_event(purpose: Purpose, authority: &Authority) -> serde_json::Value {
    json!({
        "phase": authority.phase.name(),
        "fingerprint": fingerprint(purpose, authority),
        "until": authority.until.map(|t| crate::clock::rfc3339(t * 1000)),
    })
}
