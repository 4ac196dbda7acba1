//! Whether a chain holds: webpki decides, and what it leaves open is decided here. A certificate of the cluster names what
//! it is for; one that names nothing is for nothing.

use super::{Error, SYSTEM_ROOTS};
use crate::pin::Pin;
use crate::x509::Certificate;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerMisbehaved,
    RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// How many certificates of a server's chain are looked at for the pinned authority.
const CHAIN_MAX: usize = 8;

/// The cluster's servers.
#[derive(Debug)]
pub(crate) struct Servers {
    usual: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

/// Servers under one authority, of which the hash is known.
#[derive(Debug)]
pub(crate) struct PinnedServers {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

/// The cluster's clients.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) usual: Arc<dyn ClientCertVerifier>,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl Servers {
    pub(crate) fn by(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Servers, Error> {
        let usual = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(Error::setting)?;
        Ok(Servers { usual, provider })
    }
}

impl PinnedServers {
    pub(crate) fn new(pin: Pin, provider: Arc<CryptoProvider>) -> PinnedServers {
        PinnedServers { pin, provider }
    }
}

/// By the system's authorities.
pub(crate) fn system(provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(SYSTEM_ROOTS).map_err(|e| {
        Error::setting(format!(
            "{SYSTEM_ROOTS} cannot be read: {e}: install ca-certificates, or give a pin"
        ))
    })?;
    // One that cannot be read is no reason not to believe the others.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| {
            Error::setting(format!(
                "{SYSTEM_ROOTS} names no authority: install ca-certificates, or give a pin"
            ))
        })?;
    Ok(usual)
}

/// By the authorities in a PEM text.
pub(crate) fn given(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = match certificate {
            Ok(certificate) => roots.add(certificate).map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        added
            .map_err(|e| Error::setting(format!("an authority's certificate cannot be read as PEM: {e}")))?;
    }
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| Error::setting("there is no authority's certificate (PEM)"))?;
    Ok(usual)
}

/// A verifier's part that is the same for all: the handshake's signatures, of TLS 1.3 alone.
macro_rules! tls13_signatures_alone {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _leaf: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            Err(NO_TLS_12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, leaf, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self
            .usual
            .verify_server_cert(leaf, others, name, ocsp, now)
            .map_err(by_another)?;
        is_for(leaf, Certificate::is_server)?;
        Ok(verified)
    }

    tls13_signatures_alone!();
}

impl ServerCertVerifier for PinnedServers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let authority = others
            .iter()
            .take(CHAIN_MAX)
            .find(|other| {
                Certificate::read(other).is_ok_and(|other| other.is_authority() && other.pin() == self.pin)
            })
            .ok_or(TlsError::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        Servers::by(Arc::new(roots), self.provider.clone())
            .map_err(|e| TlsError::General(e.to_string()))?
            .verify_server_cert(leaf, others, name, ocsp, now)
    }

    tls13_signatures_alone!();
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None are sent: a client has one certificate at most, and each name costs every handshake its bytes.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        let verified = self
            .usual
            .verify_client_cert(leaf, others, now)
            .map_err(by_another)?;
        is_for(leaf, Certificate::is_client)?;
        Ok(verified)
    }

    tls13_signatures_alone!();
}

const NO_TLS_12: TlsError = TlsError::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite);

/// webpki takes a certificate that names no usage for any (RFC 5280 §4.2.1.12); the cluster's name theirs.
fn is_for(leaf: &CertificateDer<'_>, usage: impl Fn(&Certificate) -> bool) -> Result<(), TlsError> {
    let leaf =
        Certificate::read(leaf).map_err(|_| TlsError::InvalidCertificate(CertificateError::BadEncoding))?;
    if usage(&leaf) {
        Ok(())
    } else {
        Err(TlsError::InvalidCertificate(CertificateError::InvalidPurpose))
    }
}

/// A cluster that was made anew has an authority of the same name with another key: to whoever believes the old one, the
/// signature is wrong.
fn by_another(error: TlsError) -> TlsError {
    match error {
        TlsError::InvalidCertificate(CertificateError::BadSignature) => {
            TlsError::InvalidCertificate(CertificateError::UnknownIssuer)
        }
        other => other,
    }
}
