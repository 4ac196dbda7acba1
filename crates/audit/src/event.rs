//! What is told, and its form: one JSON object, `time` and `event` first. The names here are those of docs/audit.md;
//! they are added to, never changed.
//!
//! An event is its row in the table below: its fields are written in their order, each under its own name, in the way of
//! its type ([`Field`]) or in the way that stands behind it. A field that is not there is not written.

use super::fields::{Field, Fields, utc};
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::Connection;
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

/// Who ordered the end of a session, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndOrder {
    /// Who: `user ada`, `uid 0`.
    pub by: String,
    /// In the words of whoever ordered it; may be empty.
    pub reason: String,
}

impl EndOrder {
    /// What the session's user reads.
    pub fn words(&self) -> String {
        match &self.reason[..] {
            "" => format!("the session was ended by {}", self.by),
            why => format!("the session was ended by {} ({why})", self.by),
        }
    }
}

/// The enum, and how each of its variants is written.
macro_rules! events {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $event:literal {
            $($field:ident: $type:ty $(=> $put:ident)?),* $(,)?
        },)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        // Each field's name is its name in docs/audit.md, which says what it holds.
        #[allow(missing_docs)]
        pub enum $name {
            $($(#[$vmeta])* $variant { $($field: $type),* },)*
            /// What a watched session did.
            Watched(Box<crate::WatchedEvent>),
        }

        impl $name {
            fn fill(&self, f: &mut Fields) {
                match self {
                    $($name::$variant { $($field),* } => {
                        f.text("event", $event);
                        $(events!(@put f $field $($put)?);)*
                    })*
                    $name::Watched(watched) => watched.fill(f),
                }
            }
        }
    };
    (@put $f:ident $field:ident) => { $field.put(stringify!($field), $f) };
    (@put $f:ident $field:ident $put:ident) => { $put($field.as_deref(), $f) };
}

events! {
    /// What happened. Texts may be of any length and hold anything: they are cut and escaped when written.
    pub enum Event {
        /// The node accepts connections; with the ids of all sessions of this machine, which an earlier monitor began.
        NodeStarted = "node_started" { version: String, sessions: Option<Vec<String>> },
        /// The configuration was read again; `refused` says why the old one stays.
        NodeReloaded = "node_reloaded" { refused: Option<String> => outcome },
        /// A connection was turned away before anything was said on it.
        ConnectionRefused = "connection_refused" { source: SocketAddr, via: Option<String>, reason: String },
        /// So many events of a kind about people who were not logged in, which have no lines of their own. The source is an
        /// address or network; none: there were several. `tunnelled`: by a proxy's word.
        Strangers = "strangers" {
            of: &'static str, source: Option<String>, tunnelled: bool, count: u64, first: Time, last: Time,
        },
        /// A connection ended; bytes where its front counted them.
        ConnectionEnded = "connection_ended" {
            connection: Connection, login: Option<String>, source: SocketAddr, via: Option<String>, reason: String,
            received: u64, sent: u64, lasted: Duration,
        },
        /// Somebody is in. `identity` says by what.
        LoginAccepted = "login_accepted" {
            connection: Connection, login: String, source: SocketAddr, via: Option<String>, identity: String,
            cluster: Option<ClusterUser>,
        },
        /// Somebody is not.
        LoginRefused = "login_refused" {
            connection: Connection, login: String, source: SocketAddr, via: Option<String>, method: String,
            reason: String, user: Option<String>, rule: Option<String>,
        },
        /// A connection is ended because of a lock.
        Locked = "locked" {
            connection: Connection, login: String, source: SocketAddr, user: Option<String>, rule: String,
            reason: String,
        },
        /// The cluster's state was replaced, or one that was brought is not taken; with the ids of all sessions of this
        /// machine.
        ClusterState = "cluster_state" {
            serial: u64, refused: Option<String> => outcome, sessions: Option<Vec<String>>,
        },
        /// A session runs. `audit`: how closely it is watched; `unwatched`: why it is not, though it should be.
        SessionStarted = "session_started" {
            connection: Connection, login: String, session: SessionId, source: SocketAddr, user: Option<String>,
            kind: SessionKind, pid: i32, terminal: Option<String>, command: Option<Vec<u8>>,
            original: Option<Vec<u8>>, rung: &'static str, unrecorded: Option<String>, audit: Option<&'static str>,
            unwatched: Option<String>,
        },
        /// It does not.
        SessionRefused = "session_refused" { connection: Connection, login: String, reason: String },
        /// A session's process ended. `code` or `signal`; neither when nobody could wait for it, and then nobody may have
        /// seen when it ended. `inherited`: the monitor that began it had ended before it, or was killed.
        SessionEnded = "session_ended" {
            connection: Connection, login: String, session: SessionId, code: Option<i32>, signal: Option<i32>,
            lasted: Option<Duration>, usage: Usage, ordered: Option<EndOrder>, inherited: bool,
        },
        /// What somebody did to a file.
        File = "file" { connection: Connection, login: String, session: SessionId, done: FileDone },
        /// A forwarded connection ended.
        Forwarded = "forwarded" { connection: Connection, login: String, to: String, sent: u64, received: u64 },
        /// Something listens for a connection, or does not any more.
        Listening = "listening" { connection: Connection, login: String, on: String },
        /// A request that was refused after the login.
        Denied = "denied" { connection: Connection, login: String, what: String },
        /// A process of the node's own ended when nobody had told it to.
        ProcessDied = "process_died" { process: String, pid: i32, how: String },
        /// Events before this one were lost.
        Lost = "audit_lost" { count: u64, first: Time, last: Time, cut: bool },
    }
}

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

/// What is told of somebody who came in by the cluster.
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

/// What somebody did to a file; `errno` is 0 where it was done.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FileDone {
    Opened {
        path: Vec<u8>,
        flags: u32,
        errno: i32,
    },
    Closed {
        path: Vec<u8>,
        read: u64,
        written: u64,
    },
    Listed {
        path: Vec<u8>,
        errno: i32,
    },
    Removed {
        path: Vec<u8>,
        directory: bool,
        errno: i32,
    },
    Renamed {
        path: Vec<u8>,
        to: Vec<u8>,
        errno: i32,
    },
    DirectoryMade {
        path: Vec<u8>,
        mode: u32,
        errno: i32,
    },
    AttributesSet {
        path: Vec<u8>,
        size: Option<u64>,
        uid: Option<u32>,
        gid: Option<u32>,
        mode: Option<u32>,
        times: bool,
        errno: i32,
    },
    Linked {
        path: Vec<u8>,
        target: Vec<u8>,
        symbolic: bool,
        errno: i32,
    },
    /// So many operations of this session were not told.
    Lost {
        count: u64,
    },
}

impl Event {
    /// Its line, newline included, told at `at`.
    pub fn line(&self, at: Time) -> String {
        let mut fields = Fields::default();
        fields.text("time", &utc(at));
        self.fill(&mut fields);
        fields.line()
    }
}

/// Whether something was done, and why not.
fn outcome(refused: Option<&str>, f: &mut Fields) {
    f.put("done", refused.is_none());
    refused.put("reason", f);
}

impl Field for ClusterUser {
    fn put(&self, _: &str, f: &mut Fields) {
        self.user.put("user", f);
        self.roles.put("roles", f);
        self.mfa.put("mfa", f);
        self.device.put("device", f);
    }
}

impl Field for Usage {
    fn put(&self, _: &str, f: &mut Fields) {
        self.cpu_micros.put("cpu_us", f);
        self.memory.put("memory", f);
        self.read.put("read", f);
        self.written.put("written", f);
    }
}

impl Field for EndOrder {
    fn put(&self, _: &str, f: &mut Fields) {
        self.by.put("ended_by", f);
        Some(&self.reason)
            .filter(|reason| !reason.is_empty())
            .put("reason", f);
    }
}

impl Field for SessionKind {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, self.name());
    }
}

impl Field for FileDone {
    fn put(&self, _: &str, f: &mut Fields) {
        let (operation, path, errno) = match self {
            FileDone::Opened { path, errno, .. } => ("open", Some(path), Some(errno)),
            FileDone::Closed { path, .. } => ("close", Some(path), None),
            FileDone::Listed { path, errno } => ("list", Some(path), Some(errno)),
            FileDone::Removed {
                path,
                directory,
                errno,
            } => (
                if *directory { "rmdir" } else { "remove" },
                Some(path),
                Some(errno),
            ),
            FileDone::Renamed { path, errno, .. } => ("rename", Some(path), Some(errno)),
            FileDone::DirectoryMade { path, errno, .. } => ("mkdir", Some(path), Some(errno)),
            FileDone::AttributesSet { path, errno, .. } => ("attributes", Some(path), Some(errno)),
            FileDone::Linked {
                path,
                symbolic,
                errno,
                ..
            } => (
                if *symbolic { "symlink" } else { "link" },
                Some(path),
                Some(errno),
            ),
            FileDone::Lost { .. } => ("lost", None, None),
        };
        operation.put("operation", f);
        path.put("path", f);
        errno.put("errno", f);
        match self {
            FileDone::Listed { .. } | FileDone::Removed { .. } => {}
            FileDone::Opened { flags, .. } => flags.put("flags", f),
            FileDone::Closed { read, written, .. } => {
                read.put("read", f);
                written.put("written", f);
            }
            FileDone::Renamed { to, .. } => to.put("to", f),
            FileDone::DirectoryMade { mode, .. } => octal(*mode).put("mode", f),
            FileDone::AttributesSet {
                size,
                uid,
                gid,
                mode,
                times,
                ..
            } => {
                size.put("size", f);
                uid.put("uid", f);
                gid.put("gid", f);
                mode.map(octal).put("mode", f);
                f.put("times", *times);
            }
            FileDone::Linked { target, .. } => target.put("target", f),
            FileDone::Lost { count } => count.put("count", f),
        }
    }
}

fn octal(mode: u32) -> String {
    format!("{mode:o}")
}
