//! A host's key: a private key, maybe with a certificate, and the algorithms that they offer.

use super::{Algorithm, Certificate, CertificateKind, KeyError, KeyType, PrivateKey, PublicKey};
use zeroize::Zeroizing;

/// A key that the host proves itself with.
#[derive(Debug)]
pub struct HostKey {
    key: PrivateKey,
    certificate: Option<Certificate>,
}

impl HostKey {
    /// From a private key file's text and its mode.
    pub fn read(file: &[u8], mode: u32) -> Result<HostKey, KeyError> {
        PrivateKey::read(file, mode).map(|key| HostKey {
            key,
            certificate: None,
        })
    }

    /// Makes one, with the text for its file: where there are none at the first start.
    pub fn generate(kind: KeyType, comment: &str) -> Result<(HostKey, Zeroizing<String>), KeyError> {
        PrivateKey::generate(kind, comment).map(|(key, file)| {
            (
                HostKey {
                    key,
                    certificate: None,
                },
                file,
            )
        })
    }

    /// Adds the certificate of a `-cert.pub` file. It has to be a host's, for this key, and rightly signed.
    pub fn certify(&mut self, line: &str) -> Result<(), KeyError> {
        let certificate = Certificate::from_line(line)?;
        if certificate.key() != self.key.public() {
            return Err(KeyError::OtherKey);
        }
        if certificate.kind() != CertificateKind::Host {
            return Err(KeyError::Text(
                "the certificate is a user's, and a host's was expected",
            ));
        }
        certificate
            .signature_holds()
            .map_err(|_| KeyError::Text("the certificate's signature is wrong"))?;
        self.certificate = Some(certificate);
        Ok(())
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// The certificate.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// What it can sign with, those of its certificate first: a client that takes certificates shall get one.
    pub fn algorithms(&self) -> Vec<&'static str> {
        let own = |certificate: bool| {
            let kind = self.key.public().key_type();
            Algorithm::all()
                .iter()
                .filter(move |a| a.key_type() == kind && a.is_certificate() == certificate)
        };
        let certified = own(true).filter(|_| self.certificate.is_some());
        certified.chain(own(false)).map(|a| a.name()).collect()
    }

    /// The blob that goes with an algorithm in a key exchange: the key, or the certificate.
    pub fn blob(&self, algorithm: &str) -> Option<&[u8]> {
        let algorithm =
            Algorithm::parse(algorithm).filter(|a| a.key_type() == self.key.public().key_type())?;
        match algorithm.is_certificate() {
            true => self.certificate.as_ref().map(|c| c.blob()),
            false => Some(self.key.public().blob()),
        }
    }

    /// A signature blob.
    pub fn sign(&self, algorithm: &str, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.key.sign(algorithm, message)
    }
}
