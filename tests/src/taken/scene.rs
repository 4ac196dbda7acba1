//! Where attacks happen: two accounts, keys and certificates, files that the thread's own mount table holds. Nobody else
//! sees any of it, and it goes with the thread.

use super::Node;
use crate::login_world::{BASE, sh};
use fleetgate_node::config::{Config, Duration, PamUse};
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, PrivateKey};
use std::path::{Path, PathBuf};

/// Its directory.
pub const DIR: &str = "/run/test";

const SETUP: &str = include_str!("../../scripts/scene.sh");

/// The calling thread's own.
pub struct Scene(());

/// A key, with a certificate or without.
pub struct Key {
    key: PrivateKey,
    certificate: Option<Certificate>,
}

impl Scene {
    /// Makes it. None: this needs root, and the test is skipped.
    pub fn new() -> Option<Scene> {
        if !crate::is_root() {
            crate::skip("accounts of its own need root");
            return None;
        }
        fleetgate_sys::mount::separate().expect("a mount table of its own");
        sh(&format!("{BASE}{SETUP}"));
        Some(Scene(()))
    }

    /// The configuration that attacks are made on, before a test changes it.
    pub fn config(&self) -> Config {
        let dir = Path::new(DIR);
        let mut config = Config {
            host_keys: vec![dir.join("host")],
            trusted_user_ca: Some(dir.join("ca.pub")),
            authorized_keys: Some(true),
            authorized_keys_files: vec![format!("{DIR}/keys/%u")],
            clock_skew: Duration::from_secs(0),
            pam: PamUse::Off,
            state_directory: dir.join("state"),
            runtime_directory: dir.join("runtime"),
            audit_log: dir.join("audit.jsonl"),
            x11_forwarding: true,
            ..Config::default()
        };
        // An attack is to be ended by neither of these: a busy machine takes more than a minute for a flood.
        config.limits.tries = 1_000_000;
        config.limits.login_grace = Duration::from_secs(600);
        config
    }

    /// A monitor with that configuration.
    pub fn node(&self) -> Node {
        Node::start(self.config())
    }

    /// One of the scene's keys.
    pub fn key(&self, name: &str) -> Key {
        Key {
            key: private(&Path::new(DIR).join(name)),
            certificate: None,
        }
    }

    /// A fresh key of ada's with a certificate, made with these words of ssh-keygen's.
    pub fn certified(&self, name: &str, options: &str) -> Key {
        let path = Path::new(DIR).join(name);
        let shown = path.display();
        sh(&format!(
            "cd {DIR}; test -e {shown} || ssh-keygen -q -t ed25519 -N '' -C '' -f {shown}
             ssh-keygen -q -s ca -I {name} -n ada {options} {shown}.pub"
        ));
        let line = std::fs::read_to_string(format!("{shown}-cert.pub")).expect("a certificate");
        Key {
            key: private(&path),
            certificate: Some(Certificate::from_line(&line).expect("a certificate")),
        }
    }

    /// The secret bytes of the host key: its seed.
    pub fn host_secret(&self) -> Vec<u8> {
        let public = private(&Path::new(DIR).join("host")).public().blob().to_vec();
        let mut reader = Reader::new(&public);
        reader.string("type").expect("a key");
        let point = reader.string("point").expect("a key").to_vec();
        let text = std::fs::read_to_string(format!("{DIR}/host")).expect("the key");
        let body: String = text.lines().filter(|line| !line.starts_with("---")).collect();
        let bytes = base64(&body);
        // OpenSSH's format holds the seed right before the second copy of the point.
        let at = bytes.windows(32).rposition(|w| w == point).expect("the point");
        bytes[at - 32..at].to_vec()
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for value in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

fn private(path: &PathBuf) -> PrivateKey {
    PrivateKey::parse(&std::fs::read(path).expect("a key file")).expect("a key")
}

impl Key {
    /// What is shown of it.
    pub fn blob(&self) -> &[u8] {
        match &self.certificate {
            Some(certificate) => certificate.blob(),
            None => self.key.public().blob(),
        }
    }

    /// Until when its certificate is good, in seconds since 1970.
    pub fn valid_before(&self) -> u64 {
        self.certificate.as_ref().expect("it has one").valid_before()
    }

    /// A USERAUTH_REQUEST without a signature: would it do?
    pub fn query(&self, user: &str) -> Vec<u8> {
        Request::query(user.as_bytes(), self.algorithm(), self.blob()).to_vec()
    }

    /// A USERAUTH_REQUEST, signed over this session.
    pub fn request(&self, session_id: &[u8], user: &str) -> Vec<u8> {
        self.signed(session_id, user, None)
    }

    /// The same, bound to a host key.
    pub fn bound_request(&self, session_id: &[u8], user: &str, host_key: &[u8]) -> Vec<u8> {
        self.signed(session_id, user, Some(host_key))
    }

    fn signed(&self, session_id: &[u8], user: &str, host_key: Option<&[u8]>) -> Vec<u8> {
        let (algorithm, key) = (self.algorithm(), self.blob());
        let unsigned = Request::unsigned(session_id, user.as_bytes(), algorithm, key, host_key);
        let signature = self.key.sign("ssh-ed25519", unsigned.to_sign()).expect("signs");
        unsigned.signed(&signature)
    }

    fn algorithm(&self) -> &'static str {
        match &self.certificate {
            Some(_) => "ssh-ed25519-cert-v01@openssh.com",
            None => "ssh-ed25519",
        }
    }
}
