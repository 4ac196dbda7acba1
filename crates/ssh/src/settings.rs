//! What an owner decides about its connections, made once and shared by all of them. Types and defaults only.

use crate::cipher::{Cipher, Mac};
use crate::key::algorithm::SERVER_SIG_ALGS;
use crate::method::Method;
use std::time::Duration;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// What an owner decides about its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our name in the version line, after `SSH-2.0-`.
    pub software: String,
    /// Key exchange methods, best first.
    pub kex: Vec<Method>,
    /// Server: its host keys, best first. An RSA key stands here once for each signature algorithm.
    pub host_keys: Vec<HostKeyOffer>,
    /// Client: host key algorithms that it can check, best first. Those of known hosts belong in front.
    pub host_key_algorithms: Vec<String>,
    /// Ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// MACs for the ciphers that need one, best first.
    pub macs: Vec<Mac>,
    /// Server: signature algorithms for users' keys, told by ext-info (RFC 8308 §3.1).
    pub server_sig_algs: Vec<String>,
    /// Say and use channel-mirror@fleetgate: the server's channel numbers equal the client's.
    pub channel_mirror: bool,
    /// Client: whether the first message of the first key exchange waits for the server's KEXINIT.
    pub first_share: FirstShare,
    /// Offer strict key exchange. Without it we are what peers from before 2024 are; for tests.
    pub strict: bool,
    /// Refuse peers without strict key exchange (CVE-2023-48795).
    pub strict_required: bool,
    /// When keys are replaced.
    pub rekey: Rekey,
    /// How a silent peer is asked whether it lives.
    pub keepalive: Option<Keepalive>,
    /// Bounds.
    pub limits: Limits,
}

/// When a client sends the first message of its first key exchange, its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstShare {
    /// When the server's KEXINIT has come.
    Waits,
    /// Ahead, of the best method, marked as a guess (RFC 4253 §7). The guess holds where the server likes the same method and
    /// the same host key algorithm best. Else the server drops the share, and it costs a round trip.
    Guessed,
    /// Ahead, of the method that both lists agree on. The server's list is known from an earlier connection, so this is no
    /// guess and is not marked as one: it holds whichever method the server likes best. If the server's list has changed, it
    /// takes the share for one of another method. Then the connection ends before the server has heard anything else, and
    /// [`ConnectionInfo::share_held`](crate::info::ConnectionInfo::share_held) says why.
    Known(Method),
}

/// A host key as a server offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyOffer {
    /// `ssh-ed25519`, `rsa-sha2-512`, `ssh-ed25519-cert-v01@openssh.com`, …
    pub algorithm: String,
    /// The public key or certificate.
    pub blob: Vec<u8>,
}

/// Keys are replaced at whichever comes first. Each direction is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rekey {
    /// Bytes in one direction.
    pub bytes: u64,
    /// Packets in one direction; never more than 2^31 (RFC 4344 §3.1).
    pub packets: u64,
    /// Time since the last exchange.
    pub time: Duration,
}

/// A question to a silent peer: ping@openssh.com where it knows that, keepalive@openssh.com otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// After this much silence.
    pub after: Duration,
    /// So many without an answer end the connection.
    pub unanswered: u32,
}

/// Bounds on what a peer can make us hold and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A packet's length field, at most.
    pub max_packet: u32,
    /// Channels at a time, of both sides together.
    pub max_channels: u32,
    /// Requests that wait for their answer.
    pub max_requests_in_flight: u32,
    /// Bytes that a peer may send on a channel before they are consumed.
    pub window: u32,
    /// Data in one packet to us.
    pub max_packet_data: u32,
    /// Output that was not sent yet, beyond which nothing more is read and no data is taken.
    pub max_buffered: usize,
    /// A KEXINIT.
    pub kexinit_max: usize,
    /// The version line, with its CR LF (RFC 4253 §4.2).
    pub version_line_max: usize,
    /// Client: all lines that a server sends before its version line.
    pub greeting_max: usize,
    /// Packets before the first keys: KEXINIT, INIT, NEWKEYS and some IGNOREs.
    pub packets_before_keys: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            software: concat!("fleetgate_", env!("CARGO_PKG_VERSION")).into(),
            kex: Method::ALL.to_vec(),
            host_keys: Vec::new(),
            host_key_algorithms: HOST_KEY_ALGORITHMS.iter().map(|&n| n.to_owned()).collect(),
            ciphers: Cipher::ALL.to_vec(),
            macs: Mac::ALL.to_vec(),
            server_sig_algs: SERVER_SIG_ALGS.iter().map(|&n| n.to_owned()).collect(),
            channel_mirror: true,
            first_share: FirstShare::Guessed,
            strict: true,
            strict_required: false,
            rekey: Rekey::default(),
            keepalive: None,
            limits: Limits::default(),
        }
    }
}

/// What a client can check, best first.
const HOST_KEY_ALGORITHMS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

impl Default for Rekey {
    /// 1 GB would do for a cipher with 64-bit blocks. 128-bit blocks allow far more (RFC 4344 §3.2); this is 64 GB.
    fn default() -> Rekey {
        Rekey {
            bytes: 64 << 30,
            packets: 1 << 31,
            time: Duration::from_secs(3600),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_packet: 256 * 1024,
            max_channels: 128,
            max_requests_in_flight: 128,
            window: 2 * 1024 * 1024,
            max_packet_data: 32 * 1024,
            max_buffered: 128 * 1024,
            kexinit_max: 32 * 1024,
            version_line_max: 255,
            greeting_max: 64 * 1024,
            packets_before_keys: 64,
        }
    }
}
