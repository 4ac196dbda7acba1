//! The cluster's signing keys: made, kept, read when they are needed, and replaced with a grace period in which the one
//! before is still trusted. It decides about no certificate's content.

use crate::cache::{self, StateCache, Stored};
use crate::documents::{Authority, Document, Phase, Purpose};
use crate::error::{Refused, Result};
use crate::ledger::Ledger;
use crate::secret::fresh_id;
use crate::validity::MEMBER_BEFORE;
use base64ct::{Base64, Encoding};
use fleetgate_net::x509;
use fleetgate_policy::cluster::Name;
use fleetgate_ssh::key::{KeyType, PrivateKey, PublicKey};
use fleetgate_store::{Key, Step};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// How long the certificate of a TLS authority holds; it is replaced by rotation, not by time.
const TLS_VALIDITY: u64 = 20 * 366 * 86_400;

/// What signs.
pub enum Signer {
    /// SSH certificates, and the state.
    Ssh(Box<PrivateKey>),
    /// TLS certificates.
    Tls(Box<x509::Authority>),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(…)")
    }
}

/// A private key as it is stored. It is wiped.
pub struct PrivateBytes(Zeroizing<Vec<u8>>);

impl Document for PrivateBytes {
    fn write(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn read(bytes: &[u8]) -> std::result::Result<PrivateBytes, String> {
        Ok(PrivateBytes(Zeroizing::new(bytes.to_vec())))
    }
}

/// The signing keys that were needed so far.
pub struct Signers {
    ledger: Ledger,
    read: Mutex<HashMap<String, Arc<Signer>>>,
}

impl Signers {
    /// None yet.
    pub fn new(ledger: Ledger) -> Signers {
        Signers {
            ledger,
            read: Mutex::new(HashMap::new()),
        }
    }

    /// The one that signs now for this purpose.
    pub async fn active(&self, purpose: Purpose) -> Result<Arc<Signer>> {
        let authority = {
            let cache = self.ledger.cache();
            active(&cache, purpose)?.document.clone()
        };
        let known = |read: &HashMap<String, Arc<Signer>>| read.get(&authority.id).cloned();
        let locked = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signer) = known(&locked()) {
            return Ok(signer);
        }
        let at = secret_key(purpose, &authority.id);
        let Some(stored) = self.ledger.secret::<PrivateBytes>(&at).await? else {
            return Err(damaged(purpose));
        };
        let signer = Arc::new(read(purpose, &authority, &stored.document).ok_or_else(|| damaged(purpose))?);
        let mut all = locked();
        // Those that are retired are forgotten.
        let cache = self.ledger.cache();
        all.retain(|id, _| {
            let signing = cache.authorities.values().map(|s| &s.document);
            signing.filter(|a| a.phase != Phase::Retired).any(|a| a.id == *id)
        });
        all.insert(authority.id.clone(), signer.clone());
        Ok(signer)
    }

    /// The SSH key that signs now.
    pub async fn ssh(&self, purpose: Purpose) -> Result<SshSigner> {
        let signer = self.active(purpose).await?;
        match &*signer {
            Signer::Ssh(_) => Ok(SshSigner(signer)),
            Signer::Tls(_) => Err(damaged(purpose)),
        }
    }

    /// The TLS authority that signs now.
    pub async fn tls(&self) -> Result<TlsSigner> {
        let signer = self.active(Purpose::Tls).await?;
        match &*signer {
            Signer::Tls(_) => Ok(TlsSigner(signer)),
            Signer::Ssh(_) => Err(damaged(Purpose::Tls)),
        }
    }
}

/// A [`Signer`] that is an SSH key.
pub struct SshSigner(Arc<Signer>);

impl SshSigner {
    /// The key.
    pub fn key(&self) -> &PrivateKey {
        match &*self.0 {
            Signer::Ssh(key) => key,
            Signer::Tls(_) => unreachable!("made of SSH keys alone"),
        }
    }
}

/// A [`Signer`] that is a TLS authority.
pub struct TlsSigner(Arc<Signer>);

impl TlsSigner {
    /// The authority.
    pub fn authority(&self) -> &x509::Authority {
        match &*self.0 {
            Signer::Tls(authority) => authority,
            Signer::Ssh(_) => unreachable!("made of TLS authorities alone"),
        }
    }
}

/// The authority that signs now.
pub fn active(cache: &StateCache, purpose: Purpose) -> Result<&Stored<Authority>> {
    let mut all = cache.authorities_of(purpose);
    all.find(|a| a.document.phase == Phase::Active)
        .ok_or_else(|| damaged(purpose))
}

/// The times of a new authority, as [`Authority`] has them.
pub struct Life {
    /// How far it is.
    pub phase: Phase,
    /// Now.
    pub made: u64,
    /// When it takes over at the latest.
    pub until: Option<u64>,
    /// How long the one before is trusted then.
    pub grace: u64,
    /// The serial of the first state that names it.
    pub since: u64,
    /// As [`Authority::sshds_ready`].
    pub sshds_ready: bool,
}

/// Makes one, and the steps that put it and its private key into the store.
pub fn make(purpose: Purpose, cluster: &Name, life: Life) -> Result<(Authority, Vec<Step>)> {
    let id = fresh_id()?;
    let now = life.made;
    let (public, private) = match purpose {
        Purpose::Tls => {
            let subject = format!("fleetgate {cluster}");
            let made =
                x509::Authority::generate(&subject, now.saturating_sub(MEMBER_BEFORE)..now + TLS_VALIDITY)
                    .map_err(|e| Refused::unavailable(e.to_string()))?;
            let public = Base64::encode_string(made.certificate().der());
            (public, Zeroizing::new(made.key().pkcs8().to_vec()))
        }
        _ => {
            let comment = format!("fleetgate {cluster} {}", purpose.name());
            let (key, text) = PrivateKey::generate(KeyType::Ed25519, &comment)
                .map_err(|e| Refused::unavailable(e.to_string()))?;
            (key.public().line(), Zeroizing::new(text.as_bytes().to_vec()))
        }
    };
    let authority = Authority {
        id: id.clone(),
        phase: life.phase,
        made: life.made,
        until: life.until,
        grace: life.grace,
        since: life.since,
        sshds_ready: life.sshds_ready,
        public,
    };
    let steps = vec![
        cache::create(public_key(purpose, &id), &authority),
        cache::create(secret_key(purpose, &id), &PrivateBytes(private)),
    ];
    Ok((authority, steps))
}

/// What is trusted of it: an SSH key's blob, or a certificate.
pub fn trusted(purpose: Purpose, authority: &Authority) -> Option<Vec<u8>> {
    match purpose {
        Purpose::Tls => Base64::decode_vec(&authority.public).ok(),
        _ => Some(PublicKey::from_line(&authority.public).ok()?.blob().to_vec()),
    }
}

/// The hash that people compare: as ssh-keygen has it, or a TLS pin.
pub fn fingerprint(purpose: Purpose, authority: &Authority) -> String {
    match purpose {
        Purpose::Tls => trusted(purpose, authority)
            .and_then(|der| x509::Certificate::read(&der).ok())
            .map_or(String::new(), |c| c.pin().to_string()),
        _ => PublicKey::from_line(&authority.public).map_or(String::new(), |key| key.fingerprint()),
    }
}

/// Where an authority stands.
pub fn public_key(purpose: Purpose, id: &str) -> Key {
    cache::key(&["authorities", purpose.name(), id])
}

/// Where its private key stands.
pub fn secret_key(purpose: Purpose, id: &str) -> Key {
    cache::key(&["secrets", "authorities", purpose.name(), id])
}

fn read(purpose: Purpose, authority: &Authority, private: &PrivateBytes) -> Option<Signer> {
    Some(match purpose {
        Purpose::Tls => {
            let key = x509::Key::from_pkcs8(&private.0).ok()?;
            let certificate = trusted(purpose, authority)?;
            Signer::Tls(Box::new(x509::Authority::new(key, &certificate).ok()?))
        }
        _ => {
            let key = PrivateKey::parse(&private.0).ok()?;
            (key.public().line() == authority.public).then_some(())?;
            Signer::Ssh(Box::new(key))
        }
    })
}

fn damaged(purpose: Purpose) -> Refused {
    Refused::unavailable(format!(
        "the store has no {} authority that could sign: restore a backup",
        purpose.name()
    ))
}
