//! Locks: whoever or whatever one is for comes in nowhere, and is put out where it is. It does not say who may set one.

use super::identity::Identity;
use super::name::Name;
use super::refusal::{Reason, Refusal};
use crate::Invalid;
use crate::account_name::account_and_container;
use crate::text::shortened;
use std::collections::BTreeMap;
use std::fmt;

/// The reason of a lock that a removal makes.
pub const REMOVED: &str = "it was removed";
/// The longest reason.
pub const MAX_REASON: usize = 1024;

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its name among locks.
    pub id: Name,
    /// For whom or what.
    pub target: Target,
    /// Only certificates that were made by a state of before this serial; none: all. Serials, and not times, since clocks are
    /// set: what was issued by a clock that was ahead is earlier all the same.
    pub serial_before: Option<u64>,
    /// Up to when, Unix seconds; none: until it is removed.
    pub expires: Option<u64>,
    /// Why, in words that the user reads.
    pub reason: String,
    /// When it was set, Unix seconds.
    pub created: u64,
    /// Who set it.
    pub by: String,
}

/// For whom or what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A user, everywhere.
    User(Name),
    /// A node, for everybody.
    Node(Name),
    /// An account, on every node.
    Login(String),
    /// Whoever has this role.
    Role(Name),
    /// Whoever uses this device.
    Device(Name),
    /// A proxy: auth answers it nothing, and nodes take nobody in by it.
    Proxy(Name),
    /// This session alone, by its 32 hexadecimal digits. Nothing else is kept out by it.
    Session(String),
}

/// How many hexadecimal digits a session's id has.
pub const SESSION_DIGITS: usize = 32;

impl Target {
    /// What kind it is: `user`, `node`, `login`, `role`, `device`, `proxy` or `session`.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::User(_) => "user",
            Target::Node(_) => "node",
            Target::Login(_) => "login",
            Target::Role(_) => "role",
            Target::Device(_) => "device",
            Target::Proxy(_) => "proxy",
            Target::Session(_) => "session",
        }
    }

    /// The name it means.
    pub fn name(&self) -> &str {
        match self {
            Target::Login(text) | Target::Session(text) => text,
            Target::User(name)
            | Target::Node(name)
            | Target::Role(name)
            | Target::Device(name)
            | Target::Proxy(name) => name.as_str(),
        }
    }

    /// From a kind and a name.
    pub fn parse(kind: &str, name: &str) -> Result<Target, Invalid> {
        Ok(match kind {
            "user" => Target::User(Name::parse(name)?),
            "node" => Target::Node(Name::parse(name)?),
            "login" => {
                crate::AccountName::parse(name.as_bytes())?;
                if name.contains(['*', '?']) {
                    return Err(Invalid(format!(
                        "{:?} is a pattern, and a lock is on one login: that of the account alone, without a container, holds for \
                         all of its containers",
                        shortened(name)
                    )));
                }
                Target::Login(name.to_string())
            }
            "role" => Target::Role(Name::parse(name)?),
            "device" => Target::Device(Name::parse(name)?),
            "proxy" => Target::Proxy(Name::parse(name)?),
            "session" => {
                let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if name.len() != SESSION_DIGITS || !name.bytes().all(is_digit) {
                    return Err(Invalid(format!(
                        "{:?} names no session: it is {SESSION_DIGITS} hexadecimal digits",
                        shortened(name)
                    )));
                }
                Target::Session(name.to_string())
            }
            _ => {
                return Err(Invalid(format!(
                    "{:?} cannot be locked: name a user, node, login, role, device, proxy or session",
                    shortened(kind)
                )));
            }
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

impl Lock {
    /// Whether it counts now for a certificate that was made by the state of this serial.
    pub fn holds(&self, now: u64, serial: u64) -> bool {
        self.expires.is_none_or(|end| now < end) && self.serial_before.is_none_or(|before| serial < before)
    }

    /// What is said of a session that was ended by it.
    pub fn ended(&self) -> String {
        match &self.reason[..] {
            "" => format!("the session was ended by {}", self.by),
            why => format!("the session was ended by {} ({why})", self.by),
        }
    }

    /// What whoever it is for is told.
    pub fn refusal(&self) -> Refusal {
        let reason = match &self.reason[..] {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let words = match (&self.target, self.serial_before) {
            (Target::Session(_), _) => format!("{} is locked{reason}: log in again", self.target),
            (_, None) => format!("{} is locked{reason}: ask an administrator", self.target),
            (Target::Node(_) | Target::Proxy(_), Some(_)) => {
                let again = "join again with a new token (fleetgate token add)";
                format!("{} was removed: {again}", self.target)
            }
            (_, Some(_)) if self.reason == REMOVED => {
                format!("{} was removed: ask an administrator", self.target)
            }
            // It ends earlier logins, and keeps nobody out.
            (_, Some(_)) => format!("the login of {} is over{reason}: log in again", self.target),
        };
        Refusal {
            reason: Reason::Lock,
            rule: format!("lock {}", self.id),
            words,
        }
    }
}

/// All locks, found by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    by_target: BTreeMap<Target, Vec<Lock>>,
    count: usize,
}

impl Locks {
    /// These.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Locks {
        let mut all = Locks::default();
        for lock in locks {
            all.by_target.entry(lock.target.clone()).or_default().push(lock);
            all.count += 1;
        }
        all
    }

    /// All of them, by target.
    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.by_target.values().flatten()
    }

    /// Those on single sessions that hold now.
    pub fn on_sessions(&self, now: u64) -> impl Iterator<Item = (&str, &Lock)> {
        self.iter().filter_map(move |lock| match &lock.target {
            Target::Session(id) if lock.holds(now, u64::MAX) => Some((id.as_str(), lock)),
            _ => None,
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first that holds against this identity as this account on this node. `now` in Unix seconds.
    pub fn against(&self, identity: &Identity, node: &Name, login: &str, now: u64) -> Option<&Lock> {
        let user = identity.user().map(|user| Target::User(user.clone()));
        let [login, account] = logins(login).map(Some);
        let device = identity.device.clone().map(Target::Device);
        let roles = identity.roles.iter().map(|role| Some(Target::Role(role.clone())));
        [user, login, account, device]
            .into_iter()
            .chain(roles)
            .flatten()
            .find_map(|target| self.on(&target, now, identity.serial))
            .or_else(|| self.on_node(node, now))
    }

    /// The first on this login or on its account, whoever comes in.
    pub fn on_login(&self, login: &str, now: u64, serial: u64) -> Option<&Lock> {
        logins(login)
            .iter()
            .find_map(|target| self.on(target, now, serial))
    }

    /// The first that holds against this identity on every node, as whatever account.
    pub fn against_identity(&self, identity: &Identity, now: u64) -> Option<&Lock> {
        let user = identity.user().map(|user| Target::User(user.clone()));
        let device = identity.device.clone().map(Target::Device);
        let roles = identity.roles.iter().map(|role| Some(Target::Role(role.clone())));
        [user, device]
            .into_iter()
            .chain(roles)
            .flatten()
            .find_map(|target| self.on(&target, now, identity.serial))
    }

    /// The first that holds on a node for whoever comes in. One on earlier certificates means the node's own,
    /// of a machine that was removed, and not those of its users.
    pub fn on_node(&self, node: &Name, now: u64) -> Option<&Lock> {
        self.on(&Target::Node(node.clone()), now, u64::MAX)
    }

    /// The first that holds on a node or an account, whoever it is that comes in (a key of the node's own: break glass).
    pub fn on(&self, target: &Target, now: u64, serial: u64) -> Option<&Lock> {
        self.by_target
            .get(target)?
            .iter()
            .find(|lock| lock.holds(now, serial))
    }
}

impl FromIterator<Lock> for Locks {
    fn from_iter<I: IntoIterator<Item = Lock>>(locks: I) -> Locks {
        Locks::new(locks)
    }
}

/// What may be locked of a login: itself, and its account, which a login into a container has, too.
fn logins(login: &str) -> [Target; 2] {
    [login, account_and_container(login).0].map(|name| Target::Login(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_somebody_was_removed_and_what_helps() {
        let user = Target::User(Name::parse("bob").expect("a name"));
        let proxy = Target::Proxy(Name::parse("edge").expect("a name"));
        for (target, reason, serial_before, words) in [
            (
                &user,
                "left",
                None,
                "user bob is locked (left): ask an administrator",
            ),
            (
                &user,
                REMOVED,
                Some(7),
                "user bob was removed: ask an administrator",
            ),
            (
                &user,
                "the account was reset",
                Some(7),
                "the login of user bob is over (the account was reset): log in again",
            ),
            (
                &proxy,
                REMOVED,
                Some(7),
                "proxy edge was removed: join again with a new token (fleetgate token add)",
            ),
        ] {
            let lock = Lock {
                id: Name::parse("l1").expect("a name"),
                target: target.clone(),
                serial_before,
                expires: None,
                reason: reason.to_owned(),
                created: 0,
                by: "ada".to_owned(),
            };
            assert_eq!(lock.refusal().words, words);
        }
    }
}
