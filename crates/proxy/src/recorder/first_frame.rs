//! What a recording begins and ends with (docs/recording.md).

use fleetgate_policy::cluster::{Labels, Name};
use fleetgate_policy::{Recipient, Recording};
use fleetgate_record::frame::MAX_BYTES;
use fleetgate_recorder::directory;
use fleetgate_sys::clock;
use fleetgate_wire::common::SessionId;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The most of a command line that is in it; the audit log has more.
const MAX_COMMAND: usize = MAX_BYTES / 8;

/// Whose session it is, where and what.
#[derive(Clone, Copy, Debug)]
pub struct FirstFrame<'a> {
    /// Its id.
    pub session: SessionId,
    /// The plain sshd's name.
    pub node: &'a str,
    /// The proxy's.
    pub proxy: &'a str,
    /// Of the user.
    pub user: &'a str,
    /// The account.
    pub login: &'a str,
    /// Where the user comes from.
    pub client: &'a str,
    /// `shell`, `exec`, `sftp` or `subsystem`.
    pub kind: &'a str,
    /// The command line, or the subsystem's name.
    pub command: &'a [u8],
    /// It has a terminal.
    pub terminal: Option<&'a Terminal>,
    /// How much is recorded.
    pub recording: Recording,
    /// For whom it is encrypted; nobody: it is readable.
    pub recipients: &'a [Recipient],
    /// The roles that let the user in.
    pub roles: &'a [Name],
    /// For how long the cluster keeps it, where a role says so.
    pub keep: Option<Duration>,
    /// The node's labels: roles choose by them whose recordings may be seen.
    pub labels: &'a Labels,
}

/// A terminal, as its client asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// TERM.
    pub term: Vec<u8>,
    /// Its size; 0: not known.
    pub columns: u16,
    /// Likewise.
    pub rows: u16,
}

impl FirstFrame<'_> {
    /// As JSON.
    pub(super) fn json(&self) -> Vec<u8> {
        let shown =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_COMMAND)]).into_owned();
        let terminal = self
            .terminal
            .map(|t| json!({"term": shown(&t.term), "columns": t.columns, "rows": t.rows}));
        // A begun day counts as a whole one.
        let keep_days = self.keep.map(|keep| keep.as_secs().div_ceil(86_400));
        let labels = self.labels.iter();
        let labels = labels
            .map(|(key, value)| (key.to_string(), Value::from(value)))
            .collect();
        let recipients: Vec<String> = self.recipients.iter().map(ToString::to_string).collect();
        let roles: Vec<&str> = self.roles.iter().map(Name::as_str).collect();
        let fields = [
            ("version", Some(json!(1))),
            ("session", Some(directory::name(&self.session).into())),
            ("node", Some(self.node.into())),
            ("proxy", Some(self.proxy.into())),
            ("started", Some(clock::rfc3339(clock::wall(), 6).into())),
            ("user", Some(self.user.into())),
            ("login", Some(self.login.into())),
            ("client", Some(self.client.into())),
            ("kind", Some(self.kind.into())),
            ("command", Some(shown(self.command).into())),
            ("terminal", terminal),
            ("recording", Some(self.recording.name().into())),
            ("recipients", (!recipients.is_empty()).then(|| json!(recipients))),
            ("roles", Some(json!(roles))),
            ("keep_days", keep_days.map(Value::from)),
            ("labels", Some(Value::Object(labels))),
        ];
        let mut frame: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .filter(|(_, value)| *value != "")
            .collect();
        let text = Value::Object(frame.clone()).to_string();
        match text.len() <= MAX_BYTES {
            true => text.into_bytes(),
            // Names of hundreds of roles.
            false => {
                frame.retain(|name, _| !matches!(name.as_str(), "roles" | "command"));
                frame.insert("cut".to_owned(), true.into());
                Value::Object(frame).to_string().into_bytes()
            }
        }
    }
}

/// How it ended: with a code, or by a signal of this name.
pub fn end(code: Option<u32>, signal: Option<&[u8]>) -> Vec<u8> {
    let ended = clock::rfc3339(clock::wall(), 6);
    let frame = match (code, signal.and_then(number)) {
        (Some(code), _) => json!({"ended": ended, "status": code}),
        (None, Some(signal)) => json!({"ended": ended, "signal": signal}),
        (None, None) => json!({"ended": ended}),
    };
    frame.to_string().into_bytes()
}

/// Linux' number of a signal that SSH names (RFC 4254 §6.10).
fn number(signal: &[u8]) -> Option<u32> {
    Some(match signal {
        b"HUP" => 1,
        b"INT" => 2,
        b"QUIT" => 3,
        b"ILL" => 4,
        b"ABRT" => 6,
        b"FPE" => 8,
        b"KILL" => 9,
        b"USR1" => 10,
        b"SEGV" => 11,
        b"USR2" => 12,
        b"PIPE" => 13,
        b"ALRM" => 14,
        b"TERM" => 15,
        _ => return None,
    })
}
