//! The node's events: each with its name and its fields, which docs/audit.md explains. They are added to, never changed.

use fleetgate_base::audit::{Description, Field, Flag, Line, Octal, Success};
use fleetgate_base::{events, fields};
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::sftp;
use std::net::SocketAddr;
use std::time::Duration;

/// What a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A login shell.
    Shell,
    /// A command.
    Exec,
    /// A named command, without a shell.
    Command,
    /// The file server.
    Sftp,
}

impl SessionKind {
    /// Its name in events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            SessionKind::Shell => "shell",
            SessionKind::Exec => "exec",
            SessionKind::Command => "command",
            SessionKind::Sftp => "sftp",
        }
    }

    /// All of them.
    pub const ALL: [SessionKind; 4] = [
        SessionKind::Shell,
        SessionKind::Exec,
        SessionKind::Command,
        SessionKind::Sftp,
    ];
}

impl Field for SessionKind {
    fn write(&self, name: &str, line: &mut Line<'_>) {
        line.text(name, self.name());
    }
}

/// Who commanded the end of a session, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndCommand {
    /// Who: `user ada`, `uid 0`.
    pub by: String,
    /// In the words of that person; may be empty.
    pub reason: String,
}

impl EndCommand {
    /// What the session's user reads.
    pub fn words(&self) -> String {
        match &self.reason[..] {
            "" => format!("the session was ended by {}", self.by),
            why => format!("the session was ended by {} ({why})", self.by),
        }
    }
}

impl Field for EndCommand {
    const SEVERAL: &'static [&'static str] = &["ended_by", "reason"];

    fn write(&self, _: &str, line: &mut Line<'_>) {
        line.text("ended_by", &self.by);
        if !self.reason.is_empty() {
            line.text("reason", &self.reason);
        }
    }
}

/// Why a session that should be recorded is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRecorded {
    /// In words.
    pub reason: String,
}

impl Field for NotRecorded {
    const SEVERAL: &'static [&'static str] = &["recorded", "reason"];

    fn write(&self, _: &str, line: &mut Line<'_>) {
        line.put("recorded", &false);
        line.text("reason", &self.reason);
    }
}

events! {
/// What happened. Texts may be of any length and hold anything: they are cut and escaped when written.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The node accepts connections.
    NodeStarted = "node_started" {
        version: String,
        /// The ids of all sessions of this machine, which an earlier monitor began.
        sessions: Option<Vec<String>>,
    },
    /// The configuration was read again; `refused` says why the old one stays.
    NodeReloaded = "node_reloaded" { refused: Option<String> => Success<'_> },
    /// A connection was turned away before anything was said on it.
    ConnectionRefused = "connection_refused" { source: SocketAddr, via: Option<String>, reason: String },
    /// So many events of a kind about people who were not logged in, which have no lines of their own.
    Strangers = "strangers" {
        of: &'static str,
        /// An address or network; none: of several.
        source: Option<String>,
        /// By a proxy's word.
        tunnelled: bool => Flag,
        count: u64,
        first: Time,
        last: Time,
    },
    /// A connection ended; bytes where its front counted them.
    ConnectionEnded = "connection_ended" {
        connection: ConnectionNumber,
        login: Option<String>,
        source: SocketAddr,
        via: Option<String>,
        reason: String,
        received: u64,
        sent: u64,
        lasted as lasted_ms: Duration,
    },
    /// Somebody is in. `identity` says by what.
    LoginAccepted = "login_accepted" {
        connection: ConnectionNumber,
        login: String,
        source: SocketAddr,
        via: Option<String>,
        identity: String,
        cluster: Option<ClusterUser>,
    },
    /// Somebody is not.
    LoginRefused = "login_refused" {
        connection: ConnectionNumber,
        login: String,
        source: SocketAddr,
        via: Option<String>,
        method: String,
        reason: String,
        user: Option<String>,
        rule: Option<String>,
    },
    /// A connection is ended because of a lock.
    Locked = "locked" {
        connection: ConnectionNumber,
        login: String,
        source: SocketAddr,
        user: Option<String>,
        rule: String,
        reason: String,
    },
    /// The cluster's state was replaced, or one that was brought is not taken.
    ClusterState = "cluster_state" {
        serial: u64,
        refused: Option<String> => Success<'_>,
        /// The ids of all sessions of this machine.
        sessions: Option<Vec<String>>,
    },
    /// A session runs.
    SessionStarted = "session_started" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        source: SocketAddr,
        user: Option<String>,
        kind: SessionKind,
        pid: i32,
        terminal: Option<String>,
        command: Option<Vec<u8>>,
        original: Option<Vec<u8>>,
        /// The account, where it is not the login.
        runs_as: Option<String>,
        /// The container's id, whatever name the login has.
        container: Option<String>,
        strategy: &'static str,
        unrecorded: Option<String>,
        /// How closely it is watched; none: not at all.
        audit: Option<&'static str>,
        /// Why it is not, though it should be.
        unwatched: Option<String>,
        /// It is not recorded, though it should be.
        not_recorded: Option<NotRecorded>,
        /// How much of it is recorded; none: nothing.
        recording: Option<&'static str>,
    },
    /// It does not.
    SessionRefused = "session_refused" { connection: ConnectionNumber, login: String, reason: String },
    /// A named command's client got the result of another run: `session`. `age`: since its end; none: it waited for it.
    CommandAnswered = "command_answered" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        source: SocketAddr,
        user: Option<String>,
        command: Option<Vec<u8>>,
        age as age_ms: Option<Duration>,
    },
    /// A client got a list that the node itself has. `list`: of what.
    Listed = "listed" {
        connection: ConnectionNumber,
        login: String,
        source: SocketAddr,
        user: Option<String>,
        list: &'static str,
    },
    /// A session's process ended. `code` or `signal`; neither when nobody could wait for it.
    SessionEnded = "session_ended" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        code: Option<i32>,
        signal: Option<i32>,
        /// None: nobody saw when it ended.
        lasted as lasted_ms: Option<Duration>,
        usage: Usage,
        /// Somebody commanded it.
        end_command: Option<EndCommand>,
        /// The monitor that began it had ended before it, or was killed.
        inherited: bool => Flag,
    },
    /// A session's recording is whole. `chain`: the hash over all of it.
    Recorded = "recorded" {
        connection: Option<ConnectionNumber>,
        login: Option<String>,
        session: SessionId,
        blocks: u64,
        bytes: u64,
        chain: String,
        /// A monitor that was killed had not finished it.
        recovered: bool => Flag,
    },
    /// A session that is recorded cannot be any more. `ended`: so it does not go on.
    NotRecorded = "not_recorded" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        reason: String,
        ended: bool => Flag,
    },
    /// Recordings were removed for their age, or for want of room.
    RecordingsRemoved = "recordings_removed" {
        count: u64,
        bytes: u64,
        /// Of these, the cluster was to have so many, and has not.
        undelivered: Option<u64>,
    },
    /// Somebody sees a session of `owner`'s.
    SessionWatched = "session_watched" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        source: SocketAddr,
        user: Option<String>,
        owner: Option<String>,
    },
    /// Somebody sees it and may type in it.
    SessionJoined = "session_joined" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        source: SocketAddr,
        user: Option<String>,
        owner: Option<String>,
    },
    /// One of those sees it no more.
    ViewerLeft = "viewer_left" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        user: Option<String>,
        reason: String,
        lasted as lasted_ms: Duration,
    },
    /// What somebody did to a file.
    File = "file" {
        connection: ConnectionNumber,
        login: String,
        session: SessionId,
        done: sftp::Event => Operation<'_>,
    },
    /// What a watched session did.
    Watched(Box<super::WatchedEvent>),
    /// A forwarded connection ended.
    Forwarded = "forwarded" {
        connection: ConnectionNumber,
        login: String,
        to: String,
        sent: u64,
        received: u64,
        /// It went on to an SSH server.
        onward_ssh: bool => Flag,
    },
    /// Something listens for a connection, or does not any more.
    Listening = "listening" { connection: ConnectionNumber, login: String, on: String },
    /// A request that was refused after the login.
    Denied = "denied" { connection: ConnectionNumber, login: String, what: String },
    /// A process of the node's own ended when nobody had told it to.
    ProcessDied = "process_died" { process: String, pid: i32, how: String },
    /// Events before this one were lost.
    Lost = "audit_lost" { gap: Gap },
}
}

impl Event {
    /// Appends its line, newline included, of something that happened at `at`.
    pub fn write_line(&self, at: Time, out: &mut Vec<u8>) {
        let mut line = Line::begin(out, at);
        self.write_event(&mut line);
        line.end();
    }
}

/// What a session used; what is not known is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, in microseconds.
    pub cpu_micros: Option<u64>,
    /// The most memory at once, in bytes: of the cgroup, else of its largest process, where that had more than the
    /// monitor ever had: a process begins with what its starter had.
    pub memory: Option<u64>,
    /// Bytes read from block devices.
    pub read: Option<u64>,
    /// Bytes written to them.
    pub written: Option<u64>,
}

fields!(Usage { cpu_micros as cpu_us, memory, read, written });

/// Events that could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How many.
    pub count: u64,
    /// When the first of them happened.
    pub first: Time,
    /// When the last of them did.
    pub last: Time,
    /// The line before this one is the beginning of one of them.
    pub cut: bool,
}

fields!(Gap { count, first, last, cut => Flag });

/// What a login's line says of a user of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUser {
    /// Who.
    pub user: String,
    /// The roles that let him in, between commas.
    pub roles: String,
    /// When he last gave a second factor, Unix seconds.
    pub mfa: Option<u64>,
    /// The device that his certificate is bound to.
    pub device: Option<String>,
}

fields!(ClusterUser {
    user,
    roles,
    mfa,
    device
});

/// The operations of `file` events, with their fields.
pub const OPERATIONS: &[Description] = Operation::DESCRIPTIONS;

/// An operation of the file server: its name, and its fields.
struct Operation<'a>(&'a sftp::Event);

impl<'a> From<&'a sftp::Event> for Operation<'a> {
    fn from(event: &'a sftp::Event) -> Operation<'a> {
        Operation(event)
    }
}

/// The operations: the variant that the file server sends, the operation's name, and its fields in the order of the line.
macro_rules! operations {
    ($( $Variant:ident $({ $flag:ident: $is:literal })? = $name:literal {
        $( $field:ident $(as $key:ident)? $(=> $via:ty)? ),*
    } ),* $(,)?) => {
        impl Operation<'_> {
            const DESCRIPTIONS: &'static [Description] = &[ $( Description {
                name: $name,
                declared: &[ $( (fleetgate_base::field_name!($field $(as $key)?), &[]) ),* ],
            } ),* ];
        }

        impl Field for Operation<'_> {
            const SEVERAL: &'static [&'static str] = &["operation"];

            fn write(&self, _: &str, line: &mut Line<'_>) {
                match self.0 { $(
                    sftp::Event::$Variant { $($flag: $is,)? $($field,)* .. } => {
                        line.put("operation", $name);
                        $( fleetgate_base::write_field!(line, $field $(as $key)?, _ $(=> $via)?); )*
                    }
                )* }
            }
        }
    };
}

operations! {
    Opened = "open" { path, errno, flags },
    Closed = "close" { path, read, written },
    Listed = "list" { path, errno },
    Removed { directory: true } = "rmdir" { path, errno },
    Removed { directory: false } = "remove" { path, errno },
    Renamed = "rename" { from as path, errno, to },
    DirectoryMade = "mkdir" { path, errno, mode => Octal },
    AttributesSet = "attributes" { path, errno, size, uid, gid, mode => Octal, times },
    Linked { symbolic: true } = "symlink" { path, errno, target },
    Linked { symbolic: false } = "link" { path, errno, target },
    Lost = "lost" { count },
}

/// A session's id as events have it.
pub fn digits(id: &SessionId) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}
