//! The networking helper: opens sockets as the user, in the session's namespaces, and hands them back.
//!
//! The launching side sends [`Request`]s on the order's socket and gets [`Response`]s, in whatever order they are
//! done, each with the request's id. [`What::Stop`], an empty frame or the socket's end ends the helper, which
//! removes what it made.
//!
//! What both sides hold to:
//! - an id is not 0 and not used again before its last answer was read; a second use of an unanswered id, a
//!   descriptor beside a request, or anything that does not decode ends the helper, with a last [`Response`]
//!   whose id is [`HELPER`];
//! - every descriptor handed over is close-on-exec and non-blocking; TCP connections have TCP_NODELAY set;
//! - the helper reads no request while an answer of its own waits for room, and accepts no connection either: a
//!   launching side that does not read must not block in sending;
//! - hosts are addresses (`192.0.2.1`, `2001:db8::1`, `fe80::1%eth0`), `localhost` (both loopbacks, never
//!   asked of the resolver), or names for the resolver.

use crate::common::{Endpoint, Ids};
use crate::reply::Failure;
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// The id of an answer that is about the helper itself: it ends.
pub const HELPER: u32 = 0;
/// The longest request, as a frame.
pub const MAX_REQUEST: usize = 1024;
/// The longest host: a name of the DNS is no longer.
pub const MAX_HOST: usize = 255;
/// The most requests that an order may let wait.
pub const MAX_UNANSWERED_REQUESTS: u32 = 1024;
/// The longest time that a connect may be given.
pub const MAX_TIMEOUT_MS: u32 = 600_000;
/// The most listeners and socket files that one helper keeps.
pub const MAX_KEPT_SOCKETS: usize = 64;
/// The longest queue of connections not yet accepted; the kernel's own bound (somaxconn) applies beside it.
pub const MAX_BACKLOG: u32 = 4096;
/// The most displays that one request looks through.
pub const MAX_DISPLAYS: u16 = 1000;
/// Display 0's port.
pub const X11_PORT: u16 = 6000;

record! {
    /// The order: whom to be. The one descriptor that may come with it is [`crate::Role::Resolver`]; without it
    /// names are refused.
    pub struct Networking {
        /// Whom the sockets belong to.
        pub ids: Ids,
        /// How many requests may be unanswered at once; more are refused. 1 to [`MAX_UNANSWERED_REQUESTS`].
        pub max_pending: u32,
        /// The SELinux context to take with the user's ids.
        pub selinux: Option<CString>,
    }
}

record! {
    /// A request with the number its answer will carry.
    pub struct Request {
        /// Chosen by the asking side; unique among the unanswered and the kept, not [`HELPER`].
        pub id: u32,
        /// What is wanted.
        pub what: What,
    }
}

choice! {
    /// What is wanted.
    pub enum What("network request") {
        /// A connected TCP socket. A name is asked of the resolver; each of its addresses is tried. The timeout,
        /// 1 to [`MAX_TIMEOUT_MS`], is for all of it.
        0 => Connect { host: CString, port: u16, timeout_ms: u32 },
        /// A bound TCP socket per address, not listening.
        1 => Bind { host: CString, port: u16 },
        /// Listening TCP sockets, one descriptor per address. `host` empty or `*`: all addresses of both
        /// versions; `localhost`: both loopbacks. Port 0: a free one, the same for all. Either all addresses
        /// that this machine has a version for, or none: half a listener would let another user have the rest.
        2 => Listen { host: CString, port: u16, backlog: u32 },
        /// As `Listen`, but the helper keeps the sockets and hands over each connection as [`Done::Accepted`],
        /// until `Cancel`.
        3 => Accept { host: CString, port: u16, backlog: u32 },
        /// A connected unix-domain stream socket.
        4 => ConnectUnix { path: CString, timeout_ms: u32 },
        /// A listening unix-domain socket at the absolute `path`, with file mode `0777 & !umask`. `unlink_first`
        /// removes a socket that is there, never a file of another kind. The helper removes the file at its end
        /// or at `Cancel`.
        5 => ListenUnix { path: CString, umask: u32, unlink_first: bool, backlog: u32 },
        /// A listening unix-domain socket in a private directory of its own, for a forwarded agent:
        /// `/tmp/ssh-XXXXXXXXXX/agent.PID`. The helper removes both at its end or at `Cancel`.
        6 => AgentSocket,
        /// The first free X11 display from `first` to `last`, listening; on loopback only unless `any_address`.
        7 => X11Display { first: u16, last: u16, any_address: bool },
        /// Forget request `of`: stop connecting (it gets no other answer), or close what `Accept` listens on, or
        /// remove the files of `ListenUnix` and `AgentSocket`. Fails as `Missing` when `of` is not known (any more).
        8 => Cancel { of: u32 },
        /// End, after removing what was made. The socket's end is the answer.
        9 => Stop,
    }
}

record! {
    /// An answer.
    pub struct Response {
        /// The request's number, or [`HELPER`].
        pub id: u32,
        /// What came of it.
        pub done: Done,
    }
}

choice! {
    /// What came of a request; sockets travel beside the frame.
    pub enum Done("network answer") {
        /// Connected; one descriptor. `peer` is the address that answered, for TCP.
        0 => Connected { peer: Option<Endpoint> },
        /// Bound or listening; one descriptor per address (none when the helper keeps them).
        1 => Listening { local: Vec<Endpoint> },
        /// A connection on what the helper listens on; one descriptor. `local` is the index of the listener in
        /// [`Done::Listening`].
        2 => Accepted { peer: Endpoint, local: u8 },
        /// A unix-domain socket is there; one descriptor.
        3 => UnixListening { path: CString },
        /// The display; one descriptor per address.
        4 => Display { number: u16 },
        /// Forgotten.
        5 => Cancelled,
        /// It failed.
        6 => Failed { failure: Failure },
    }
}
