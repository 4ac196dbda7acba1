//! The cluster's state as every proxy and node has it: whom to trust, roles, locks, proxies. Signing it and checking
//! the signature is the owner's business; what is signed is said here.

use super::lock::Locks;
use super::name::Name;
use super::role::Role;
use crate::Invalid;
use std::collections::BTreeMap;

/// What is signed in front of a state's document.
pub const STATE_SIGNED: &[u8] = b"fleetgate-state-v1";
/// What is signed in front of a sign of freshness, so that neither passes for the other.
pub const FRESH_SIGNED: &[u8] = b"fleetgate-fresh-v1";
/// What is signed in front of a receipt for a recording, likewise.
pub const RECEIPT_SIGNED: &[u8] = b"fleetgate-recording-v1";
/// The longest signature of a receipt.
pub const MAX_RECEIPT: usize = 256;
/// The most bytes of a state's document.
pub const MAX_STATE: usize = 16 << 20;
/// The most roles of a cluster.
pub const MAX_CLUSTER_ROLES: usize = 4096;
/// The most locks of a cluster.
pub const MAX_LOCKS: usize = 65_536;
/// The most proxies of a cluster.
pub const MAX_PROXIES: usize = 256;
/// The most authorities of one kind.
pub const MAX_TRUSTED: usize = 16;
/// The most bytes of an authority's key or certificate.
pub const MAX_KEY: usize = 16 * 1024;
/// A state that was last signed so many seconds ago is old: somebody may be withholding a newer one.
pub const STALE: u64 = 300;

/// The cluster's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The cluster's name.
    pub cluster: Name,
    /// Counts up with every change.
    pub serial: u64,
    /// When it was signed, Unix seconds.
    pub as_of: u64,
    /// Whom to trust.
    pub trust: Trust,
    /// All roles.
    pub roles: BTreeMap<Name, Role>,
    /// All locks.
    pub locks: Locks,
    /// Where the proxies are: `host:port`.
    pub proxies: Vec<String>,
}

/// Whom to trust; several of a kind while one takes over from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Who signs users' SSH certificates (SSH key blobs).
    pub user_ca: Vec<Vec<u8>>,
    /// Who signs hosts' SSH certificates (SSH key blobs).
    pub host_ca: Vec<Vec<u8>>,
    /// Who signs TLS certificates (X.509, DER).
    pub tls_ca: Vec<Vec<u8>>,
    /// Who signs the state (SSH key blobs).
    pub state_keys: Vec<Vec<u8>>,
    /// Authorities of the lists above that sign no more: what they signed is to be replaced meanwhile.
    pub retiring: Vec<Retiring>,
}

/// An authority that was replaced, and is trusted for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retiring {
    /// As the list of its kind has it.
    pub authority: Vec<u8>,
    /// Since when it signs no more, Unix seconds.
    pub since: u64,
    /// Until when it is trusted.
    pub until: u64,
}

impl Retiring {
    /// When whoever has a certificate of it asks for one of the next: in the first half of the time, which `place` divides
    /// among all who ask (0 is its beginning).
    #[must_use]
    pub fn due(&self, place: u32) -> u64 {
        let half = u128::from(self.until.saturating_sub(self.since) / 2);
        let part = (half * u128::from(place)) >> 32;
        self.since + u64::try_from(part).unwrap_or(0)
    }
}

/// A sign that a state still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// The state's serial.
    pub serial: u64,
    /// When this was signed, Unix seconds.
    pub as_of: u64,
}

impl State {
    /// One with nothing in it.
    pub fn new(cluster: Name) -> State {
        State {
            cluster,
            serial: 0,
            as_of: 0,
            trust: Trust::default(),
            roles: BTreeMap::new(),
            locks: Locks::default(),
            proxies: Vec::new(),
        }
    }

    /// What is signed for a state's document.
    pub fn signed(document: &[u8]) -> Vec<u8> {
        [STATE_SIGNED, document].concat()
    }

    /// Whether another may take its place: of the same cluster, and not older. Its signature was checked before.
    pub fn follows(&self, new: &State) -> Result<(), Invalid> {
        if new.cluster != self.cluster {
            return Err(Invalid(format!(
                "the state is of the cluster {}, and this machine belongs to {}",
                new.cluster, self.cluster
            )));
        }
        if (new.serial, new.as_of) < (self.serial, self.as_of) {
            return Err(Invalid(format!(
                "the state has the serial {} of {}, and {} of {} is known already: somebody sends an old one",
                new.serial, new.as_of, self.serial, self.as_of
            )));
        }
        Ok(())
    }

    /// Takes note that it still holds.
    pub fn refresh(&mut self, fresh: &Fresh) -> Result<(), Invalid> {
        if fresh.serial != self.serial {
            return Err(Invalid(format!(
                "the sign of freshness is for the serial {}, and the state here has {}",
                fresh.serial, self.serial
            )));
        }
        self.as_of = self.as_of.max(fresh.as_of);
        Ok(())
    }

    /// How many seconds ago it was last signed.
    pub fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.as_of)
    }
}

impl Fresh {
    /// What is signed for its document.
    pub fn signed(document: &[u8]) -> Vec<u8> {
        [FRESH_SIGNED, document].concat()
    }
}

/// That the cluster has a node's recording to its end. Only its signature travels: the node knows the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingReceipt<'a> {
    /// The session.
    pub session: &'a [u8; 16],
    /// So many of the recording's bytes are before the end of a block that its node signed, and `chain` is that block's hash.
    pub length: u64,
    /// The hash covers everything before it.
    pub chain: &'a [u8; 32],
    /// The node that made it.
    pub node: &'a str,
}

impl RecordingReceipt<'_> {
    /// What is signed for it.
    pub fn signed(&self) -> Vec<u8> {
        let length = self.length.to_be_bytes();
        [
            RECEIPT_SIGNED,
            self.session,
            &length,
            self.chain,
            self.node.as_bytes(),
        ]
        .concat()
    }
}
