//! Between the monitor and a front: one login's connections.
//!
//! ```text
//! Begin → Arrived(+ socket) → (Start → Started(+ descriptors) → Ended)* · (Network → Network(+ sockets))* · Closed
//! ```
//!
//! The front's bytes go straight between its connection and the pipes, terminals and sockets that it was handed; the
//! monitor sees requests and ends.

use super::{
    Blob, ConnectionAddresses, ConnectionNumber, FrontPermits, FrozenConnection, ProcessEnd, Settings,
};
use crate::container::Window;
use crate::net::{Done, What};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// A request's number on one connection, chosen by the front; not 0, not used again on that connection.
pub type Ticket = u32;

choice! {
    /// Messages to a front.
    pub enum ToFront("message to the front") {
        /// First, and after a reload.
        0 => Begin { settings: Settings },
        /// A connection whose login was accepted; one descriptor, its socket. `frozen` is what the lobby handed over. From
        /// `monitor::lobby::handed_over` to `FrontConnection::thaw`.
        1 => Arrived { connection: ConnectionNumber, addresses: ConnectionAddresses, frozen: FrozenConnection, permits: FrontPermits, cookie: [u8; 16] },
        /// The signature of a later key exchange, and the next one's cookie. From `connections::exchanges`.
        2 => Signed { connection: ConnectionNumber, signature: Vec<u8>, cookie: [u8; 16] },
        /// The session of [`FromFront::Start`] runs. From `sessions::launch::program_launched` to `FrontConnection::started`. With a terminal one descriptor, its master; else three: the
        /// ends for standard input, output and error (for sftp and where `is_socket` is set: one socket for both ways).
        /// `output_limit`: so much of its output goes to the client. `recorded`: one descriptor more, the last: the pipe to the
        /// recorder.
        3 => Started { connection: ConnectionNumber, ticket: Ticket, is_socket: bool, output_limit: Option<u64>, recorded: Option<Recorded> },
        /// It does not; the text may be shown to the user. With `is_final` no other connection would change that. From `sessions`
        /// or `requests::do_requests`.
        4 => NotStarted { connection: ConnectionNumber, ticket: Ticket, why: CString, is_final: bool },
        /// The session's process ended. Output may still come from its pipes. The text, if there is one, says who ended it
        /// and why, and is for the user. From `sessions::running` to `FrontConnection::program_ended`.
        5 => Ended { connection: ConnectionNumber, ticket: Ticket, ended: ProcessEnd, why: CString },
        /// The answer to [`FromFront::Network`], or a connection on what it listens on; sockets beside it. From `monitor::network`.
        6 => Network { connection: ConnectionNumber, ticket: Ticket, done: Done },
        /// Signatures that prove the host keys asked about, in order; none: refused.
        7 => Proved { connection: ConnectionNumber, ticket: Ticket, signatures: Option<Vec<Blob>> },
        /// A lock ended the login: end this connection with a DISCONNECT. From `monitor::cluster::end_locked`.
        8 => End { connection: ConnectionNumber, reason: u32, text: CString },
        /// Another monitor takes this one's place: a client that begins sessions again and again is told to come anew.
        9 => Draining { connection: ConnectionNumber },
        /// The session is ended now, and [`ToFront::Ended`] says why: the end of its output waits for that text, which could not
        /// follow it.
        10 => Ending { connection: ConnectionNumber, ticket: Ticket },
        /// Another pipe to the recorder, beside it: the recorder before was lost. Without a descriptor the session is recorded
        /// no more. From `monitor::recorder`.
        11 => RecordAnew { connection: ConnectionNumber, ticket: Ticket },
        /// The session of [`FromFront::Start`] shows another one: a socket to the front of that one, both ways. With `recorded`
        /// a second descriptor, the recording's file: so many bytes of it go to the client first. From `monitor::live`.
        12 => Viewing { connection: ConnectionNumber, ticket: Ticket, at: u64, recorded: u64 },
        /// Somebody sees this session from now on, by a socket beside it; with `types` what comes from there is typed.
        /// `who`: for all who are there to read. From `monitor::live` to `front::views`.
        13 => View { connection: ConnectionNumber, ticket: Ticket, viewer: u32, who: CString, types: bool },
        /// That one is gone.
        14 => EndView { connection: ConnectionNumber, ticket: Ticket, viewer: u32 },
    }
}

choice! {
    /// Messages of a front.
    pub enum FromFront("message of the front") {
        /// The sandbox stands and connections may come.
        0 => Ready,
        /// Sign this later exchange: the transcript of `ssh::kex::exchange`.
        1 => Sign { connection: ConnectionNumber, exchange: Vec<u8> },
        /// Begin a session. From `FrontConnection::start_if_ready` to `requests::request`, and behind the account's look-up to
        /// `sessions::start`.
        2 => Start { connection: ConnectionNumber, ticket: Ticket, start: Start },
        /// A signal for a session's processes, without `SIG`.
        3 => Signal { connection: ConnectionNumber, ticket: Ticket, name: CString },
        /// A request to the connection's networking helper; its id there is the ticket. Cancel names a ticket in `of`.
        4 => Network { connection: ConnectionNumber, ticket: Ticket, what: What },
        /// A forwarded connection (of ticket `ticket`) ended; so many bytes went each way. `onward_ssh`: it was to an SSH server.
        /// For the audit log.
        5 => Forwarded { connection: ConnectionNumber, ticket: Ticket, to: CString, sent: u64, received: u64, onward_ssh: bool },
        /// A request of the client's that the front refused by itself. For the audit log, which names the rule against its kind.
        6 => Denied { connection: ConnectionNumber, kind: RequestKind, what: CString },
        /// Prove these host keys (hostkeys-prove-00@openssh.com); the session id is the monitor's own.
        7 => Prove { connection: ConnectionNumber, ticket: Ticket, keys: Vec<Blob> },
        /// The client closed the session's channel: hang up on it, as a terminal that goes away does.
        8 => HangUp { connection: ConnectionNumber, ticket: Ticket },
        /// It ended, with a text for the log and the bytes that went each way.
        9 => Closed { connection: ConnectionNumber, why: CString, received: u64, sent: u64 },
        /// Nothing of this session is to stay when its program has ended or its channel closes (leave-nothing@fleetgate).
        10 => LeaveNothing { connection: ConnectionNumber, ticket: Ticket },
        /// The recorder has taken nothing of this session for [`RECORDER_PATIENCE_MS`]. From `front::tap` to
        /// `monitor::recorder`, which decides whether the session ends or goes on.
        11 => NotRecorded { connection: ConnectionNumber, ticket: Ticket },
        /// The viewer of a [`ToFront::View`] gets what the session shows since `at`, in microseconds as in its recording.
        12 => Viewed { connection: ConnectionNumber, ticket: Ticket, viewer: u32, at: u64 },
        /// The viewer took nothing for too long and is let go.
        13 => ViewerSlow { connection: ConnectionNumber, ticket: Ticket, viewer: u32 },
    }
}

/// So long a session waits for its recorder, in milliseconds, before the monitor hears of it.
pub const RECORDER_PATIENCE_MS: u64 = 5000;

record! {
    /// What is recorded of a session.
    pub struct Recorded {
        /// What is typed, too.
        pub input: bool,
        /// The session's start, in microseconds of CLOCK_MONOTONIC: what frames count their time from.
        pub since: u64,
    }
}

choice! {
    /// What a request that a front refused asked for.
    pub enum RequestKind("kind of request") {
        /// A session's channel, of a login that may run nothing.
        0 => Session,
        /// The login shell.
        1 => Shell,
        /// A command line.
        2 => Exec,
        /// File transfer; any other subsystem is a command.
        3 => Sftp,
        /// A terminal.
        4 => Terminal,
        /// A connection to a TCP address.
        5 => ConnectTcp,
        /// A connection to a unix socket.
        6 => ConnectUnix,
        /// A port or socket to listen on.
        7 => Listen,
        /// The agent.
        8 => Agent,
        /// X11.
        9 => X11,
        /// Any, which no rule is against: it is too large, or what it needs is not to be had.
        10 => Unable,
    }
}

record! {
    /// A session asked for.
    pub struct Start {
        /// What to run.
        pub program: Program,
        /// In a terminal.
        pub terminal: Option<Terminal>,
        /// What the client set, in order.
        pub environment: Vec<ClientVariable>,
        /// The ticket of a [`What::AgentSocket`] that was answered: its path becomes SSH_AUTH_SOCK.
        pub agent: Option<Ticket>,
        /// X11 forwarding.
        pub x11: Option<X11>,
    }
}

choice! {
    /// What to run.
    pub enum Program("session program") {
        /// The login shell.
        0 => Shell,
        /// A command line, for the login shell's `-c` (or whatever the grant puts in its place).
        1 => Exec { command: Vec<u8> },
        /// A subsystem.
        2 => Subsystem { name: Vec<u8> },
    }
}

record! {
    /// A terminal as the client described it.
    pub struct Terminal {
        /// TERM.
        pub term: Vec<u8>,
        /// In characters.
        pub columns: u32,
        /// In characters.
        pub rows: u32,
        /// In pixels.
        pub width: u32,
        /// In pixels.
        pub height: u32,
        /// Encoded modes (RFC 4254 §8).
        pub modes: Vec<u8>,
    }
}

impl Terminal {
    /// Its size and modes as the kernel has them, whose numbers have 16 bits.
    pub fn window(&self) -> Window {
        let least = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        Window {
            columns: least(self.columns),
            rows: least(self.rows),
            width: least(self.width),
            height: least(self.height),
            modes: self.modes.clone(),
        }
    }
}

record! {
    /// One variable as the client sent it.
    pub struct ClientVariable {
        /// Its name.
        pub name: Vec<u8>,
        /// Its value.
        pub value: Vec<u8>,
    }
}

record! {
    /// X11 forwarding of one session.
    pub struct X11 {
        /// The ticket of the [`What::X11Display`] that was answered: its number becomes DISPLAY.
        pub display: Ticket,
        /// `MIT-MAGIC-COOKIE-1`.
        pub protocol: Vec<u8>,
        /// Hexadecimal.
        pub cookie: Vec<u8>,
        /// The screen's number.
        pub screen: u32,
    }
}
