//! What is told, and its form: one JSON object, `time` and `event` first. The names here are those of docs/audit.md;
//! they are added to, never changed.

use super::MAX_TEXT;
use crate::monitor::cluster::Member;
use fleetgate_sys::clock::{self, Time};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::Connection;
use serde_json::{Map, Value};
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

/// What happened. Texts may be of any length and hold anything: they are cut and escaped when written.
#[derive(Clone, Debug, PartialEq)]
// Each field's name is its name in docs/audit.md, which says what it holds.
#[allow(missing_docs)]
pub enum Event {
    /// The node accepts connections.
    NodeStarted {
        version: String,
        /// The ids of all sessions of this machine, which an earlier monitor began.
        sessions: Option<Vec<String>>,
    },
    /// The configuration was read again; `refused` says why the old one stays.
    NodeReloaded { refused: Option<String> },
    /// A connection was turned away before anything was said on it.
    ConnectionRefused {
        source: SocketAddr,
        reason: String,
        via: Option<String>,
    },
    /// So many events of a kind about people who were not logged in, which have no lines of their own.
    Strangers {
        of: &'static str,
        /// An address or network; none: of several.
        source: Option<String>,
        /// By a proxy's word.
        tunnelled: bool,
        count: u64,
        first: Time,
        last: Time,
    },
    /// A connection ended; bytes where its front counted them.
    ConnectionEnded {
        connection: Connection,
        source: SocketAddr,
        login: Option<String>,
        reason: String,
        received: u64,
        sent: u64,
        lasted: Duration,
        via: Option<String>,
    },
    /// Somebody is in. `identity` says by what.
    LoginAccepted {
        connection: Connection,
        source: SocketAddr,
        login: String,
        identity: String,
        cluster: Option<AsAudited>,
        via: Option<String>,
    },
    /// Somebody is not.
    LoginRefused {
        connection: Connection,
        source: SocketAddr,
        login: String,
        method: String,
        reason: String,
        user: Option<String>,
        rule: Option<String>,
        via: Option<String>,
    },
    /// A connection is ended because of a lock.
    Locked {
        connection: Connection,
        source: SocketAddr,
        login: String,
        user: Option<String>,
        rule: String,
        reason: String,
    },
    /// The cluster's state was replaced, or one that was brought is not taken.
    ClusterState {
        serial: u64,
        refused: Option<String>,
        /// The ids of all sessions of this machine.
        sessions: Option<Vec<String>>,
    },
    /// A session runs.
    SessionStarted {
        connection: Connection,
        session: SessionId,
        login: String,
        source: SocketAddr,
        user: Option<String>,
        kind: SessionKind,
        pid: i32,
        terminal: Option<String>,
        command: Option<Vec<u8>>,
        original: Option<Vec<u8>>,
        rung: &'static str,
        unrecorded: Option<String>,
        /// How closely it is watched; none: not at all.
        audit: Option<&'static str>,
        /// Why it is not, though it should be.
        unwatched: Option<String>,
    },
    /// It does not.
    SessionRefused {
        connection: Connection,
        login: String,
        reason: String,
    },
    /// A session's process ended. `code` or `signal`; neither when nobody could wait for it.
    SessionEnded {
        connection: Connection,
        session: SessionId,
        login: String,
        code: Option<i32>,
        signal: Option<i32>,
        /// None: nobody saw when it ended.
        lasted: Option<Duration>,
        usage: crate::monitor::cgroup::Usage,
        /// Somebody ordered it.
        ordered: Option<EndOrder>,
        /// The monitor that began it had ended before it, or was killed.
        is_inherited: bool,
    },
    /// What somebody did to a file.
    File {
        connection: Connection,
        session: SessionId,
        login: String,
        done: FileDone,
    },
    /// What a watched session did.
    Watched(Box<super::Watched>),
    /// A forwarded connection ended.
    Forwarded {
        connection: Connection,
        login: String,
        to: String,
        sent: u64,
        received: u64,
    },
    /// Something listens for a connection, or does not any more.
    Listening {
        connection: Connection,
        login: String,
        on: String,
    },
    /// A request that was refused after the login.
    Denied {
        connection: Connection,
        login: String,
        what: String,
    },
    /// A process of the node's own ended when nobody had told it to.
    ProcessDied { process: String, pid: i32, how: String },
    /// Events before this one were lost.
    Lost(Gap),
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

/// What is told of somebody who came in by the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsAudited {
    pub(super) user: String,
    pub(super) roles: String,
    pub(super) mfa: Option<u64>,
    pub(super) device: Option<String>,
}

impl AsAudited {
    /// Of this one.
    pub fn new(member: &Member) -> AsAudited {
        AsAudited {
            user: member.user().map(ToString::to_string).unwrap_or_default(),
            roles: member.roles(),
            mfa: member.identity.mfa,
            device: member.identity.device.as_ref().map(ToString::to_string),
        }
    }
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
        let mut fields = Fields(Map::new());
        fields.text("time", &utc(at));
        self.fill(&mut fields);
        let mut line = Value::Object(fields.0).to_string();
        line.push('\n');
        line
    }

    fn fill(&self, f: &mut Fields) {
        match self {
            Event::NodeStarted { version, sessions } => {
                f.text("event", "node_started");
                f.text("version", version);
                f.sessions(sessions.as_deref());
            }
            Event::NodeReloaded { refused } => {
                f.text("event", "node_reloaded");
                f.put("done", refused.is_none());
                f.maybe("reason", refused.as_deref());
            }
            Event::ConnectionRefused { source, reason, via } => {
                f.text("event", "connection_refused");
                f.text("source", &source.to_string());
                f.maybe("via", via.as_deref());
                f.text("reason", reason);
            }
            Event::Strangers {
                of,
                source,
                tunnelled,
                count,
                first,
                last,
            } => {
                f.text("event", "strangers");
                f.text("of", of);
                f.maybe("source", source.as_deref());
                if *tunnelled {
                    f.put("tunnelled", true);
                }
                f.put("count", *count);
                f.text("first", &utc(*first));
                f.text("last", &utc(*last));
            }
            Event::ConnectionEnded {
                connection,
                source,
                login,
                reason,
                received,
                sent,
                lasted,
                via,
            } => {
                f.of("connection_ended", *connection, login.as_deref());
                f.text("source", &source.to_string());
                f.maybe("via", via.as_deref());
                f.text("reason", reason);
                f.put("received", *received);
                f.put("sent", *sent);
                f.put("lasted_ms", millis(*lasted));
            }
            Event::LoginAccepted {
                connection,
                source,
                login,
                identity,
                cluster,
                via,
            } => {
                f.of("login_accepted", *connection, Some(login));
                f.text("source", &source.to_string());
                f.maybe("via", via.as_deref());
                f.text("identity", identity);
                if let Some(member) = cluster {
                    f.text("user", &member.user);
                    f.text("roles", &member.roles);
                    f.number("mfa", member.mfa);
                    f.maybe("device", member.device.as_deref());
                }
            }
            Event::LoginRefused {
                connection,
                source,
                login,
                method,
                reason,
                user,
                rule,
                via,
            } => {
                f.of("login_refused", *connection, Some(login));
                f.text("source", &source.to_string());
                f.maybe("via", via.as_deref());
                f.text("method", method);
                f.text("reason", reason);
                f.maybe("user", user.as_deref());
                f.maybe("rule", rule.as_deref());
            }
            Event::Locked {
                connection,
                source,
                login,
                user,
                rule,
                reason,
            } => {
                f.of("locked", *connection, Some(login));
                f.text("source", &source.to_string());
                f.maybe("user", user.as_deref());
                f.text("rule", rule);
                f.text("reason", reason);
            }
            Event::ClusterState {
                serial,
                refused,
                sessions,
            } => {
                f.text("event", "cluster_state");
                f.put("serial", *serial);
                f.put("done", refused.is_none());
                f.maybe("reason", refused.as_deref());
                f.sessions(sessions.as_deref());
            }
            Event::SessionStarted {
                connection,
                session,
                login,
                source,
                user,
                kind,
                pid,
                terminal,
                command,
                original,
                rung,
                unrecorded,
                audit,
                unwatched,
            } => {
                f.of("session_started", *connection, Some(login));
                f.session(session);
                f.text("source", &source.to_string());
                f.maybe("user", user.as_deref());
                f.text("kind", kind.name());
                f.put("pid", *pid);
                f.maybe("terminal", terminal.as_deref());
                f.bytes("command", command.as_deref());
                f.bytes("original", original.as_deref());
                f.text("rung", rung);
                f.maybe("unrecorded", unrecorded.as_deref());
                f.maybe("audit", *audit);
                f.maybe("unwatched", unwatched.as_deref());
            }
            Event::SessionRefused {
                connection,
                login,
                reason,
            } => {
                f.of("session_refused", *connection, Some(login));
                f.text("reason", reason);
            }
            Event::SessionEnded {
                connection,
                session,
                login,
                code,
                signal,
                lasted,
                usage,
                ordered,
                is_inherited,
            } => {
                f.of("session_ended", *connection, Some(login));
                f.session(session);
                f.number("code", *code);
                f.number("signal", *signal);
                f.number("lasted_ms", lasted.map(millis));
                f.number("cpu_us", usage.cpu_micros);
                f.number("memory", usage.memory);
                f.number("read", usage.read);
                f.number("written", usage.written);
                f.maybe("ended_by", ordered.as_ref().map(|order| order.by.as_str()));
                let reason = ordered.as_ref().map(|order| order.reason.as_str());
                f.maybe("reason", reason.filter(|reason| !reason.is_empty()));
                if *is_inherited {
                    f.put("inherited", true);
                }
            }
            Event::File {
                connection,
                session,
                login,
                done,
            } => {
                f.of("file", *connection, Some(login));
                f.session(session);
                done.fill(f);
            }
            Event::Watched(watched) => watched.fill(f),
            Event::Forwarded {
                connection,
                login,
                to,
                sent,
                received,
            } => {
                f.of("forwarded", *connection, Some(login));
                f.text("to", to);
                f.put("sent", *sent);
                f.put("received", *received);
            }
            Event::Listening {
                connection,
                login,
                on,
            } => {
                f.of("listening", *connection, Some(login));
                f.text("on", on);
            }
            Event::Denied {
                connection,
                login,
                what,
            } => {
                f.of("denied", *connection, Some(login));
                f.text("what", what);
            }
            Event::ProcessDied { process, pid, how } => {
                f.text("event", "process_died");
                f.text("process", process);
                f.put("pid", *pid);
                f.text("how", how);
            }
            Event::Lost(gap) => {
                f.text("event", "audit_lost");
                f.put("count", gap.count);
                f.text("first", &utc(gap.first));
                f.text("last", &utc(gap.last));
                if gap.cut {
                    f.put("cut", true);
                }
            }
        }
    }
}

impl FileDone {
    fn fill(&self, f: &mut Fields) {
        let errno = |f: &mut Fields, path: &[u8], errno: i32| {
            f.bytes("path", Some(path));
            f.put("errno", errno);
        };
        match self {
            FileDone::Opened {
                path,
                flags,
                errno: e,
            } => {
                f.text("operation", "open");
                errno(f, path, *e);
                f.put("flags", *flags);
            }
            FileDone::Closed { path, read, written } => {
                f.text("operation", "close");
                f.bytes("path", Some(path));
                f.put("read", *read);
                f.put("written", *written);
            }
            FileDone::Listed { path, errno: e } => {
                f.text("operation", "list");
                errno(f, path, *e);
            }
            FileDone::Removed {
                path,
                directory,
                errno: e,
            } => {
                f.text("operation", if *directory { "rmdir" } else { "remove" });
                errno(f, path, *e);
            }
            FileDone::Renamed { path, to, errno: e } => {
                f.text("operation", "rename");
                errno(f, path, *e);
                f.bytes("to", Some(to));
            }
            FileDone::DirectoryMade { path, mode, errno: e } => {
                f.text("operation", "mkdir");
                errno(f, path, *e);
                f.text("mode", &format!("{mode:o}"));
            }
            FileDone::AttributesSet {
                path,
                size,
                uid,
                gid,
                mode,
                times,
                errno: e,
            } => {
                f.text("operation", "attributes");
                errno(f, path, *e);
                f.number("size", *size);
                f.number("uid", *uid);
                f.number("gid", *gid);
                f.maybe("mode", mode.map(|m| format!("{m:o}")).as_deref());
                f.put("times", *times);
            }
            FileDone::Linked {
                path,
                target,
                symbolic,
                errno: e,
            } => {
                f.text("operation", if *symbolic { "symlink" } else { "link" });
                errno(f, path, *e);
                f.bytes("target", Some(target));
            }
            FileDone::Lost { count } => {
                f.text("operation", "lost");
                f.put("count", *count);
            }
        }
    }
}

/// The fields of one line, in the order in which they were put.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(&mut self, name: &str, text: &str) {
        self.put(name, cut(text));
    }

    fn maybe(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// Bytes of the user's, which need not be text.
    pub(super) fn bytes(&mut self, name: &str, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            // Cut first: a long command costs no more than a short one.
            let head = &bytes[..bytes.len().min(MAX_TEXT + 1)];
            self.text(name, &String::from_utf8_lossy(head));
        }
    }

    fn number(&mut self, name: &str, number: Option<impl Into<Value>>) {
        if let Some(number) = number {
            self.put(name, number);
        }
    }

    pub(super) fn of(&mut self, event: &str, connection: Connection, login: Option<&str>) {
        self.text("event", event);
        self.put("connection", connection);
        self.maybe("login", login);
    }

    pub(super) fn session(&mut self, id: &SessionId) {
        self.text("session", &digits(id));
    }

    fn sessions(&mut self, ids: Option<&[String]>) {
        if let Some(ids) = ids {
            self.put("sessions", ids);
        }
    }
}

/// A session's id as events have it.
pub(in crate::monitor) fn digits(id: &SessionId) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// No more of a text than its bound, cut between characters.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `2026-01-31T23:59:59.123Z`.
pub(crate) fn utc(at: Time) -> String {
    format!("{}.{:03}Z", clock::utc(at.sec), at.nsec / 1_000_000)
}
