//! What a node signs with its TLS key in its messages, and a device with its own: the same bytes for whoever signs and
//! whoever checks. Each begins with words of its own, so that no signature passes for another. No key is touched here.

use crate::v1::{AuditBatch, Keys, NodeStatement, Renew};
use prost::Message;
use prost::bytes::Bytes;

/// In front of a request for newer certificates.
pub const RENEW: &[u8] = b"fleetgate-renew-v1";
/// In front of audit records.
pub const AUDIT: &[u8] = b"fleetgate-audit-v1";

/// In front of what a node says of itself.
pub const STATEMENT: &[u8] = b"fleetgate-statement-v1";

/// In front of what a device signs at a login.
pub const DEVICE: &[u8] = b"fleetgate-device-v1";
/// In front of what it signs when it is enrolled.
pub const ENROLL: &[u8] = b"fleetgate-enroll-v1";

/// What is signed of a request for newer certificates: all of it, with an empty signature.
#[must_use]
pub fn renew(message: &Renew) -> Vec<u8> {
    let bare = Renew {
        signature: Vec::new().into(),
        ..message.clone()
    };
    [RENEW, &bare.encode_to_vec()].concat()
}

/// What is signed of audit records of the node or proxy `name`. Name and log have their lengths before them, big endian,
/// so that the parts can be told apart.
#[must_use]
pub fn audit(name: &str, batch: &AuditBatch) -> Vec<u8> {
    let mut all = AUDIT.to_vec();
    for text in [name, &batch.log] {
        all.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        all.extend_from_slice(text.as_bytes());
    }
    all.extend_from_slice(&batch.offset.to_be_bytes());
    all.extend_from_slice(&batch.lines);
    all
}

/// What a node signs of what it says of itself: the document as it goes over the wire.
#[must_use]
pub fn statement(document: &[u8]) -> Vec<u8> {
    [STATEMENT, document].concat()
}

impl NodeStatement {
    /// As it is signed and sent.
    #[must_use]
    pub fn document(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// From such bytes.
    pub fn read(document: &[u8]) -> Result<NodeStatement, prost::DecodeError> {
        NodeStatement::decode(document)
    }
}

/// What a device signs at a login: the nonce of a challenge, and the keys that the certificates are for. All of them say
/// themselves where they end: a nonce has 32 bytes, an SSH key and a SubjectPublicKeyInfo their lengths inside.
#[must_use]
pub fn device(nonce: &[u8], keys: &Keys) -> Vec<u8> {
    [DEVICE, nonce, &keys.ssh, &keys.tls].concat()
}

/// What a device's key signs when it is enrolled: the nonce of a challenge, and the key's own blob.
#[must_use]
pub fn enroll(nonce: &[u8], key: &[u8]) -> Vec<u8> {
    [ENROLL, nonce, key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_signature_is_signed() {
        let message = Renew {
            tls_public: b"p".as_slice().into(),
            host_keys: vec![b"h".as_slice().into()],
            signature: b"s".as_slice().into(),
            tls_certificate: b"c".as_slice().into(),
        };
        let other = |change: fn(&mut Renew)| {
            let mut other = message.clone();
            change(&mut other);
            renew(&other)
        };
        let signed = renew(&message);
        assert!(signed.starts_with(RENEW));
        assert_eq!(other(|m| m.signature = Vec::new().into()), signed);
        for change in [
            (|m| m.tls_public = b"q".as_slice().into()) as fn(&mut Renew),
            |m| m.host_keys.push(b"h".as_slice().into()),
            |m| m.tls_certificate = b"d".as_slice().into(),
        ] {
            assert_ne!(other(change), signed);
        }
        let batch = |log: &str, offset, lines: &'static str| AuditBatch {
            log: log.into(),
            offset,
            lines: lines.as_bytes().into(),
            ..AuditBatch::default()
        };
        let signed = audit("web1", &batch("a", 1, "l\n"));
        assert!(signed.starts_with(AUDIT));
        for other in [
            audit("web", &batch("1a", 1, "l\n")),
            audit("web1", &batch("b", 1, "l\n")),
            audit("web1", &batch("a", 2, "l\n")),
            audit("web1", &batch("a", 1, "m\n")),
        ] {
            assert_ne!(other, signed);
        }
    }
}
