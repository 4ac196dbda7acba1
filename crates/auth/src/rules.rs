//! Roles and locks: read from what administrators write, kept, and taken back. What they mean is `policy`'s.

use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::secret::fresh_id;
use crate::service::Service;
use crate::users::user_name;
use fleetgate_policy::cluster::{
    Attempt, ContainerLabels, Identity, Lock, MAX_CLUSTER_ROLES, MAX_LOCKS, MAX_REASON, Name, Role, Subject,
    Target, decide, explain, explain_view, logins_of, parse_roles,
};
use fleetgate_policy::text::is_unseen;
use fleetgate_policy::{account_and_container, check_written_login};
use fleetgate_proto::v1;
use fleetgate_store::Step;

/// The most roles of one file: they are changed together.
pub const MAX_ROLES_AT_ONCE: usize = 50;
/// The longest role file.
pub const MAX_ROLE_FILE: usize = 1 << 20;
/// So much of the state may be roles: it goes to every node, which takes [`fleetgate_policy::cluster::MAX_STATE`] at most.
pub const MAX_ROLES_BYTES: usize = 4 << 20;

/// Of what is to be locked: an account's own name, which may have a `+`.
const ACCOUNT: &str = "account";
/// How long a session is ordered to end: nodes that are away for longer go on with it. In seconds.
const SESSION_LOCK: u64 = 86_400;

impl Service {
    /// Makes roles as a file has them.
    pub async fn apply_role(
        &self,
        caller: &Caller,
        request: v1::ApplyRoleRequest,
    ) -> Result<v1::ApplyRoleReply> {
        if request.text.len() > MAX_ROLE_FILE {
            return Err(Refused::invalid(format!(
                "a role file has at most {MAX_ROLE_FILE} bytes"
            )));
        }
        let roles =
            parse_roles("the role file", &request.text).map_err(|e| Refused::invalid(e.to_string()))?;
        if roles.len() > MAX_ROLES_AT_ONCE {
            return Err(Refused::invalid(format!(
                "a role file has at most {MAX_ROLES_AT_ONCE} roles: split it"
            )));
        }
        if roles.is_empty() {
            return Err(Refused::invalid(
                "the role file has no role: it begins with [role.NAME]",
            ));
        }
        if request.dry_run {
            let cache = self.cache();
            return Ok(changes(&cache, &roles));
        }
        self.change(|cache| {
            let reply = changes(cache, &roles);
            let new = reply.changes.iter().filter(|c| c.what == "created").count();
            if cache.roles.len() + new > MAX_CLUSTER_ROLES {
                return Err(Refused::busy(format!(
                    "the cluster would have more than {MAX_CLUSTER_ROLES} roles, which is the most"
                )));
            }
            fits(cache, &roles)?;
            let nothing = reply.changes.iter().all(|c| c.what == "unchanged");
            let mut plan = Plan::new(reply);
            for role in &roles {
                let stored = cache.roles.get(role.name.as_str());
                if stored.is_some_and(|s| s.document == *role) {
                    continue;
                }
                let event = self
                    .event(event::ROLE_APPLIED, caller)
                    .with("role", role.name.as_str());
                let event = match stored {
                    Some(stored) => event.with("before", json(&stored.document)),
                    None => event,
                };
                plan = plan
                    .step(cache::replace(
                        cache::key(&["roles", role.name.as_str()]),
                        stored.map(|s| s.revision),
                        role,
                    ))
                    .event(event.with("after", json(role)));
            }
            Ok(match nothing {
                true => plan,
                false => plan.publish(cache, self.ledger.millis()),
            })
        })
        .await
    }

    /// Removes a role that nobody has.
    pub async fn remove_role(&self, caller: &Caller, name: &str) -> Result<()> {
        let name = Name::parse(name).map_err(Refused::invalid)?;
        self.change(|cache| {
            let stored = cache.roles.get(name.as_str()).ok_or_else(|| {
                Refused::missing(format!(
                    "there is no role {name}: fleetgate role ls shows those there are"
                ))
            })?;
            let held = cache
                .users
                .iter()
                .filter(|(_, u)| u.document.roles.contains(&name));
            let held: Vec<&str> = held.map(|(user, _)| user.as_str()).take(10).collect();
            if !held.is_empty() {
                return Err(Refused::state(format!(
                    "the role {name} is held by {}: give them others first (fleetgate user change)",
                    held.join(", ")
                )));
            }
            let event = self
                .event(event::ROLE_REMOVED, caller)
                .with("role", name.as_str())
                .with("before", json(&stored.document));
            Ok(Plan::new(())
                .step(Step::remove(
                    cache::key(&["roles", name.as_str()]),
                    stored.revision,
                ))
                .publish(cache, self.ledger.millis())
                .event(event))
        })
        .await
    }

    /// All roles.
    pub fn roles(&self) -> v1::RolesReply {
        let cache = self.cache();
        v1::RolesReply {
            roles: cache.roles.values().map(|r| r.document.to_json()).collect(),
        }
    }

    /// What would be decided, and why.
    pub fn test_role(&self, request: &v1::TestRoleRequest) -> Result<v1::TestRoleReply> {
        let user = user_name(&request.user)?;
        let node = Name::parse(&request.node).map_err(Refused::invalid)?;
        let (published, now) = (self.published(), self.now());
        let cache = self.cache();
        let stored = cache
            .users
            .get(user.as_str())
            .ok_or_else(|| crate::users::unknown(&user))?;
        let member = cache.nodes.get(node.as_str()).ok_or_else(|| {
            Refused::missing(format!(
                "there is no node {node}: fleetgate node ls shows those there are"
            ))
        })?;
        let labels = self.inventory.labels(&member.document, node.as_str());
        let identity = Identity {
            cluster: published.state.cluster.clone(),
            subject: Subject::User(user.clone()),
            roles: stored.document.roles.clone(),
            issued: now,
            serial: published.state.serial,
            mfa: Some(now.saturating_sub(request.mfa_age.unwrap_or(0).into())),
            device: request.device.then(|| Name::parse("any").expect("a name")),
            ends: None,
        };
        let roles = self.roles_of(&identity);
        let logins = match request.login.as_str() {
            "" => logins_of(&roles, &user),
            login => vec![login.to_string()],
        };
        let mut reply = v1::TestRoleReply::default();
        if !stored.document.active {
            reply.steps.push(format!(
                "{user} has not accepted the invite yet and cannot log in"
            ));
        }
        for login in &logins {
            let attempt = Attempt {
                identity: &identity,
                expires: None,
                cluster: &published.state.cluster,
                roles: &published.state.roles,
                locks: &published.state.locks,
                node: &node,
                labels: &labels,
                login,
                container: ContainerLabels::Unknown,
                now,
                skew: crate::validity::SKEW,
            };
            reply.allowed |= stored.document.active && decide(&attempt).is_ok();
            reply.steps.push(format!("{user} as {login} on {node}:"));
            reply
                .steps
                .extend(explain(&attempt).into_iter().map(|step| format!("  {step}")));
        }
        if logins.is_empty() {
            reply
                .steps
                .push(format!("{user} has no role that gives a login anywhere"));
        }
        let views: Vec<String> = roles.iter().filter_map(explain_view).collect();
        if !views.is_empty() {
            reply.steps.push(format!("{user} may see recordings:"));
            reply
                .steps
                .extend(views.into_iter().map(|view| format!("  {view}")));
        }
        Ok(reply)
    }

    /// Keeps somebody or something out, everywhere and at once.
    pub async fn add_lock(&self, caller: &Caller, request: v1::AddLockRequest) -> Result<v1::Lock> {
        let target = lock_target(&request.target.unwrap_or_default())?;
        let reason = request.reason.trim();
        if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
            return Err(Refused::invalid(format!(
                "the reason of a lock is one line of at most {MAX_REASON} bytes"
            )));
        }
        let now = self.now();
        let lock = Lock {
            id: Name::parse(&fresh_id()?).map_err(Refused::invalid)?,
            serial_before: None,
            expires: expires(&target, request.lifetime, now),
            target,
            reason: reason.to_string(),
            created: now,
            by: caller.by(),
        };
        self.change(|cache| {
            known(cache, &lock.target)?;
            if cache.locks.len() >= MAX_LOCKS {
                return Err(Refused::busy(format!(
                    "there are {MAX_LOCKS} locks, which is the most: remove some (fleetgate lock rm)"
                )));
            }
            let event = self
                .event(event::LOCK_ADDED, caller)
                .with("lock", lock.id.as_str());
            Ok(Plan::new(lock_shown(&lock))
                .step(cache::create(cache::key(&["locks", lock.id.as_str()]), &lock))
                .publish(cache, self.ledger.millis())
                .event(lock_event(event, &lock).with("after", lock_json(&lock))))
        })
        .await
    }

    /// Lets them in again. The lock of a removal, a reset or a change of roles stays: without it the certificates from
    /// before are good again.
    pub async fn remove_lock(&self, caller: &Caller, id: &str) -> Result<()> {
        self.change(|cache| {
            let stored = cache.locks.get(id).ok_or_else(|| {
                Refused::missing("there is no such lock: fleetgate lock ls shows those there are")
            })?;
            stays(cache, &stored.document)?;
            let event = self.event(event::LOCK_REMOVED, caller).with("lock", id);
            Ok(Plan::new(())
                .step(Step::remove(cache::key(&["locks", id]), stored.revision))
                .publish(cache, self.ledger.millis())
                .event(lock_event(event, &stored.document).with("before", lock_json(&stored.document))))
        })
        .await
    }

    /// All locks.
    pub fn locks(&self) -> v1::LocksReply {
        let cache = self.cache();
        v1::LocksReply {
            locks: cache.locks.values().map(|l| lock_shown(&l.document)).collect(),
        }
    }
}

/// What is to be locked. A container has other names than a login calls it by, so a lock on that login would keep nobody out.
fn lock_target(asked: &v1::LockTarget) -> Result<Target> {
    let kind = match &asked.kind[..] {
        ACCOUNT => "login",
        kind => kind,
    };
    let target = Target::parse(kind, &asked.name).map_err(Refused::invalid)?;
    if let Target::Login(name) = &target {
        lockable(name, asked.kind == ACCOUNT)?;
    }
    match (account_and_container(&asked.name), &target) {
        ((account, Some(container)), Target::Login(_)) if asked.kind != ACCOUNT => {
            Err(Refused::invalid(format!(
                "{:?} leads into a container, which has other names too (its id for one), and a lock on one of them would keep \
                 nobody out: lock the account (--login {account}), which holds for all of its containers, or take {container} from \
                 the roles; if that is the account's own name, say so (--account {})",
                asked.name, asked.name
            )))
        }
        _ => Ok(target),
    }
}

/// Refuses what is no login of anybody's: a lock on it would be listed, and keep nobody out.
fn lockable(login: &str, is_account: bool) -> Result<()> {
    let refuse = |why: &str| {
        Err(Refused::invalid(format!(
            "{login:?} {why}: nobody logs in so, and a lock on it would keep nobody out"
        )))
    };
    if login.chars().any(is_unseen) {
        return refuse("has a character that cannot be seen");
    }
    if login.contains(['{', '}']) {
        return refuse("is a template; lock the role, or each account");
    }
    match check_written_login(login) {
        Ok(()) => Ok(()),
        // Behind the `+` of an account's own name anything may stand.
        Err(_) if is_account && login.trim() == login && !login.starts_with('+') => Ok(()),
        Err(why) => refuse(&format!("is no login ({why})")),
    }
}

/// When a lock ends. One on a session goes by itself: it is of no use once its node has ended the session.
fn expires(target: &Target, lifetime: u32, now: u64) -> Option<u64> {
    match (lifetime, target) {
        (0, Target::Session(_)) => Some(now + SESSION_LOCK),
        (0, _) => None,
        (seconds, _) => Some(now + u64::from(seconds)),
    }
}

/// Refuses to remove a lock that auth made for a removal, a reset or a change of roles. Nobody needs that: a later login or
/// join is not kept out by it.
fn stays(cache: &StateCache, lock: &Lock) -> Result<()> {
    let name = lock.target.name();
    let way_in = match &lock.target {
        Target::User(_) if lock.serial_before.is_some() && !cache.users.contains_key(name) => {
            format!("fleetgate user add {name} lets {name} in again")
        }
        Target::User(_) if lock.serial_before.is_some() => format!(
            "{name} comes in after a new login (fleetgate login; fleetgate user reset {name} makes an invite for it)"
        ),
        Target::Node(_) | Target::Proxy(_) if lock.serial_before.is_some() => {
            "the machine comes in when it joins again (fleetgate token add, fleetgate join)".to_owned()
        }
        Target::Device(_)
            if !cache.devices.contains_key(name) && lock.id.as_str() == format!("removed-{name}") =>
        {
            "its user comes in after a new login, and enrolls the machine anew (fleetgate device enroll)"
                .to_owned()
        }
        _ => return Ok(()),
    };
    let by_itself = lock.expires.map_or_else(String::new, |end| {
        format!("; it goes by itself at {}", crate::clock::rfc3339(end * 1000))
    });
    Err(Refused::state(format!(
        "the lock {} stays: without it the earlier certificates of {} are good again. {way_in}{by_itself}",
        lock.id, lock.target
    )))
}

/// A lock on a name that nobody has is a mistake: whoever was meant stays in.
fn known(cache: &StateCache, target: &Target) -> Result<()> {
    let name = target.name();
    let there = match target {
        Target::User(_) => cache.users.contains_key(name),
        Target::Node(_) => cache.nodes.contains_key(name),
        Target::Role(_) => cache.roles.contains_key(name),
        Target::Device(_) => cache.devices.contains_key(name),
        Target::Proxy(_) => cache.proxies.contains_key(name),
        // Whether there is such a session stands in the audit log alone, which its node hands in later.
        Target::Login(_) | Target::Session(_) => true,
    };
    match there {
        true => Ok(()),
        false => Err(Refused::missing(format!(
            "there is no {target} that could be locked: look at the spelling"
        ))),
    }
}

/// Refuses what would make the state too long for nodes to take.
fn fits(cache: &StateCache, new: &[Role]) -> Result<()> {
    let is_new = |name: &str| new.iter().any(|role| role.name.as_str() == name);
    let others = cache.roles.iter().filter(|(name, _)| !is_new(name.as_str()));
    let all = others.map(|(_, stored)| &stored.document).chain(new);
    let bytes: usize = all.map(|role| role.to_json().len()).sum();
    match bytes <= MAX_ROLES_BYTES {
        true => Ok(()),
        false => Err(Refused::busy(format!(
            "all roles would take {bytes} bytes, and {MAX_ROLES_BYTES} is the most: remove roles, or commands of them"
        ))),
    }
}

fn changes(cache: &StateCache, roles: &[Role]) -> v1::ApplyRoleReply {
    let change = |role: &Role| {
        let what = match cache.roles.get(role.name.as_str()) {
            None => "created",
            Some(stored) if stored.document == *role => "unchanged",
            Some(_) => "changed",
        };
        v1::RoleChange {
            name: role.name.to_string(),
            what: what.to_string(),
        }
    };
    v1::ApplyRoleReply {
        changes: roles.iter().map(change).collect(),
    }
}

fn lock_event(event: crate::audit::Event, lock: &Lock) -> crate::audit::Event {
    match &lock.target {
        Target::User(name) => event.user(name.as_str()),
        Target::Node(name) => event.node(name.as_str()),
        Target::Session(id) => event.with("session", id.as_str()),
        _ => event,
    }
}

fn lock_shown(lock: &Lock) -> v1::Lock {
    v1::Lock {
        id: lock.id.to_string(),
        target: Some(v1::LockTarget {
            kind: lock.target.kind().to_string(),
            name: lock.target.name().to_string(),
        }),
        reason: lock.reason.clone(),
        created: lock.created,
        expires: lock.expires.unwrap_or(0),
        by: lock.by.clone(),
        // For people, who know no serials.
        issued_before: lock.serial_before.map_or(0, |_| lock.created),
    }
}

fn json(role: &Role) -> serde_json::Value {
    serde_json::from_str(&role.to_json()).unwrap_or_default()
}

fn lock_json(lock: &Lock) -> serde_json::Value {
    serde_json::from_str(&lock.to_json()).unwrap_or_default()
}
