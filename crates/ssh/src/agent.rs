//! What is said to an ssh-agent and what it answers (draft-miller-ssh-agent): messages without the length in front of them. It
//! opens no socket and keeps no key.

use crate::codec::{Malformed, Reader, Write as _};
use crate::key::{Certificate, KeyError, PrivateKey};
use std::time::Duration;
use zeroize::Zeroizing;

/// The most keys that are looked at.
pub const MAX_IDENTITIES: usize = 1024;

const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
/// In front of a list of keys.
pub const IDENTITIES_ANSWER: u8 = 12;
/// In front of a wish for a signature.
pub const SIGN_REQUEST: u8 = 13;
/// In front of a signature.
pub const SIGN_RESPONSE: u8 = 14;
const ADD_IDENTITY: u8 = 17;
const REMOVE_IDENTITY: u8 = 18;
const ADD_ID_CONSTRAINED: u8 = 25;
const CONSTRAIN_LIFETIME: u8 = 1;
const FLAG_RSA_SHA2_256: u32 = 2;
const FLAG_RSA_SHA2_512: u32 = 4;

/// A key or certificate that an agent signs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The public key or certificate.
    pub blob: Vec<u8>,
    /// What its owner calls it. Not to be trusted to be printable.
    pub comment: String,
}

/// Asks for the keys and certificates that it has.
#[must_use]
pub fn list() -> Vec<u8> {
    vec![REQUEST_IDENTITIES]
}

/// The keys and certificates of an answer, in its order. None: it refuses.
pub fn identities(answer: &[u8]) -> Result<Option<Vec<Identity>>, Malformed> {
    let mut r = Reader::new(answer);
    if r.u8("number")? != IDENTITIES_ANSWER {
        return Ok(None);
    }
    let count = r.u32("number of keys")? as usize;
    if count > MAX_IDENTITIES {
        return Err(Malformed::Invalid("number of keys"));
    }
    let mut identities = Vec::new();
    for _ in 0..count {
        identities.push(Identity {
            blob: r.string("key")?.to_vec(),
            comment: String::from_utf8_lossy(r.string("comment")?).into_owned(),
        });
    }
    r.end()?;
    Ok(Some(identities))
}

/// Asks for a signature over `data` by the key or certificate `blob`. The algorithm counts for RSA keys only: others have one
/// each.
#[must_use]
pub fn sign(blob: &[u8], algorithm: &str, data: &[u8]) -> Vec<u8> {
    let flags = match algorithm {
        "rsa-sha2-256" | "rsa-sha2-256-cert-v01@openssh.com" => FLAG_RSA_SHA2_256,
        "rsa-sha2-512" | "rsa-sha2-512-cert-v01@openssh.com" => FLAG_RSA_SHA2_512,
        _ => 0,
    };
    let mut request = vec![SIGN_REQUEST];
    request.put_string(blob);
    request.put_string(data);
    request.put_u32(flags);
    request
}

/// The signature blob of an answer. None: it refuses.
pub fn signature(answer: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut r = Reader::new(answer);
    if r.u8("number")? != SIGN_RESPONSE {
        return Ok(None);
    }
    let signature = r.string("signature")?.to_vec();
    r.end()?;
    Ok(Some(signature))
}

/// Puts in a key, from the text of its file, with its certificate if it has one. With a lifetime the agent forgets it then by
/// itself.
pub fn add(
    key: &[u8],
    certificate: Option<&Certificate>,
    comment: &str,
    lifetime: Option<Duration>,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let fields = PrivateKey::for_agent(key, certificate)?;
    // Large enough from the start: a buffer that grows leaves a copy of a secret behind.
    let mut request = Zeroizing::new(Vec::with_capacity(fields.len() + comment.len() + 16));
    request.put_u8(match lifetime {
        Some(_) => ADD_ID_CONSTRAINED,
        None => ADD_IDENTITY,
    });
    request.put(&fields);
    request.put_string(comment);
    if let Some(lifetime) = lifetime {
        request.put_u8(CONSTRAIN_LIFETIME);
        // 0 would mean for ever.
        request.put_u32(u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX).max(1));
    }
    Ok(request)
}

/// Takes a key or certificate out.
#[must_use]
pub fn remove(blob: &[u8]) -> Vec<u8> {
    let mut request = vec![REMOVE_IDENTITY];
    request.put_string(blob);
    request
}

/// Whether it did what it was asked, where it has nothing else to say.
#[must_use]
pub fn is_done(answer: &[u8]) -> bool {
    answer.first() == Some(&SUCCESS)
}
