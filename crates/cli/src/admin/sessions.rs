//! `fleetgate sessions …`: who is in (`list`), the end of a session (`end`), and here what one session did, out of the
//! audit log. It reads and prints; what the events mean is docs/audit.md's.

mod end;
mod list;

pub use end::end;
pub use list::{list, node_of};

use super::{Scope, ask, scope};
use crate::flags::{Arguments, Outcome, session_id};
use crate::output::{self, print};
use fleetgate_client::error::ClientError;
use fleetgate_proto::v1::EventsRequest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// A part of what is told of a session: its flag, and its events.
const VIEWS: [(&str, &[&str]); 3] = [
    (
        "commands",
        &[
            "exec",
            "executed",
            "identity",
            "namespace",
            "mount",
            "ptrace",
            "module",
            "bpf",
            "io_uring",
        ],
    ),
    ("files", &["file"]),
    (
        "network",
        &[
            "connect",
            "bind",
            "socket",
            "listen",
            "accept",
            "send",
            "listening",
            "forwarded",
        ],
    ),
];
/// What belongs to every view: where something is missing.
const ALWAYS: [&str; 5] = [
    "session_started",
    "session_ended",
    "watch_gap",
    "watch_lost",
    "audit_lost",
];

/// Prints it.
pub fn show(given: &Arguments) -> Outcome {
    let id = session_id(given.word().unwrap_or_default()).map_err(ClientError::Usage)?;
    let wanted: Vec<&str> = VIEWS
        .iter()
        .filter(|(flag, _)| given.has(flag))
        .flat_map(|(_, events)| events.iter().copied())
        .collect();
    let mut events = Vec::new();
    let take = |line: &str| {
        if let Some(event) = of_session(line, &id)
            && belongs(&event, &wanted)
        {
            events.push(event);
        }
    };
    match given.value("log") {
        Some(path) => {
            let read = File::open(path).and_then(|log| lines_of(log, take));
            read.map_err(|e| format!("{path}: {e}"))?;
        }
        None => {
            // A machine without a cluster has its own log alone.
            if let Scope::Here(config) = scope(given)? {
                let path = config.audit_log.display();
                let read = File::open(&config.audit_log).and_then(|log| lines_of(log, take));
                read.map_err(|e| {
                    format!("{path}: {e}: give the node's audit log with --log, or log in to its cluster")
                })?;
            } else {
                of_cluster(given, &id, take)?;
            }
        }
    }
    let sessions: std::collections::BTreeSet<&str> = events
        .iter()
        .filter_map(|event| event["session"].as_str())
        .collect();
    match sessions.len() {
        0 => {
            return Err(format!(
                "nothing is told of the session {id}: look with `fleetgate sessions ls --all`, and give the \
                 node's own log with --log where it belongs to no cluster"
            )
            .into());
        }
        1 => {}
        count => {
            return Err(format!("{id} begins the names of {count} sessions: give more of it").into());
        }
    }
    events.sort_by(|a, b| a["time"].as_str().cmp(&b["time"].as_str()));
    if given.has("json") {
        return output::json(&Value::Array(events));
    }
    print(&table(&events))
}

fn of_cluster(given: &Arguments, id: &str, take: impl FnMut(&str)) -> Result<(), ClientError> {
    let request = EventsRequest {
        node: given.value("node").unwrap_or_default().to_owned(),
        session: id.to_owned(),
        from: given.moment("since").map_or(0, |at| at.max(1)),
        ..EventsRequest::default()
    };
    ask(given, async |mut admin| {
        super::events(&mut admin, request, take).await
    })
}

/// Hands each line of a log to `take`.
fn lines_of(log: File, mut take: impl FnMut(&str)) -> io::Result<()> {
    for line in BufReader::new(log).split(b'\n') {
        take(&String::from_utf8_lossy(&line?));
    }
    Ok(())
}

/// The event, if it is the session's.
fn of_session(line: &str, id: &str) -> Option<Value> {
    // Most lines are others': they are not read.
    if !line.contains(id) {
        return None;
    }
    let event: Value = serde_json::from_str(line).ok()?;
    event["session"]
        .as_str()
        .is_some_and(|session| session.starts_with(id))
        .then_some(event)
}

fn belongs(event: &Value, wanted: &[&str]) -> bool {
    let name = event["event"].as_str().unwrap_or_default();
    wanted.is_empty() || wanted.contains(&name) || ALWAYS.contains(&name)
}

/// One line for each event; what began of what was to be executed stands beside it.
fn table(events: &[Value]) -> String {
    let mut rows = Vec::new();
    // The row of what a process asked to execute last, until it is known what that became.
    let mut asked: BTreeMap<i64, usize> = BTreeMap::new();
    for event in events {
        let pid = event["pid"].as_i64();
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = event["event"].as_str().unwrap_or_default();
        if name == "executed"
            && let Some(at) = pid.and_then(|pid| asked.remove(&pid))
        {
            let row: &mut Vec<String> = &mut rows[at];
            row[4] = text(&event["program"]);
            continue;
        }
        let (what, program) = match name {
            "exec" => {
                if let Some(pid) = pid {
                    asked.insert(pid, rows.len());
                }
                (command(event), "did not begin".to_owned())
            }
            _ => (rest(event), text(&event["program"])),
        };
        let operation = text(&event["operation"]);
        let name = match operation.as_str() {
            "" => name.to_owned(),
            operation => format!("{name} {operation}"),
        };
        rows.push(vec![
            text(&event["time"]),
            text(&event["pid"]),
            text(&event["uid"]),
            name,
            program,
            what,
        ]);
    }
    output::table(&["TIME", "PID", "UID", "EVENT", "PROGRAM", "WHAT"], &rows)
}

/// The words of a command, as a shell would need them.
fn command(event: &Value) -> String {
    let words = event["argv"].as_array().into_iter().flatten();
    let mut shown: Vec<String> = words.filter_map(Value::as_str).map(quoted).collect();
    let path = event["path"].as_str().unwrap_or_default();
    if shown.is_empty() {
        shown.push(quoted(path));
    }
    if event["cut"]
        .as_array()
        .is_some_and(|cut| cut.contains(&"argv".into()))
    {
        shown.push("…".to_owned());
    }
    shown.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What an event says beyond what has a column.
fn rest(event: &Value) -> String {
    const SHOWN: [&str; 14] = [
        "time",
        "event",
        "operation",
        "pid",
        "uid",
        "program",
        "connection",
        "login",
        "session",
        "node",
        "parent",
        "kernel",
        "register",
        "claimed",
    ];
    let fields = event.as_object().into_iter().flatten();
    let rest: Vec<String> = fields
        .filter(|(name, _)| !SHOWN.contains(&name.as_str()))
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={}", quoted(text)),
            Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                format!("{name}={}", words.join(","))
            }
            other => format!("{name}={other}"),
        })
        .collect();
    rest.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn events() -> Vec<String> {
        [
            r#"{"time":"1","event":"session_started","session":"ID","kind":"exec"}"#,
            r#"{"time":"2","event":"exec","session":"ID","pid":7,"uid":5,"program":"/usr/bin/bash","path":"/bin/ls","argv":["ls","a b"]}"#,
            r#"{"time":"3","event":"executed","session":"ID","pid":7,"uid":5,"program":"/usr/bin/ls"}"#,
            r#"{"time":"4","event":"exec","session":"ID","pid":8,"uid":5,"path":"/none","argv":[]}"#,
            r#"{"time":"5","event":"file","operation":"open","session":"ID","pid":7,"uid":5,"program":"/usr/bin/ls","path":"x","flags":["write","create"],"claimed":["path"]}"#,
            r#"{"time":"6","event":"connect","session":"ID","pid":7,"uid":5,"program":"/usr/bin/curl","address":"192.0.2.1:443"}"#,
            r#"{"time":"7","event":"watch_gap","session":"ID","lasted_ms":9,"calls":2}"#,
            r#"{"time":"8","event":"connect","session":"another 0123456789abcdef0123456789abcdef","pid":7}"#,
            "no json 0123456789abcdef0123456789abcdef",
        ]
        .map(|line| line.replace("\"ID\"", &format!("\"{ID}\"")))
        .to_vec()
    }

    #[test]
    fn views_are_parts_of_what_is_told_and_gaps_are_in_all() {
        for (wanted, times) in [
            (&[][..], &["1", "2", "3", "4", "5", "6", "7"][..]),
            (VIEWS[0].1, &["1", "2", "3", "4", "7"]),
            (VIEWS[1].1, &["1", "5", "7"]),
            (VIEWS[2].1, &["1", "6", "7"]),
        ] {
            let found: Vec<Value> = events()
                .iter()
                .filter_map(|line| of_session(line, &ID[..8]))
                .filter(|event| belongs(event, wanted))
                .collect();
            let found: Vec<&str> = found.iter().filter_map(|e| e["time"].as_str()).collect();
            assert_eq!(found, times, "{wanted:?}");
        }
    }

    #[test]
    fn a_session_is_a_table() {
        let found: Vec<Value> = events().iter().filter_map(|line| of_session(line, ID)).collect();
        let want = "\
TIME  PID  UID  EVENT            PROGRAM        WHAT
1               session_started                 kind=exec
2     7    5    exec             /usr/bin/ls    ls 'a b'
4     8    5    exec             did not begin  /none
5     7    5    file open        /usr/bin/ls    path=x flags=write,create
6     7    5    connect          /usr/bin/curl  address=192.0.2.1:443
7               watch_gap                       lasted_ms=9 calls=2
";
        assert_eq!(table(&found), want);
    }
}
