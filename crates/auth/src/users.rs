//! Users: added with an invite, which brings them a password and a second factor; reset, changed, removed. Whoever loses
//! a role, a password or the account loses the certificates that were made before.

use crate::audit::event;
use crate::buffers::Line;
use crate::cache::{self, StateCache};
use crate::caller::{Caller, Origin};
use crate::clock_watch::all_ended;
use crate::documents::{Invite, Secrets, User};
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::password;
use crate::secret::Secret;
use crate::service::Service;
use crate::totp::Seed;
use crate::tries;
use fleetgate_net::{Admits, Pin, Ticket, x509};
use fleetgate_policy::cluster::{Lock, MAX_LIFETIME, MAX_ROLES, Name, REMOVED, Target};
use fleetgate_proto::v1;
use fleetgate_store::{Revision, Step};
use serde_json::json;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// The most users. Each has one invite at most, so it bounds those too.
pub const MAX_USERS: usize = 100_000;
/// The longest name of a user: locks and files are named after it.
pub const MAX_USER_NAME: usize = 64;
/// How long an invite is good, unless told.
pub const INVITE: u64 = 86_400;
/// The longest.
pub const MAX_INVITE: u64 = 30 * 86_400;

impl Service {
    /// Adds a user who accepts the invite.
    pub async fn add_user(&self, caller: &Caller, request: v1::AddUserRequest) -> Result<v1::Invite> {
        let name = user_name(&request.name)?;
        let roles = names(&request.roles)?;
        let (invite, secret, seed) = self.draft_invite(&name, request.invite_lifetime)?;
        let now = self.now();
        self.change(|cache| {
            if cache.users.contains_key(name.as_str()) {
                return Err(Refused::exists(format!("there is a user {name} already")));
            }
            if cache.users.len() >= MAX_USERS {
                return Err(Refused::busy(format!(
                    "there are {MAX_USERS} users, which is the most"
                )));
            }
            let user = User {
                roles: roles.clone(),
                active: false,
                made: now,
            };
            let event = self
                .event(event::USER_ADDED, caller)
                .user(name.as_str())
                .with("after", shown(&user));
            Ok(Plan::new(())
                .steps(roles_stay(cache, &roles)?)
                .step(cache::create(cache::key(&["users", name.as_str()]), &user))
                .steps(invite_steps(cache, &name, &invite, &secret, &seed))
                .event(event))
        })
        .await?;
        self.handed_over(&name, &invite, &secret)
    }

    /// Takes password and second factor away; the user accepts a new invite.
    pub async fn reset_user(&self, caller: &Caller, name: &str) -> Result<v1::Invite> {
        let name = user_name(name)?;
        let (invite, secret, seed) = self.draft_invite(&name, 0)?;
        let millis = self.ledger.millis();
        self.change(|cache| {
            let stored = cache.users.get(name.as_str()).ok_or_else(|| unknown(&name))?;
            let user = User {
                active: false,
                ..stored.document.clone()
            };
            let event = self.event(event::USER_RESET, caller).user(name.as_str());
            Ok(Plan::new(())
                .step(cache::replace(
                    cache::key(&["users", name.as_str()]),
                    Some(stored.revision),
                    &user,
                ))
                .step(Step::delete(secrets_key(&name)))
                .steps(tries::forget(cache, &name))
                .steps(invite_steps(cache, &name, &invite, &secret, &seed))
                .step(end_certificates(
                    cache,
                    &name,
                    millis,
                    "the account was reset",
                    &caller.by(),
                ))
                .publish(cache, millis)
                .event(event))
        })
        .await?;
        self.handed_over(&name, &invite, &secret)
    }

    /// Gives a user these roles instead of the present ones.
    pub async fn change_user(&self, caller: &Caller, request: v1::ChangeUserRequest) -> Result<v1::User> {
        let name = user_name(&request.name)?;
        let roles = names(&request.roles)?;
        let millis = self.ledger.millis();
        self.change(|cache| {
            let stored = cache.users.get(name.as_str()).ok_or_else(|| unknown(&name))?;
            let user = User {
                roles: roles.clone(),
                ..stored.document.clone()
            };
            let event = self
                .event(event::USER_CHANGED, caller)
                .user(name.as_str())
                .with("before", shown(&stored.document))
                .with("after", shown(&user));
            let plan = Plan::new(())
                .steps(roles_stay(cache, &roles)?)
                .step(cache::replace(
                    cache::key(&["users", name.as_str()]),
                    Some(stored.revision),
                    &user,
                ));
            let plan = match stored.document.roles == roles {
                true => plan,
                false => plan
                    .step(end_certificates(
                        cache,
                        &name,
                        millis,
                        "the roles were changed",
                        &caller.by(),
                    ))
                    .publish(cache, millis),
            };
            Ok(plan.event(event))
        })
        .await?;
        let cache = self.cache();
        let stored = cache.users.get(name.as_str()).ok_or_else(|| unknown(&name))?;
        Ok(self.user_shown(&name, &stored.document))
    }

    /// Removes a user with everything that is his.
    pub async fn remove_user(&self, caller: &Caller, name: &str) -> Result<()> {
        let name = user_name(name)?;
        let millis = self.ledger.millis();
        self.change(|cache| {
            let stored = cache.users.get(name.as_str()).ok_or_else(|| unknown(&name))?;
            let devices = cache.devices.iter().filter(|(_, d)| d.document.user == name);
            let devices = devices.map(|(id, d)| Step::remove(cache::key(&["devices", id]), d.revision));
            let event = self
                .event(event::USER_REMOVED, caller)
                .user(name.as_str())
                .with("before", shown(&stored.document));
            Ok(Plan::new(())
                .step(Step::remove(
                    cache::key(&["users", name.as_str()]),
                    stored.revision,
                ))
                .step(Step::delete(secrets_key(&name)))
                .steps(tries::forget(cache, &name))
                .steps(devices)
                .steps(no_invites(cache, &name))
                .step(end_certificates(cache, &name, millis, REMOVED, &caller.by()))
                .publish(cache, millis)
                .event(event))
        })
        .await
    }

    /// All users.
    pub fn users(&self) -> v1::UsersReply {
        let cache = self.cache();
        let users = cache.users.iter().filter_map(|(name, stored)| {
            let name = Name::parse(name).ok()?;
            Some(self.user_shown(&name, &stored.document))
        });
        v1::UsersReply {
            users: users.collect(),
        }
    }

    /// What an invite is for, and the second factor that it begins. It changes nothing, however often it is asked.
    pub async fn begin_invite(&self, caller: &Caller, secret: &str) -> Result<v1::BeginInviteReply> {
        let (hash, _, invite) = self.guess_invite(caller, secret).await?;
        let seed = self.invite_seed(&hash).await?;
        Ok(v1::BeginInviteReply {
            otpauth: seed
                .otpauth(self.cluster().as_str(), invite.user.as_str())
                .to_string(),
            user: invite.user.to_string(),
        })
    }

    /// Ends an invite: from now on the user can log in.
    pub async fn accept_invite(
        &self,
        caller: &Caller,
        request: v1::AcceptInviteRequest,
    ) -> Result<v1::AcceptInviteReply> {
        let password = Zeroizing::new(request.password);
        let (hash, at, invite) = self.guess_invite(caller, &request.secret).await?;
        let user = invite.user;
        password::check(&password, user.as_str()).map_err(|e| Refused::invalid(e.to_string()))?;
        let seed = self.invite_seed(&hash).await?;
        let Some(used) = seed.step(&request.code, self.now(), 0) else {
            return Err(Refused::invalid(
                "the code is wrong: add the QR code to your authenticator, compare this machine's clock, and type the \
                 code that it shows now",
            ));
        };
        let password = self
            .passwords
            .keep(password, Line::Source(caller.source()))
            .await?;
        // The login that follows at once may show the same code, once: the invite is gone, and the next code is half a
        // minute away.
        let used = used.saturating_sub(1);
        let secrets = Secrets { password, seed, used };
        let (revision, active) = {
            let cache = self.cache();
            let stored = cache.users.get(user.as_str()).ok_or_else(no_invite)?;
            let active = User {
                active: true,
                ..stored.document.clone()
            };
            (stored.revision, active)
        };
        let mut steps = vec![
            Step::remove(cache::key(&["invites", &hash]), at),
            Step::delete(invite_seed_key(&hash)),
            cache::replace(cache::key(&["users", user.as_str()]), Some(revision), &active),
            cache::put(secrets_key(&user), &secrets),
        ];
        steps.extend(self.succeeded(&user, &Origin::of(caller), caller));
        let event = self.event(event::INVITE_ACCEPTED, caller).user(user.as_str());
        match self.ledger.attempt(steps, vec![event]).await? {
            true => Ok(v1::AcceptInviteReply {
                user: user.to_string(),
            }),
            false => Err(no_invite()),
        }
    }

    /// The invite of somebody who may guess no more often than others.
    async fn guess_invite(&self, caller: &Caller, secret: &str) -> Result<(String, Revision, Invite)> {
        match self.guess(caller).and_then(|()| self.invite(secret)) {
            Ok(invite) => Ok(invite),
            Err(refused) => {
                let event = self.event(event::INVITE_REFUSED, caller);
                Err(self.refuse(caller, false, event, refused).await)
            }
        }
    }

    fn invite(&self, secret: &str) -> Result<(String, Revision, Invite)> {
        let hash = Secret::parse(secret).ok_or_else(no_invite)?.hash();
        let cache = self.cache();
        let stored = cache.invites.get(&hash).ok_or_else(no_invite)?;
        if self.now() >= stored.document.expires {
            return Err(Refused::unproven(
                "the invite's time is over: ask an administrator for another (fleetgate user reset)",
            ));
        }
        Ok((hash, stored.revision, stored.document.clone()))
    }

    async fn invite_seed(&self, hash: &str) -> Result<Seed> {
        let stored = self.ledger.secret::<Seed>(&invite_seed_key(hash)).await?;
        stored.map(|s| s.document).ok_or_else(no_invite)
    }

    fn draft_invite(&self, user: &Name, lifetime: u32) -> Result<(Invite, Secret, Seed)> {
        let lifetime = match u64::from(lifetime) {
            0 => INVITE,
            seconds if seconds <= MAX_INVITE => seconds,
            _ => return Err(Refused::invalid("an invite is good for 30 days at most")),
        };
        let invite = Invite {
            user: user.clone(),
            expires: self.now() + lifetime,
        };
        Ok((invite, Secret::fresh()?, Seed::fresh()?))
    }

    fn handed_over(&self, user: &Name, invite: &Invite, secret: &Secret) -> Result<v1::Invite> {
        Ok(v1::Invite {
            user: user.to_string(),
            text: self.ticket(Admits::User, secret)?,
            expires: invite.expires,
        })
    }

    /// What is handed over: whom to believe, and the secret.
    pub(crate) fn ticket(&self, admits: Admits, secret: &Secret) -> Result<String> {
        let pin = self.pin()?;
        let ticket =
            Ticket::new(admits, pin, &secret.text()).map_err(|e| Refused::unavailable(e.to_string()))?;
        Ok(ticket.text().to_string())
    }

    /// The hash of the TLS authority that signs now.
    pub(crate) fn pin(&self) -> Result<Pin> {
        let published = self.published();
        let first = published.state.trust.tls_ca.first();
        let certificate = first.and_then(|der| x509::Certificate::read(der).ok());
        certificate
            .map(|c| c.pin())
            .ok_or_else(|| Refused::unavailable("the store has no TLS authority: restore a backup"))
    }

    fn user_shown(&self, name: &Name, user: &User) -> v1::User {
        let published = self.published.borrow();
        // A lock on older certificates alone keeps nobody out.
        let locked = published.state.locks.iter().any(|lock| {
            lock.target == Target::User(name.clone())
                && lock.serial_before.is_none()
                && lock.holds(self.now(), 0)
        });
        let state = match (locked, user.active) {
            (true, _) => "locked",
            (false, true) => "active",
            (false, false) => "invited",
        };
        v1::User {
            name: name.to_string(),
            roles: user.roles.iter().map(Name::to_string).collect(),
            state: state.to_string(),
            created: user.made,
        }
    }
}

/// A user's name as somebody wrote it.
pub fn user_name(text: &str) -> Result<Name> {
    let name = Name::parse(text).map_err(Refused::invalid)?;
    if name.as_str().len() > MAX_USER_NAME {
        return Err(Refused::invalid(format!(
            "the name of a user has at most {MAX_USER_NAME} characters"
        )));
    }
    Ok(name)
}

/// There is no such user.
pub fn unknown(name: &Name) -> Refused {
    Refused::missing(format!(
        "there is no user {name}: fleetgate user ls shows those there are"
    ))
}

/// Where a user's secrets stand.
pub fn secrets_key(name: &Name) -> fleetgate_store::Key {
    cache::key(&["secrets", "users", name.as_str()])
}

/// A lock on the certificates that a user has now, in a plan that publishes. A later one takes its place, and it goes when none
/// of them can be left.
pub fn end_certificates(cache: &StateCache, user: &Name, millis: u64, why: &str, by: &str) -> Step {
    let (id, now) = (format!("changed-{user}"), millis / 1000);
    let lock = Lock {
        id: Name::parse(&id).expect("a user's name is short enough"),
        target: Target::User(user.clone()),
        // Whoever logs in behind this change does so by the state that has the lock, or a later one.
        serial_before: Some(cache.next_serial(millis)),
        expires: Some(all_ended(cache, now, MAX_LIFETIME.as_secs())),
        reason: why.to_string(),
        created: now,
        by: by.to_string(),
    };
    cache::put(cache::key(&["locks", &id]), &lock)
}

/// That these roles are there, and stay until the change is done.
fn roles_stay(cache: &StateCache, roles: &[Name]) -> Result<Vec<Step>> {
    let check = |role: &Name| {
        let stored = cache.roles.get(role.as_str()).ok_or_else(|| {
            Refused::missing(format!(
                "there is no role {role}: fleetgate role ls shows those there are"
            ))
        })?;
        let at = cache::key(&["roles", role.as_str()]);
        Ok(cache::unchanged(at, Some(stored.revision)))
    };
    roles.iter().map(check).collect()
}

fn names(roles: &[String]) -> Result<Vec<Name>> {
    if roles.len() > MAX_ROLES {
        return Err(Refused::invalid(format!("a user has at most {MAX_ROLES} roles")));
    }
    let mut names: Vec<Name> = roles
        .iter()
        .map(|role| Name::parse(role).map_err(Refused::invalid))
        .collect::<Result<_>>()?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// The user's one invite; those before are gone.
fn invite_steps(cache: &StateCache, user: &Name, invite: &Invite, secret: &Secret, seed: &Seed) -> Vec<Step> {
    let hash = secret.hash();
    let mut steps = no_invites(cache, user);
    steps.push(cache::create(cache::key(&["invites", &hash]), invite));
    steps.push(cache::create(invite_seed_key(&hash), seed));
    steps
}

fn no_invites(cache: &StateCache, user: &Name) -> Vec<Step> {
    let of_user = cache.invites.iter().filter(|(_, i)| i.document.user == *user);
    of_user
        .flat_map(|(hash, _)| {
            [
                Step::delete(cache::key(&["invites", hash])),
                Step::delete(invite_seed_key(hash)),
            ]
        })
        .collect()
}

/// Where the second factor of an invite stands.
pub fn invite_seed_key(hash: &str) -> fleetgate_store::Key {
    cache::key(&["secrets", "invites", hash])
}

fn no_invite() -> Refused {
    Refused::unproven(
        "the invite is not known: it was used, a newer one took its place, or it is not whole; ask an administrator for \
         another (fleetgate user reset)",
    )
}

fn shown(user: &User) -> serde_json::Value {
    let roles: Vec<&str> = user.roles.iter().map(Name::as_str).collect();
    json!({ "roles": roles, "active": user.active })
}

/// Labels as they came, within their bounds.
pub fn labels(given: &std::collections::HashMap<String, String>) -> Result<BTreeMap<String, String>> {
    let pairs = given.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    let labels = fleetgate_policy::cluster::Labels::of(pairs).map_err(Refused::invalid)?;
    Ok(labels
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect())
}
