//! A cluster made by hand, for tests: its keys, what it signs, and the certificates of its users.
#![allow(missing_docs)]

use crate::cluster::{Cluster, SignedState};
use crate::identity::NodeIdentity;
use fleetgate_policy::cluster::{Identity, Name, Role, SSH_EXTENSION, Selector, State, Subject};
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, KeyType, PrivateKey, PublicKey};

/// The keys of a cluster.
pub struct Hand {
    pub state_key: PrivateKey,
    pub user_ca: PrivateKey,
    pub state: State,
}

pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

pub fn key() -> PrivateKey {
    PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0
}

impl Hand {
    /// The cluster `home`, with no roles.
    #[expect(clippy::new_without_default, reason = "each has other keys")]
    pub fn new() -> Hand {
        let (state_key, user_ca) = (key(), key());
        let mut state = State::new(name("home"));
        (state.serial, state.as_of) = (1, 1000);
        state.trust.state_keys = vec![state_key.public().blob().to_vec()];
        state.trust.user_ca = vec![user_ca.public().blob().to_vec()];
        Hand {
            state_key,
            user_ca,
            state,
        }
    }

    /// With this role of all nodes.
    pub fn with_role(mut self, role: &str, login: &str, change: impl FnOnce(&mut Role)) -> Hand {
        let mut role = Role::new(name(role));
        role.nodes = vec![Selector::all()];
        role.logins = vec![login.to_owned()];
        change(&mut role);
        self.state.roles.insert(role.name.clone(), role);
        self
    }

    /// The state as it is now, signed.
    pub fn signed(&self) -> SignedState {
        sign(&self.state_key, self.state.to_json(), State::signed)
    }

    /// The next state, signed.
    pub fn next(&mut self, change: impl FnOnce(&mut State)) -> SignedState {
        self.state.serial += 1;
        change(&mut self.state);
        self.signed()
    }

    /// The node `web1` in it.
    pub fn cluster(&self) -> Cluster {
        Cluster::new(&joined("home"), self.signed()).expect("a cluster")
    }
}

pub fn joined(cluster: &str) -> NodeIdentity {
    NodeIdentity {
        cluster: cluster.to_owned(),
        node: "web1".to_owned(),
        proxies: vec!["proxy:443".to_owned()],
        tls_chain: Vec::new(),
        host_certificates: Vec::new(),
        labels: Default::default(),
    }
}

pub fn sign(key: &PrivateKey, document: Vec<u8>, with: fn(&[u8]) -> Vec<u8>) -> SignedState {
    let signature = key.sign("ssh-ed25519", &with(&document)).expect("signed");
    SignedState { document, signature }
}

/// A certificate of a user of the cluster, for a key of its own.
pub struct Card {
    pub identity: Identity,
    pub principals: Vec<&'static str>,
    pub until: u64,
    pub extension: bool,
}

impl Card {
    /// `ada` with the role `dev`, logged in at `now`, for an hour.
    pub fn of(now: u64) -> Card {
        let mut identity = Identity::of(&name("home"), Subject::User(name("ada")), now);
        identity.roles = vec![name("dev")];
        Card {
            identity,
            principals: vec!["ada"],
            until: now + 3600,
            extension: true,
        }
    }

    pub fn sign(&self, key: &PublicKey, ca: &PrivateKey) -> Certificate {
        let identity = self.identity.encode();
        let mut extensions: Vec<(&str, &[u8])> = vec![
            ("permit-pty", b""),
            ("permit-port-forwarding", b""),
            ("permit-agent-forwarding", b""),
        ];
        if self.extension {
            extensions.push((SSH_EXTENSION, &identity));
        }
        let draft = Draft {
            kind: CertificateKind::User,
            serial: 7,
            key_id: "ada",
            principals: &self.principals,
            valid_after: 0,
            valid_before: self.until,
            critical: &[],
            extensions: &extensions,
        };
        draft.sign(key, ca).expect("signed")
    }
}
