//! What one side shows: a chain, and the key that belongs to it or whoever signs with it. A key never leaves here.

use super::Error;
use crate::x509::{Certificate, Key};
use fleetgate_policy::cluster::Identity;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{self, CertifiedKey, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::fmt;
use std::io;
use std::sync::Arc;

/// A chain, and who signs for it.
#[derive(Clone)]
pub struct Credentials {
    leaf: Certificate,
    certified: Arc<CertifiedKey>,
}

/// Who signs where the key is in another process: the tunnel's monitor. It blocks until the signature is there.
pub trait Signer: Send + Sync + fmt::Debug {
    /// An ECDSA P-256 signature (SHA-256, DER) over what a TLS 1.3 handshake signs; see [`client_handshake_hash`].
    fn sign(&self, message: &[u8]) -> io::Result<Vec<u8>>;
}

impl Credentials {
    /// A key and its chain, DER, the leaf first and the authority last.
    pub fn new<C: AsRef<[u8]>>(
        key: impl Into<Arc<Key>>,
        chain: impl IntoIterator<Item = C>,
    ) -> Result<Credentials, Error> {
        let key = key.into();
        let public = key.public().spki().to_vec();
        let credentials = Credentials::by(Arc::new(Local(key)), chain)?;
        if credentials.leaf.public() != public {
            return Err(Error::setting(crate::x509::Error::Mismatch));
        }
        Ok(credentials)
    }

    /// A chain whose key another process has.
    pub fn remote<C: AsRef<[u8]>>(
        signer: Arc<dyn Signer>,
        chain: impl IntoIterator<Item = C>,
    ) -> Result<Credentials, Error> {
        Credentials::by(Arc::new(Remote(signer)), chain)
    }

    /// A certificate that the operator was given by somebody else, for the proxy's public name: PEM, any kind of key.
    pub fn given(chain: &[u8], key: &[u8]) -> Result<Credentials, Error> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|e| {
                Error::setting(format!(
                    "the certificate file cannot be read as PEM: {}",
                    words(&e)
                ))
            })?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| Error::setting(format!("the key file cannot be read as PEM: {}", words(&e))))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(Error::setting)?;
        let credentials = Credentials::by(key, chain)?;
        credentials
            .certified
            .keys_match()
            .map_err(|_| Error::setting(crate::x509::Error::Mismatch))?;
        Ok(credentials)
    }

    /// The leaf.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.leaf
    }

    /// The chain, DER, the leaf first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(AsRef::as_ref)
    }

    /// Who it says we are.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.leaf.identity().ok().flatten()
    }

    fn by<C: AsRef<[u8]>>(
        key: Arc<dyn SigningKey>,
        chain: impl IntoIterator<Item = C>,
    ) -> Result<Credentials, Error> {
        let chain: Vec<CertificateDer<'static>> = chain
            .into_iter()
            .map(|certificate| certificate.as_ref().to_vec().into())
            .collect();
        let leaf = chain
            .first()
            .ok_or_else(|| Error::setting("the chain has no certificate in it"))?;
        Ok(Credentials {
            leaf: Certificate::read(leaf).map_err(Error::setting)?,
            certified: Arc::new(CertifiedKey::new(chain, key)),
        })
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }

    pub(super) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        Arc::new(Always(self.certified.clone()))
    }
}

/// The library's words show bytes as numbers.
fn words(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "it ends in the middle".to_owned(),
        pem::Error::NoItemsFound => "nothing of the kind is in it".to_owned(),
        other => other.to_string(),
    }
}

/// Whether this PEM holds a private key that can be used.
#[must_use]
pub fn is_key(pem: &[u8]) -> bool {
    PrivateKeyDer::from_pem_slice(pem)
        .is_ok_and(|key| rustls::crypto::ring::sign::any_supported_type(&key).is_ok())
}

/// The hash that a client's CertificateVerify signs (RFC 8446 §4.4.3); None if the message is anything else. Whoever signs
/// for another process signs nothing else.
#[must_use]
pub fn client_handshake_hash(message: &[u8]) -> Option<&[u8]> {
    let hash = message
        .strip_prefix(&[b' '; 64])?
        .strip_prefix(b"TLS 1.3, client CertificateVerify\0")?;
    // SHA-256 or SHA-384, by the suite.
    matches!(hash.len(), 32 | 48).then_some(hash)
}

#[derive(Debug)]
struct Local(Arc<Key>);

#[derive(Debug)]
struct Remote(Arc<dyn Signer>);

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

impl SigningKey for Local {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn sign::Signer>> {
        offered
            .contains(&SCHEME)
            .then(|| Box::new(Local(self.0.clone())) as Box<dyn sign::Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.0.public().spki().to_vec().into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl sign::Signer for Local {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.0.sign(message))
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME
    }
}

impl SigningKey for Remote {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn sign::Signer>> {
        offered
            .contains(&SCHEME)
            .then(|| Box::new(Remote(self.0.clone())) as Box<dyn sign::Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl sign::Signer for Remote {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.0
            .sign(message)
            .map_err(|why| rustls::Error::General(format!("no signature for the handshake: {why}")))
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME
    }
}

impl ResolvesClientCert for Always {
    fn resolve(&self, _hints: &[&[u8]], offered: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // The hints name the authorities that the server knows; whether ours is among them the server says better than
        // we could guess.
        self.0.key.choose_scheme(offered).map(|_| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.leaf)
    }
}
