//! What the tasks of connections ask of the tunnel's loop. Types alone.

use fleetgate_proto::v1::{AuditPosition, FromNode, Spans};
use fleetgate_sys::Fd;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::tunnel::ProxyStatement;
use std::ffi::CString;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// A request to the loop.
pub(crate) enum Request {
    /// A session came.
    Arrived {
        vouched: ProxyStatement,
        first: Vec<u8>,
        /// Somebody wants to know where its time goes.
        explains: bool,
        answer: oneshot::Sender<Result<AcceptedSession, String>>,
    },
    /// Where this host is.
    Resolve {
        host: CString,
        answer: oneshot::Sender<Vec<SocketAddr>>,
    },
    /// A control stream was opened by this proxy; words to it.
    Control(Arc<str>, mpsc::Sender<FromNode>),
    /// The proxy of this control stream leaves: it is to end, and others get the words.
    Left(mpsc::Sender<FromNode>),
    /// Audit lines are kept.
    Kept(AuditPosition),
    /// Audit lines from there on are not kept, says the proxy that has them.
    Unkept(AuditPosition),
    /// A stream for recordings was opened: those that it is to send.
    Recordings(mpsc::Sender<Recording>),
    /// One that its stream could not finish.
    Unsent(Recording),
    /// The request for certificates was answered.
    Renewed,
}

/// A session that the monitor accepted.
pub(crate) struct AcceptedSession {
    pub socket: UnixStream,
    pub spans: Option<mpsc::Receiver<Spans>>,
}

/// A recording that is to be sent.
pub(crate) struct Recording {
    pub session: SessionId,
    /// So many bytes are to be kept for it to be done, unless it is whole.
    pub signed: u64,
    /// So many are to be sent.
    pub length: u64,
    /// It ends there.
    pub whole: bool,
    pub file: Fd,
}
