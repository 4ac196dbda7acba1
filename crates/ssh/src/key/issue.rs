//! Making OpenSSH certificates (PROTOCOL.certkeys): a draft says what one shall hold, a CA's key signs it. Nothing is
//! decided here: who may have which certificate is the authority's business.

use super::algorithm::KeyType;
use super::certificate::{Certificate, CertificateKind};
use super::{KeyError, PrivateKey, PublicKey};
use crate::codec::Write;
use ring::rand::{SecureRandom, SystemRandom};

/// The nonce that keeps a CA from signing what others chose byte by byte.
const NONCE: usize = 32;

/// What a certificate shall say.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// Whom it is for.
    pub kind: CertificateKind,
    /// Its number at the CA.
    pub serial: u64,
    /// The CA's words for whom it is.
    pub key_id: &'a str,
    /// The names that it is good for.
    pub principals: &'a [&'a str],
    /// The first second (since 1970) at which it holds.
    pub valid_after: u64,
    /// The first second at which it holds no more.
    pub valid_before: u64,
    /// Critical options: names and their values.
    pub critical: &'a [(&'a str, &'a str)],
    /// Extensions: names and their values; empty: a flag.
    pub extensions: &'a [(&'a str, &'a [u8])],
}

impl Draft<'_> {
    /// The certificate for `key`, signed by `ca`. What could not be read back, because it is over a bound or an option is
    /// not known, is an error.
    pub fn sign(&self, key: &PublicKey, ca: &PrivateKey) -> Result<Certificate, KeyError> {
        let mut nonce = [0; NONCE];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| KeyError::Random)?;
        let mut blob = Vec::with_capacity(1024);
        blob.put_string(key.key_type().certificate_name());
        blob.put_string(nonce);
        blob.put(fields(key));
        blob.put_u64(self.serial);
        blob.put_u32(match self.kind {
            CertificateKind::User => 1,
            CertificateKind::Host => 2,
        });
        blob.put_string(self.key_id);
        let mut principals = Vec::new();
        for principal in self.principals {
            principals.put_string(principal);
        }
        blob.put_string(principals);
        blob.put_u64(self.valid_after);
        blob.put_u64(self.valid_before);
        blob.put_string(options(self.critical.iter().map(|(n, v)| (*n, v.as_bytes()))));
        blob.put_string(options(self.extensions.iter().copied()));
        blob.put_string("");
        blob.put_string(ca.public().blob());
        let signature = ca.sign(signing_name(ca), &blob)?;
        blob.put_string(signature);
        Certificate::parse(&blob)
    }
}

/// A key's blob behind its type's name.
fn fields(key: &PublicKey) -> &[u8] {
    &key.blob()[4 + key.key_type().name().len()..]
}

/// Names in their order, as PROTOCOL.certkeys wants them, each once as long as the caller has them once. The value is a
/// string inside the data; that of a flag is nothing.
fn options<'a>(options: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut sorted: Vec<_> = options.collect();
    sorted.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    for (name, value) in sorted {
        out.put_string(name);
        let mut data = Vec::new();
        if !value.is_empty() {
            data.put_string(value);
        }
        out.put_string(data);
    }
    out
}

fn signing_name(ca: &PrivateKey) -> &'static str {
    match ca.public().key_type() {
        // SHA-1 is not made by anybody here.
        KeyType::Rsa => "rsa-sha2-512",
        kind => kind.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{Folder, private};

    const EXTENSIONS: &[(&str, &[u8])] = &[("permit-pty", b""), ("note@example.com", b"value"), ("a", b"")];

    fn draft<'a>(kind: CertificateKind, principals: &'a [&'a str]) -> Draft<'a> {
        Draft {
            kind,
            serial: 7,
            key_id: "ada (orchard)",
            principals,
            valid_after: 1_000,
            valid_before: 2_000,
            critical: &[],
            extensions: &[],
        }
    }

    #[test]
    fn ssh_keygen_reads_what_is_made() {
        let folder = Folder::new("issue");
        let keys: &[&[&str]] = &[&["ed25519"], &["ecdsa", "-b", "256"], &["rsa", "-b", "2048"]];
        for (i, ca) in keys.iter().enumerate() {
            folder.key(&format!("ca{i}"), ca);
            let ca = private(&folder, &format!("ca{i}"));
            for (j, key) in keys.iter().enumerate() {
                let key = folder.key(&format!("key{i}{j}"), key);
                let mut draft = draft(CertificateKind::User, &["ada", "root"]);
                draft.extensions = EXTENSIONS;
                draft.critical = &[("source-address", "192.0.2.0/24")];
                let made = draft.sign(&key, &ca).unwrap();
                assert_eq!(made.signature_holds(), Ok(()));
                assert_eq!(made.key(), &key);
                assert_eq!(made.ca(), ca.public());
                assert_eq!(made.extension("note@example.com"), Some(&b"\0\0\0\x05value"[..]));
                let name = format!("made{i}{j}-cert.pub");
                folder.write(&name, made.line());
                let (done, said) = folder.keygen(&["-L", "-f", &name]);
                assert!(done, "{said}");
                for part in [
                    "user certificate",
                    "Key ID: \"ada (orchard)\"",
                    "Serial: 7",
                    "                ada\n                root\n",
                    "source-address 192.0.2.0/24",
                    "permit-pty",
                    "note@example.com UNKNOWN OPTION",
                ] {
                    assert!(said.contains(part), "{part:?} in {said}");
                }
            }
        }
    }

    #[test]
    fn hosts_are_known_by_what_is_made_and_by_nothing_else() {
        let (ca, _) = PrivateKey::generate(KeyType::Ed25519, "").unwrap();
        let (host, _) = PrivateKey::generate(KeyType::EcdsaP256, "").unwrap();
        let made = draft(CertificateKind::Host, &["web1"])
            .sign(host.public(), &ca)
            .unwrap();
        assert_eq!(made.check_host("web1", 1_500, 0, |k| k == ca.public()), Ok(()));
        assert!(made.check_host("web2", 1_500, 0, |_| true).is_err());
        assert!(made.check_host("web1", 2_500, 0, |_| true).is_err());
        assert!(made.check_host("web1", 1_500, 0, |_| false).is_err());
    }

    #[test]
    fn what_could_not_be_read_back_is_not_made() {
        let (ca, _) = PrivateKey::generate(KeyType::Ed25519, "").unwrap();
        let many = vec!["ada"; crate::key::certificate::MAX_PRINCIPALS + 1];
        let long = "x".repeat(crate::key::certificate::MAX_KEY_ID + 1);
        let fine = draft(CertificateKind::User, &["ada"]);
        assert!(fine.sign(ca.public(), &ca).is_ok());
        let bad = [
            Draft {
                principals: &many,
                ..fine.clone()
            },
            Draft {
                key_id: &long,
                ..fine.clone()
            },
            Draft {
                critical: &[("who-knows", "it")],
                ..fine.clone()
            },
            Draft {
                extensions: &[("twice", b""), ("twice", b"")],
                ..fine.clone()
            },
        ];
        for draft in bad {
            assert!(draft.sign(ca.public(), &ca).is_err(), "{draft:?}");
        }
    }
}
