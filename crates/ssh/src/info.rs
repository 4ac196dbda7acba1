//! What is known about a connection, for logs and audit. Nothing in it is secret.

use crate::cipher::{Cipher, Mac};
use crate::key::Algorithm;
use crate::method::Method;

/// What is known about a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The peer's version line, without CR LF.
    pub peer_version: Vec<u8>,
    /// What the last key exchange agreed on.
    pub algorithms: Option<Algorithms>,
    /// Client: the server's lists in the first exchange. Not moved with the connection.
    pub offered: Option<ServerOffer>,
    /// Client: whether the share that was sent ahead of the server's KEXINIT counted. None: it is not known yet, or none was
    /// sent. Not moved with the connection.
    pub share_held: Option<bool>,
    /// What the peer said by ext-info.
    pub extensions: Extensions,
    /// Bytes received, as they came from the network.
    pub bytes_in: u64,
    /// Bytes made for the network.
    pub bytes_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Packets made.
    pub packets_out: u64,
    /// Key exchanges done.
    pub exchanges: u32,
}

/// What a key exchange agreed on. `in` is towards us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// The method.
    pub kex: Method,
    /// The host key algorithm.
    pub host_key: String,
    /// The cipher towards us.
    pub cipher_in: Cipher,
    /// The cipher from us.
    pub cipher_out: Cipher,
    /// The MAC towards us; none where the cipher brings its own.
    pub mac_in: Option<Mac>,
    /// The MAC from us.
    pub mac_out: Option<Mac>,
    /// Strict key exchange, agreed on in the first exchange.
    pub strict: bool,
}

/// What a server takes in a key exchange, as far as this core knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOffer {
    /// The methods that the core knows.
    pub kex: Vec<Method>,
    /// The method that the server likes best, if the core knows it. It decides about a guess.
    pub best_kex: Option<Method>,
    /// The host key algorithm that the server likes best, if the core knows it. It decides about a guess too.
    pub best_host_key: Option<Algorithm>,
}

/// What the peer said by ext-info (RFC 8308).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// It reads EXT_INFO: its first KEXINIT names ext-info-c or ext-info-s.
    pub expected: bool,
    /// server-sig-algs.
    pub server_sig_algs: Option<Vec<String>>,
    /// ping@openssh.com=0.
    pub ping: bool,
    /// channel-mirror@fleetgate.
    pub channel_mirror: bool,
    /// publickey-hostbound@openssh.com=0.
    pub hostbound: bool,
}
