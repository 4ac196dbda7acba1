//! Who this proxy is: what `fleetgate init` or `join` puts into its state directory, and what each renewal and each new
//! state writes anew. Files are their owner's alone, and written whole or not at all. Whether a state is signed rightly
//! is asked in `cluster`.
//!
//! ```text
//! STATE_DIRECTORY/tls.key    its TLS key, PKCS #8, DER
//!                 tls.chain  its certificate and the authority above it: each its length (4 bytes) and DER
//!                 ssh.key    its SSH key; made at the first start
//!                 ssh.cert   the host certificate for it, a blob
//!                 state      the newest signed state, as the wire has it
//! ```

use crate::ServerError;
use crate::audit::spool;
use crate::files::{read, replace};
use crate::state::View;
use fleetgate_base::own;
use fleetgate_net::Credentials;
use fleetgate_net::x509::{self, Key};
use fleetgate_policy::cluster::{MAX_STATE, Name, Subject};
use fleetgate_proto::v1::Signed;
use fleetgate_ssh::key::{Certificate, HostKey, KeyType};
use prost::Message;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

const KEY: &str = "tls.key";
const CHAIN: &str = "tls.chain";
const SSH: &str = "ssh.key";
const SSH_CERTIFICATE: &str = "ssh.cert";
const STATE: &str = "state";
/// The longest of the small files.
const FILE_MAX: usize = 1 << 20;
/// The longest state, with its signature.
const STATE_MAX: usize = MAX_STATE + (64 << 10);

/// Who this proxy is.
#[derive(Clone)]
pub struct Identity {
    /// Its name in the cluster.
    pub name: Name,
    /// What it signs audit events and renewals with.
    pub key: Arc<Key>,
    /// What it shows.
    pub credentials: Credentials,
    /// The text of its SSH key.
    ssh: Arc<Zeroizing<Vec<u8>>>,
    /// The certificate for that, if it has one.
    pub host_certificate: Option<Certificate>,
}

/// Makes this state directory a proxy's. `chain` is DER, the leaf first.
pub fn install<C: AsRef<[u8]>>(
    directory: &Path,
    key: &Key,
    chain: impl IntoIterator<Item = C>,
    state: &Signed,
) -> Result<(), ServerError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| format!("{}: {e}", directory.display()))?;
    if !is_of_the_same(directory, state) {
        spool::put_aside(directory)?;
    }
    replace(&directory.join(KEY), key.pkcs8())?;
    save_state(directory, state)?;
    Ok(save_chain(directory, chain)?)
}

/// Whether this state is of the cluster that the proxy which was here before was in.
fn is_of_the_same(directory: &Path, state: &Signed) -> bool {
    let known = read(&directory.join(STATE), STATE_MAX).ok();
    let known = known.and_then(|bytes| Signed::decode(bytes.as_slice()).ok());
    let known = known.and_then(|signed| View::first(signed).ok());
    known.is_some_and(|known| known.is_of_the_same(state))
}

impl Identity {
    /// Out of its state directory, with the newest state.
    pub fn load(directory: &Path) -> Result<(Identity, Signed), ServerError> {
        let at = |name: &str| directory.join(name);
        let failed = |name: &str, why: &dyn std::fmt::Display| {
            format!(
                "{}: {why}: was this proxy made by `fleetgate init` or `fleetgate join`?",
                at(name).display()
            )
        };
        for secret in [KEY, SSH] {
            if let Ok(about) = std::fs::symlink_metadata(at(secret)) {
                own::secret(&at(secret), &about).map_err(String::from)?;
            }
        }
        let pkcs8 = Zeroizing::new(read(&at(KEY), FILE_MAX).map_err(|e| failed(KEY, &e))?);
        let key = Arc::new(Key::from_pkcs8(&pkcs8).map_err(|e| failed(KEY, &e))?);
        let file = read(&at(CHAIN), FILE_MAX).map_err(|e| failed(CHAIN, &e))?;
        let chain = parse_chain(&file).ok_or_else(|| failed(CHAIN, &"it is damaged"))?;
        let mut identity = Identity::new(key, &chain).map_err(|e| failed(CHAIN, &e))?;
        identity.ssh = Arc::new(ssh_key(&at(SSH))?);
        if let Ok(blob) = read(&at(SSH_CERTIFICATE), FILE_MAX) {
            // One that cannot be read is asked for anew.
            identity.host_certificate = Certificate::parse(&blob).ok();
        }
        let state = read(&at(STATE), STATE_MAX).map_err(|e| failed(STATE, &e))?;
        let state = Signed::decode(state.as_slice()).map_err(|e| failed(STATE, &e))?;
        Ok((identity, state))
    }

    /// By a key and its chain.
    pub(crate) fn new<C: AsRef<[u8]>>(
        key: Arc<Key>,
        chain: impl IntoIterator<Item = C>,
    ) -> Result<Identity, String> {
        let credentials = Credentials::new(key.clone(), chain).map_err(|e| e.to_string())?;
        match credentials.identity().map(|identity| identity.subject) {
            Some(Subject::Proxy(name)) => Ok(Identity {
                name,
                key,
                credentials,
                ssh: Arc::default(),
                host_certificate: None,
            }),
            Some(other) => Err(format!("the certificate is for {other}, not for a proxy")),
            None => Err("the certificate carries no identity".to_owned()),
        }
    }
}

impl Identity {
    /// The same machine with newer certificates.
    pub(crate) fn renewed<C: AsRef<[u8]>>(
        &self,
        chain: impl IntoIterator<Item = C>,
        host_certificate: Option<Certificate>,
    ) -> Result<Identity, String> {
        Ok(Identity {
            ssh: self.ssh.clone(),
            host_certificate: host_certificate.or_else(|| self.host_certificate.clone()),
            ..Identity::new(self.key.clone(), chain)?
        })
    }

    /// Its SSH key with a certificate.
    pub(crate) fn host_key(&self, certificate: Option<&Certificate>) -> Result<HostKey, String> {
        let mut key = HostKey::read(&self.ssh, 0o600).map_err(|e| e.to_string())?;
        if let Some(certificate) = certificate {
            key.certify(&certificate.line()).map_err(|e| e.to_string())?;
        }
        Ok(key)
    }
}

/// The certificate and the newest state of a proxy's state directory. Unlike [`Identity::load`] this makes nothing.
pub fn look(directory: &Path) -> Result<(x509::Certificate, Signed), ServerError> {
    let at = |name: &str| directory.join(name);
    let failed = |name: &str, why: &dyn std::fmt::Display| format!("{}: {why}", at(name).display());
    let file = read(&at(CHAIN), FILE_MAX).map_err(|e| failed(CHAIN, &e))?;
    let chain = parse_chain(&file).unwrap_or_default();
    let leaf = chain.first().ok_or_else(|| failed(CHAIN, &"it is damaged"))?;
    let leaf = x509::Certificate::read(leaf).map_err(|e| failed(CHAIN, &e))?;
    let state = read(&at(STATE), STATE_MAX).map_err(|e| failed(STATE, &e))?;
    let state = Signed::decode(state.as_slice()).map_err(|e| failed(STATE, &e))?;
    Ok((leaf, state))
}

/// The SSH key that stands there, or a new one.
fn ssh_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    match read(path, FILE_MAX) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let (_, text) =
                HostKey::generate(KeyType::Ed25519, "fleetgate proxy").map_err(|e| e.to_string())?;
            let text = Zeroizing::new(text.as_bytes().to_vec());
            replace(path, &text)?;
            Ok(text)
        }
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Keeps a host certificate.
pub(crate) fn save_host_certificate(directory: &Path, certificate: &Certificate) -> Result<(), String> {
    replace(&directory.join(SSH_CERTIFICATE), certificate.blob())
}

/// Keeps a renewed certificate.
pub(crate) fn save_chain<C: AsRef<[u8]>>(
    directory: &Path,
    chain: impl IntoIterator<Item = C>,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    for certificate in chain {
        let certificate = certificate.as_ref();
        let length = u32::try_from(certificate.len()).map_err(|_| "a certificate is too long".to_owned())?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(certificate);
    }
    replace(&directory.join(CHAIN), &bytes)
}

/// Keeps a newer state: the proxy starts with it when auth is away.
pub fn save_state(directory: &Path, state: &Signed) -> Result<(), ServerError> {
    Ok(replace(&directory.join(STATE), &state.encode_to_vec())?)
}

fn parse_chain(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut chain = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (certificate, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        chain.push(certificate);
        bytes = rest;
    }
    bytes.is_empty().then_some(chain)
}
