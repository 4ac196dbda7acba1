//! The host's keys: found, or made once, at start and reload, and used for nothing but exchanges that the monitor
//! hashed itself and proofs over its own session ids. They leave this process only as public keys.

use crate::Config;
use fleetgate_ssh::codec::Write as _;
use fleetgate_ssh::key::{Certificate, HostKey, KeyError, KeyType};
use fleetgate_ssh::sshsig;
use fleetgate_wire::node::HostKey as OfferedKey;
use std::ffi::CString;
use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The machine's own keys, best first.
const MACHINE: [&str; 3] = [
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_rsa_key",
];
/// The key that is made where there is none, in the state directory.
const OWN: &str = "host_ed25519_key";
/// The longest key file.
const MAX_FILE: u64 = 64 << 10;
/// The most proofs that one request may ask for.
pub const MAX_PROOFS: usize = 2 * MAX_KEYS;
/// The most host keys.
pub const MAX_KEYS: usize = 16;

/// Why there are no host keys. Its text names the file and the remedy.
#[derive(Debug)]
pub enum HostKeyError {
    /// The file cannot be read or written.
    File(PathBuf, std::io::Error),
    /// What is in it is no key.
    Key(PathBuf, KeyError),
    /// More files than keys can be shown.
    TooMany(usize),
}

impl fmt::Display for HostKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostKeyError::File(path, e) => write!(f, "the host key {}: {e}", path.display()),
            HostKeyError::Key(path, e) => write!(f, "the host key {}: {e}", path.display()),
            HostKeyError::TooMany(n) => {
                write!(f, "`host_keys` names {n} files; {MAX_KEYS} can be shown")
            }
        }
    }
}

impl std::error::Error for HostKeyError {}

/// All of them, best first.
#[derive(Debug)]
pub struct HostKeys(Vec<HostKey>);

impl HostKeys {
    /// Those that the configuration names, else the machine's (not without root: they are not to be had), else one of
    /// our own, which is made if need be.
    pub fn load(config: &Config, user_mode: bool) -> Result<HostKeys, HostKeyError> {
        if config.host_keys.len() > MAX_KEYS {
            return Err(HostKeyError::TooMany(config.host_keys.len()));
        }
        if !config.host_keys.is_empty() {
            return config
                .host_keys
                .iter()
                .map(|p| read(p))
                .collect::<Result<_, _>>()
                .map(HostKeys);
        }
        let mut keys = Vec::new();
        for path in MACHINE.iter().map(Path::new).filter(|_| !user_mode) {
            match read(path) {
                Ok(key) => keys.push(key),
                Err(HostKeyError::File(_, e)) if e.kind() == ErrorKind::NotFound => {}
                // One of several that cannot be used is no reason to be without the others.
                Err(e) => tracing::warn!("{e}; it is not shown"),
            }
        }
        if keys.is_empty() {
            keys.push(own(&config.state_directory)?);
        }
        Ok(HostKeys(keys))
    }

    /// With the cluster's certificates for them; one that is for none of them, or wrong, is left out, and told.
    #[must_use]
    pub fn certified(mut self, certificates: &[Vec<u8>]) -> HostKeys {
        for blob in certificates {
            let added = Certificate::parse(blob).map_err(|e| e.to_string()).and_then(|c| {
                let mut keys = self.0.iter_mut();
                let key = keys.find(|key| key.public() == c.key());
                let key = key.ok_or("it is for none of the node's host keys")?;
                key.certify(&c.line()).map_err(|e| e.to_string())
            });
            if let Err(why) = added {
                tracing::warn!("a host certificate of the cluster's is not shown: {why}");
            }
        }
        self
    }

    /// These.
    pub fn of(keys: Vec<HostKey>) -> HostKeys {
        HostKeys(keys)
    }

    /// The public keys, blobs, best first.
    pub fn public(&self) -> Vec<Vec<u8>> {
        self.0.iter().map(|key| key.public().blob().to_vec()).collect()
    }

    /// What clients are shown: certificates before keys.
    pub fn offered(&self) -> Vec<OfferedKey> {
        let mut offered: Vec<OfferedKey> = Vec::new();
        let algorithms = |key: &HostKey, certificate: bool| -> Vec<CString> {
            let is_certificate = |name: &&str| name.contains("-cert-v01@") == certificate;
            let names = key.algorithms().into_iter().filter(is_certificate);
            names.filter_map(|name| CString::new(name).ok()).collect()
        };
        for certificate in [true, false] {
            for key in &self.0 {
                let algorithms = algorithms(key, certificate);
                let blob = algorithms.first().and_then(|a| key.blob(a.to_str().ok()?));
                if let Some(blob) = blob {
                    offered.push(OfferedKey {
                        blob: blob.to_vec(),
                        algorithms,
                    });
                }
            }
        }
        offered
    }

    /// The key that `blob` belongs to under `algorithm`.
    pub fn find(&self, algorithm: &str, blob: &[u8]) -> Option<&HostKey> {
        self.0
            .iter()
            .find(|k| k.algorithms().contains(&algorithm) && k.blob(algorithm) == Some(blob))
    }

    /// The signature that proves one of these keys in session `id` (hostkeys-prove-00@openssh.com, OpenSSH's PROTOCOL).
    /// None: it is not ours.
    pub fn prove(&self, id: &[u8], blob: &[u8]) -> Option<Vec<u8>> {
        let key = self.0.iter().find(|k| k.public().blob() == blob)?;
        let algorithm = key.algorithms().into_iter().find(|a| key.blob(a) == Some(blob))?;
        let mut message = Vec::new();
        message.put_string("hostkeys-prove-00@openssh.com");
        message.put_string(id);
        message.put_string(blob);
        key.sign(algorithm, &message).ok()
    }

    /// A signature over what is said of a recording, as `ssh-keygen -Y sign` makes it; none: there is no key that can.
    pub fn sign_recording(&self, text: &str) -> Option<Vec<u8>> {
        self.0
            .iter()
            .find_map(|key| sshsig::sign(key, RECORDINGS, text.as_bytes()))
    }
}

/// What signatures over recordings are for (`record::signature::NAMESPACE`, which this crate does not need).
const RECORDINGS: &str = "recording@fleetgate";

fn read(path: &Path) -> Result<HostKey, HostKeyError> {
    let failed = |e| HostKeyError::File(path.to_owned(), e);
    let file = OpenOptions::new().read(true).open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    // Room from the start: what a growing buffer leaves behind is not wiped.
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize + 1));
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
    let mut key = HostKey::read(&text, mode).map_err(|e| HostKeyError::Key(path.to_owned(), e))?;
    let mut certificate = path.as_os_str().to_owned();
    certificate.push("-cert.pub");
    let certificate = PathBuf::from(certificate);
    match std::fs::read_to_string(&certificate) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(HostKeyError::File(certificate, e)),
        Ok(line) => key
            .certify(&line)
            .map_err(|e| HostKeyError::Key(certificate, e))?,
    }
    Ok(key)
}

/// The key in the state directory, made at the first start.
fn own(directory: &Path) -> Result<HostKey, HostKeyError> {
    let path = directory.join(OWN);
    match read(&path) {
        Err(HostKeyError::File(_, e)) if e.kind() == ErrorKind::NotFound => {}
        other => return other,
    }
    let failed = |e| HostKeyError::File(path.clone(), e);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    let (key, text) =
        HostKey::generate(KeyType::Ed25519, "fleetgate").map_err(|e| HostKeyError::Key(path.clone(), e))?;
    // Whole or not at all: a half-written key would keep every later start from working.
    let new = directory.join(format!(".{OWN}.{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(failed)?;
    tracing::info!(
        "made a host key, {}: {}",
        key.public().fingerprint(),
        path.display()
    );
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_ssh::key::{PublicKey, verify};

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("fleetgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_key_is_made_once_and_is_nobody_elses() {
        let state = directory("host-key");
        let config = Config {
            state_directory: state.clone(),
            ..Config::default()
        };
        let first = HostKeys::load(&config, true).expect("made").offered();
        let again = HostKeys::load(&config, true).expect("read").offered();
        assert_eq!(first, again);
        assert_eq!(first[0].algorithms, [c"ssh-ed25519".to_owned()]);
        let mode = std::fs::metadata(state.join(OWN)).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(&state).expect("clean");
    }

    #[test]
    fn a_configured_key_that_cannot_be_used_is_an_error_that_names_it() {
        let state = directory("bad-host-key");
        std::fs::create_dir(&state).expect("a fresh directory");
        let path = state.join("key");
        std::fs::write(&path, "no key").expect("write");
        for (path, part) in [(path, "key: "), (state.join("missing"), "missing: ")] {
            let config = Config {
                host_keys: vec![path],
                ..Config::default()
            };
            let error = HostKeys::load(&config, false).expect_err("no key").to_string();
            assert!(error.contains(part), "{error}");
        }
        std::fs::remove_dir_all(&state).expect("clean");
    }

    #[test]
    fn a_proof_is_over_the_session_and_the_key_and_only_for_ours() {
        let (key, _) = HostKey::generate(KeyType::Ed25519, "").expect("key");
        let (other, _) = HostKey::generate(KeyType::Ed25519, "").expect("key");
        let public: PublicKey = key.public().clone();
        let keys = HostKeys::of(vec![key]);
        assert_eq!(keys.prove(b"id", other.public().blob()), None);
        let signature = keys.prove(b"id", public.blob()).expect("ours");
        let message = |id: &[u8]| {
            let mut m = Vec::new();
            m.put_string("hostkeys-prove-00@openssh.com");
            m.put_string(id);
            m.put_string(public.blob());
            m
        };
        assert!(verify(&public, "ssh-ed25519", &message(b"id"), &signature).is_ok());
        assert!(verify(&public, "ssh-ed25519", &message(b"di"), &signature).is_err());
    }
}
