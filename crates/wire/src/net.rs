//! The networking helper: opens sockets as the user, in the session's namespaces, and hands them back.
//!
//! The launching side sends [`Request`]s on the order's socket and gets [`Response`]s, in whatever order they are
//! done, each with the request's id. [`Request::Stop`], or the socket's end, ends the helper, which removes what it made.

use crate::common::{Endpoint, Ids};
use crate::reply::Failure;
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

record! {
    /// The order: whom to be.
    pub struct Networking {
        /// Whom the sockets belong to.
        pub ids: Ids,
        /// How many requests may be unanswered at once; more are refused.
        pub max_pending: u32,
    }
}

record! {
    /// A request with the number its answer will carry.
    pub struct Request {
        /// Chosen by the asking side; unique among the unanswered.
        pub id: u32,
        /// What is wanted.
        pub what: What,
    }
}

choice! {
    /// What is wanted.
    pub enum What("network request") {
        /// A connected TCP socket. A name is asked of the resolver; each of its addresses is tried.
        0 => Connect { host: CString, port: u16, timeout_ms: u32 },
        /// A bound TCP socket, not listening.
        1 => Bind { host: CString, port: u16 },
        /// A listening TCP socket. `host` empty: all addresses; `localhost`: both loopbacks, two descriptors.
        2 => Listen { host: CString, port: u16, backlog: u32 },
        /// As `Listen`, but the helper keeps it and hands over each connection as [`Done::Accepted`].
        3 => Accept { host: CString, port: u16, backlog: u32 },
        /// A connected unix-domain stream socket.
        4 => ConnectUnix { path: CString },
        /// A listening unix-domain socket at `path`, with file mode `0777 & !umask`.
        5 => ListenUnix { path: CString, umask: u32, unlink_first: bool, backlog: u32 },
        /// A listening unix-domain socket in a private directory of its own, for a forwarded agent.
        6 => AgentSocket,
        /// The first free X11 display from `first` on, listening; on loopback only unless `any_address`.
        7 => X11Display { first: u16, last: u16, any_address: bool },
        /// Forget request `of`: stop connecting, or close what `Accept` listens on and remove its files.
        8 => Cancel { of: u32 },
        /// End, after removing what was made.
        9 => Stop,
    }
}

record! {
    /// An answer.
    pub struct Response {
        /// The request's number.
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
        /// Bound or listening; one descriptor per address (none when the helper keeps it).
        1 => Listening { local: Vec<Endpoint> },
        /// A connection on what the helper listens on; one descriptor.
        2 => Accepted { peer: Endpoint },
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
