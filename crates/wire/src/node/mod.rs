//! Frames between the node's processes: the monitor (root) on one side, the starter, the lobby, the fronts, the tunnel,
//! the watcher and the recorder on the other.
//!
//! None of them is believed: a frame asks, the monitor decides by what it knows itself. A connection is
//! named by the number that the monitor gave it; a process that names another's connection, or one that is gone, is
//! answered as if it did not exist. Descriptors travel beside the frames that say so, in the order given there.

pub mod front;
pub mod lobby;
pub mod recorder;
pub mod starter;
pub mod tunnel;
pub mod watch;

use crate::codec::Item;
use crate::common::Endpoint;
use crate::pam::wipe;
use crate::{Decode, Encode, Error, Reader, Writer, choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;

/// The number of a connection, given by the monitor at accept and never used again.
pub type ConnectionNumber = u64;

/// The longest frame from lobby, front or tunnel: a command as long as the kernel executes one, with its environment. The
/// kernel's smallest send buffer (212,992 bytes) holds it.
pub const MAX_FRAME: usize = 160 << 10;
/// The longest KEXINIT that a node takes: two of them and the shares fit into one frame.
pub const MAX_KEXINIT: usize = 16 << 10;
/// The most unread bytes that the lobby keeps of one connection, so that it fits into one frame when frozen.
pub const MAX_UNREAD: usize = 32 << 10;
/// The longest command line, and the longest value of one variable.
pub const MAX_COMMAND: usize = 128 << 10;
/// The most variables that a client may set for one session.
pub const MAX_VARIABLES: usize = 256;
/// The most bytes of them altogether.
pub const MAX_ENVIRONMENT: usize = 32 << 10;
/// The longest encoded terminal modes.
pub const MAX_MODES: usize = 1024;
/// The longest name of a terminal type.
pub const MAX_TERM: usize = 255;
/// The most bytes of an X11 authentication: its protocol and its cookie together.
pub const MAX_X11: usize = 1024;

record! {
    /// Bytes in a list.
    pub struct Blob {
        /// The bytes.
        pub bytes: Vec<u8>,
    }
}

/// A connection on its way between two processes, with its keys: wiped when dropped and never shown. In a frame it is a list of bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct FrozenConnection(Vec<u8>);

impl FrozenConnection {
    /// Takes it over.
    pub fn new(bytes: Vec<u8>) -> FrozenConnection {
        FrozenConnection(bytes)
    }
    /// What it is.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for FrozenConnection {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for FrozenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenConnection({} bytes)", self.0.len())
    }
}

impl Encode for FrozenConnection {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}

impl Decode for FrozenConnection {
    fn decode(r: &mut Reader<'_>) -> Result<FrozenConnection, Error> {
        Vec::decode(r).map(FrozenConnection)
    }
}

record! {
    /// A host key as it is shown: the key or certificate, and what the monitor signs with it.
    pub struct HostKey {
        /// The public key or certificate.
        pub blob: Vec<u8>,
        /// Host key algorithms, best first (`rsa-sha2-512`, `rsa-sha2-256`).
        pub algorithms: Vec<CString>,
    }
}

record! {
    /// What the SSH core of lobby and fronts is set to. Sent first, and again when the configuration was read anew:
    /// it goes for connections that come afterwards.
    pub struct Settings {
        /// Comes after `SSH-2.0-` in the version line.
        pub software: CString,
        /// In the order of preference.
        pub host_keys: Vec<HostKey>,
        /// Key exchange methods; empty: the built-in list.
        pub key_exchanges: Vec<CString>,
        /// Ciphers; empty: the built-in list.
        pub ciphers: Vec<CString>,
        /// MACs for ciphers without their own; empty: the built-in list.
        pub macs: Vec<CString>,
        /// Shown before the login; empty: none.
        pub banner: Vec<u8>,
        /// Rekey after so many bytes; 0: by the cipher.
        pub rekey_bytes: u64,
        /// Rekey after so long; 0: never by time.
        pub rekey_seconds: u32,
        /// Ask a silent peer for a sign of life after so long; 0: never.
        pub alive_seconds: u32,
        /// End after so many unanswered ones.
        pub alive_count: u32,
        /// Channels of one connection.
        pub max_channels: u32,
        /// What one channel may have under way.
        pub window: u32,
        /// Bytes that wait to be sent on one connection.
        pub max_buffered: u32,
    }
}

choice! {
    /// What the monitor says to a login request.
    pub enum Verdict("verdict") {
        /// In, and the user shall read these words of PAM's before. The next message from the lobby is
        /// [`lobby::FromLobby::HandOver`].
        0 => Accepted { notes: Vec<u8> },
        /// Not this way: what may be tried, and whether this step was right and others are needed.
        1 => Rejected { methods: Vec<CString>, partial: bool },
        /// The key that was asked about would do.
        2 => KeyOk,
        /// Ask the user.
        3 => Ask { name: Vec<u8>, instruction: Vec<u8>, prompts: Vec<Prompt> },
        /// Say this and end the connection.
        4 => End { reason: u32, text: CString },
        /// Not this way, and the user who proved who he is shall read why, before the answer.
        5 => Refused { methods: Vec<CString>, words: CString },
    }
}

record! {
    /// One question to the user.
    pub struct Prompt {
        /// Its text.
        pub text: Vec<u8>,
        /// Show what is typed.
        pub echo: bool,
    }
}

record! {
    /// How a process ended.
    pub struct ProcessEnd {
        /// The exit code, or the signal's number with `signalled`.
        pub status: i32,
        /// A signal ended it.
        pub signalled: bool,
        /// It left a core.
        pub core: bool,
    }
}

record! {
    /// Where a connection comes from and arrived.
    pub struct ConnectionAddresses {
        /// The peer.
        pub peer: Endpoint,
        /// Us.
        pub local: Endpoint,
    }
}

/// A kind of thing that a grant lets a login do, as bits of [`FrontPermits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FrontPermit {
    /// A login shell.
    Shell = 1,
    /// A command.
    Exec = 2,
    /// File transfer.
    Sftp = 4,
    /// A terminal.
    Pty = 8,
    /// Connect from here (-L, -D, -W), TCP or unix.
    ConnectForward = 16,
    /// Listen here (-R), TCP or unix.
    ListenForward = 32,
    /// Forward the agent.
    Agent = 64,
    /// Forward X11.
    X11 = 128,
    /// The one that takes something away: what it connects to may be no SSH server.
    NoOnwardSsh = 256,
}

impl FrontPermit {
    /// Every kind that allows something.
    pub const ALL: [FrontPermit; 8] = [
        FrontPermit::Shell,
        FrontPermit::Exec,
        FrontPermit::Sftp,
        FrontPermit::Pty,
        FrontPermit::ConnectForward,
        FrontPermit::ListenForward,
        FrontPermit::Agent,
        FrontPermit::X11,
    ];
}

/// The kinds of a grant, for the front to refuse early; the monitor checks every request itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontPermits(pub u32);

impl FrontPermits {
    /// Whether `kind` is among them.
    pub const fn has(self, kind: FrontPermit) -> bool {
        self.0 & kind as u32 != 0
    }

    /// These and `kind`.
    #[must_use]
    pub const fn with(self, kind: FrontPermit) -> FrontPermits {
        FrontPermits(self.0 | kind as u32)
    }
}

impl Encode for FrontPermits {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for FrontPermits {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(FrontPermits(u32::decode(r)?))
    }
}
impl Item for FrontPermits {}
