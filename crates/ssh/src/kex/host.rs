//! The host's signature over an exchange, as a client checks it. Whether the key is the right one is the owner's to say.

use crate::codec::{Malformed, Reader};
use crate::event::{End, Reason};
use ring::signature::{ED25519, UnparsedPublicKey};

/// That `signature` (a blob) of `algorithm` over the exchange hash was made by `host_key` (a blob).
pub(super) fn verify(algorithm: &str, host_key: &[u8], hash: &[u8], signature: &[u8]) -> Result<(), End> {
    let wrong = End::Ours {
        reason: Reason::KeyExchangeFailed,
        text: "the host's signature over the key exchange is wrong".into(),
    };
    let part = |blob| -> Result<&[u8], Malformed> {
        let mut r = Reader::new(blob);
        if r.string("algorithm")? != algorithm.as_bytes() {
            return Err(Malformed::Invalid("algorithm"));
        }
        let part = r.string("key")?;
        r.end()?;
        Ok(part)
    };
    let (key, signature) = match (part(host_key), part(signature)) {
        (Ok(key), Ok(signature)) if algorithm == "ssh-ed25519" => (key, signature),
        _ => return Err(wrong),
    };
    UnparsedPublicKey::new(&ED25519, key)
        .verify(hash, signature)
        .map_err(|_| wrong)
}
