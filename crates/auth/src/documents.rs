//! What the store holds, as JSON under keys:
//!
//! | key | holds |
//! |---|---|
//! | `/cluster` | [`Cluster`]: the name, the address that users and nodes dial |
//! | `/serial` | [`Serial`]: the number of the signed state |
//! | `/users/NAME` | [`User`] |
//! | `/roles/NAME`, `/locks/ID` | `policy`'s documents |
//! | `/invites/HASH`, `/tokens/HASH` | [`Invite`], [`Token`], by the hash of their secret |
//! | `/devices/ID` | [`Device`] |
//! | `/members/KIND/NAME` | [`Member`]: a node or proxy that joined, or a plain sshd |
//! | `/authorities/KIND/ID` | [`Authority`]: what is public of it |
//! | `/tries/NAME/ORIGIN` | [`Tries`]: logins that failed, by where they came from, so that a restart forgives nothing |
//! | `/known/NAME` | [`Known`]: sources that the user has logged in from |
//! | `/seen/SHARD` | when nodes were last heard of, 64 shards, written every 30 s |
//! | `/outbox/TIME-ID` | an audit event that was made with the change it tells of, until it is in the audit log |
//! | `/secrets/users/NAME` | [`Secrets`]: password hash, second factor |
//! | `/secrets/invites/HASH` | the second factor that an invite begins |
//! | `/secrets/authorities/KIND/ID` | a private key |
//!
//! Private keys stand in the store and not in files beside it, so that a rotation is one transaction and a backup is
//! whole; the store's directory (0700) and file (0600) protect them. What is below `/secrets/` is read when it is needed:
//! it is in no copy in memory, no answer and no event. Nothing here talks to the store.

use fleetgate_policy::cluster::{Lock, Name, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: Name,
    /// When it was made, Unix seconds.
    pub made: u64,
    /// Where its proxies are, `host:port`.
    pub proxies: Vec<String>,
}

/// The number of the signed state. It grows by at least one with each change and is at least the change's time in
/// milliseconds, so that a backup that is restored goes on above what was published after it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serial {
    /// The number.
    pub serial: u64,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// What roles.
    pub roles: Vec<Name>,
    /// Whether an invite was accepted; before that nobody can log in.
    pub active: bool,
    /// When it was added, Unix seconds.
    pub made: u64,
}

/// What is secret about a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Secrets {
    /// Of the password.
    pub password: crate::password::Kept,
    /// Of the second factor.
    pub seed: crate::totp::Seed,
    /// The last step of it that was used.
    pub used: u64,
}

/// An invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// For whom.
    pub user: Name,
    /// Unix seconds.
    pub expires: u64,
}

/// What joins by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A node.
    Node,
    /// A proxy.
    Proxy,
}

/// A join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its name for people.
    pub id: String,
    /// What may join by it.
    pub kind: Kind,
    /// Unix seconds.
    pub expires: u64,
    /// As often as wanted until then; otherwise once.
    pub reusable: bool,
    /// The only name; none: any that is free.
    pub name: Option<Name>,
    /// Labels that whoever joins by it has, whatever it says of itself.
    pub labels: BTreeMap<String, String>,
    /// When it was used up, and by whom; it is kept until its time is over, so that whoever comes second is told. How
    /// often a reusable one was used is counted among those who joined by it, so that many can join at once.
    pub last: Option<(u64, String)>,
}

/// A user's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Whose.
    pub user: Name,
    /// Its name for people.
    pub name: String,
    /// Its key, as in authorized_keys.
    pub key: String,
    /// By an administrator.
    pub approved: bool,
    /// When it was enrolled, Unix seconds.
    pub made: u64,
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The hash of its TLS key, by which it is known again; none: a plain sshd, which has none.
    pub key: Option<String>,
    /// Its host keys, as in authorized_keys; of a plain sshd: empty, where a host certificate is wanted of it.
    pub host_keys: Vec<String>,
    /// Those that it had before, the last ones first: they signed recordings that auth may not have yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_host_keys: Vec<EarlierKey>,
    /// Labels that it has, whatever it says of itself.
    pub labels: BTreeMap<String, String>,
    /// Where a plain sshd listens.
    pub address: Option<String>,
    /// What it said of itself when it joined.
    pub version: String,
    /// When it joined, Unix seconds.
    pub made: u64,
    /// By which token.
    pub token: String,
}

/// A host key that a machine has no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierKey {
    /// As in authorized_keys.
    pub key: String,
    /// Since when it is not the machine's, Unix seconds.
    pub until: u64,
}

impl EarlierKey {
    /// A recording that it signed is taken in until then.
    fn counts_until(&self) -> u64 {
        self.until.saturating_add(TAKEN_IN)
    }
}

/// The most of them that are kept of a machine: as many as it can have at once.
const MAX_EARLIER: usize = 8;
/// For so long (seconds) a recording that one of them signed is taken in: its node may have been away, or a session gone on whose
/// monitor began with it.
const TAKEN_IN: u64 = 30 * 86_400;

impl Member {
    /// The same machine with these host keys from now on.
    #[must_use]
    pub fn with_host_keys(&self, host_keys: Vec<String>, now: u64) -> Member {
        let is_gone = |key: &String| !host_keys.contains(key);
        let replaced = self.host_keys.iter().filter(|key| is_gone(key));
        let replaced = replaced.map(|key| EarlierKey {
            key: key.clone(),
            until: now,
        });
        let before = self
            .earlier_host_keys
            .iter()
            .filter(|earlier| is_gone(&earlier.key));
        Member {
            earlier_host_keys: replaced.chain(before.cloned()).take(MAX_EARLIER).collect(),
            host_keys,
            ..self.clone()
        }
    }

    /// The keys that may have signed a recording of the machine's which comes now.
    pub fn keys_of_recordings(&self, now: u64) -> impl Iterator<Item = &String> {
        let earlier = self.earlier_host_keys.iter();
        let counts = move |earlier: &&EarlierKey| now < earlier.counts_until();
        self.host_keys
            .iter()
            .chain(earlier.filter(counts).map(|earlier| &earlier.key))
    }

    /// When the next of those keys counts no more, Unix seconds.
    pub fn next_key_to_go(&self, now: u64) -> Option<u64> {
        let ends = self.earlier_host_keys.iter().map(EarlierKey::counts_until);
        ends.filter(|end| now < *end).min()
    }

    /// The keys that may have signed a recording of the machine's which auth has.
    pub fn keys_of_kept_recordings(&self) -> Vec<String> {
        let earlier = self.earlier_host_keys.iter().map(|earlier| &earlier.key);
        self.host_keys.iter().chain(earlier).cloned().collect()
    }
}

/// A certificate authority, or the state's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Which it is of its kind.
    pub id: String,
    /// How far its life is.
    pub phase: Phase,
    /// When it was made, Unix seconds.
    pub made: u64,
    /// Of the next one: when it takes over at the latest. Of a retired one: when it stops being trusted.
    pub until: Option<u64>,
    /// Of the next one: how long the one before is trusted after that.
    pub grace: u64,
    /// The serial of the first state that names it.
    pub since: u64,
    /// Of the next user authority: it signs whether or not plain sshds trust it, since an administrator said so.
    #[serde(default)]
    pub sshds_ready: bool,
    /// An SSH key as in authorized_keys, or base64 of a certificate (DER).
    pub public: String,
}

/// How far an authority's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Trusted, and does not sign yet.
    Next,
    /// Signs.
    Active,
    /// Trusted until its time is over, and signs no more.
    Retired,
}

/// Sources that a user has logged in from, the last one first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The sources.
    pub sources: Vec<KnownSource>,
}

/// A source that a user has logged in from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSource {
    /// An address; of IPv6 its /64.
    pub source: String,
    /// When the last login was, Unix seconds.
    pub last: u64,
}

/// Logins of one user from one origin that failed one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// How many.
    pub failed: u32,
    /// When the last was, Unix seconds.
    pub last: u64,
}

/// What an authority is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Users' SSH certificates.
    User,
    /// Hosts' SSH certificates.
    Host,
    /// TLS certificates.
    Tls,
    /// The state.
    State,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 4] = [Purpose::User, Purpose::Host, Purpose::Tls, Purpose::State];

    /// In keys and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::User => "user",
            Purpose::Host => "host",
            Purpose::Tls => "tls",
            Purpose::State => "state",
        }
    }

    /// By its name.
    pub fn parse(name: &str) -> Option<Purpose> {
        Purpose::ALL.into_iter().find(|p| p.name() == name)
    }
}

impl Phase {
    /// In answers.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Next => "next",
            Phase::Active => "active",
            Phase::Retired => "retired",
        }
    }
}

impl Kind {
    /// In keys and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Proxy => "proxy",
        }
    }

    /// By its name.
    pub fn parse(name: &str) -> Option<Kind> {
        [Kind::Node, Kind::Proxy].into_iter().find(|k| k.name() == name)
    }
}

/// What can stand in the store: text that is read back as it was written.
pub trait Document: Sized {
    /// As it is stored.
    fn write(&self) -> Vec<u8>;
    /// As it was stored.
    fn read(bytes: &[u8]) -> Result<Self, String>;
}

macro_rules! documents {
    ($($name:ty),*) => {$(
        impl Document for $name {
            fn write(&self) -> Vec<u8> {
                serde_json::to_vec(self).expect("documents are of maps with text keys, lists, numbers and text")
            }

            fn read(bytes: &[u8]) -> Result<Self, String> {
                serde_json::from_slice(bytes).map_err(|e| e.to_string())
            }
        }
    )*};
}

documents!(crate::totp::Seed, Cluster, Serial, User, Secrets, Invite, Token, Device, Member, Authority, Tries, Known, BTreeMap<String, u64>);

impl Document for Role {
    fn write(&self) -> Vec<u8> {
        self.to_json().into_bytes()
    }

    fn read(bytes: &[u8]) -> Result<Role, String> {
        Role::parse_json(bytes).map_err(|e| e.to_string())
    }
}

impl Document for Lock {
    fn write(&self) -> Vec<u8> {
        self.to_json().into_bytes()
    }

    fn read(bytes: &[u8]) -> Result<Lock, String> {
        Lock::parse_json(bytes).map_err(|e| e.to_string())
    }
}
