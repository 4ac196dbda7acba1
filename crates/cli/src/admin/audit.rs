//! `fleetgate audit`: events as they are, or as lines for people.

use super::ask;
use crate::flags::{Arguments, Outcome, did_you_mean, session_id};
use crate::output::{self, print};
use fleetgate_audit as node;
use fleetgate_auth::audit::event as auth;
use fleetgate_client::error::ClientError;
use fleetgate_client::time;
use fleetgate_net::h2;
use fleetgate_policy::text;
use fleetgate_proto::v1::EventsRequest;
use fleetgate_proxy::audit::events as proxy;
use serde_json::Value;
use std::time::Duration;
use tonic::{Code, Status};

/// The events of watched sessions, whose fields are those of the table of audited calls.
const CALLS: &[&str] = &[
    "accept",
    "bind",
    "bpf",
    "connect",
    "exec",
    "executed",
    "file",
    "identity",
    "io_uring",
    "listen",
    "module",
    "mount",
    "namespace",
    "ptrace",
    "send",
    "socket",
    "unknown_call",
];

/// The names of all events; `unreadable` is a line that was cut.
fn names() -> impl Iterator<Item = &'static str> {
    let of_nodes = node::Event::DESCRIPTIONS.iter().copied().flatten();
    let described = of_nodes.chain(auth::DESCRIPTIONS).chain(proxy::DESCRIPTIONS);
    described.map(|event| event.name).chain(CALLS.iter().copied())
}

/// Prints them as they come.
pub fn run(given: &Arguments) -> Outcome {
    // A node may be newer and have events that are not known here: a name is wrong only where nothing has it.
    let unknown = given
        .value("event")
        .filter(|name| names().all(|known| known != *name));
    let unknown = unknown.map(|name| {
        let hint = match did_you_mean(name, "", names()) {
            hint if hint.is_empty() => "; docs/audit.md has their names".to_owned(),
            hint => hint,
        };
        format!("`--event`: there is no event `{name}`{hint}")
    });
    if let Some(what) = unknown.as_ref().filter(|_| given.has("follow")) {
        tracing::warn!("{what}");
    }
    if given.has("connection") && !given.has("node") {
        let words = "`--connection` needs `--node NAME`: each node counts its connections by itself";
        return Err(given.wrong(words).into());
    }
    let word = |flag| given.value(flag).unwrap_or_default().to_owned();
    // Both were read once by the parser.
    let connection = given.value("connection").and_then(|number| number.parse().ok());
    let session = given.value("session").and_then(|id| session_id(id).ok());
    let mut request = EventsRequest {
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
    let (mut was_connected, mut found) = (false, false);
    loop {
        let ended = ask(given, async |mut admin| {
            let mut events = match admin.events(request.clone()).await {
                Ok(events) => events.into_inner(),
                Err(status) if was_connected && is_broken(&status) => return Ok(Some(status)),
                Err(status) => return Err(status.into()),
            };
            was_connected = true;
            loop {
                let event = match events.message().await {
                    Ok(Some(event)) => event,
                    // Auth ends, if somebody follows.
                    Ok(None) => {
                        return Ok(request
                            .follow
                            .then(|| Status::unavailable("auth ended the answer")));
                    }
                    Err(status) if request.follow && is_broken(&status) => return Ok(Some(status)),
                    Err(status) => return Err(status.into()),
                };
                found = true;
                let line = match as_json {
                    true => text::printable_json(&event.line),
                    false => output::cut(&readable(&event.line), columns),
                };
                if let Err(e) = print(&format!("{}\n", line.trim_end())) {
                    return Err(ClientError::Refused(e.to_string()));
                }
                request.after = event.mark;
            }
        });
        match ended {
            Ok(None) => break,
            Ok(Some(status)) => tracing::warn!("{}: asking again", h2::words(&status)),
            Err(ClientError::Unreachable(whom, why)) if was_connected => {
                tracing::info!("{}: asking again", text::at(&whom, &why));
            }
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(AGAIN);
    }
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

/// How long a follower waits before it connects again.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether the connection is at fault, and not the request.
fn is_broken(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::Aborted
            | Code::Internal
            | Code::DeadlineExceeded
    )
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
    use super::{CALLS, auth, names, node, proxy, readable};
    use fleetgate_base::audit::Description;
    use std::collections::{BTreeMap, BTreeSet};

    type Table<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

    /// The tables of a paper that begin with `head`: the first cell's names, and the fields that the last cell names. What
    /// stands in parentheses explains.
    fn tables<'a>(paper: &'a str, head: &str) -> Vec<(Vec<&'a str>, BTreeSet<&'a str>)> {
        let mut rows = Vec::new();
        let mut is_table = false;
        for line in paper.lines() {
            if line.starts_with(head) {
                is_table = true;
            } else if !line.starts_with('|') {
                is_table = false;
            } else if is_table && !line.starts_with("|---") {
                let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
                let (mut depth, mut fields) = (0usize, BTreeSet::new());
                for (index, part) in cells[cells.len() - 1].split('`').enumerate() {
                    if index % 2 == 1 {
                        fields.extend((depth == 0).then_some(part));
                        continue;
                    }
                    for letter in part.chars() {
                        match letter {
                            '(' => depth += 1,
                            ')' => depth -= 1,
                            _ => {}
                        }
                    }
                }
                let names = cells[0].split('`').skip(1).step_by(2).collect();
                rows.push((names, fields));
            }
        }
        rows
    }

    /// Compares rows with descriptions. A row of several events names the fields of all of them; those in `common` are
    /// explained once for all rows.
    fn compare(rows: &[(Vec<&str>, BTreeSet<&str>)], described: &[Description], common: &[&str]) {
        let mut known = Table::new();
        for event in described {
            known.entry(event.name).or_default().extend(event.fields());
        }
        let mut explained = BTreeSet::new();
        for (names, fields) in rows {
            let own: BTreeSet<&str> = names
                .iter()
                .filter_map(|name| known.get(name))
                .flatten()
                .copied()
                .collect();
            let is_common = |field: &&str| !common.contains(field);
            let (own, fields): (Vec<_>, Vec<_>) = (
                own.into_iter().filter(is_common).collect(),
                fields.iter().copied().filter(is_common).collect(),
            );
            assert_eq!(fields, own, "the row of {names:?}, and what is written");
            explained.extend(names);
        }
        let all: BTreeSet<&str> = known.into_keys().collect();
        assert_eq!(explained, all, "events with a row, and all events");
    }

    /// Tidy names this test: the papers explain each event and each of its fields, and nothing else.
    #[test]
    fn the_papers_have_a_row_for_each_event_and_its_fields() {
        let paper = include_str!("../../../../docs/audit.md");
        let (of_nodes, of_the_cluster) = paper.split_once("## The cluster's log").expect("its title");
        let (of_nodes, of_calls) = of_nodes.split_once("## What the programs").expect("its title");
        let watched = ["watch_gap", "watch_lost"];
        let described: Vec<Description> = node::Event::DESCRIPTIONS
            .iter()
            .copied()
            .flatten()
            .copied()
            .collect();
        let (of_watched, described): (Vec<_>, Vec<_>) = described
            .into_iter()
            .partition(|event| watched.contains(&event.name));
        let common = ["connection", "login", "session"];
        compare(&tables(of_nodes, "| `event` |"), &described, &common);
        compare(&tables(of_nodes, "| `operation` |"), node::OPERATIONS, &[]);
        let (rows, calls): (Vec<_>, Vec<_>) = tables(of_calls, "| `event` |")
            .into_iter()
            .partition(|(names, _)| watched.contains(&names[0]));
        compare(&rows, &of_watched, &common);
        let calls: BTreeSet<&str> = calls.into_iter().flat_map(|(names, _)| names).collect();
        assert_eq!(calls.into_iter().collect::<Vec<_>>(), CALLS);
        assert!(
            CALLS
                .iter()
                .all(|call| fleetgate_calls::audit::event(call).is_some())
        );
        // A line that cannot be read is no event of somebody's.
        let of_auth: Vec<Description> = auth::DESCRIPTIONS
            .iter()
            .copied()
            .filter(|event| event.name != auth::UNREADABLE.name)
            .collect();
        compare(&tables(of_the_cluster, "| `event` |"), &of_auth, &[]);
        let paper = include_str!("../../../../docs/proxy.md");
        compare(&tables(paper, "| `event` |"), proxy::DESCRIPTIONS, &[]);
        assert!(names().any(|name| name == "unreadable"));
    }

    /// What a node's event has, that of a session on a plain sshd has too.
    #[test]
    fn the_proxys_events_are_those_of_a_node() {
        for event in proxy::plain::DESCRIPTIONS {
            let all = node::Event::DESCRIPTIONS.iter().copied().flatten();
            let own = all
                .filter(|known| known.name == event.name)
                .flat_map(Description::fields);
            let own: Vec<&str> = own.chain(["node", "user", "source"]).collect();
            assert!(event.fields().all(|field| own.contains(&field)), "{}", event.name);
        }
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
