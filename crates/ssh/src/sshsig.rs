//! Signatures over a text, in the form of `ssh-keygen -Y sign` (PROTOCOL.sshsig of OpenSSH): what a key signs, the blob
//! around its signature, and whether such a blob is right. It takes no other hash than SHA-512.

use crate::codec::{Malformed, Reader, Write};
use crate::key::{BadSignature, HostKey, KeyError, PublicKey, verify as verify_key};
use ring::digest;
use std::fmt;

const MAGIC: &[u8; 6] = b"SSHSIG";
const VERSION: u32 = 1;
const HASH: &str = "sha512";
/// The largest blob: a key and a signature, each at its own bound, and the names.
pub const MAX: usize = crate::key::public::MAX_BLOB + 8 * 1024;

/// Why a signature is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The blob is longer than any.
    TooLarge,
    /// The blob cannot be read.
    Malformed(Malformed),
    /// It was made for another purpose.
    Namespace,
    /// The key in it is none that is supported.
    Key(KeyError),
    /// The key did not sign this text.
    Signature(BadSignature),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLarge => write!(f, "the signature is longer than {MAX} bytes"),
            Error::Malformed(e) => write!(f, "the signature cannot be read: {e}"),
            Error::Namespace => f.write_str("the signature was made for another purpose"),
            Error::Key(e) => e.fmt(f),
            Error::Signature(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(e: Malformed) -> Error {
        Error::Malformed(e)
    }
}

/// The bytes that a key signs for `text`.
pub fn message(namespace: &str, text: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_string(namespace);
    out.put_string("");
    out.put_string(HASH);
    out.put_string(digest::digest(&digest::SHA512, text));
    out
}

/// The blob around a signature of [`message`].
pub fn encode(public_key: &[u8], namespace: &str, signature: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u32(VERSION);
    out.put_string(public_key);
    out.put_string(namespace);
    out.put_string("");
    out.put_string(HASH);
    out.put_string(signature);
    out
}

/// The blob of a host key's own signature over a text; none: the key cannot.
pub fn sign(key: &HostKey, namespace: &str, text: &[u8]) -> Option<Vec<u8>> {
    let blob = key.public().blob();
    let algorithm = key.algorithms().into_iter().find(|a| key.blob(a) == Some(blob))?;
    let signature = key.sign(algorithm, &message(namespace, text)).ok()?;
    Some(encode(blob, namespace, &signature))
}

/// The key that signed `text`. Whether it is one that may, the caller decides.
pub fn verify(blob: &[u8], namespace: &str, text: &[u8]) -> Result<PublicKey, Error> {
    if blob.len() > MAX {
        return Err(Error::TooLarge);
    }
    let mut r = Reader::new(blob);
    if r.bytes(MAGIC.len(), "magic")? != MAGIC {
        return Err(Malformed::Invalid("magic").into());
    }
    if r.u32("version")? != VERSION {
        return Err(Malformed::Invalid("version").into());
    }
    let key = r.string("key")?;
    let purpose = r.string("namespace")?;
    // OpenSSH ignores what is reserved. Here a signature has one form, so that equal ones are equal bytes.
    let reserved = r.string("reserved")?;
    let hash = r.string("hash algorithm")?;
    let signature = r.string("signature")?;
    r.end()?;
    if purpose != namespace.as_bytes() {
        return Err(Error::Namespace);
    }
    if !reserved.is_empty() {
        return Err(Malformed::Invalid("reserved").into());
    }
    if hash != HASH.as_bytes() {
        return Err(Malformed::Invalid("hash algorithm").into());
    }
    let key = PublicKey::parse(key).map_err(Error::Key)?;
    let algorithm = Reader::new(signature).text("algorithm")?;
    verify_key(&key, algorithm, &message(namespace, text), signature).map_err(Error::Signature)?;
    Ok(key)
}
