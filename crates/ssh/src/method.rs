//! The key exchange methods by their SSH names. `kex::share` does their mathematics.

/// A key exchange method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// mlkem768x25519-sha256
    MlKem768X25519,
    /// curve25519-sha256
    Curve25519,
    /// curve25519-sha256@libssh.org: the same under its older name
    Curve25519Libssh,
    /// ecdh-sha2-nistp256
    EcdhP256,
    /// ecdh-sha2-nistp384
    EcdhP384,
}

impl Method {
    /// All, best first.
    pub const ALL: [Method; 5] = [
        Method::MlKem768X25519,
        Method::Curve25519,
        Method::Curve25519Libssh,
        Method::EcdhP256,
        Method::EcdhP384,
    ];

    /// Its SSH name.
    pub fn name(self) -> &'static str {
        match self {
            Method::MlKem768X25519 => "mlkem768x25519-sha256",
            Method::Curve25519 => "curve25519-sha256",
            Method::Curve25519Libssh => "curve25519-sha256@libssh.org",
            Method::EcdhP256 => "ecdh-sha2-nistp256",
            Method::EcdhP384 => "ecdh-sha2-nistp384",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|m| m.name() == name)
    }
}
