//! The node's part of its cluster: the signed state, the node's labels, and the decision about each login. What proxies
//! and the tunnel bring is believed for its signature alone; a state that is older than what is known is refused.

mod error;
mod login;
mod signed;

pub use error::ClusterError;
pub use login::ClusterLogin;
pub use signed::{MAX_SIGNED, SignedState, StateChange, StateFiles, StateWriter};

use crate::Config;
use crate::identity::NodeIdentity;
use fleetgate_net::x509::Certificate;
use fleetgate_policy::cluster::{
    Allowed, Attempt, ContainerLabels, Fresh, Identity, Labels, Lock, Name, RecordingReceipt, RecordingRight,
    Refusal, STALE, State, Target, ViewAttempt, ViewedSession, decide, may_see,
};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{PublicKey, verify};
use std::path::Path;

/// A node in its cluster.
#[derive(Debug)]
pub struct Cluster {
    node: Name,
    state: State,
    signed: SignedState,
    user_cas: Vec<PublicKey>,
    labels: Labels,
    /// By the state of which serial the machine's certificate was made. None: it cannot be read.
    serial: Option<u64>,
    /// Somebody was told that the state is old.
    stale: bool,
}

/// Whose receipts for this node's recordings count.
#[derive(Clone, Debug)]
pub struct ReceiptKeys {
    node: Name,
    keys: Vec<Vec<u8>>,
}

impl ReceiptKeys {
    /// Whether the cluster says by this signature that it has this node's recording of a session, up to a block that ends at
    /// one of these places with that hash. An error is a sentence for the log.
    pub fn check(
        &self,
        session: &[u8; 16],
        ends: &[(u64, [u8; 32])],
        signature: &[u8],
    ) -> Result<(), ClusterError> {
        if signature.is_empty() {
            return Err(ClusterError(
                "there is no receipt of the cluster's with it".to_owned(),
            ));
        }
        let is_of = |(length, chain): &(u64, [u8; 32])| {
            let receipt = RecordingReceipt {
                session,
                length: *length,
                chain,
                node: self.node.as_str(),
            };
            is_signed(&self.keys, &receipt.signed(), signature).is_ok()
        };
        match ends.iter().any(is_of) {
            true => Ok(()),
            false => Err(ClusterError(
                "the receipt with it is of another recording, or of a key that the known state does not name"
                    .to_owned(),
            )),
        }
    }
}

/// What came of a state that was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is the one that is known, perhaps signed anew.
    None,
    /// It took the place of the one before: logins that are open are to be looked at again.
    State,
}

impl Cluster {
    /// What `fleetgate join` left below the state directory; none: the machine did not join.
    pub fn load(config: &Config) -> Result<Option<Cluster>, ClusterError> {
        let Some(joined) = NodeIdentity::load(&config.state_directory).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let Some(signed) = SignedState::load(&config.state_directory)? else {
            return Err(ClusterError(format!(
                "this machine joined the cluster {}, and its state is missing in {}: join again",
                joined.cluster,
                config.state_directory.display()
            )));
        };
        let mut cluster = Cluster::new(&joined, signed)?;
        // One that is damaged, or of an earlier state, says nothing: the next comes within a minute.
        if let Ok(Some(fresh)) = SignedState::load_fresh(&config.state_directory) {
            let _ = cluster.receive_fresh(&fresh.document, &fresh.signature);
        }
        // The token's last: they are the administrator's who made it, as auth and the proxies have them.
        for (key, value) in config.labels.iter().chain(&joined.labels) {
            cluster
                .labels
                .set(key, value)
                .map_err(|why| format!("`labels`: {why}"))?;
        }
        Ok(Some(cluster))
    }

    /// A node that joined, with a state that was believed before: it is signed by a key of its own list.
    pub fn new(joined: &NodeIdentity, signed: SignedState) -> Result<Cluster, ClusterError> {
        let node = Name::parse(&joined.node)?;
        let state = State::parse_json(&signed.document)?;
        if state.cluster.as_str() != joined.cluster {
            return Err(ClusterError(format!(
                "the state is of the cluster {}, and this machine joined {}: join again",
                state.cluster, joined.cluster
            )));
        }
        is_signed(
            &state.trust.state_keys,
            &State::signed(&signed.document),
            &signed.signature,
        )?;
        let user_cas = authorities(&state)?;
        Ok(Cluster {
            node,
            state,
            signed,
            user_cas,
            labels: Labels::new(),
            serial: serial(joined),
            stale: false,
        })
    }

    /// A state that a proxy sent. An error is a sentence for the log; what was known stays.
    pub fn receive_state(&mut self, document: &[u8], signature: &[u8]) -> Result<Change, ClusterError> {
        is_signed(&self.state.trust.state_keys, &State::signed(document), signature)?;
        let state = State::parse_json(document)?;
        self.state.follows(&state)?;
        let change = match state.serial == self.state.serial {
            true => Change::None,
            false => Change::State,
        };
        self.user_cas = authorities(&state)?;
        self.state = state;
        self.signed = SignedState {
            document: document.to_vec(),
            signature: signature.to_vec(),
        };
        Ok(change)
    }

    /// A sign that the state still holds.
    pub fn receive_fresh(&mut self, document: &[u8], signature: &[u8]) -> Result<(), ClusterError> {
        is_signed(&self.state.trust.state_keys, &Fresh::signed(document), signature)?;
        let fresh = Fresh::parse_json(document)?;
        Ok(self.state.refresh(&fresh)?)
    }

    /// Who says that this node's recordings are kept, as is known now.
    pub fn receipts(&self) -> ReceiptKeys {
        ReceiptKeys {
            node: self.node.clone(),
            keys: self.state.trust.state_keys.clone(),
        }
    }

    /// The node's name.
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// The state that is known.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The same as it was signed.
    pub fn signed(&self) -> &SignedState {
        &self.signed
    }

    /// The node's labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Other labels.
    pub fn set_labels(&mut self, labels: Labels) {
        self.labels = labels;
    }

    /// Another value for a label; whether it is another.
    pub fn set_label(&mut self, key: &str, value: &str) -> Result<bool, ClusterError> {
        let is_other = self.labels.get(key) != Some(value);
        self.labels.set(key, value)?;
        Ok(is_other)
    }

    /// Whether this CA signs the cluster's users.
    pub fn is_user_ca(&self, key: &PublicKey) -> bool {
        self.user_cas.contains(key)
    }

    /// Whether somebody with a verified certificate may log in as `login` now (Unix seconds). `expires`: the
    /// certificate's end. `container`: what is known of the container that the login leads into.
    pub fn decide_login(
        &self,
        identity: &Identity,
        expires: Option<u64>,
        login: &str,
        container: ContainerLabels<'_>,
        now: u64,
        skew: u64,
    ) -> Result<Allowed, Refusal> {
        decide(&Attempt {
            identity,
            expires,
            cluster: &self.state.cluster,
            roles: &self.state.roles,
            locks: &self.state.locks,
            node: &self.node,
            labels: &self.labels,
            login,
            container,
            now,
            skew,
        })
    }

    /// Whether somebody with a verified certificate has this right about a session of `owner`'s here as `login`, now (Unix
    /// seconds). `expires`: the certificate's end.
    pub fn may_see(
        &self,
        (identity, expires): (&Identity, Option<u64>),
        right: RecordingRight,
        (owner, login): (Option<&str>, &str),
        (now, skew): (u64, u64),
    ) -> Result<(), Refusal> {
        may_see(&ViewAttempt {
            identity,
            expires,
            cluster: &self.state.cluster,
            machine: &self.node,
            roles: &self.state.roles,
            locks: &self.state.locks,
            right,
            session: Some(ViewedSession {
                owner: owner.unwrap_or_default(),
                node: self.node.as_str(),
                labels: Some(&self.labels),
                login,
            }),
            now,
            skew,
        })
        .map(drop)
    }

    /// The lock that holds against whoever it is that logs in here as `login`: this node's or the account's.
    pub fn locked(&self, login: &str, now: u64) -> Option<&Lock> {
        let locks = &self.state.locks;
        // A login without the cluster's identity is no earlier than any, for all that is known of it.
        let account = || locks.on_login(login, now, u64::MAX);
        locks.on_node(&self.node, now).or_else(account)
    }

    /// Whether this machine was removed from the cluster after it joined. Its certificate is void then, and it has to join
    /// again; a machine of the same name that joined since is not meant.
    pub fn is_removed(&self, now: u64) -> bool {
        self.removal(now).is_some()
    }

    /// The lock by which it was.
    pub fn removal(&self, now: u64) -> Option<&Lock> {
        let node = Target::Node(self.node.clone());
        let of_older_certificates = |lock: &&Lock| {
            lock.target == node
                && lock.serial_before.is_some()
                && self.serial.is_some_and(|serial| lock.holds(now, serial))
        };
        self.state.locks.iter().find(of_older_certificates)
    }

    /// How many seconds ago the state was last signed.
    pub fn age(&self, now: u64) -> u64 {
        self.state.age(now)
    }

    /// What is to be said of the state's age, once each time it becomes old or new again.
    pub fn grows_old(&mut self, now: u64) -> Option<String> {
        let age = self.age(now);
        let is_old = age > STALE;
        if is_old == self.stale {
            return None;
        }
        self.stale = is_old;
        Some(match is_old {
            true => stale_words(age),
            false => "the cluster's state is up to date again".to_owned(),
        })
    }
}

/// What is said of a state that is too old.
pub fn stale_words(age: u64) -> String {
    format!(
        "the cluster's state was last signed {age} s ago: no proxy can be reached, or somebody withholds a newer one; \
         locks and roles are as they were then"
    )
}

/// What is said of a machine that was removed.
pub fn removed_words(node: &str, cluster: &str) -> String {
    format!(
        "this node was removed from the cluster: join again with a new token (fleetgate join); it was {node} in {cluster}"
    )
}

/// Whether the cluster that this machine joined removed it, as far as the machine has heard.
pub fn is_removed(state_directory: &Path, now: u64) -> bool {
    let config = Config {
        state_directory: state_directory.to_owned(),
        ..Config::default()
    };
    matches!(Cluster::load(&config), Ok(Some(cluster)) if cluster.is_removed(now))
}

/// Whether this state is of the cluster whose state stands below the state directory: a key that that one names signed it.
pub fn is_of_the_same(state_directory: &Path, signed: &SignedState) -> bool {
    let Ok(Some(known)) = SignedState::load(state_directory) else {
        return false;
    };
    State::parse_json(&known.document).is_ok_and(|known| {
        let message = State::signed(&signed.document);
        is_signed(&known.trust.state_keys, &message, &signed.signature).is_ok()
    })
}

fn serial(joined: &NodeIdentity) -> Option<u64> {
    let leaf = Certificate::read(joined.tls_chain.first()?).ok()?;
    Some(leaf.identity().ok()??.serial)
}

fn authorities(state: &State) -> Result<Vec<PublicKey>, String> {
    let read = |blob: &Vec<u8>| {
        PublicKey::parse(blob).map_err(|e| format!("a user authority of the cluster's state: {e}"))
    };
    state.trust.user_ca.iter().map(read).collect()
}

/// Whether one of these keys signed it.
fn is_signed(keys: &[Vec<u8>], message: &[u8], signature: &[u8]) -> Result<(), ClusterError> {
    let name = Reader::new(signature)
        .text("algorithm")
        .map_err(|e| format!("the state's signature: {e}"))?;
    let by = |blob: &Vec<u8>| {
        PublicKey::parse(blob).is_ok_and(|key| verify(&key, name, message, signature).is_ok())
    };
    match keys.iter().any(by) {
        true => Ok(()),
        false => Err(ClusterError(
            "the state is not signed by a key that the known one names: it is forged, or this machine \
                      missed a change of keys; join again"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;
