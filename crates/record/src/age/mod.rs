//! age (age-encryption.org/v1, as C2SP specifies it), as much of it as recordings need: X25519 keys, and files that are in memory
//! whole. What is sealed here opens with `age -d -i KEYS`, and the other way round. It knows no form of a key but its 32 bytes.
//!
//! Every primitive is a library's. What is here is their order, and the header.

mod header;
mod stream;
#[cfg(test)]
mod tests;

use header::{Header, Stanza};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::sync::Arc;
use x25519_dalek::{PublicKey, SharedSecret, StaticSecret, X25519_BASEPOINT_BYTES};
use zeroize::Zeroizing;

/// The most recipients of a recording: each costs 98 bytes and two multiplications a block.
pub const MAX_RECIPIENTS: usize = 32;
/// The most that a sealed file is longer than what is in it: header, recipients, nonce, and the tags of two chunks.
pub const MAX_OVERHEAD: usize = 128 + MAX_RECIPIENTS * header::STANZA + 2 * TAG;

const FILE_KEY: usize = 16;
const TAG: usize = 16;
const WRAP: &[u8] = b"age-encryption.org/v1/X25519";

type FileKey = Zeroizing<[u8; FILE_KEY]>;
type Key = Zeroizing<[u8; 32]>;

/// For whom recordings are sealed: public keys, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipients(Arc<[PublicKey]>);

impl Recipients {
    /// Nothing where there is none, where there are too many, or where one is a point of low order, for which everybody knows
    /// the shared secret.
    pub fn new(keys: &[[u8; 32]]) -> Option<Recipients> {
        let keys: Arc<[PublicKey]> = keys.iter().copied().map(PublicKey::from).collect();
        let is_sound = |key: &PublicKey| StaticSecret::from([1; 32]).diffie_hellman(key).was_contributory();
        ((1..=MAX_RECIPIENTS).contains(&keys.len()) && keys.iter().all(is_sound)).then_some(Recipients(keys))
    }

    /// The bytes as an age file that each of them can open.
    pub fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let file_key: FileKey = random();
        let stanzas: Vec<Stanza> = self.0.iter().map(|to| wrap(&file_key, to)).collect();
        let mut out = Vec::with_capacity(plain.len() + MAX_OVERHEAD);
        header::write(&stanzas, &derive(b"", &*file_key, b"header"), &mut out);
        let nonce: Zeroizing<[u8; stream::NONCE]> = random();
        out.extend_from_slice(&*nonce);
        stream::seal(&derive(&*nonce, &*file_key, b"payload"), plain, &mut out);
        out
    }
}

/// A private key. What is dropped is wiped.
pub struct Identity {
    secret: StaticSecret,
    public: PublicKey,
}

impl Identity {
    /// From its 32 bytes.
    pub fn new(secret: [u8; 32]) -> Identity {
        let secret = StaticSecret::from(secret);
        let public = public_of(&secret);
        Identity { secret, public }
    }

    /// The recipient that it belongs to.
    pub fn recipient(&self) -> [u8; 32] {
        self.public.to_bytes()
    }

    /// The file key, where the stanza is for this key.
    fn unwrap(&self, stanza: &Stanza) -> Result<Option<FileKey>, OpenError> {
        let share = PublicKey::from(stanza.share);
        let shared = self.secret.diffie_hellman(&share);
        if !shared.was_contributory() {
            return Err(OpenError::NotAge);
        }
        let key = wrapping_key(&share, &self.public, &shared);
        let mut body = Zeroizing::new(stanza.body);
        let opened = aead(&key).open_in_place(zero(), Aad::empty(), &mut *body);
        Ok(opened.ok().and_then(|plain| {
            let mut file_key = FileKey::default();
            // The tag is right, so it is as long as it was made.
            file_key.copy_from_slice(plain.get(..FILE_KEY)?);
            Some(file_key)
        }))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// The private keys of somebody who reads; none: what is encrypted stays so.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<[Identity]>);

impl Keys {
    /// These.
    pub fn new(identities: Vec<Identity>) -> Keys {
        Keys(identities.into())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts what an age file holds into `plain`. The file is in memory, and what it holds is shorter.
    pub fn open(&self, file: &[u8], plain: &mut Vec<u8>) -> Result<(), OpenError> {
        let header = Header::parse(file).ok_or(OpenError::NotAge)?;
        let file_key = self.file_key(&header.stanzas)?;
        if !header.is_made_with(&derive(b"", &*file_key, b"header")) {
            return Err(OpenError::Damaged);
        }
        let (nonce, sealed) = header
            .payload
            .split_first_chunk::<{ stream::NONCE }>()
            .ok_or(OpenError::Damaged)?;
        let opened = stream::open(&derive(nonce, &*file_key, b"payload"), sealed, plain);
        if opened.is_none() {
            // Of a chunk that is not right nothing is used.
            plain.clear();
        }
        opened.ok_or(OpenError::Damaged)
    }

    fn file_key(&self, stanzas: &[Stanza]) -> Result<FileKey, OpenError> {
        for stanza in stanzas {
            for identity in &*self.0 {
                if let Some(file_key) = identity.unwrap(stanza)? {
                    return Ok(file_key);
                }
            }
        }
        Err(OpenError::OtherKey)
    }
}

/// Why a file is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It is no age file.
    NotAge,
    /// It is for other keys.
    OtherKey,
    /// It was changed.
    Damaged,
}

fn wrap(file_key: &FileKey, to: &PublicKey) -> Stanza {
    let secret = StaticSecret::from(*random::<32>());
    let share = public_of(&secret);
    let key = wrapping_key(&share, to, &secret.diffie_hellman(to));
    let mut body = [0; FILE_KEY + TAG];
    let (wrapped, tag) = body.split_at_mut(FILE_KEY);
    wrapped.copy_from_slice(&**file_key);
    let made = aead(&key).seal_in_place_separate_tag(zero(), Aad::empty(), wrapped);
    tag.copy_from_slice(made.expect("sixteen bytes are not too many").as_ref());
    Stanza {
        share: share.to_bytes(),
        body,
    }
}

/// By the same ladder as every other multiplication: the table for this one would be 30 KB of the recorder.
fn public_of(secret: &StaticSecret) -> PublicKey {
    let base = PublicKey::from(X25519_BASEPOINT_BYTES);
    PublicKey::from(*secret.diffie_hellman(&base).as_bytes())
}

fn wrapping_key(share: &PublicKey, to: &PublicKey, shared: &SharedSecret) -> Key {
    let mut salt = [0; 64];
    salt[..32].copy_from_slice(share.as_bytes());
    salt[32..].copy_from_slice(to.as_bytes());
    derive(&salt, shared.as_bytes(), WRAP)
}

/// HKDF with SHA-256 (RFC 5869).
fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> Key {
    let mut key = Key::default();
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let info = [info];
    extracted
        .expand(&info, HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut *key))
        .expect("a key is as long as the hash");
    key
}

fn aead(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &**key).expect("a key has 32 bytes"))
}

/// A wrapping key is used once.
fn zero() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    SystemRandom::new()
        .fill(&mut *bytes)
        .expect("a kernel that has started has random numbers");
    bytes
}
