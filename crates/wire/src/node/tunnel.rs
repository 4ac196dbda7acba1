//! Between the monitor and the tunnel: the connections that the node dialled out to its proxies.
//!
//! ```text
//! Begin → Ready → (Sign → Signed)* · (Resolve → Addresses)* · (Arrived → Session(+ socket) | NotTaken)*
//!               → State* · Fresh* · (Renew → Renewed)* · (Audit → AuditUnkept* · AuditKept)*
//!               → (Upload(+ file) → Uploaded)*
//! ```
//!
//! A session's bytes go between its HTTP/2 stream and one end of a socket pair that the monitor made. The monitor makes
//! it, and not the tunnel: so the tunnel needs no right to make sockets of that kind, and the monitor takes no
//! descriptor from a process that it does not believe. It costs no round trip that anybody waits for: the first bytes
//! come with [`FromTunnel::Arrived`], and the lobby works on them while the other end travels. The end of the pair is
//! the end of the session, in either direction; no message is needed for it.

use super::Blob;
use crate::common::{Endpoint, SessionId};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// A session's number, chosen by the tunnel and never used again by it.
pub type Ticket = u64;

/// The most bytes of a document in one frame; a longer one comes in pieces.
pub const MAX_PIECE: usize = 128 << 10;
/// The most first bytes of a session that come with [`FromTunnel::Arrived`]. A client's flight before its login has a
/// KEXINIT and a share, 4 KB; what is more follows by the socket.
pub const MAX_FIRST: usize = 32 << 10;
/// The longest message that the monitor is asked to sign: the input of a TLS 1.3 CertificateVerify has 64 spaces, a
/// context string of 33 bytes, a zero, and a hash of at most 64 (RFC 8446 §4.4.3).
pub const MAX_SIGN: usize = 64 + 33 + 1 + 64;
/// The most spans of one connection.
pub const MAX_SPANS: usize = 64;
/// The most locks on proxies that a tunnel is told; of more it is told the newest.
pub const MAX_LOCKED: usize = 256;
/// The most recordings that the tunnel is sending at once.
pub const MAX_UPLOADS: usize = 16;
/// The longest host name (RFC 1035 §2.3.4).
pub const MAX_HOST: usize = 253;

record! {
    /// What a tunnel is told first.
    pub struct Settings {
        /// The cluster's name.
        pub cluster: CString,
        /// The node's name.
        pub node: CString,
        /// Whom to dial.
        pub proxies: Vec<Proxy>,
        /// Who the node is.
        pub credentials: Credentials,
        /// What the proxies are told.
        pub facts: NodeDescription,
    }
}

record! {
    /// A proxy to hold a connection to.
    pub struct Proxy {
        /// A name or an address.
        pub host: CString,
        /// The port.
        pub port: u16,
    }
}

record! {
    /// What goes over the wire in a TLS handshake; the key stays with the monitor.
    pub struct Credentials {
        /// The certificate chain, the leaf first, DER.
        pub chain: Vec<Blob>,
        /// Authorities of TLS certificates, DER.
        pub authorities: Vec<Blob>,
        /// Proxies that a lock holds: the state is taken from them, and nothing else.
        pub locked: Vec<LockedProxy>,
    }
}

record! {
    /// A lock on a proxy.
    pub struct LockedProxy {
        /// The name in its certificate.
        pub name: CString,
        /// Certificates that were made by a state of before this serial.
        pub serial_before: u64,
        /// When the lock ends, Unix seconds.
        pub expires: u64,
    }
}

record! {
    /// A node's facts.
    pub struct NodeDescription {
        /// Labels.
        pub labels: Vec<Label>,
        /// The version that runs.
        pub version: CString,
        /// Where its own port is, if others may use it; else empty.
        pub address: CString,
        /// The serial of the state that it has.
        pub serial: u64,
    }
}

record! {
    /// A label.
    pub struct Label {
        /// Its name.
        pub name: CString,
        /// Its value.
        pub value: CString,
    }
}

record! {
    /// A finished step of a connection.
    pub struct Span {
        /// Its name.
        pub name: CString,
        /// Who did it: `node` or `helper`.
        pub place: CString,
        /// Nanoseconds since 1970.
        pub start: u64,
        /// Likewise.
        pub end: u64,
    }
}

choice! {
    /// Messages to the tunnel.
    pub enum ToTunnel("message to the tunnel") {
        /// First, and read before the sandbox is entered: the ports that may be connected to are the proxies'.
        0 => Begin { settings: Settings },
        /// The answer to [`FromTunnel::Sign`]; none: refused.
        1 => Signed { ticket: Ticket, signature: Option<Vec<u8>> },
        /// The answer to [`FromTunnel::Resolve`], best first; none: there are none now.
        2 => Addresses { host: CString, found: Vec<Endpoint> },
        /// The session was taken; one descriptor, its end of the pair.
        3 => Session { ticket: Ticket },
        /// It was not.
        4 => NotTaken { ticket: Ticket, why: CString },
        /// Where a session's time went.
        5 => Spans { ticket: Ticket, spans: Vec<Span> },
        /// The facts changed.
        6 => Facts { facts: NodeDescription },
        /// The proxies changed; their ports are among those of Begin.
        7 => Proxies { proxies: Vec<Proxy> },
        /// The certificates changed: they go for connections made from now on.
        8 => Credentials { credentials: Credentials },
        /// Ask for new certificates: a whole `Renew` message as it goes to the proxy.
        9 => Renew { message: Vec<u8> },
        /// Have this kept: a whole `AuditBatch` message, to be sent until it is.
        10 => Audit { message: Vec<u8> },
        /// Dial no more; end with the last session. `follows`: and say what each proxy says of the cluster's state, until it
        /// says that another tunnel took this one's place.
        11 => Drain { follows: bool },
        /// For this proxy alone: a whole `Statement` message.
        12 => Statement { proxy: CString, message: Vec<u8> },
        /// Send this recording up to `length`; one descriptor, to read it. It is done when `signed` bytes of it are kept, and
        /// where it is `whole`, when all of it is. At most [`MAX_UPLOADS`] at once.
        13 => Upload { session: SessionId, signed: u64, length: u64, whole: bool },
    }
}

choice! {
    /// Messages of the tunnel.
    pub enum FromTunnel("message of the tunnel") {
        /// The sandbox stands.
        0 => Ready,
        /// Sign this input of a client's CertificateVerify.
        1 => Sign { ticket: Ticket, message: Vec<u8> },
        /// Look up the host of a proxy.
        2 => Resolve { host: CString },
        /// A session.
        3 => Arrived { ticket: Ticket, vouched: ProxyStatement, first: Vec<u8> },
        /// The cluster's state, in pieces; the last one has no `more`, and the signature.
        4 => State { piece: Vec<u8>, signature: Vec<u8>, more: bool },
        /// The state is still the same, signed.
        5 => Fresh { document: Vec<u8>, signature: Vec<u8> },
        /// The answer to [`ToTunnel::Renew`].
        6 => Renewed { tls_chain: Vec<Blob>, host_certificates: Vec<Blob>, refused: CString },
        /// Lines of this file up to here are kept.
        7 => AuditKept { log: CString, offset: u64 },
        /// Connected to this proxy.
        8 => Connected { proxy: CString },
        /// Not connected to it any more, or not again.
        9 => Lost { proxy: CString, why: CString },
        /// Sign what the node says of itself to this proxy, now and whenever it changes.
        10 => Attest { proxy: CString },
        /// This proxy did not have lines of this file from there on kept; they are sent again. For the log.
        11 => AuditUnkept { proxy: CString, log: CString, offset: u64 },
        /// The answer to [`ToTunnel::Upload`], by this proxy; it is named for the log.
        12 => Uploaded { session: SessionId, proxy: CString, answer: UploadAnswer },
    }
}

record! {
    /// What a proxy says about a session, and what the client asked for beside it.
    pub struct ProxyStatement {
        /// The client's address.
        pub source: Endpoint,
        /// The proxy's name.
        pub proxy: CString,
        /// Whose certificate the proxy saw.
        pub user: CString,
        /// The W3C trace (16 bytes) and the parent span (8); empty: not traced.
        pub trace: Vec<u8>,
        /// Send spans.
        pub explain: bool,
    }
}

choice! {
    /// What came of sending a recording.
    pub enum UploadAnswer("answer about a recording") {
        /// What was to be kept is, says the proxy. Of a whole one the receipt proves it.
        0 => Kept { receipt: Vec<u8> },
        /// It is not, and will not be.
        1 => Refused { why: CString },
        /// It is not now: to be sent again in so many seconds.
        2 => Wait { seconds: u32, why: CString },
    }
}
