//! Ciphers and MACs by their SSH names, and one direction's keys at work: a packet is sealed where it stands in the
//! outbox and opened where it stands in the inbox. No cipher is written here; the primitives are ring's and
//! RustCrypto's.

pub(crate) mod keys;

pub(crate) use keys::{Keys, Secrets};

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// aes128-gcm@openssh.com
    Aes128Gcm,
    /// aes256-gcm@openssh.com
    Aes256Gcm,
    /// chacha20-poly1305@openssh.com
    ChaCha20Poly1305,
    /// aes128-ctr
    Aes128Ctr,
    /// aes256-ctr
    Aes256Ctr,
}

/// A MAC, for the ciphers that bring none. Only encrypt-then-MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mac {
    /// hmac-sha2-256-etm@openssh.com
    HmacSha256Etm,
    /// hmac-sha2-512-etm@openssh.com
    HmacSha512Etm,
}

impl Cipher {
    /// All, best first.
    pub const ALL: [Cipher; 5] = [
        Cipher::Aes128Gcm,
        Cipher::Aes256Gcm,
        Cipher::ChaCha20Poly1305,
        Cipher::Aes128Ctr,
        Cipher::Aes256Ctr,
    ];

    /// Its SSH name.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes128-gcm@openssh.com",
            Cipher::Aes256Gcm => "aes256-gcm@openssh.com",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305@openssh.com",
            Cipher::Aes128Ctr => "aes128-ctr",
            Cipher::Aes256Ctr => "aes256-ctr",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Cipher> {
        Cipher::ALL.into_iter().find(|c| c.name() == name)
    }

    /// It authenticates, so no MAC is agreed on.
    pub fn authenticates(self) -> bool {
        !matches!(self, Cipher::Aes128Ctr | Cipher::Aes256Ctr)
    }
}

impl Mac {
    /// All, best first.
    pub const ALL: [Mac; 2] = [Mac::HmacSha256Etm, Mac::HmacSha512Etm];

    /// Its SSH name.
    pub fn name(self) -> &'static str {
        match self {
            Mac::HmacSha256Etm => "hmac-sha2-256-etm@openssh.com",
            Mac::HmacSha512Etm => "hmac-sha2-512-etm@openssh.com",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Mac> {
        Mac::ALL.into_iter().find(|m| m.name() == name)
    }
}
