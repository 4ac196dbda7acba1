//! The state, locks and signs of freshness as JSON. A field that is not known is skipped in the state itself, so that a
//! newer cluster may say more; in roles and locks it is refused.

use super::forms::Bytes;
use super::role::RoleDocument;
use crate::cluster::{
    Fresh, Lock, Locks, MAX_CLUSTER_ROLES, MAX_LOCKS, MAX_PROXIES, MAX_REASON, MAX_TRUSTED, Name, Retiring,
    State, Target, Trust,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Another number is another form, which this fleetgate must not take for its own.
const VERSION: u32 = 1;
/// The longest `host:port`, name of who set a lock.
const MAX_TEXT: usize = 300;

#[derive(Serialize, Deserialize)]
pub(super) struct StateDocument {
    version: u32,
    cluster: Name,
    serial: u64,
    as_of: u64,
    trust: TrustDocument,
    #[serde(default)]
    roles: Vec<RoleDocument>,
    #[serde(default)]
    locks: Vec<LockDocument>,
    #[serde(default)]
    proxies: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct TrustDocument {
    user_ca: Vec<Bytes>,
    host_ca: Vec<Bytes>,
    tls_ca: Vec<Bytes>,
    state_keys: Vec<Bytes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    retiring: Vec<RetiringDocument>,
}

#[derive(Serialize, Deserialize)]
struct RetiringDocument {
    authority: Bytes,
    since: u64,
    until: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockDocument {
    id: Name,
    target: TargetDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(default)]
    reason: String,
    created: u64,
    #[serde(default)]
    by: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetDocument {
    kind: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FreshDocument {
    serial: u64,
    as_of: u64,
}

impl From<&State> for StateDocument {
    fn from(state: &State) -> StateDocument {
        let bytes = |keys: &[Vec<u8>]| keys.iter().cloned().map(Bytes).collect();
        StateDocument {
            version: VERSION,
            cluster: state.cluster.clone(),
            serial: state.serial,
            as_of: state.as_of,
            trust: TrustDocument {
                user_ca: bytes(&state.trust.user_ca),
                host_ca: bytes(&state.trust.host_ca),
                tls_ca: bytes(&state.trust.tls_ca),
                state_keys: bytes(&state.trust.state_keys),
                retiring: state.trust.retiring.iter().map(RetiringDocument::from).collect(),
            },
            roles: state.roles.values().map(RoleDocument::from).collect(),
            locks: state.locks.iter().map(LockDocument::from).collect(),
            proxies: state.proxies.clone(),
        }
    }
}

impl StateDocument {
    pub(super) fn read(self) -> Result<State, String> {
        if self.version != VERSION {
            return Err(format!(
                "it has the form {}, and this fleetgate reads form {VERSION}: upgrade it",
                self.version
            ));
        }
        bounded("roles", self.roles.len(), MAX_CLUSTER_ROLES)?;
        bounded("locks", self.locks.len(), MAX_LOCKS)?;
        bounded("proxies", self.proxies.len(), MAX_PROXIES)?;
        for proxy in &self.proxies {
            text("the address of a proxy", proxy, MAX_TEXT)?;
        }
        let mut roles = BTreeMap::new();
        for role in self.roles {
            let role = role.named(None)?;
            if let Some(twice) = roles.insert(role.name.clone(), role) {
                return Err(format!("role {} stands there twice", twice.name));
            }
        }
        Ok(State {
            cluster: self.cluster,
            serial: self.serial,
            as_of: self.as_of,
            trust: self.trust.read()?,
            roles,
            locks: self
                .locks
                .into_iter()
                .map(LockDocument::read)
                .collect::<Result<Locks, _>>()?,
            proxies: self.proxies,
        })
    }
}

impl TrustDocument {
    fn read(self) -> Result<Trust, String> {
        let keys = |what: &str, keys: Vec<Bytes>| {
            bounded(what, keys.len(), MAX_TRUSTED)?;
            Ok::<_, String>(keys.into_iter().map(|key| key.0).collect())
        };
        Ok(Trust {
            user_ca: keys("user authorities", self.user_ca)?,
            host_ca: keys("host authorities", self.host_ca)?,
            tls_ca: keys("TLS authorities", self.tls_ca)?,
            state_keys: keys("state keys", self.state_keys)?,
            retiring: {
                bounded("authorities that sign no more", self.retiring.len(), MAX_TRUSTED)?;
                let read = |r: RetiringDocument| Retiring {
                    authority: r.authority.0,
                    since: r.since,
                    until: r.until,
                };
                self.retiring.into_iter().map(read).collect()
            },
        })
    }
}

impl From<&Retiring> for RetiringDocument {
    fn from(retiring: &Retiring) -> RetiringDocument {
        RetiringDocument {
            authority: Bytes(retiring.authority.clone()),
            since: retiring.since,
            until: retiring.until,
        }
    }
}

impl From<&Lock> for LockDocument {
    fn from(lock: &Lock) -> LockDocument {
        LockDocument {
            id: lock.id.clone(),
            target: TargetDocument {
                kind: lock.target.kind().to_string(),
                name: lock.target.name().to_string(),
            },
            serial_before: lock.serial_before,
            expires: lock.expires,
            reason: lock.reason.clone(),
            created: lock.created,
            by: lock.by.clone(),
        }
    }
}

impl LockDocument {
    pub(super) fn read(self) -> Result<Lock, String> {
        let of = |why: String| format!("lock {}: {why}", self.id);
        text("its reason", &self.reason, MAX_REASON).map_err(of)?;
        text("who set it", &self.by, MAX_TEXT).map_err(of)?;
        let target = Target::parse(&self.target.kind, &self.target.name).map_err(|why| of(why.into()))?;
        Ok(Lock {
            target,
            serial_before: self.serial_before,
            expires: self.expires,
            reason: self.reason,
            created: self.created,
            by: self.by,
            id: self.id,
        })
    }
}

impl From<&Fresh> for FreshDocument {
    fn from(fresh: &Fresh) -> FreshDocument {
        FreshDocument {
            serial: fresh.serial,
            as_of: fresh.as_of,
        }
    }
}

impl From<FreshDocument> for Fresh {
    fn from(document: FreshDocument) -> Fresh {
        Fresh {
            serial: document.serial,
            as_of: document.as_of,
        }
    }
}

fn bounded(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count > most {
        return Err(format!("it has {count} {what}, and there is room for {most}"));
    }
    Ok(())
}

/// Text that people are shown: of one line and bounded.
fn text(what: &str, text: &str, most: usize) -> Result<(), String> {
    if text.len() > most {
        return Err(format!("{what} is longer than {most} bytes"));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("{what} has {c:?} in it")),
        None => Ok(()),
    }
}
