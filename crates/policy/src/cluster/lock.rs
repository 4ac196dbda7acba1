//! Locks: whoever or whatever one is for comes in nowhere, and is put out where it is. It does not say who may set one.

use super::decide::{Reason, Refusal};
use super::identity::Identity;
use super::name::Name;
use std::collections::BTreeMap;
use std::fmt;

/// The longest reason.
pub const MAX_REASON: usize = 1024;

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its name among locks.
    pub id: Name,
    /// For whom or what.
    pub target: Target,
    /// Only logins that began before this, Unix seconds; none: all.
    pub issued_before: Option<u64>,
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
}

impl Target {
    /// What kind it is: `user`, `node`, `login`, `role` or `device`.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::User(_) => "user",
            Target::Node(_) => "node",
            Target::Login(_) => "login",
            Target::Role(_) => "role",
            Target::Device(_) => "device",
        }
    }

    /// The name it means.
    pub fn name(&self) -> &str {
        match self {
            Target::Login(login) => login,
            Target::User(name) | Target::Node(name) | Target::Role(name) | Target::Device(name) => {
                name.as_str()
            }
        }
    }

    /// From a kind and a name.
    pub fn parse(kind: &str, name: &str) -> Result<Target, String> {
        Ok(match kind {
            "user" => Target::User(Name::parse(name)?),
            "node" => Target::Node(Name::parse(name)?),
            "login" => {
                crate::Login::parse(name.as_bytes())?;
                Target::Login(name.to_string())
            }
            "role" => Target::Role(Name::parse(name)?),
            "device" => Target::Device(Name::parse(name)?),
            _ => {
                return Err(format!(
                    "{:?} cannot be locked: name a user, node, login, role or device",
                    super::name::shown(kind)
                ));
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
    /// Whether it counts now for a login that began then.
    pub fn holds(&self, now: u64, issued: u64) -> bool {
        self.expires.is_none_or(|end| now < end) && self.issued_before.is_none_or(|before| issued < before)
    }

    /// What whoever it is for is told.
    pub fn refusal(&self) -> Refusal {
        let reason = match &self.reason[..] {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let again = match self.issued_before {
            Some(_) => "log in again",
            None => "ask an administrator",
        };
        Refusal {
            reason: Reason::Lock,
            rule: format!("lock {}", self.id),
            words: format!("{} is locked{reason}: {again}", self.target),
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
        let login = Some(Target::Login(login.to_string()));
        let device = identity.device.clone().map(Target::Device);
        let roles = identity.roles.iter().map(|role| Some(Target::Role(role.clone())));
        [user, login, device]
            .into_iter()
            .chain(roles)
            .flatten()
            .find_map(|target| self.on(&target, now, identity.issued))
            .or_else(|| self.on_node(node, now))
    }

    /// The first that holds on a node for whoever comes in. One on certificates of before some time means the node's own,
    /// of a machine that was removed, and not those of its users.
    pub fn on_node(&self, node: &Name, now: u64) -> Option<&Lock> {
        self.on(&Target::Node(node.clone()), now, u64::MAX)
    }

    /// The first that holds on a node or an account, whoever it is that comes in (a key of the node's own: break glass).
    pub fn on(&self, target: &Target, now: u64, issued: u64) -> Option<&Lock> {
        self.by_target
            .get(target)?
            .iter()
            .find(|lock| lock.holds(now, issued))
    }
}

impl FromIterator<Lock> for Locks {
    fn from_iter<I: IntoIterator<Item = Lock>>(locks: I) -> Locks {
        Locks::new(locks)
    }
}
