//! Keys, certificates and signatures, and the files that hold them: authorized_keys, principals, revocation lists,
//! private keys. It opens no file, reads no clock and looks no name up: bytes, times and addresses are given to it.
//! Signatures are `ring`'s; SHA-1 signatures (`ssh-rsa`) are neither made nor accepted.

pub mod algorithm;
pub mod authorized;
pub mod certificate;
mod error;
pub mod host;
pub mod issue;
mod key_or_certificate;
pub mod krl;
pub mod options;
pub mod private;
pub mod public;
mod restrictions;
mod text;
pub mod user;
mod verify;

pub use algorithm::{Algorithm, KeyType};
pub use authorized::{AuthorizedKeys, LineMatch, Principals};
pub use certificate::{Certificate, CertificateKind};
pub use error::KeyError;
pub use host::HostKey;
pub use issue::Draft;
pub use key_or_certificate::KeyOrCertificate;
pub use krl::{Krl, Revocation};
pub use options::Claimant;
pub use private::PrivateKey;
pub use public::PublicKey;
pub use restrictions::Restrictions;
pub use user::UserCheck;
pub use verify::{BadSignature, Token, Touch, VerifiedSignature, verify, verify_touched};

#[cfg(test)]
mod tests;
