//! Public keys: read from blobs and from the lines of `.pub` files. A blob has one form here: whatever is not written
//! in the shortest one is refused, so that equal keys are equal bytes.

use super::algorithm::KeyType;
use super::{KeyError, text};
use crate::codec::{Malformed, Reader, Write};
use ring::digest;
use std::fmt;

/// The largest blob of a key or a certificate.
pub const MAX_BLOB: usize = 64 * 1024;
/// The longest application name of a token's key.
pub const MAX_APPLICATION: usize = 1024;
/// The bits of an RSA key: ring verifies no others.
pub const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// The longest RSA exponent: ring takes 33 bits.
const MAX_EXPONENT_BITS: usize = 33;

/// A public key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    blob: Vec<u8>,
    parts: Parts,
}

/// What a blob holds behind its type.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Parts {
    Ed25519([u8; 32]),
    /// The point, uncompressed.
    EcdsaP256(Vec<u8>),
    EcdsaP384(Vec<u8>),
    Rsa {
        e: Vec<u8>,
        n: Vec<u8>,
    },
    SkEd25519 {
        key: [u8; 32],
        application: Vec<u8>,
    },
    SkEcdsaP256 {
        point: Vec<u8>,
        application: Vec<u8>,
    },
}

impl PublicKey {
    /// From a blob; a certificate is an error.
    pub fn parse(blob: &[u8]) -> Result<PublicKey, KeyError> {
        let mut r = bounded(blob)?;
        let name = r.text("type")?;
        let kind = match KeyType::parse(name) {
            Some((kind, false)) => kind,
            Some((_, true)) => return Err(KeyError::NotAKey),
            None => return Err(unsupported(name)),
        };
        let parts = Parts::read(kind, &mut r)?;
        r.end()?;
        Ok(PublicKey::new(parts))
    }

    pub(super) fn new(parts: Parts) -> PublicKey {
        PublicKey {
            blob: parts.blob(),
            parts,
        }
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// As SSH sends it.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Its type.
    pub fn key_type(&self) -> KeyType {
        self.parts.kind()
    }

    /// `SHA256:…`, as ssh-keygen -l says it.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", text::encode_unpadded(&self.sha256()))
    }

    /// The digest of the blob.
    pub fn sha256(&self) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(digest::digest(&digest::SHA256, &self.blob).as_ref());
        out
    }

    /// `type base64`, as in a `.pub` file.
    pub fn line(&self) -> String {
        format!("{} {}", self.key_type().name(), text::encode(&self.blob))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.key_type().name(), self.fingerprint())
    }
}

impl Parts {
    fn kind(&self) -> KeyType {
        match self {
            Parts::Ed25519(_) => KeyType::Ed25519,
            Parts::EcdsaP256(_) => KeyType::EcdsaP256,
            Parts::EcdsaP384(_) => KeyType::EcdsaP384,
            Parts::Rsa { .. } => KeyType::Rsa,
            Parts::SkEd25519 { .. } => KeyType::SkEd25519,
            Parts::SkEcdsaP256 { .. } => KeyType::SkEcdsaP256,
        }
    }

    /// The fields behind the type (in a certificate: behind the nonce).
    pub(super) fn read(kind: KeyType, r: &mut Reader<'_>) -> Result<Parts, KeyError> {
        Ok(match kind {
            KeyType::Ed25519 => Parts::Ed25519(read_ed25519(r)?),
            KeyType::EcdsaP256 => Parts::EcdsaP256(read_point(r, "nistp256", 65)?),
            KeyType::EcdsaP384 => Parts::EcdsaP384(read_point(r, "nistp384", 97)?),
            KeyType::Rsa => {
                let e = read_mpint(r, "exponent")?;
                let n = read_mpint(r, "modulus")?;
                if e.last().is_none_or(|b| b & 1 == 0) || e == [1] || bits(&e) > MAX_EXPONENT_BITS {
                    return Err(Malformed::Invalid("exponent").into());
                }
                if !RSA_BITS.contains(&bits(&n)) {
                    return Err(KeyError::RsaBits(bits(&n)));
                }
                Parts::Rsa { e, n }
            }
            KeyType::SkEd25519 => Parts::SkEd25519 {
                key: read_ed25519(r)?,
                application: read_application(r)?,
            },
            KeyType::SkEcdsaP256 => Parts::SkEcdsaP256 {
                point: read_point(r, "nistp256", 65)?,
                application: read_application(r)?,
            },
        })
    }

    fn blob(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_string(self.kind().name());
        match self {
            Parts::Ed25519(key) => out.put_string(key),
            Parts::EcdsaP256(point) => {
                out.put_string("nistp256");
                out.put_string(point);
            }
            Parts::EcdsaP384(point) => {
                out.put_string("nistp384");
                out.put_string(point);
            }
            Parts::Rsa { e, n } => {
                out.put_mpint(e);
                out.put_mpint(n);
            }
            Parts::SkEd25519 { key, application } => {
                out.put_string(key);
                out.put_string(application);
            }
            Parts::SkEcdsaP256 { point, application } => {
                out.put_string("nistp256");
                out.put_string(point);
                out.put_string(application);
            }
        }
        out
    }
}

/// A reader of a blob that is not too large.
pub(super) fn bounded(blob: &[u8]) -> Result<Reader<'_>, KeyError> {
    if blob.len() > MAX_BLOB {
        return Err(KeyError::TooLarge {
            what: "the bytes of a key",
            most: MAX_BLOB,
        });
    }
    Ok(Reader::new(blob))
}

/// The error for a type that nobody here knows; its name is not repeated at length.
pub(super) fn unsupported(name: &str) -> KeyError {
    KeyError::Type(name.chars().take(64).collect())
}

/// How many bits a magnitude without leading zeros has.
pub(super) fn bits(magnitude: &[u8]) -> usize {
    magnitude
        .first()
        .map_or(0, |&b| magnitude.len() * 8 - b.leading_zeros() as usize)
}

/// A positive mpint in its shortest form.
fn read_mpint(r: &mut Reader<'_>, what: &'static str) -> Result<Vec<u8>, KeyError> {
    let before = r.rest();
    let magnitude = r.mpint(what)?;
    let stored = before.len() - r.rest().len() - 4;
    let sign = usize::from(magnitude.first().is_some_and(|b| b & 0x80 != 0));
    if stored != magnitude.len() + sign {
        return Err(Malformed::Invalid(what).into());
    }
    Ok(magnitude.to_vec())
}

fn read_ed25519(r: &mut Reader<'_>) -> Result<[u8; 32], KeyError> {
    Ok(r.string("key")?
        .try_into()
        .map_err(|_| Malformed::Invalid("key"))?)
}

/// RFC 5656 §3.1: the curve's name again, and the point. Whether it lies on the curve is seen when it verifies.
fn read_point(r: &mut Reader<'_>, curve: &str, len: usize) -> Result<Vec<u8>, KeyError> {
    if r.string("curve")? != curve.as_bytes() {
        return Err(Malformed::Invalid("curve").into());
    }
    let point = r.string("point")?;
    if point.len() != len || point[0] != 4 {
        return Err(Malformed::Invalid("point").into());
    }
    Ok(point.to_vec())
}

fn read_application(r: &mut Reader<'_>) -> Result<Vec<u8>, KeyError> {
    let application = r.string("application")?;
    if application.len() > MAX_APPLICATION {
        return Err(KeyError::TooLarge {
            what: "the bytes of a key's application",
            most: MAX_APPLICATION,
        });
    }
    Ok(application.to_vec())
}
