//! gRPC over one HTTP/2 connection, in either direction: whoever dialled may be the one that serves. The side that answers is
//! hyper's, the side that asks is h2's, which hyper is made of; windows, buffers and bounds are our own. TLS and what a service
//! does are elsewhere.

mod call;
mod channel;
mod driver;
mod error;
pub(crate) mod io;
mod routes;
mod server;
mod wire;

pub use call::{Answer, Call};
pub use channel::{Channel, Closed, Closer, connect};
pub use driver::UNANSWERED;
pub use error::{CallError, reason, words};
pub use routes::{Page, Routes};
pub use server::{Caller, serve};
pub use wire::Wire;

use std::time::Duration;

/// What one stream may have on the way to a reader that is behind: the window that is granted for each stream, as large as
/// OpenSSH's for a channel, so that a distant proxy carries as much as a distant sshd.
pub const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// The connection's window, as large as HTTP/2 allows (RFC 9113 §6.9.1): a stream that nobody reads holds up no other.
pub const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// What is kept of a stream that its peer does not read, before the sender is asked to wait.
pub const SEND_BUFFER: usize = 128 * 1024;
/// The largest frame that is taken. What carries SSH is made so that a message is one frame, without a second one of a few
/// bytes.
pub const FRAME: u32 = 64 * 1024;
/// All headers of a request, as HTTP/2 counts them (RFC 9113 §6.5.2). Beyond it the request is refused.
pub const HEADERS: u32 = 16 * 1024;
/// Table of header compression: what is remembered of a peer's headers.
pub const HEADER_TABLE: u32 = 4 * 1024;
/// Streams that a peer opened and reset before they were looked at; beyond it the connection ends (CVE-2023-44487).
pub const PENDING_RESETS: usize = 20;
/// The same from a peer that has shown a certificate and asks for many others: while we stand still, it gives up what they
/// give up.
pub const MEMBER_PENDING_RESETS: usize = 1_024;
/// Streams that we reset because of a peer's errors, over the life of a connection; beyond it the connection ends
/// (CVE-2025-8671). A reset that the peer does not read costs us some 400 bytes.
pub const ERROR_RESETS: usize = 128;
/// The same on a tunnel, which lives long and carries many sessions: 26 MB where the peer reads none of them. A frame for a
/// stream that is forgotten counts as an error of the peer's. A session that both sides end causes none.
pub const TUNNEL_ERROR_RESETS: usize = 1 << 16;
/// The same on a user's connection.
pub const USER_ERROR_RESETS: usize = 1_024;
/// Streams that the asking side gave up are known for [`FORGOTTEN_AFTER`], so many of them at once; further ones are not. What
/// still comes for one that is known is dropped without a word; for another it is an error of the peer's.
pub const FORGOTTEN: usize = 4_096;
/// A long round trip, and what waited in the peer's buffers.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// A message of the transport: a frame carries up to 64 KB of SSH.
pub const TRANSPORT_MESSAGE: usize = 128 * 1024;
/// A message to or from the auth service.
pub const AUTH_MESSAGE: usize = 16 * 1024 * 1024;

/// How a connection is kept.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Requests that are open at once; more wait, or are refused.
    pub streams: u32,
    /// After so long without a sign of life a ping is sent; None: the connection may be silent for ever.
    pub ping: Option<Duration>,
    /// The connection is dead if a ping is not answered for so long.
    pub answer: Duration,
    /// With a request behind so long a silence a ping is sent too, and has so long to be answered: the network may have
    /// changed, or the machine slept, and whoever asks shall not wait for the others.
    pub doubt: Option<(Duration, Duration)>,
    /// Of a server: streams that the peer may have opened and reset before they were looked at.
    pub resets: usize,
    /// Streams that this side may have reset because of the peer's errors.
    pub error_resets: usize,
    /// Of a server that leaves: a connection on which nothing was asked yet has so long from its beginning for its first
    /// request, because it was made for one.
    pub first_request: Duration,
}

impl Tuning {
    /// A node's connection to a proxy.
    pub const TUNNEL: Tuning = Tuning {
        streams: 16_384,
        ping: Some(Duration::from_secs(20)),
        answer: Duration::from_secs(10),
        doubt: None,
        resets: MEMBER_PENDING_RESETS,
        error_resets: TUNNEL_ERROR_RESETS,
        first_request: Duration::ZERO,
    };
    /// A user's connection to a proxy: all of the user's sessions may be on it, and it is kept for the next one.
    pub const USER: Tuning = Tuning {
        streams: 1_024,
        ping: Some(Duration::from_secs(60)),
        answer: Duration::from_secs(20),
        doubt: Some((Duration::from_secs(10), Duration::from_secs(5))),
        resets: PENDING_RESETS,
        error_resets: USER_ERROR_RESETS,
        first_request: Duration::from_secs(5),
    };
    /// Between two processes of one user on one machine.
    pub const HERE: Tuning = Tuning {
        streams: 1_024,
        ping: None,
        answer: Duration::from_secs(20),
        doubt: None,
        resets: PENDING_RESETS,
        error_resets: ERROR_RESETS,
        first_request: Duration::ZERO,
    };
    /// A connection to the auth service of somebody with a certificate.
    pub const AUTH_MEMBER: Tuning = Tuning {
        resets: MEMBER_PENDING_RESETS,
        ..Tuning::AUTH
    };
    /// A connection to the auth service of a proxy: each of its nodes may have a stream for its recordings.
    pub const AUTH_PROXY: Tuning = Tuning {
        streams: 16_384,
        ..Tuning::AUTH_MEMBER
    };
    /// A connection to the auth service.
    pub const AUTH: Tuning = Tuning {
        streams: 256,
        ping: Some(Duration::from_secs(30)),
        answer: Duration::from_secs(20),
        doubt: None,
        resets: PENDING_RESETS,
        error_resets: ERROR_RESETS,
        first_request: Duration::ZERO,
    };
}
