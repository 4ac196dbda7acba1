//! What a recording says about itself: who, where and what in its first frame, how it ended in its last. Both are JSON from
//! a file, so what is missing is empty, what is too long is cut, and nothing here can be printed without being cleaned.

use crate::clock;
use serde_json::Value;

/// The longest text that is taken.
const MAX_TEXT: usize = 4096;
/// The most roles that are taken, and the most recipients.
const MAX_LIST: usize = 64;

/// The first frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// The session's id.
    pub session: String,
    /// The node.
    pub node: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The user of the cluster; empty without one.
    pub user: String,
    /// The account, or `ACCOUNT+CONTAINER`.
    pub login: String,
    /// The client's address.
    pub client: String,
    /// `shell`, `exec`, `sftp` or `subsystem`.
    pub kind: String,
    /// What was to be executed; empty for a shell.
    pub command: String,
    /// The terminal's name and size, where there was one.
    pub terminal: Option<Terminal>,
    /// `output` or `full`.
    pub recording: String,
    /// The roles that allowed it.
    pub roles: Vec<String>,
    /// For whom it is encrypted; nobody: it is readable.
    pub recipients: Vec<String>,
}

/// A terminal as it was at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// `TERM`.
    pub term: String,
    /// How wide.
    pub columns: u16,
    /// How high.
    pub rows: u16,
}

impl Begin {
    /// From the frame's bytes.
    pub fn read(json: &[u8]) -> Begin {
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        let terminal = value.get("terminal").filter(|t| t.is_object());
        let list = |field: &str| {
            let all = value[field].as_array().map(Vec::as_slice).unwrap_or_default();
            let texts = all.iter().take(MAX_LIST).filter_map(Value::as_str);
            texts.map(cut).collect()
        };
        Begin {
            session: text(&value, "session"),
            node: text(&value, "node"),
            started: text(&value, "started"),
            user: text(&value, "user"),
            login: text(&value, "login"),
            client: text(&value, "client"),
            kind: text(&value, "kind"),
            command: text(&value, "command"),
            terminal: terminal.map(|t| Terminal {
                term: text(t, "term"),
                columns: number(t, "columns"),
                rows: number(t, "rows"),
            }),
            recording: text(&value, "recording"),
            roles: list("roles"),
            recipients: list("recipients"),
        }
    }

    /// The terminal's size; that of most where there was none.
    pub fn size(&self) -> (u16, u16) {
        match &self.terminal {
            Some(t) if t.columns > 0 && t.rows > 0 => (t.columns, t.rows),
            _ => (80, 24),
        }
    }

    /// The moment so many microseconds after the start (RFC 3339); empty if it does not say when that was.
    pub fn moment(&self, at: u64) -> String {
        clock::parse(&self.started).map_or_else(String::new, |start| clock::utc(start.saturating_add(at)))
    }

    /// What it was: `shell`, `sftp`, or the command.
    pub fn what(&self) -> &str {
        match (self.command.as_str(), self.kind.as_str()) {
            ("", "") => "shell",
            ("", kind) => kind,
            (command, _) => command,
        }
    }
}

/// The last frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// When (RFC 3339).
    pub ended: String,
    /// The exit code.
    pub status: Option<i64>,
    /// The signal that ended it.
    pub signal: String,
    /// The end is not the session's: the recording was mended after a crash.
    pub recovered: bool,
}

impl End {
    /// From the frame's bytes.
    pub fn read(json: &[u8]) -> End {
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        End {
            ended: text(&value, "ended"),
            status: value["status"].as_i64(),
            signal: match value["signal"].as_i64() {
                Some(number) => number.to_string(),
                None => text(&value, "signal"),
            },
            recovered: value["recovered"].as_bool().unwrap_or_default(),
        }
    }

    /// In a word or two.
    pub fn summary(&self) -> String {
        match (self.status, self.signal.as_str()) {
            _ if self.recovered => "cut by a crash".to_owned(),
            (Some(code), _) => format!("exit {code}"),
            (None, "") => "ended".to_owned(),
            (None, signal) => format!("signal {signal}"),
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().map_or_else(String::new, cut)
}

fn number(value: &Value, field: &str) -> u16 {
    let number = value[field].as_u64().unwrap_or_default();
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_wrong_is_empty() {
        for bytes in [
            &b""[..],
            b"null",
            b"[1]",
            b"{\"node\":7,\"terminal\":3,\"roles\":{}}",
            b"\xff",
        ] {
            assert_eq!(Begin::read(bytes), Begin::default());
            assert_eq!(End::read(bytes), End::default());
        }
        let begin = Begin::read(
            br#"{"started":"2026-11-29T10:00:00Z","terminal":{"term":"xterm","columns":900000,"rows":0},"roles":["a",1]}"#,
        );
        assert_eq!(begin.size(), (80, 24));
        assert_eq!(begin.moment(61_000_000), "2026-11-29T10:01:01Z");
        assert_eq!(begin.roles, ["a"]);
        let long = format!("{{\"login\":{:?}}}", "x".repeat(20_000));
        assert_eq!(Begin::read(long.as_bytes()).login.len(), MAX_TEXT);
        let end = End::read(br#"{"ended":"x","signal":"TERM"}"#);
        assert_eq!(end.summary(), "signal TERM");
    }
}
