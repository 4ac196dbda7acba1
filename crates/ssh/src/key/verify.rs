//! Signatures of keys: whether one is right, and what a token says about its user. Nothing is accepted by SHA-1.

use super::algorithm::Algorithm;
use super::public::{Parts, PublicKey};
use crate::codec::{Malformed, Reader};
use ring::digest;
use ring::signature::{self as rs, UnparsedPublicKey};
use std::fmt;

/// The largest signature blob: RSA of 8192 bits and its name.
pub const MAX_SIGNATURE: usize = 2048;

/// What is asked of a token's user. Other keys have nothing to show and pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// He has to touch it.
    pub presence: bool,
    /// He has to prove himself to it (PIN, finger).
    pub verification: bool,
}

impl Touch {
    /// What sshd asks when nothing is said: presence.
    pub const REQUIRED: Touch = Touch {
        presence: true,
        verification: false,
    };
    /// Nothing.
    pub const NONE: Touch = Touch {
        presence: false,
        verification: false,
    };

    /// What both ask.
    pub fn and(self, other: Touch) -> Touch {
        Touch {
            presence: self.presence || other.presence,
            verification: self.verification || other.verification,
        }
    }
}

/// A right signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedSignature {
    /// What the token said; none for keys that are not in one.
    pub token: Option<Token>,
}

/// What a token signs beside the message (PROTOCOL.u2f).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its user touched it.
    pub presence: bool,
    /// He proved himself to it.
    pub verification: bool,
    /// Its counter.
    pub counter: u32,
}

/// A signature that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSignature {
    /// An algorithm that is unknown or does not fit the key.
    Algorithm,
    /// Its blob cannot be read.
    Malformed(Malformed),
    /// It is wrong.
    Wrong,
    /// The token's user did not touch it, and had to.
    NotTouched,
    /// He did not prove himself to it, and had to.
    NotVerified,
}

impl From<Malformed> for BadSignature {
    fn from(error: Malformed) -> BadSignature {
        BadSignature::Malformed(error)
    }
}

impl fmt::Display for BadSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSignature::Algorithm => f.write_str("the signature algorithm does not fit the key"),
            BadSignature::Malformed(error) => write!(f, "the signature cannot be read: {error}"),
            BadSignature::Wrong => f.write_str("the signature is wrong"),
            BadSignature::NotTouched => f.write_str("the security key was not touched"),
            BadSignature::NotVerified => {
                f.write_str("the security key did not verify its user (PIN or finger)")
            }
        }
    }
}

impl std::error::Error for BadSignature {}

/// Whether `signature` (a blob) over `message` is this key's, made with this algorithm. The algorithm may be the name
/// that goes with the key's certificate. A token has to have been touched.
pub fn verify(
    key: &PublicKey,
    algorithm: &str,
    message: &[u8],
    signature: &[u8],
) -> Result<VerifiedSignature, BadSignature> {
    verify_touched(key, algorithm, message, signature, Touch::REQUIRED)
}

/// The same, asking something else of a token's user.
pub fn verify_touched(
    key: &PublicKey,
    algorithm: &str,
    message: &[u8],
    signature: &[u8],
    touch: Touch,
) -> Result<VerifiedSignature, BadSignature> {
    let algorithm = Algorithm::parse(algorithm)
        .filter(|a| a.key_type() == key.key_type())
        .ok_or(BadSignature::Algorithm)?;
    if signature.len() > MAX_SIGNATURE {
        return Err(Malformed::Invalid("length").into());
    }
    let mut r = Reader::new(signature);
    if r.string("algorithm")? != algorithm.signature_name().as_bytes() {
        return Err(BadSignature::Algorithm);
    }
    let body = r.string("signature")?;
    let token = match key.key_type().is_token() {
        true => Some((r.u8("flags")?, r.u32("counter")?)),
        false => None,
    };
    r.end()?;
    check(key, algorithm.signature_name(), message, body, token)?;
    let token = token.map(|(flags, counter)| Token {
        presence: flags & 1 != 0,
        verification: flags & 4 != 0,
        counter,
    });
    match token {
        Some(t) if touch.presence && !t.presence => Err(BadSignature::NotTouched),
        Some(t) if touch.verification && !t.verification => Err(BadSignature::NotVerified),
        _ => Ok(VerifiedSignature { token }),
    }
}

/// A CA's signature names its own algorithm.
pub(super) fn verify_by_ca(ca: &PublicKey, message: &[u8], signature: &[u8]) -> Result<(), BadSignature> {
    let name = Reader::new(signature).text("algorithm")?;
    if Algorithm::parse(name).is_none_or(|a| a.is_certificate()) {
        return Err(BadSignature::Algorithm);
    }
    verify_touched(ca, name, message, signature, Touch::NONE).map(drop)
}

fn check(
    key: &PublicKey,
    name: &str,
    message: &[u8],
    body: &[u8],
    token: Option<(u8, u32)>,
) -> Result<(), BadSignature> {
    let by = |algorithm: &'static dyn rs::VerificationAlgorithm, key: &[u8], message: &[u8], body: &[u8]| {
        UnparsedPublicKey::new(algorithm, key)
            .verify(message, body)
            .map_err(|_| BadSignature::Wrong)
    };
    match key.parts() {
        Parts::Ed25519(public) => by(&rs::ED25519, public, message, body),
        Parts::EcdsaP256(point) => by(&rs::ECDSA_P256_SHA256_FIXED, point, message, &fixed(body, 32)?),
        Parts::EcdsaP384(point) => by(&rs::ECDSA_P384_SHA384_FIXED, point, message, &fixed(body, 48)?),
        Parts::Rsa { e, n } => {
            let parameters = match name {
                "rsa-sha2-256" => &rs::RSA_PKCS1_2048_8192_SHA256,
                _ => &rs::RSA_PKCS1_2048_8192_SHA512,
            };
            // RFC 8332 §3 and OpenSSH: a signature whose leading zeros were cut is as long as the modulus.
            let mut whole = vec![0; n.len().saturating_sub(body.len())];
            whole.extend_from_slice(body);
            rs::RsaPublicKeyComponents { n, e }
                .verify(parameters, message, &whole)
                .map_err(|_| BadSignature::Wrong)
        }
        Parts::SkEd25519 { key, application } => by(
            &rs::ED25519,
            key,
            &token_message(application, token, message),
            body,
        ),
        Parts::SkEcdsaP256 { point, application } => {
            let message = token_message(application, token, message);
            by(&rs::ECDSA_P256_SHA256_FIXED, point, &message, &fixed(body, 32)?)
        }
    }
}

/// PROTOCOL.u2f: what a token signs for a message.
pub(super) fn token_message(application: &[u8], token: Option<(u8, u32)>, message: &[u8]) -> Vec<u8> {
    let (flags, counter) = token.unwrap_or_default();
    let mut out = digest::digest(&digest::SHA256, application).as_ref().to_vec();
    out.push(flags);
    out.extend_from_slice(&counter.to_be_bytes());
    out.extend_from_slice(digest::digest(&digest::SHA256, message).as_ref());
    out
}

/// RFC 5656 §3.1.2: r and s as mpints; ring wants both at full length.
fn fixed(body: &[u8], len: usize) -> Result<Vec<u8>, BadSignature> {
    let mut r = Reader::new(body);
    let mut out = vec![0; 2 * len];
    for (i, what) in ["r", "s"].into_iter().enumerate() {
        let magnitude = r.mpint(what)?;
        let start = len.checked_sub(magnitude.len()).ok_or(Malformed::Invalid(what))?;
        out[i * len + start..(i + 1) * len].copy_from_slice(magnitude);
    }
    r.end()?;
    Ok(out)
}

#[cfg(test)]
mod tests;
