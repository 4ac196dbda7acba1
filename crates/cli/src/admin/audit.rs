//! `fleetgate audit`: events as they are, or as lines for people.

use super::ask;
use crate::flags::{Arguments, Outcome, did_you_mean, session_id};
use crate::output::{self, print};
use fleetgate_client::error::ClientError;
use fleetgate_client::time;
use fleetgate_policy::text;
use fleetgate_proto::v1::EventsRequest;
use serde_json::Value;

/// The names of all events, as docs/audit.md and docs/proxy.md have them; `unreadable` is a line that was cut.
const EVENTS: &[&str] = &[
    "accept",
    "audit_cut",
    "audit_gap",
    "audit_lost",
    "authority_active",
    "authority_changed",
    "authority_next",
    "authority_removed",
    "backup",
    "bind",
    "bpf",
    "clock_set",
    "cluster_made",
    "cluster_state",
    "connect",
    "connection_ended",
    "connection_refused",
    "denied",
    "device_approved",
    "device_enrolled",
    "device_removed",
    "dial",
    "dial_denied",
    "dial_ended",
    "exec",
    "executed",
    "file",
    "forwarded",
    "host_signed",
    "identity",
    "invite_accepted",
    "invite_refused",
    "io_uring",
    "join_refused",
    "joined",
    "jump_refused",
    "listen",
    "listening",
    "lock_added",
    "lock_expired",
    "lock_removed",
    "locked",
    "login",
    "login_accepted",
    "login_denied",
    "login_refreshed",
    "login_refused",
    "login_signed",
    "module",
    "mount",
    "namespace",
    "node_registered",
    "node_reloaded",
    "node_removed",
    "node_started",
    "process_died",
    "ptrace",
    "renewed",
    "restored",
    "role_applied",
    "role_removed",
    "send",
    "session_ended",
    "session_refused",
    "session_started",
    "socket",
    "strangers",
    "token_added",
    "token_removed",
    "unknown_call",
    "unreadable",
    "user_added",
    "user_changed",
    "user_removed",
    "user_reset",
    "watch_gap",
    "watch_lost",
];

/// Prints them as they come.
pub fn run(given: &Arguments) -> Outcome {
    // A node may be newer and have events that are not known here: a name is wrong only where nothing has it.
    let unknown = given.value("event").filter(|name| !EVENTS.contains(name));
    let unknown = unknown.map(|name| {
        let hint = match did_you_mean(name, "", EVENTS.iter().copied()) {
            hint if hint.is_empty() => "; docs/audit.md has their names".to_owned(),
            hint => hint,
        };
        format!("`--event`: there is no event `{name}`{hint}")
    });
    if let Some(what) = unknown.as_ref().filter(|_| given.has("follow")) {
        tracing::warn!("{what}");
    }
    let word = |flag| given.value(flag).unwrap_or_default().to_owned();
    // Both were read once by the parser.
    let connection = given.value("connection").and_then(|number| number.parse().ok());
    let session = given.value("session").and_then(|id| session_id(id).ok());
    let request = EventsRequest {
        user: word("user"),
        node: word("node"),
        event: word("event"),
        session: session.unwrap_or_default(),
        connection: connection.unwrap_or(0),
        from: given.moment("since").map_or(0, |at| at.max(1)),
        until: given.moment("until").map_or(0, |at| at.max(1)),
        limit: given.number("limit").unwrap_or(0),
        follow: given.has("follow"),
        ..EventsRequest::default()
    };
    let as_json = given.has("json");
    let columns = output::columns();
    let found = ask(given, async |mut admin| {
        let mut events = admin.events(request).await?.into_inner();
        let mut found = false;
        while let Some(event) = events.message().await? {
            found = true;
            let line = match as_json {
                true => text::printable_json(&event.line),
                false => output::cut(&readable(&event.line), columns),
            };
            if let Err(e) = print(&format!("{}\n", line.trim_end())) {
                return Err(ClientError::Refused(e.to_string()));
            }
        }
        Ok(found)
    })?;
    match (found, unknown) {
        (false, Some(what)) => Err(given.wrong(what).into()),
        (found, _) => {
            if !found {
                eprintln!("no event fits");
            }
            Ok(0)
        }
    }
}

/// Fields that are moments, in Unix seconds.
const MOMENTS: [&str; 2] = ["mfa", "expires"];

/// `TIME  EVENT  key=value …`; a line that is none stays as it is.
fn readable(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return output::printable(line);
    };
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() && !text.contains(' ') => text.clone(),
        other => other.to_string(),
    };
    let head = |name: &str| fields.get(name).map(text).unwrap_or_default();
    let field = |name: &str, value: &Value| match (MOMENTS.contains(&name), value.as_u64()) {
        (true, Some(at)) if at > 0 => time::utc(at),
        _ => text(value),
    };
    let rest: Vec<String> = fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "time" | "event"))
        .map(|(name, value)| format!("{name}={}", field(name, value)))
        .collect();
    output::printable(&format!(
        "{}  {:<16}  {}",
        output::moment(&head("time")),
        head("event"),
        rest.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, readable};

    #[test]
    fn the_names_of_events_are_those_of_the_docs() {
        let docs = [
            include_str!("../../../../docs/audit.md"),
            include_str!("../../../../docs/proxy.md"),
        ];
        let mut names = vec!["unreadable"];
        for doc in docs {
            let mut is_table = false;
            for line in doc.lines() {
                is_table = line.starts_with("| `event` |") || (is_table && line.starts_with('|'));
                let cell = line.split('|').nth(1).unwrap_or_default();
                let quoted = cell.split('`').skip(1).step_by(2).filter(|_| is_table);
                names.extend(quoted.filter(|name| *name != "event"));
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(EVENTS, names);
    }

    #[test]
    fn lines_are_made_for_people() {
        for (line, text) in [
            (
                r#"{"time":"2026-01-01T00:00:00Z","event":"login","user":"alice","words":"a b","n":3}"#,
                "2026-01-01 00:00:00  login             user=alice words=\"a b\" n=3",
            ),
            (
                r#"{"time":"2026-01-01T00:00:00.123Z","event":"login_accepted","mfa":1767225600}"#,
                "2026-01-01 00:00:00  login_accepted    mfa=2026-01-01T00:00:00Z",
            ),
            ("not json", "not json"),
        ] {
            assert_eq!(readable(line), text);
        }
    }
}
