//! X.509 certificates as the cluster uses them: ECDSA P-256, one authority above each leaf, names that say what a
//! certificate is for, and the identity in an extension. Whether a chain holds is decided in `tls`, by webpki; nothing
//! here believes what it reads.

use crate::pin::Pin;
use fleetgate_policy::cluster::{Identity, X509_EXTENSION, X509_EXTENSION_TEXT};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber, SignatureAlgorithm,
};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use x509_cert::Certificate as Parsed;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints as ReadConstraints, ExtendedKeyUsage, SubjectAltName};
use zeroize::Zeroizing;

/// The longest certificate that is read.
pub const CERTIFICATE_MAX: usize = 64 * 1024;

const IDENTITY: ObjectIdentifier = ObjectIdentifier::new_unwrap(X509_EXTENSION_TEXT);

const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// What stands before the point in the SubjectPublicKeyInfo of every P-256 key (RFC 5480 §2), and the point's length.
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT: usize = 65;

/// A private key, ECDSA P-256. Wiped when it goes, never printed.
pub struct Key {
    pkcs8: Zeroizing<Vec<u8>>,
    pair: EcdsaKeyPair,
}

/// A public key that certificates are issued for and signatures are checked with.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    spki: Vec<u8>,
}

/// A certificate authority: its key and its own certificate.
pub struct Authority {
    key: Key,
    certificate: Certificate,
    subject: String,
}

/// What a certificate is to say.
pub struct Leaf<'a> {
    /// SubjectPublicKeyInfo, DER.
    pub public: &'a [u8],
    /// DNS names: `proxy.fleetgate`, `auth.fleetgate`, `NAME.node.fleetgate`; none for a user.
    pub names: &'a [String],
    /// May be shown by whoever dials.
    pub client: bool,
    /// May be shown by whoever is dialled.
    pub server: bool,
    /// Who it is.
    pub identity: Option<&'a Identity>,
    /// Unix seconds: from, and when no longer.
    pub validity: Range<u64>,
}

/// A certificate that was read, not verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    public: Vec<u8>,
    validity: Range<u64>,
    names: Vec<String>,
    authority: bool,
    client: bool,
    server: bool,
    subject: Option<String>,
    identity: Option<Vec<u8>>,
}

/// Why a certificate or key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It is not one, or more than is read.
    Unreadable(String),
    /// A key of another kind.
    KeyKind,
    /// The private key is not the one of the certificate.
    Mismatch,
    /// Its identity cannot be read.
    Identity(String),
    /// A signature that is not by that key.
    Signature,
    /// What was to be issued could not be written.
    Issue(String),
}

impl Key {
    /// A fresh one.
    #[must_use]
    pub fn generate() -> Key {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
            .expect("the kernel gives random bytes once it has started");
        Key::from_pkcs8(pkcs8.as_ref()).expect("a fresh key can be read")
    }

    /// From its PKCS#8 document.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Key, Error> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|_| Error::KeyKind)?;
        Ok(Key {
            pkcs8: Zeroizing::new(pkcs8.to_vec()),
            pair,
        })
    }

    /// Its PKCS#8 document, for a file that only its owner can read.
    #[must_use]
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey {
            spki: [P256_PREFIX, self.pair.public_key().as_ref()].concat(),
        }
    }

    /// An ECDSA signature (SHA-256, DER).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair
            .sign(&SystemRandom::new(), message)
            .expect("the kernel gives random bytes once it has started")
            .as_ref()
            .to_vec()
    }
}

impl PublicKey {
    /// From a SubjectPublicKeyInfo, DER.
    pub fn from_spki(spki: &[u8]) -> Result<PublicKey, Error> {
        // The uncompressed form alone (RFC 5480 §2.2): one key has one hash.
        let point = spki.strip_prefix(P256_PREFIX).ok_or(Error::KeyKind)?;
        if point.len() != POINT || point[0] != 4 {
            return Err(Error::KeyKind);
        }
        Ok(PublicKey { spki: spki.to_vec() })
    }

    /// SubjectPublicKeyInfo, DER.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Whether `signature` is this key's over `message` (see [`Key::sign`]).
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.der_bytes())
            .verify(message, signature)
            .map_err(|_| Error::Signature)
    }
}

impl Authority {
    /// A new one. `subject` names it to people: "fleetgate CLUSTER TLS".
    pub fn generate(subject: &str, validity: Range<u64>) -> Result<Authority, Error> {
        let key = Key::generate();
        let mut params = parameters(subject, &validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(issue)?;
        Authority::new(key, certificate.der())
    }

    /// From what was kept of it.
    pub fn new(key: Key, certificate: &[u8]) -> Result<Authority, Error> {
        let certificate = Certificate::read(certificate)?;
        if certificate.public != key.public().spki() {
            return Err(Error::Mismatch);
        }
        let subject = match &certificate.subject {
            Some(subject) if certificate.authority => subject.clone(),
            _ => {
                return Err(Error::Unreadable(
                    "it is not an authority's certificate".to_owned(),
                ));
            }
        };
        Ok(Authority {
            key,
            certificate,
            subject,
        })
    }

    /// Its certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its key, to be kept.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// A certificate, DER. The chain to hand out is that and this authority's own, so that whoever only has a [`Pin`] finds
    /// the authority in it.
    pub fn issue(&self, leaf: &Leaf<'_>) -> Result<Vec<u8>, Error> {
        let public = PublicKey::from_spki(leaf.public)?;
        let mut params = parameters("fleetgate", &leaf.validity)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        for (wanted, usage) in [
            (leaf.client, ExtendedKeyUsagePurpose::ClientAuth),
            (leaf.server, ExtendedKeyUsagePurpose::ServerAuth),
        ] {
            if wanted {
                params.extended_key_usages.push(usage);
            }
        }
        for name in leaf.names {
            let name = name.as_str().try_into().map_err(issue)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        if let Some(identity) = leaf.identity {
            params.custom_extensions.push(CustomExtension::from_oid_content(
                X509_EXTENSION,
                identity.encode(),
            ));
        }
        let mut above = parameters(&self.subject, &self.certificate.validity)?;
        above.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        above.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = Issuer::from_params(&above, &self.key);
        let certificate = params.signed_by(&public, &issuer).map_err(issue)?;
        Ok(certificate.der().to_vec())
    }
}

impl Certificate {
    /// Reads one, DER.
    pub fn read(der: &[u8]) -> Result<Certificate, Error> {
        let unreadable = |e: x509_cert::der::Error| Error::Unreadable(e.to_string());
        if der.len() > CERTIFICATE_MAX {
            return Err(Error::Unreadable(format!(
                "it is longer than {CERTIFICATE_MAX} bytes"
            )));
        }
        let parsed = Parsed::from_der(der).map_err(unreadable)?;
        let body = parsed.tbs_certificate();
        let seconds = |time: &x509_cert::time::Time| time.to_unix_duration().as_secs();
        let mut read = Certificate {
            der: der.to_vec(),
            public: body.subject_public_key_info().to_der().map_err(unreadable)?,
            // RFC 5280 §4.1.2.5: both ends belong to it.
            validity: seconds(&body.validity().not_before)
                ..seconds(&body.validity().not_after).saturating_add(1),
            names: Vec::new(),
            authority: false,
            client: false,
            server: false,
            subject: common_name(body.subject()),
            identity: None,
        };
        if let Some((_, usages)) = body
            .get_extension::<ExtendedKeyUsage>()
            .map_err(|e| Error::Unreadable(e.to_string()))?
        {
            read.client = usages.0.contains(&CLIENT_AUTH);
            read.server = usages.0.contains(&SERVER_AUTH);
        }
        if let Some((_, names)) = body
            .get_extension::<SubjectAltName>()
            .map_err(|e| Error::Unreadable(e.to_string()))?
        {
            read.names = names
                .0
                .iter()
                .filter_map(|name| match name {
                    GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
                    _ => None,
                })
                .collect();
        }
        if let Some((_, constraints)) = body
            .get_extension::<ReadConstraints>()
            .map_err(|e| Error::Unreadable(e.to_string()))?
        {
            read.authority = constraints.ca;
        }
        let mut identities = body
            .extensions()
            .into_iter()
            .flatten()
            .filter(|extension| extension.extn_id == IDENTITY);
        read.identity = identities
            .next()
            .map(|extension| extension.extn_value.as_bytes().to_vec());
        if identities.next().is_some() {
            return Err(Error::Identity(
                "the certificate's identity stands in it twice".to_owned(),
            ));
        }
        Ok(read)
    }

    /// As it was read.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// SubjectPublicKeyInfo, DER.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The key, to check signatures with.
    pub fn public_key(&self) -> Result<PublicKey, Error> {
        PublicKey::from_spki(&self.public)
    }

    /// The hash of the key.
    #[must_use]
    pub fn pin(&self) -> Pin {
        Pin::of(&self.public)
    }

    /// Unix seconds: from, and when no longer.
    #[must_use]
    pub fn validity(&self) -> Range<u64> {
        self.validity.clone()
    }

    /// Its DNS names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The subject's common name: an authority's name for people.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Whether it says that it may issue others.
    #[must_use]
    pub fn is_authority(&self) -> bool {
        self.authority
    }

    /// Whether whoever dials may show it.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.client
    }

    /// Whether whoever is dialled may show it.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.server
    }

    /// Who it says it is; of a certificate without an identity, none.
    pub fn identity(&self) -> Result<Option<Identity>, Error> {
        match &self.identity {
            None => Ok(None),
            Some(bytes) => Identity::parse(bytes)
                .map(Some)
                .map_err(|why| Error::Identity(why.into())),
        }
    }
}

/// The instant that Unix seconds stand for, in words: `2026-11-21T19:00:00Z`.
#[must_use]
pub fn instant(unix: u64) -> String {
    match x509_cert::der::DateTime::from_unix_duration(Duration::from_secs(unix)) {
        Ok(time) => time.to_string(),
        Err(_) => format!("second {unix}"),
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.spki[P256_PREFIX.len()..]
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(Key::sign(self, message))
    }
}

fn parameters(subject: &str, validity: &Range<u64>) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, DnValue::Utf8String(subject.to_owned()));
    params.distinguished_name = name;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |seconds: u64| {
        // Year 9999 is the last that DER can write (RFC 5280 §4.1.2.5.2).
        epoch.checked_add(
            Duration::from_secs(seconds.min(253_402_300_799))
                .try_into()
                .ok()?,
        )
    };
    let bad_time = || Error::Issue("its validity cannot be written".to_owned());
    params.not_before = at(validity.start).ok_or_else(bad_time)?;
    // The end is exclusive here and inclusive there.
    params.not_after = at(validity.end.saturating_sub(1)).ok_or_else(bad_time)?;
    let mut serial = [0; 16];
    SystemRandom::new()
        .fill(&mut serial)
        .expect("the kernel gives random bytes once it has started");
    // RFC 5280 §4.1.2.2: positive.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.key_identifier_method = KeyIdMethod::Sha256;
    Ok(params)
}

fn common_name(name: &x509_cert::name::Name) -> Option<String> {
    const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
    let value = name.iter().find(|attribute| attribute.oid == COMMON_NAME)?;
    std::str::from_utf8(value.value.value()).ok().map(str::to_owned)
}

fn issue(error: rcgen::Error) -> Error {
    Error::Issue(error.to_string())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreadable(why) => write!(f, "the certificate cannot be read: {why}"),
            Error::KeyKind => f.write_str("the key is not an ECDSA P-256 key: make a new one"),
            Error::Mismatch => f.write_str(
                "the private key does not belong to the certificate: use the pair that was made together",
            ),
            Error::Identity(why) => f.write_str(why),
            Error::Signature => f.write_str("the signature is not by the certificate's key"),
            Error::Issue(why) => write!(f, "the certificate cannot be issued: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", Pin::of(self.public().spki()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", Pin::of(&self.spki))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({:?}, {})", self.subject, self.certificate.pin())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, {:?})", self.pin(), self.names)
    }
}
