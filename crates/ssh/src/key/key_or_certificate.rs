//! A key or a certificate, as a host or a user shows it.

use super::algorithm::KeyType;
use super::public::{MAX_BLOB, bounded, unsupported};
use super::{Algorithm, Certificate, KeyError, PublicKey, text};

/// What somebody shows to prove himself: a key or a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrCertificate {
    /// A key.
    Key(PublicKey),
    /// A certificate.
    Certificate(Box<Certificate>),
}

impl KeyOrCertificate {
    /// From a blob.
    pub fn parse(blob: &[u8]) -> Result<KeyOrCertificate, KeyError> {
        let name = bounded(blob)?.text("type")?;
        match KeyType::parse(name) {
            Some((_, true)) => Certificate::parse(blob).map(|c| KeyOrCertificate::Certificate(Box::new(c))),
            Some((_, false)) => PublicKey::parse(blob).map(KeyOrCertificate::Key),
            None => Err(unsupported(name)),
        }
    }

    /// From a line of a `.pub` file.
    pub fn from_line(line: &str) -> Result<KeyOrCertificate, KeyError> {
        let (kind, base64, _) = text::line(line)?;
        KeyOrCertificate::from_text(kind, base64)
    }

    /// From a type's name and base64.
    pub fn from_text(kind: &str, base64: &str) -> Result<KeyOrCertificate, KeyError> {
        if KeyType::parse(kind).is_none() {
            return Err(unsupported(kind));
        }
        if base64.len() > MAX_BLOB * 4 / 3 + 4 {
            return Err(KeyError::TooLarge {
                what: "the bytes of a key",
                most: MAX_BLOB,
            });
        }
        let blob = text::decode(base64)?;
        let presented = KeyOrCertificate::parse(&blob)?;
        if presented.type_name() != kind {
            return Err(KeyError::Text("its type differs from the one inside"));
        }
        Ok(presented)
    }

    /// The key, or the one that the certificate is for.
    pub fn key(&self) -> &PublicKey {
        match self {
            KeyOrCertificate::Key(key) => key,
            KeyOrCertificate::Certificate(certificate) => certificate.key(),
        }
    }

    /// The bytes that it was read from.
    pub fn blob(&self) -> &[u8] {
        match self {
            KeyOrCertificate::Key(key) => key.blob(),
            KeyOrCertificate::Certificate(certificate) => certificate.blob(),
        }
    }

    /// As it stands in the blob.
    pub fn type_name(&self) -> &'static str {
        match self {
            KeyOrCertificate::Key(key) => key.key_type().name(),
            KeyOrCertificate::Certificate(certificate) => certificate.key().key_type().certificate_name(),
        }
    }

    /// Whether a signature of this algorithm can belong to it.
    pub fn fits(&self, algorithm: &Algorithm) -> bool {
        algorithm.key_type() == self.key().key_type()
            && algorithm.is_certificate() == matches!(self, KeyOrCertificate::Certificate(_))
    }
}

impl PublicKey {
    /// From a line of a `.pub` file.
    pub fn from_line(line: &str) -> Result<PublicKey, KeyError> {
        match KeyOrCertificate::from_line(line)? {
            KeyOrCertificate::Key(key) => Ok(key),
            KeyOrCertificate::Certificate(_) => Err(KeyError::NotAKey),
        }
    }
}
