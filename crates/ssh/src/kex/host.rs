//! The host's signature over an exchange, as a client checks it. Whether the key is the right one is the owner's to say.

use crate::event::{End, Reason};
use crate::key::{Algorithm, KeyOrCertificate, verify as verify_signature};

/// That `signature` (a blob) of `algorithm` over the exchange hash was made by `host_key` (a key's or a certificate's
/// blob).
pub(super) fn verify(algorithm: &str, host_key: &[u8], hash: &[u8], signature: &[u8]) -> Result<(), End> {
    let failed = |text: String| End::ours(Reason::KeyExchangeFailed, text);
    let presented = KeyOrCertificate::parse(host_key).map_err(|e| failed(format!("the host key: {e}")))?;
    if !Algorithm::parse(algorithm).is_some_and(|a| presented.fits(&a)) {
        return Err(failed(format!("the host key does not fit {algorithm}")));
    }
    verify_signature(presented.key(), algorithm, hash, signature)
        .map_err(|e| failed(format!("the host's signature over the key exchange: {e}")))?;
    Ok(())
}
