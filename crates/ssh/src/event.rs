//! What a connection tells its owner, and what its owner answers with. Types only.
//!
//! Every name, path and command is bytes: SSH says UTF-8 and clients send what they like.

use crate::codec::Malformed;
use std::fmt;

/// A request of the server's for the whole connection: it goes on, and its next session should come by another connection.
pub const DRAINING: &[u8] = b"draining@fleetgate";
/// A request of the server's on a session's channel: what was asked for was not begun, and the words behind it say why. A boolean
/// (RFC 4251 §5) says whether another connection would change nothing about it.
pub const NOT_BEGUN: &[u8] = b"not-begun@fleetgate";
/// What [`NOT_BEGUN`] says with this payload. Servers of before say none, and it is false.
pub const fn is_final(not_begun: &[u8]) -> bool {
    matches!(not_begun, [byte, ..] if *byte != 0)
}
/// A request of the client's on the channel of a session that runs: nothing of it is to stay when its program has ended, or
/// when the channel closes before that.
pub const LEAVE_NOTHING: &[u8] = b"leave-nothing@fleetgate";

/// A channel of one connection, by our number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// A request that waits for its answer. Answers may be given in any order; they are sent in the requests' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyId(pub u64);

/// Which of a channel's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// CHANNEL_DATA.
    Main,
    /// CHANNEL_EXTENDED_DATA of type 1.
    Stderr,
}

/// One thing that happened. An event that borrows is dealt with before the next one is asked for.
#[derive(Debug)]
pub enum Event<'a> {
    /// Server: sign this key exchange; answer with `Connection::signed`. Nothing else is read until then.
    SignExchange(Box<Exchange>),
    /// Client: the host's key or certificate (a blob) of a key exchange whose signature is right; answer with
    /// `Connection::trust_host`. Nothing else is read until then.
    HostKey(&'a [u8]),
    /// The first key exchange is done.
    Established,
    /// Server: a login is asked for; the USERAUTH_REQUEST as received, to be read with `auth::Request::parse`.
    /// Answer with `Connection::answer_auth`. Nothing else is read until then.
    Auth(&'a [u8]),
    /// Server: the user's answers to prompts, USERAUTH_INFO_RESPONSE as received; answered likewise.
    AuthInfo(&'a [u8]),
    /// Client: what became of the login; `Connection::authenticate` is the next step on a refusal.
    AuthReply(AuthReply),
    /// Text to show before the login.
    Banner(&'a [u8]),
    /// The peer opens a channel; answer with `accept` or `refuse`.
    Open {
        /// Its number.
        channel: ChannelId,
        /// What it is for.
        kind: ChannelKind,
    },
    /// A channel that we opened is open.
    Opened(ChannelId),
    /// A channel that we opened was refused; the number is free again.
    OpenFailed {
        /// Its number.
        channel: ChannelId,
        /// RFC 4254 §5.1.
        reason: u32,
        /// The peer's words.
        text: &'a [u8],
    },
    /// Bytes. The owner calls `Connection::consumed` as it passes them on; so much more may come then.
    Data {
        /// Of which channel.
        channel: ChannelId,
        /// Of which stream.
        stream: Stream,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// There is room to write on a channel that had none.
    Writable(ChannelId),
    /// The peer sends nothing more on it.
    Eof(ChannelId),
    /// Both sides closed it; its number is free again.
    Closed(ChannelId),
    /// The peer closed it, and it is kept for what is still to be said on it (`Connection::close_later`). It ends with
    /// `Connection::close`.
    Leaving(ChannelId),
    /// A request on a channel; answer with `Connection::answer` when there is a `reply`.
    Request {
        /// On which.
        channel: ChannelId,
        /// What.
        request: Request,
        /// To be answered.
        reply: Option<ReplyId>,
    },
    /// What became of a request of ours that wanted an answer, in the order of asking.
    Replied {
        /// On which channel.
        channel: ChannelId,
        /// Whether it was done.
        done: bool,
    },
    /// A request for the whole connection; answer with `Connection::answer_global` when there is a `reply`.
    Global {
        /// What.
        request: Global,
        /// To be answered.
        reply: Option<ReplyId>,
    },
    /// What became of a global request of ours, in the order of asking.
    GlobalReplied {
        /// The answer's own fields; none: refused.
        done: Option<&'a [u8]>,
    },
    /// Server: a new key exchange is due and needs a cookie: `Connection::cookie`.
    CookieWanted,
    /// PONG or the answer to a keepalive: the peer lives.
    Alive,
}

/// All that went into an exchange hash, so that another process can compute it again.
/// Its frame and its hash: `kex::exchange`.
#[derive(Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The key exchange method's name.
    pub kex: String,
    /// The host key algorithm's name: what to sign with.
    pub host_key_algorithm: String,
    /// The client's version line, without CR LF.
    pub client_version: Vec<u8>,
    /// The server's.
    pub server_version: Vec<u8>,
    /// The client's KEXINIT payload.
    pub client_kexinit: Vec<u8>,
    /// The server's.
    pub server_kexinit: Vec<u8>,
    /// The host key blob.
    pub host_key: Vec<u8>,
    /// The client's public share as sent.
    pub client_share: Vec<u8>,
    /// The server's.
    pub server_share: Vec<u8>,
    /// The shared secret as it stands in the hash: an encoded mpint, or a string for the post-quantum method.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({}, {})", self.kex, self.host_key_algorithm)
    }
}

/// What a channel is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// Shells, commands, subsystems.
    Session,
    /// The peer wants us to connect to `host`.
    DirectTcpip {
        /// Where to.
        host: Vec<u8>,
        /// Its port.
        port: u32,
        /// Who asks.
        origin: Vec<u8>,
        /// From which port.
        origin_port: u32,
    },
    /// Somebody connected where the peer had us listen, or the other way round.
    ForwardedTcpip {
        /// The address as it stood in the request.
        host: Vec<u8>,
        /// The port that was connected to.
        port: u32,
        /// Who connected.
        origin: Vec<u8>,
        /// From which port.
        origin_port: u32,
    },
    /// direct-streamlocal@openssh.com.
    DirectStreamlocal {
        /// The socket's path.
        path: Vec<u8>,
    },
    /// forwarded-streamlocal@openssh.com.
    ForwardedStreamlocal {
        /// The path as it stood in the request.
        path: Vec<u8>,
    },
    /// An X11 client connected.
    X11 {
        /// From where.
        origin: Vec<u8>,
        /// From which port.
        origin_port: u32,
    },
    /// auth-agent@openssh.com.
    Agent,
    /// Some other kind: refused with "unknown channel type" unless the owner knows better.
    Other {
        /// Its name.
        name: Vec<u8>,
        /// Its own fields.
        payload: Vec<u8>,
    },
}

/// A request on a channel (RFC 4254 §6 and OpenSSH's PROTOCOL).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// pty-req.
    Pty(Pty),
    /// shell.
    Shell,
    /// exec.
    Exec {
        /// The command line.
        command: Vec<u8>,
    },
    /// subsystem.
    Subsystem {
        /// Its name.
        name: Vec<u8>,
    },
    /// env.
    Env {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// window-change.
    WindowChange(WindowSize),
    /// signal, without `SIG`.
    Signal {
        /// `INT`, `TERM`, …
        name: Vec<u8>,
    },
    /// break (RFC 4335).
    Break {
        /// How long.
        milliseconds: u32,
    },
    /// x11-req.
    X11 {
        /// One connection only.
        single: bool,
        /// `MIT-MAGIC-COOKIE-1`.
        protocol: Vec<u8>,
        /// Hexadecimal.
        cookie: Vec<u8>,
        /// The screen's number.
        screen: u32,
    },
    /// auth-agent-req@openssh.com.
    Agent,
    /// exit-status.
    ExitStatus {
        /// The code.
        code: u32,
    },
    /// exit-signal.
    ExitSignal {
        /// The signal, without `SIG`.
        name: Vec<u8>,
        /// It left a core.
        core: bool,
        /// Words.
        message: Vec<u8>,
    },
    /// eow@openssh.com: the peer reads no more.
    EndOfWrite,
    /// Some other request: refused unless the owner knows better.
    Other {
        /// Its name.
        name: Vec<u8>,
        /// Its own fields.
        payload: Vec<u8>,
    },
}

/// What pty-req says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pty {
    /// TERM.
    pub term: Vec<u8>,
    /// Its size.
    pub size: WindowSize,
    /// Encoded modes (RFC 4254 §8).
    pub modes: Vec<u8>,
}

/// A terminal's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// In characters.
    pub columns: u32,
    /// In characters.
    pub rows: u32,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// A request for the whole connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Global {
    /// tcpip-forward. Done with port 0 is answered with the port (a u32).
    TcpipForward {
        /// Where to listen.
        host: Vec<u8>,
        /// 0: any.
        port: u32,
    },
    /// cancel-tcpip-forward.
    CancelTcpipForward {
        /// As it was asked for.
        host: Vec<u8>,
        /// As it was asked for or answered.
        port: u32,
    },
    /// streamlocal-forward@openssh.com.
    StreamlocalForward {
        /// The socket's path.
        path: Vec<u8>,
    },
    /// cancel-streamlocal-forward@openssh.com.
    CancelStreamlocalForward {
        /// As it was asked for.
        path: Vec<u8>,
    },
    /// no-more-sessions@openssh.com.
    NoMoreSessions,
    /// hostkeys-00@openssh.com: all of the server's keys.
    HostKeys {
        /// Blobs.
        keys: Vec<Vec<u8>>,
    },
    /// hostkeys-prove-00@openssh.com: answered with a signature for each.
    ProveHostKeys {
        /// Blobs.
        keys: Vec<Vec<u8>>,
    },
    /// keepalive@openssh.com and all the rest: the answer, a refusal, shows that we live.
    Other {
        /// Its name.
        name: Vec<u8>,
        /// Its own fields.
        payload: Vec<u8>,
    },
}

/// A server's decision about one login request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthAnswer {
    /// In.
    Accept,
    /// Not this way.
    Reject {
        /// What may be tried.
        methods: Vec<String>,
        /// This step was right, others are needed.
        partial: bool,
    },
    /// The key of a query would do.
    KeyOk {
        /// The algorithm as asked.
        algorithm: Vec<u8>,
        /// The blob as asked.
        key: Vec<u8>,
    },
    /// Ask the user (RFC 4256).
    Ask {
        /// A title.
        name: Vec<u8>,
        /// A text.
        instruction: Vec<u8>,
        /// What to ask, and whether to echo the answer.
        prompts: Vec<(Vec<u8>, bool)>,
    },
}

/// A client's view of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthReply {
    /// In.
    Accepted,
    /// Not this way.
    Rejected {
        /// What may be tried.
        methods: Vec<String>,
        /// This step was right, others are needed.
        partial: bool,
    },
    /// The queried key would do.
    KeyOk,
    /// Questions for the user; answer with `Connection::answer_prompts`.
    Ask {
        /// A title.
        name: Vec<u8>,
        /// A text.
        instruction: Vec<u8>,
        /// What to ask, and whether to echo the answer.
        prompts: Vec<(Vec<u8>, bool)>,
    },
}

/// RFC 4253 §11.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The peer broke the protocol.
    ProtocolError = 2,
    /// No algorithm in common, or a bad signature.
    KeyExchangeFailed = 3,
    /// A packet that was altered.
    MacError = 5,
    /// A service that is not offered.
    ServiceNotAvailable = 7,
    /// A protocol version that is not spoken.
    VersionNotSupported = 8,
    /// The host key is not the right one.
    HostKeyNotVerifiable = 9,
    /// The connection was lost.
    ConnectionLost = 10,
    /// The owner wants to end.
    ByApplication = 11,
    /// Too many.
    TooManyConnections = 12,
    /// Too many tries to log in.
    NoMoreAuthMethods = 14,
}

/// The end of a connection: ours, with the reason that the peer is told, or the peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// We end it. DISCONNECT is already in the output.
    Ours {
        /// Why.
        reason: Reason,
        /// In words.
        text: String,
    },
    /// The peer sent DISCONNECT.
    Theirs {
        /// RFC 4253 §11.1.
        reason: u32,
        /// Its words, printable.
        text: String,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ours { text, .. } => f.write_str(text),
            End::Theirs { reason, text } => write!(f, "the peer disconnected: {text} (reason {reason})"),
        }
    }
}

impl std::error::Error for End {}

impl End {
    /// We end the connection, for this reason.
    pub fn ours(reason: Reason, text: impl Into<String>) -> End {
        let text = text.into();
        End::Ours { reason, text }
    }

    /// The peer broke the protocol.
    pub fn protocol(text: impl Into<String>) -> End {
        End::ours(Reason::ProtocolError, text)
    }

    /// A message of this kind could not be read.
    pub fn malformed(message: &str, error: Malformed) -> End {
        End::protocol(format!("{message} cannot be read: {error}"))
    }
}
