//! The names of key types and signature algorithms, and which fit which. RFC 8332: an RSA key's type and its
//! signature's name differ; PROTOCOL.certkeys: a certificate's too.

use std::fmt;

/// A type of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyType {
    /// ssh-ed25519.
    Ed25519,
    /// ecdsa-sha2-nistp256.
    EcdsaP256,
    /// ecdsa-sha2-nistp384.
    EcdsaP384,
    /// ssh-rsa.
    Rsa,
    /// sk-ssh-ed25519@openssh.com.
    SkEd25519,
    /// sk-ecdsa-sha2-nistp256@openssh.com.
    SkEcdsaP256,
}

impl KeyType {
    /// All of them.
    pub const ALL: [KeyType; 6] = [
        KeyType::Ed25519,
        KeyType::EcdsaP256,
        KeyType::EcdsaP384,
        KeyType::Rsa,
        KeyType::SkEd25519,
        KeyType::SkEcdsaP256,
    ];

    /// As it stands in a key's blob.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Ed25519 => "ssh-ed25519",
            KeyType::EcdsaP256 => "ecdsa-sha2-nistp256",
            KeyType::EcdsaP384 => "ecdsa-sha2-nistp384",
            KeyType::Rsa => "ssh-rsa",
            KeyType::SkEd25519 => "sk-ssh-ed25519@openssh.com",
            KeyType::SkEcdsaP256 => "sk-ecdsa-sha2-nistp256@openssh.com",
        }
    }

    /// As it stands in a certificate's blob.
    pub fn certificate_name(self) -> &'static str {
        match self {
            KeyType::Ed25519 => "ssh-ed25519-cert-v01@openssh.com",
            KeyType::EcdsaP256 => "ecdsa-sha2-nistp256-cert-v01@openssh.com",
            KeyType::EcdsaP384 => "ecdsa-sha2-nistp384-cert-v01@openssh.com",
            KeyType::Rsa => "ssh-rsa-cert-v01@openssh.com",
            KeyType::SkEd25519 => "sk-ssh-ed25519-cert-v01@openssh.com",
            KeyType::SkEcdsaP256 => "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        }
    }

    /// By a blob's first field; true: a certificate's.
    pub fn parse(name: &str) -> Option<(KeyType, bool)> {
        KeyType::ALL.into_iter().find_map(|kind| {
            let certificate = name == kind.certificate_name();
            (certificate || name == kind.name()).then_some((kind, certificate))
        })
    }

    /// Whether the private half is in a token.
    pub fn is_token(self) -> bool {
        matches!(self, KeyType::SkEd25519 | KeyType::SkEcdsaP256)
    }
}

/// A signature algorithm as it is negotiated (host keys) and asked for (logins).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    name: &'static str,
    key: KeyType,
    certificate: bool,
    signature: &'static str,
}

const fn plain(name: &'static str, key: KeyType) -> Algorithm {
    Algorithm {
        name,
        key,
        certificate: false,
        signature: name,
    }
}

const fn certified(name: &'static str, key: KeyType, signature: &'static str) -> Algorithm {
    Algorithm {
        name,
        key,
        certificate: true,
        signature,
    }
}

/// The names of all of them, those of keys first, best first.
static ALGORITHMS: [Algorithm; 14] = [
    plain("ssh-ed25519", KeyType::Ed25519),
    plain("ecdsa-sha2-nistp256", KeyType::EcdsaP256),
    plain("ecdsa-sha2-nistp384", KeyType::EcdsaP384),
    plain("sk-ssh-ed25519@openssh.com", KeyType::SkEd25519),
    plain("sk-ecdsa-sha2-nistp256@openssh.com", KeyType::SkEcdsaP256),
    plain("rsa-sha2-512", KeyType::Rsa),
    plain("rsa-sha2-256", KeyType::Rsa),
    certified(
        "ssh-ed25519-cert-v01@openssh.com",
        KeyType::Ed25519,
        "ssh-ed25519",
    ),
    certified(
        "ecdsa-sha2-nistp256-cert-v01@openssh.com",
        KeyType::EcdsaP256,
        "ecdsa-sha2-nistp256",
    ),
    certified(
        "ecdsa-sha2-nistp384-cert-v01@openssh.com",
        KeyType::EcdsaP384,
        "ecdsa-sha2-nistp384",
    ),
    certified(
        "sk-ssh-ed25519-cert-v01@openssh.com",
        KeyType::SkEd25519,
        "sk-ssh-ed25519@openssh.com",
    ),
    certified(
        "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        KeyType::SkEcdsaP256,
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ),
    certified("rsa-sha2-512-cert-v01@openssh.com", KeyType::Rsa, "rsa-sha2-512"),
    certified("rsa-sha2-256-cert-v01@openssh.com", KeyType::Rsa, "rsa-sha2-256"),
];

/// What a server says in `server-sig-algs` (RFC 8308 §3.1): signature names, not those of certificates.
pub const SERVER_SIG_ALGS: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

impl Algorithm {
    /// By its name. `ssh-rsa` is none: its signatures are SHA-1.
    pub fn parse(name: &str) -> Option<Algorithm> {
        ALGORITHMS.iter().find(|a| a.name == name).copied()
    }

    /// All of them, best first, those of keys before those of certificates.
    pub fn all() -> &'static [Algorithm] {
        &ALGORITHMS
    }

    /// As negotiated or asked for.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// As it stands in the signature's blob.
    pub fn signature_name(&self) -> &'static str {
        self.signature
    }

    /// The type of key that signs.
    pub fn key_type(&self) -> KeyType {
        self.key
    }

    /// Whether the blob beside it is a certificate.
    pub fn is_certificate(&self) -> bool {
        self.certificate
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_belongs_to_its_type() {
        for algorithm in Algorithm::all() {
            assert_eq!(Algorithm::parse(algorithm.name()), Some(*algorithm));
            let own = Algorithm::parse(algorithm.signature_name()).unwrap();
            assert_eq!(
                (own.key_type(), own.is_certificate()),
                (algorithm.key_type(), false)
            );
            assert_eq!(
                SERVER_SIG_ALGS.contains(&algorithm.name()),
                !algorithm.is_certificate()
            );
        }
        for kind in KeyType::ALL {
            assert_eq!(KeyType::parse(kind.name()), Some((kind, false)));
            assert_eq!(KeyType::parse(kind.certificate_name()), Some((kind, true)));
        }
        for bad in ["ssh-rsa", "ssh-dss", "ssh-rsa-cert-v01@openssh.com", "none", ""] {
            assert_eq!(Algorithm::parse(bad), None, "{bad}");
        }
    }
}
