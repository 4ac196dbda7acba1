//! What can be wrong with a key, a certificate or a file of them. Says what and what to do, never what was in it.

use crate::codec::Malformed;
use std::fmt;

/// A key or certificate that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Its bytes cannot be read.
    Malformed(Malformed),
    /// A type that is not supported.
    Type(String),
    /// Too long, too many.
    TooLarge {
        /// What.
        what: &'static str,
        /// The bound.
        most: usize,
    },
    /// An RSA key of so many bits.
    RsaBits(usize),
    /// A critical option that nobody here knows (PROTOCOL.certkeys: refuse then).
    CriticalOption(String),
    /// A certificate where a key has to stand.
    NotACertificate,
    /// A key where a certificate has to stand.
    NotAKey,
    /// The text around it cannot be read.
    Text(&'static str),
    /// A private key file that is locked with a passphrase.
    Encrypted,
    /// The file of a security key's key: the private key is in the device.
    SecurityKey,
    /// A private key file of an older format.
    OldFormat,
    /// A private key file that others may read.
    Mode(u32),
    /// A private key whose parts do not belong together.
    Inconsistent,
    /// A certificate for another key.
    OtherKey,
    /// A key that cannot make this signature.
    CannotSign(String),
    /// The random source failed.
    Random,
}

impl From<Malformed> for KeyError {
    fn from(error: Malformed) -> KeyError {
        KeyError::Malformed(error)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Malformed(error) => write!(f, "the key cannot be read: {error}"),
            KeyError::Type(name) => write!(f, "keys of type {name:?} are not supported"),
            KeyError::TooLarge { what, most } => write!(f, "{what} may be at most {most}"),
            KeyError::RsaBits(bits) => write!(
                f,
                "an RSA key of {bits} bits is not accepted (2048 to 8192; to sign with at most 4096): make an \
                 ed25519 key"
            ),
            KeyError::CriticalOption(name) => {
                write!(
                    f,
                    "the certificate has the critical option {name:?}, which is not known here"
                )
            }
            KeyError::NotACertificate => f.write_str("it is a key, and a certificate was expected"),
            KeyError::NotAKey => f.write_str("it is a certificate, and a plain key was expected"),
            KeyError::Text(what) => f.write_str(what),
            KeyError::Encrypted => f.write_str(
                "the private key has a passphrase: remove it with ssh-keygen -p, or take a key without one",
            ),
            KeyError::SecurityKey => {
                f.write_str("the private key is in a security key, and not in this file")
            }
            KeyError::OldFormat => {
                f.write_str("the private key has not OpenSSH's format: ssh-keygen -p -f FILE converts it")
            }
            KeyError::Mode(mode) => write!(
                f,
                "the private key file has mode {:04o}, others may read or change it: chmod 600",
                mode & 0o7777
            ),
            KeyError::Inconsistent => f.write_str("the parts of the private key do not belong together"),
            KeyError::OtherKey => f.write_str("the certificate is for another key"),
            KeyError::CannotSign(name) => write!(f, "the key cannot sign with {name:?}"),
            KeyError::Random => f.write_str("the kernel gave no random numbers"),
        }
    }
}

impl std::error::Error for KeyError {}
