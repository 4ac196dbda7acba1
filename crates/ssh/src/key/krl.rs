//! Revocation lists: OpenSSH's KRLs (PROTOCOL.krl) and plain lists of public keys, as sshd's RevokedKeys takes both. It
//! answers whether a key or certificate is on it; where the list cannot be read there is no answer, only an error, and
//! whoever asked has to refuse.

use super::public::MAX_BLOB;
use super::verify::verify_by_ca;
use super::{Certificate, KeyError, KeyOrCertificate, PublicKey, text};
use crate::codec::{Malformed, Reader};
use ring::digest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The largest list.
pub const MAX_KRL: usize = 16 * 1024 * 1024;
/// The longest comment and reserved field that are read over.
pub const MAX_COMMENT: usize = 64 * 1024;

const MAGIC: &[u8] = b"SSHKRL\n\0";
const VERSION: u32 = 1;

/// A revocation list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Krl {
    version: u64,
    generated: u64,
    /// By the CA's blob; an empty one is any CA.
    certificates: BTreeMap<Vec<u8>, Certificates>,
    keys: BTreeSet<Vec<u8>>,
    sha1: BTreeSet<[u8; 20]>,
    sha256: BTreeSet<[u8; 32]>,
}

/// What is revoked of one CA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Certificates {
    /// Sorted and apart from each other, once all was read.
    serials: Vec<(u64, u64)>,
    /// From a serial on, bits from the last byte to the first. They stay packed: a list may not grow in memory.
    bitmaps: Vec<(u64, Vec<u8>)>,
    key_ids: BTreeSet<String>,
}

/// Why something is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Its key is.
    Key,
    /// Its CA is.
    Ca,
    /// Its serial number is.
    Serial,
    /// Its key id is.
    KeyId,
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Revocation::Key => "its key is revoked",
            Revocation::Ca => "its CA is revoked",
            Revocation::Serial => "its serial number is revoked",
            Revocation::KeyId => "its key id is revoked",
        })
    }
}

impl Krl {
    /// From a file: a KRL, or lines of public keys.
    pub fn parse(file: &[u8]) -> Result<Krl, KeyError> {
        if file.len() > MAX_KRL {
            return Err(KeyError::TooLarge {
                what: "the bytes of a revocation list",
                most: MAX_KRL,
            });
        }
        match file.strip_prefix(MAGIC) {
            Some(_) => Krl::binary(file),
            None => Krl::list(file),
        }
    }

    /// The number that its maker gave it; 0 for a plain list.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When it was made, in seconds since 1970; 0 for a plain list.
    pub fn generated(&self) -> u64 {
        self.generated
    }

    /// Whether a key or certificate is on it.
    pub fn revoked(&self, presented: &KeyOrCertificate) -> Option<Revocation> {
        if self.has_key(presented.key()) {
            return Some(Revocation::Key);
        }
        match presented {
            KeyOrCertificate::Key(_) => None,
            KeyOrCertificate::Certificate(certificate) => self.revoked_certificate(certificate),
        }
    }

    fn revoked_certificate(&self, certificate: &Certificate) -> Option<Revocation> {
        if self.has_key(certificate.ca()) {
            return Some(Revocation::Ca);
        }
        let any: &[u8] = &[];
        for ca in [certificate.ca().blob(), any] {
            let Some(listed) = self.certificates.get(ca) else {
                continue;
            };
            if listed.key_ids.contains(certificate.key_id()) {
                return Some(Revocation::KeyId);
            }
            // PROTOCOL.krl: 0 is the serial of those that were given none.
            if certificate.serial() != 0 && listed.has_serial(certificate.serial()) {
                return Some(Revocation::Serial);
            }
        }
        None
    }

    fn has_key(&self, key: &PublicKey) -> bool {
        if self.keys.contains(key.blob()) {
            return true;
        }
        let digest = |algorithm| digest::digest(algorithm, key.blob());
        // SHA-1 here finds a key that somebody listed; nothing is believed because of it.
        let by_sha1 = || {
            <[u8; 20]>::try_from(digest(&digest::SHA1_FOR_LEGACY_USE_ONLY).as_ref())
                .is_ok_and(|d| self.sha1.contains(&d))
        };
        !self.sha256.is_empty() && self.sha256.contains(&key.sha256()) || !self.sha1.is_empty() && by_sha1()
    }

    /// Lines as of `.pub` files. One that cannot be read refuses the file: it might be the one that counts.
    fn list(file: &[u8]) -> Result<Krl, KeyError> {
        let file =
            std::str::from_utf8(file).map_err(|_| KeyError::Text("the list of revoked keys is no text"))?;
        let mut krl = Krl::default();
        for line in file
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            let (kind, base64, _) = text::line(line)?;
            let blob = match KeyOrCertificate::from_text(kind, base64) {
                Ok(presented) => presented.key().blob().to_vec(),
                // A type that cannot log in anyway.
                Err(KeyError::Type(_) | KeyError::RsaBits(_)) => text::decode(base64)?,
                Err(error) => return Err(error),
            };
            krl.keys.insert(blob);
        }
        Ok(krl)
    }

    fn binary(file: &[u8]) -> Result<Krl, KeyError> {
        let mut r = Reader::new(&file[MAGIC.len()..]);
        if r.u32("format version")? != VERSION {
            return Err(KeyError::Text(
                "the revocation list has another format version than 1",
            ));
        }
        let mut krl = Krl {
            version: r.u64("version")?,
            generated: r.u64("date")?,
            ..Krl::default()
        };
        r.u64("flags")?;
        for what in ["reserved field", "comment"] {
            if r.string(what)?.len() > MAX_COMMENT {
                return Err(KeyError::TooLarge {
                    what: "the bytes of a comment",
                    most: MAX_COMMENT,
                });
            }
        }
        let mut signed = false;
        while !r.rest().is_empty() {
            let kind = r.u8("section")?;
            if kind == 4 {
                krl.signature(file, &mut r)?;
                signed = true;
                continue;
            }
            // What stands behind a signature was not signed.
            if signed {
                return Err(Malformed::Trailing.into());
            }
            let mut section = Reader::new(r.string("section")?);
            match kind {
                1 => krl.certificates(section)?,
                2 => {
                    while !section.rest().is_empty() {
                        let blob = section.string("key")?;
                        if blob.len() > MAX_BLOB {
                            return Err(KeyError::TooLarge {
                                what: "the bytes of a key",
                                most: MAX_BLOB,
                            });
                        }
                        krl.keys.insert(blob.to_vec());
                    }
                }
                3 => digests(section, &mut krl.sha1)?,
                5 => digests(section, &mut krl.sha256)?,
                255 => extension(section)?,
                _ => {
                    return Err(KeyError::Text(
                        "the revocation list has a section that is not known here",
                    ));
                }
            }
        }
        for listed in krl.certificates.values_mut() {
            listed.sort();
        }
        Ok(krl)
    }

    /// Signs everything up to and with its own key. That the signer is trusted is not asked: the file's owner is.
    fn signature(&self, file: &[u8], r: &mut Reader<'_>) -> Result<(), KeyError> {
        let key = PublicKey::parse(r.string("signature key")?)?;
        let message = &file[..file.len() - r.rest().len()];
        let signature = r.string("signature")?;
        verify_by_ca(&key, message, signature)
            .map_err(|_| KeyError::Text("the revocation list has a wrong signature"))
    }

    fn certificates(&mut self, mut r: Reader<'_>) -> Result<(), KeyError> {
        let ca = r.string("CA key")?;
        if ca.len() > MAX_BLOB {
            return Err(KeyError::TooLarge {
                what: "the bytes of a key",
                most: MAX_BLOB,
            });
        }
        r.string("reserved field")?;
        let listed = self.certificates.entry(ca.to_vec()).or_default();
        while !r.rest().is_empty() {
            let kind = r.u8("section")?;
            let mut section = Reader::new(r.string("section")?);
            match kind {
                0x20 => {
                    while !section.rest().is_empty() {
                        let serial = section.u64("serial")?;
                        listed.serials.push((serial, serial));
                    }
                }
                0x21 => {
                    let (low, high) = (section.u64("first serial")?, section.u64("last serial")?);
                    section.end()?;
                    if low > high {
                        return Err(Malformed::Invalid("range of serials").into());
                    }
                    listed.serials.push((low, high));
                }
                0x22 => {
                    let offset = section.u64("first serial")?;
                    let bits = section.mpint("bitmap")?;
                    section.end()?;
                    if offset.checked_add(bits.len() as u64 * 8).is_none() {
                        return Err(Malformed::Invalid("bitmap").into());
                    }
                    listed.bitmaps.push((offset, bits.to_vec()));
                }
                0x23 => {
                    while !section.rest().is_empty() {
                        listed.key_ids.insert(section.text("key id")?.to_string());
                    }
                }
                0x39 => extension(section)?,
                _ => {
                    return Err(KeyError::Text(
                        "the revocation list has a section that is not known here",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Certificates {
    fn sort(&mut self) {
        self.serials.sort_unstable();
        self.serials.dedup_by(|next, last| {
            let meets = next.0 <= last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
        self.serials.shrink_to_fit();
    }

    fn has_serial(&self, serial: u64) -> bool {
        let behind = self.serials.partition_point(|&(low, _)| low <= serial);
        if behind > 0 && serial <= self.serials[behind - 1].1 {
            return true;
        }
        self.bitmaps.iter().any(|(offset, bits)| {
            let Some(bit) = serial.checked_sub(*offset) else {
                return false;
            };
            let Ok(byte) = usize::try_from(bit / 8) else {
                return false;
            };
            byte < bits.len() && bits[bits.len() - 1 - byte] >> (bit % 8) & 1 == 1
        })
    }
}

fn digests<const N: usize>(mut r: Reader<'_>, into: &mut BTreeSet<[u8; N]>) -> Result<(), KeyError> {
    while !r.rest().is_empty() {
        into.insert(
            r.string("fingerprint")?
                .try_into()
                .map_err(|_| Malformed::Invalid("fingerprint"))?,
        );
    }
    Ok(())
}

/// Name, whether it has to be understood, contents.
fn extension(mut r: Reader<'_>) -> Result<(), KeyError> {
    r.string("extension")?;
    let critical = r.bool("extension")?;
    r.string("extension")?;
    r.end()?;
    match critical {
        true => Err(KeyError::Text(
            "the revocation list has a critical extension that is not known here",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
