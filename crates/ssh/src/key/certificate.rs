//! OpenSSH certificates (PROTOCOL.certkeys): read and bounded here, believed nowhere. Whether one holds is said by
//! `user::check` and `Certificate::check_host`.

use super::algorithm::KeyType;
use super::public::{Parts, bounded, unsupported};
use super::verify::{BadSignature, verify_by_ca};
use super::{KeyError, PublicKey, text};
use crate::codec::{Malformed, Reader};
use fleetgate_policy::address::Networks;
use std::fmt;

/// The most principals of a certificate, as in OpenSSH.
pub const MAX_PRINCIPALS: usize = 256;
/// The longest name of a principal.
pub const MAX_PRINCIPAL: usize = 1024;
/// The longest key id.
pub const MAX_KEY_ID: usize = 1024;
/// The most critical options, and the most extensions.
pub const MAX_OPTIONS: usize = 64;
/// The longest name of one of them.
pub const MAX_OPTION_NAME: usize = 256;

/// Whom a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// A user.
    User,
    /// A host.
    Host,
}

/// A certificate. That it could be read says nothing about its signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    blob: Vec<u8>,
    /// How many of the blob's bytes the CA signed.
    signed: usize,
    key: PublicKey,
    serial: u64,
    kind: CertificateKind,
    key_id: String,
    principals: Vec<String>,
    valid_after: u64,
    valid_before: u64,
    critical: Critical,
    extensions: Vec<(String, Vec<u8>)>,
    ca: PublicKey,
    signature: Vec<u8>,
}

/// The critical options that are known; any other refuses the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Critical {
    /// force-command.
    pub force_command: Option<String>,
    /// source-address.
    pub source_address: Option<Networks>,
    /// verify-required.
    pub verify_required: bool,
}

impl Certificate {
    /// From a blob.
    pub fn parse(blob: &[u8]) -> Result<Certificate, KeyError> {
        let mut r = bounded(blob)?;
        let name = r.text("type")?;
        let kind = match KeyType::parse(name) {
            Some((kind, true)) => kind,
            Some((_, false)) => return Err(KeyError::NotACertificate),
            None => return Err(unsupported(name)),
        };
        r.string("nonce")?;
        let key = PublicKey::new(Parts::read(kind, &mut r)?);
        let serial = r.u64("serial")?;
        let kind = match r.u32("type of certificate")? {
            1 => CertificateKind::User,
            2 => CertificateKind::Host,
            _ => return Err(Malformed::Invalid("type of certificate").into()),
        };
        let key_id = limited(r.text("key id")?, "the bytes of a key id", MAX_KEY_ID)?;
        let principals = read_principals(r.string("principals")?)?;
        let (valid_after, valid_before) = (r.u64("valid after")?, r.u64("valid before")?);
        let critical = Critical::read(r.string("critical options")?)?;
        let extensions = read_options(r.string("extensions")?)?;
        let extensions = extensions
            .into_iter()
            .map(|(n, v)| (n.to_string(), v.to_vec()))
            .collect();
        r.string("reserved field")?;
        let ca = PublicKey::parse(r.string("CA key")?)?;
        let signed = blob.len() - r.rest().len();
        let signature = r.string("signature")?.to_vec();
        r.end()?;
        Ok(Certificate {
            blob: blob.to_vec(),
            signed,
            key,
            serial,
            kind,
            key_id,
            principals,
            valid_after,
            valid_before,
            critical,
            extensions,
            ca,
            signature,
        })
    }

    /// From a line of a `-cert.pub` file.
    pub fn from_line(line: &str) -> Result<Certificate, KeyError> {
        match super::KeyOrCertificate::from_line(line)? {
            super::KeyOrCertificate::Certificate(certificate) => Ok(*certificate),
            super::KeyOrCertificate::Key(_) => Err(KeyError::NotACertificate),
        }
    }

    /// Whether the CA's signature is right. Whether that CA is trusted is another question.
    pub fn signature_holds(&self) -> Result<(), BadSignature> {
        verify_by_ca(&self.ca, &self.blob[..self.signed], &self.signature)
    }

    /// Whether it is a certificate for the host `name` that holds at `now`, of a CA that `trusted` knows.
    pub fn check_host(
        &self,
        name: &str,
        now: u64,
        skew: u64,
        trusted: impl FnOnce(&PublicKey) -> bool,
    ) -> Result<(), CertificateRefused> {
        if !trusted(&self.ca) {
            return Err(CertificateRefused::Ca(self.ca.fingerprint()));
        }
        if self.kind != CertificateKind::Host {
            return Err(CertificateRefused::Kind);
        }
        self.check_time(now, skew)?;
        if self.critical != Critical::default() {
            return Err(CertificateRefused::HostOptions);
        }
        // Host names know no case.
        if !self.principals.iter().any(|p| p.eq_ignore_ascii_case(name)) {
            return Err(CertificateRefused::Principal);
        }
        self.signature_holds().map_err(CertificateRefused::Signature)
    }

    pub(super) fn check_time(&self, now: u64, skew: u64) -> Result<(), CertificateRefused> {
        if now.saturating_add(skew) < self.valid_after {
            return Err(CertificateRefused::TooEarly);
        }
        match self.expires(skew) {
            Some(end) if now >= end => Err(CertificateRefused::Expired),
            _ => Ok(()),
        }
    }

    /// The first second (since 1970) at which it holds no more, the allowance included; none: it always does.
    pub fn expires(&self, skew: u64) -> Option<u64> {
        (self.valid_before != u64::MAX).then(|| self.valid_before.saturating_add(skew))
    }

    /// The key that it is for.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The bytes that it was read from.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Its number at the CA; 0: none was given.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Whom it is for.
    pub fn kind(&self) -> CertificateKind {
        self.kind
    }

    /// The CA's words for whom it was made. Not to be trusted to be printable.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The names that it is good for.
    pub fn principals(&self) -> &[String] {
        &self.principals
    }

    /// The first second (since 1970) at which it holds.
    pub fn valid_after(&self) -> u64 {
        self.valid_after
    }

    /// The first second at which it holds no more; all ones: it always does.
    pub fn valid_before(&self) -> u64 {
        self.valid_before
    }

    /// What it insists on.
    pub fn critical(&self) -> &Critical {
        &self.critical
    }

    /// Whether it has this extension.
    pub fn has_extension(&self, name: &str) -> bool {
        self.extension(name).is_some()
    }

    /// An extension's data, as it stands there: a string inside for those that have a value.
    pub fn extension(&self, name: &str) -> Option<&[u8]> {
        self.extensions
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, data)| &data[..])
    }

    /// The key of the CA that it names.
    pub fn ca(&self) -> &PublicKey {
        &self.ca
    }

    /// As a line of a `-cert.pub` file.
    pub fn line(&self) -> String {
        format!(
            "{} {}",
            self.key.key_type().certificate_name(),
            text::encode(&self.blob)
        )
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Certificate({:?} serial {} for {:?})",
            self.key_id, self.serial, self.key
        )
    }
}

impl Critical {
    fn read(bytes: &[u8]) -> Result<Critical, KeyError> {
        let mut critical = Critical::default();
        for (name, data) in read_options(bytes)? {
            match name {
                "force-command" => {
                    critical.force_command = Some(one_string(data, "force-command")?.to_string())
                }
                "source-address" => {
                    let list = one_string(data, "source-address")?;
                    let list = Networks::parse(list).map_err(|_| Malformed::Invalid("source-address"))?;
                    critical.source_address = Some(list);
                }
                "verify-required" if data.is_empty() => critical.verify_required = true,
                "verify-required" => return Err(Malformed::Invalid("verify-required").into()),
                _ => return Err(KeyError::CriticalOption(name.chars().take(64).collect())),
            }
        }
        Ok(critical)
    }
}

/// Why a certificate lets nobody in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateRefused {
    /// Its CA is not trusted.
    Ca(String),
    /// A host's where a user's has to be, or the other way round.
    Kind,
    /// It is not valid yet.
    TooEarly,
    /// It is valid no more.
    Expired,
    /// It has no name that is good for this account or host.
    Principal,
    /// It has no names at all.
    NoPrincipals,
    /// It may not be used from this address.
    Source,
    /// A host's certificate with critical options.
    HostOptions,
    /// The CA's signature is not right.
    Signature(BadSignature),
    /// It forces another command than the line that names its CA.
    Forced,
}

impl fmt::Display for CertificateRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateRefused::Ca(fingerprint) => write!(f, "its CA {fingerprint} is not trusted here"),
            CertificateRefused::Kind => {
                f.write_str("it is a user's certificate for a host or a host's for a user")
            }
            CertificateRefused::TooEarly => f.write_str("it is not valid yet: compare the clocks"),
            CertificateRefused::Expired => f.write_str("it has expired: get a new one"),
            CertificateRefused::Principal => f.write_str("none of its principals may log in as this account"),
            CertificateRefused::NoPrincipals => f.write_str("it has no principals"),
            CertificateRefused::Source => f.write_str("its source-address does not have this address"),
            CertificateRefused::HostOptions => f.write_str("it is a host's and has critical options"),
            CertificateRefused::Signature(why) => write!(f, "its CA's signature does not hold: {why}"),
            CertificateRefused::Forced => f.write_str("it forces another command than authorized_keys does"),
        }
    }
}

impl std::error::Error for CertificateRefused {}

fn limited(text: &str, what: &'static str, most: usize) -> Result<String, KeyError> {
    match text.len() > most {
        true => Err(KeyError::TooLarge { what, most }),
        false => Ok(text.to_string()),
    }
}

fn read_principals(bytes: &[u8]) -> Result<Vec<String>, KeyError> {
    let mut r = Reader::new(bytes);
    let mut principals = Vec::new();
    while !r.rest().is_empty() {
        if principals.len() == MAX_PRINCIPALS {
            return Err(KeyError::TooLarge {
                what: "the principals of a certificate",
                most: MAX_PRINCIPALS,
            });
        }
        principals.push(limited(
            r.text("principal")?,
            "the bytes of a principal",
            MAX_PRINCIPAL,
        )?);
    }
    Ok(principals)
}

/// Names and data. A name that stands there twice could mean either, so it is refused.
fn read_options(bytes: &[u8]) -> Result<Vec<(&str, &[u8])>, KeyError> {
    let mut r = Reader::new(bytes);
    let mut options: Vec<(&str, &[u8])> = Vec::new();
    while !r.rest().is_empty() {
        if options.len() == MAX_OPTIONS {
            return Err(KeyError::TooLarge {
                what: "the options of a certificate",
                most: MAX_OPTIONS,
            });
        }
        let name = r.text("option")?;
        if name.len() > MAX_OPTION_NAME {
            return Err(KeyError::TooLarge {
                what: "the bytes of an option's name",
                most: MAX_OPTION_NAME,
            });
        }
        if options.iter().any(|(n, _)| *n == name) {
            return Err(Malformed::Invalid("option").into());
        }
        options.push((name, r.string("option")?));
    }
    Ok(options)
}

fn one_string<'a>(data: &'a [u8], what: &'static str) -> Result<&'a str, KeyError> {
    let mut r = Reader::new(data);
    let text = r.text(what)?;
    r.end()?;
    if text.contains('\0') {
        return Err(Malformed::Invalid(what).into());
    }
    Ok(text)
}
