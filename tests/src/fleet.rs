//! A cluster made by hand, beside a node that joined it: its keys, the state that it signs, the certificates that it gives.
//! It decides nothing: what is allowed is for the node to find out.

use fleetgate_net::testing::Cluster as Tls;
use fleetgate_net::x509::Key;
use fleetgate_node::config::cluster::SignedState;
use fleetgate_node::identity::{NodeIdentity, save_tls_key};
use fleetgate_policy::cluster::{
    Identity, Lock, Locks, Name, Role, SSH_EXTENSION, Selector, State, Subject, Target,
};
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, KeyType, PrivateKey, PublicKey};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The state directory of the node that joined.
pub const STATE: &str = "/run/test/state";

/// A cluster.
pub struct Fleet {
    /// Signs the state.
    pub state_key: PrivateKey,
    /// Signs users.
    pub user_ca: PrivateKey,
    /// Signs hosts.
    pub host_ca: PrivateKey,
    /// As it is now.
    pub state: State,
}

/// What a user's certificate shall say.
pub struct Card {
    /// Who.
    pub identity: Identity,
    /// The logins in it.
    pub principals: Vec<&'static str>,
    /// When it ends, Unix seconds.
    pub until: u64,
}

/// A name that is one.
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a good name")
}

/// Unix seconds.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// A key of its own.
pub fn key() -> PrivateKey {
    PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0
}

/// A public key from its file.
pub fn public(path: &str) -> PublicKey {
    let line = std::fs::read_to_string(path).expect("the world's");
    PublicKey::from_line(line.trim()).expect("a key")
}

impl Fleet {
    /// The cluster `home`.
    pub fn new() -> Fleet {
        let (state_key, user_ca, host_ca) = (key(), key(), key());
        let mut state = State::new(name("home"));
        (state.serial, state.as_of) = (1, now());
        state.trust.state_keys = vec![state_key.public().blob().to_vec()];
        state.trust.user_ca = vec![user_ca.public().blob().to_vec()];
        state.trust.host_ca = vec![host_ca.public().blob().to_vec()];
        Fleet {
            state_key,
            user_ca,
            host_ca,
            state,
        }
    }

    /// A role on these nodes.
    pub fn role(&mut self, role: &str, nodes: &str, logins: &[&str], change: impl FnOnce(&mut Role)) {
        let mut role = Role::new(name(role));
        role.nodes = vec![Selector::parse(nodes).expect("a selector")];
        role.logins = logins.iter().map(|login| login.to_string()).collect();
        change(&mut role);
        self.state.roles.insert(role.name.clone(), role);
    }

    /// What a node `web1` that joined has on its disk.
    pub fn join(&self) {
        let tls = Tls::new();
        let credentials = Key::generate();
        let names = ["web1.node.fleetgate".to_owned()];
        let identity = Identity::of(&name("home"), Subject::Node(name("web1")), now());
        let leaf = tls.authority.issue(&fleetgate_net::x509::Leaf {
            public: credentials.public().spki(),
            names: &names,
            client: true,
            server: true,
            identity: Some(&identity),
            validity: now() - 60..now() + 3600,
        });
        let host = Draft {
            kind: CertificateKind::Host,
            serial: 1,
            key_id: "web1",
            principals: &["web1", "gate"],
            valid_after: 0,
            valid_before: now() + 3600,
            critical: &[],
            extensions: &[],
        };
        let host = host.sign(&public("/run/test/host_ed25519.pub"), &self.host_ca);
        let joined = NodeIdentity {
            cluster: "home".into(),
            node: "web1".into(),
            // The discard port of this world's own network: nobody is there.
            proxies: vec!["127.0.0.1:9".into()],
            tls_chain: vec![leaf.expect("a leaf")],
            host_certificates: vec![host.expect("signed").blob().to_vec()],
            labels: Default::default(),
        };
        joined.save(Path::new(STATE)).expect("written");
        save_tls_key(Path::new(STATE), credentials.pkcs8()).expect("written");
        self.publish();
    }

    /// The next state, on the node's disk.
    pub fn next(&mut self, change: impl FnOnce(&mut State)) {
        change(&mut self.state);
        self.state.serial += 1;
        self.publish();
    }

    /// Locks these, and nothing else.
    pub fn lock(&mut self, targets: impl IntoIterator<Item = Target>) {
        let lock = |(i, target): (usize, Target)| Lock {
            id: name(&format!("l{i}")),
            target,
            serial_before: None,
            expires: None,
            reason: "left".into(),
            created: now(),
            by: "root".into(),
        };
        let locks: Locks = targets.into_iter().enumerate().map(lock).collect();
        self.next(|state| state.locks = locks);
    }

    fn publish(&self) {
        let document = self.state.to_json();
        let signed = SignedState {
            signature: self
                .state_key
                .sign("ssh-ed25519", &State::signed(&document))
                .expect("signed"),
            document,
        };
        signed.save(Path::new(STATE)).expect("written");
    }

    /// A certificate for `key`, by the user CA.
    pub fn card(&self, card: &Card, key: &PublicKey) -> Certificate {
        card.sign(key, &self.user_ca)
    }
}

impl Default for Fleet {
    fn default() -> Fleet {
        Fleet::new()
    }
}

impl Card {
    /// `ada`, with these roles and a fresh second factor, for an hour.
    pub fn of(roles: &[&str]) -> Card {
        let mut identity = Identity::of(&name("home"), Subject::User(name("ada")), now());
        identity.roles = roles.iter().map(|role| name(role)).collect();
        identity.mfa = Some(now());
        Card {
            identity,
            principals: vec!["ada", "root"],
            until: now() + 3600,
        }
    }

    /// The same, changed.
    pub fn with(mut self, change: impl FnOnce(&mut Card)) -> Card {
        change(&mut self);
        self
    }

    /// By any CA.
    pub fn sign(&self, key: &PublicKey, ca: &PrivateKey) -> Certificate {
        let identity = self.identity.encode();
        let extensions: [(&str, &[u8]); 6] = [
            (SSH_EXTENSION, &identity),
            ("permit-X11-forwarding", b""),
            ("permit-agent-forwarding", b""),
            ("permit-port-forwarding", b""),
            ("permit-pty", b""),
            ("permit-user-rc", b""),
        ];
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
