//! `fleetgate sessions ls`: who is in now, since when, from where, doing what. In a cluster auth's audit log knows; on one
//! machine its notes of running sessions and its own audit log. It changes nothing.

use super::lines_of;
use crate::admin::{Scope, ask, events, scope};
use crate::flags::{Arguments, Outcome};
use crate::{output, recordings};
use fleetgate_client::error::ClientError;
use fleetgate_client::time;
use fleetgate_launch::present::{Present, present};
use fleetgate_node::config::Config;
use fleetgate_proto::v1::EventsRequest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// How much of an id a table has; enough to name a session.
const ID_SHOWN: usize = 16;
pub(super) const STARTED: &str = "session_started";
pub(super) const ENDED: &str = "session_ended";

/// A session: how it began, and how it ended if it did. Both are events of the audit log.
#[derive(Debug, Default)]
struct Session {
    started: Value,
    ended: Option<Value>,
    /// It is noted as running on this machine, or nobody says that it is over.
    runs: bool,
}

/// Prints them.
pub fn list(given: &Arguments) -> Outcome {
    if given.number("limit") == Some(0) {
        return Err(given
            .wrong("`--limit` is a number from 1 on, not 0: leave it out for all of them")
            .into());
    }
    if recordings::is_asked_for(given) {
        return recordings::list(given);
    }
    let all = given.has("all");
    let mut sessions = match scope(given)? {
        Scope::Cluster => of_cluster(given, all).map_err(|e| match e {
            // Who administers nothing may still list recordings.
            ClientError::Refused(why) => ClientError::Refused(format!(
                "{why}\n`fleetgate sessions ls --running --cluster` lists the recorded sessions that run and that your roles let \
                 you see"
            )),
            other => other,
        })?,
        Scope::Here(config) => of_machine(&config, all)?,
    };
    sessions.retain(|session| (all || session.runs) && is_wanted(session, given));
    sessions.sort_by(|a, b| text(&a.started, "time").cmp(text(&b.started, "time")));
    if let Some(limit) = given.number("limit") {
        let surplus = sessions.len().saturating_sub(limit as usize);
        sessions.drain(..surplus);
    }
    output::either(
        given.has("json"),
        || json!({ "sessions": sessions.iter().map(document).collect::<Vec<_>>() }),
        || match sessions.is_empty() {
            true => "no sessions\n".to_owned(),
            false => output::cut(&table(&sessions, all), output::columns()),
        },
    )
}

/// The node on which the session runs whose id begins so, as auth knows it.
pub fn node_of(given: &Arguments, id: &str) -> Result<String, Box<dyn std::error::Error>> {
    let running = of_cluster(given, false).map_err(|e| {
        format!(
            "auth has no recording of the session {id} that you may list, and says to administrators alone where others run: \
             give `--node NODE`. A session that is not recorded always needs it, and a recorded one in its first five minutes\n{e}"
        )
    })?;
    let is = |session: &&Session| session.runs && text(&session.started, "session").starts_with(id);
    let nodes: Vec<&str> = running
        .iter()
        .filter(is)
        .map(|session| text(&session.started, "node"))
        .collect();
    match nodes[..] {
        [node] => Ok(node.to_owned()),
        [] => Err(format!(
            "no session with the id {id} runs: `fleetgate sessions ls` lists those that do, and `fleetgate sessions play` plays the \
             recordings of others"
        )
        .into()),
        _ => Err(format!("{id} begins the ids of several sessions: give more of it").into()),
    }
}

fn of_cluster(given: &Arguments, all: bool) -> Result<Vec<Session>, ClientError> {
    let request = |present| EventsRequest {
        node: given.value("node").unwrap_or_default().to_owned(),
        from: given.moment("since").map_or(0, |at| at.max(1)),
        events: match present {
            true => Vec::new(),
            false => vec![STARTED.to_owned(), ENDED.to_owned()],
        },
        present,
        ..EventsRequest::default()
    };
    let (mut found, mut running) = (SessionTable::default(), SessionTable::default());
    ask(given, async |mut admin| {
        if all {
            events(&mut admin, request(false), |line| found.take(line)).await?;
        }
        events(&mut admin, request(true), |line| running.take(line)).await
    })?;
    Ok(found.with(running))
}

/// Those of this machine. What is noted runs, whatever the log says; a log that was rotated away is no obstacle.
fn of_machine(config: &Config, all: bool) -> Result<Vec<Session>, ClientError> {
    let directory = config.runtime_directory.join("sessions");
    let running = match present(&directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(ClientError::file(&directory))?,
    };
    let mut found = SessionTable::default();
    match std::fs::File::open(&config.audit_log) {
        Ok(log) => {
            let read = lines_of(log, |line| found.take(line));
            read.map_err(ClientError::file(&config.audit_log))?;
        }
        Err(e) if all && config.audit_log != Path::new("-") => {
            return Err(ClientError::File(config.audit_log.clone(), e));
        }
        Err(_) => {}
    }
    for session in found.0.values_mut() {
        session.runs = false;
    }
    for one in running {
        let known = found.0.entry((String::new(), one.id.clone())).or_default();
        (known.runs, known.ended) = (true, None);
        if known.started.is_null() {
            known.started = noted(&one);
        }
    }
    Ok(found.0.into_values().collect())
}

/// What a note says of a session, in the form of its event.
fn noted(one: &Present) -> Value {
    let terminal = Path::new("/dev").join(&one.line);
    let command = std::fs::read(format!("/proc/{}/cmdline", one.pid)).unwrap_or_default();
    let words: Vec<String> = command
        .split(|b| *b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    json!({
        "time": time::utc(one.since), "session": one.id, "login": one.login, "source": one.host, "pid": one.pid,
        "terminal": (one.line != "ssh").then(|| terminal.display().to_string()), "command": words.join(" "),
    })
}

/// Sessions by node and id, out of lines of an audit log.
#[derive(Default)]
struct SessionTable(BTreeMap<(String, String), Session>);

impl SessionTable {
    fn take(&mut self, line: &str) {
        // Most lines are about something else: they are not read.
        if !line.contains(STARTED) && !line.contains(ENDED) {
            return;
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return;
        };
        // Of a plain sshd that is removed by now the proxy has only claimed the name.
        let node = [text(&event, "node"), text(&event, "claimed_node")].concat();
        let id = text(&event, "session").to_owned();
        if id.is_empty() {
            return;
        }
        let name = text(&event, "event").to_owned();
        match name.as_str() {
            STARTED => {
                let session = self.0.entry((node, id)).or_default();
                session.runs = session.ended.is_none();
                session.started = event;
            }
            ENDED => {
                // Nobody ends a session but the machine that told of its start.
                if let Some(session) = self.0.get_mut(&(node, id))
                    && text(&session.started, "proxy") == text(&event, "proxy")
                {
                    session.runs = false;
                    session.ended = Some(event);
                }
            }
            _ => {}
        }
    }

    /// With those that are known to run: any other one is over, whether its end was told or not.
    fn with(mut self, running: SessionTable) -> Vec<Session> {
        for (key, session) in &mut self.0 {
            session.runs &= running.0.contains_key(key);
        }
        for (key, session) in running.0 {
            self.0.entry(key).or_insert(session);
        }
        self.0.into_values().collect()
    }
}

fn is_wanted(session: &Session, given: &Arguments) -> bool {
    let is = |flag, field| {
        given
            .value(flag)
            .is_none_or(|want| text(&session.started, field) == want)
    };
    // Both are in UTC and of one form, so that their texts are in order as their times are.
    let began = &text(&session.started, "time");
    let bound = |flag| given.moment(flag).map(time::utc);
    let second = |text: &str| text.get(..19).unwrap_or_default().to_owned();
    is("user", "user")
        && is("node", "node")
        && is("login", "login")
        && bound("since").is_none_or(|from| second(began) >= second(&from))
        && bound("until").is_none_or(|until| second(began) < second(&until))
}

fn table(sessions: &[Session], all: bool) -> String {
    let row = |session: &Session| {
        let started = &session.started;
        let id = text(started, "session");
        let mut row = vec![
            // An id is the node's word: it may be any text.
            id.chars().take(ID_SHOWN).collect(),
            text(started, "user").to_owned(),
            text(started, "login").to_owned(),
            text(started, "node").to_owned(),
            text(started, "source").to_owned(),
            output::moment(text(started, "time")),
        ];
        if all {
            row.push(match (&session.ended, session.runs) {
                (Some(ended), _) => output::moment(text(ended, "time")),
                (None, true) => "runs".to_owned(),
                (None, false) => "over".to_owned(),
            });
        }
        row.push(what(started));
        row
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    let mut headings = vec!["session", "user", "login", "node", "from", "since", "what"];
    if all {
        headings.insert(6, "ended");
    }
    output::table(&headings, &rows)
}

/// `shell on pts/3`, `sftp`, or the command.
fn what(started: &Value) -> String {
    let terminal = text(started, "terminal");
    let terminal = terminal.strip_prefix("/dev/").unwrap_or(terminal);
    let command = text(started, "command");
    let what = match (text(started, "kind"), command) {
        ("sftp", _) => "sftp",
        ("shell" | "", "") => "shell",
        (_, command) => command,
    };
    match terminal {
        "" => what.to_owned(),
        terminal => format!("{what} on {terminal}"),
    }
}

fn document(session: &Session) -> Value {
    let mut out = serde_json::Map::new();
    let mut copy = |from: &Value, field: &str, to: &str| {
        if !from[field].is_null() {
            out.insert(to.to_owned(), from[field].clone());
        }
    };
    for field in [
        "session",
        "user",
        "login",
        "node",
        "proxy",
        "connection",
        "source",
        "kind",
        "command",
        "terminal",
        "pid",
    ] {
        copy(&session.started, field, field);
    }
    copy(&session.started, "time", "since");
    if let Some(ended) = &session.ended {
        copy(ended, "time", "ended");
        for field in ["code", "signal", "ended_by", "reason"] {
            copy(ended, field, field);
        }
    }
    out.insert("runs".to_owned(), session.runs.into());
    Value::Object(out)
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_auth_does_not_know_to_run_is_over_though_its_end_was_never_told() {
        let table_of = |ids: &[&str]| {
            let mut found = SessionTable::default();
            for id in ids {
                found.take(&format!(
                    r#"{{"event":"session_started","session":"{id}","node":"web1"}}"#
                ));
            }
            found
        };
        let sessions = table_of(&["aa", "bb"]).with(table_of(&["bb", "cc"]));
        let found: Vec<_> = sessions
            .iter()
            .map(|s| (text(&s.started, "session"), s.runs))
            .collect();
        assert_eq!(found, [("aa", false), ("bb", true), ("cc", true)]);
        assert!(table(&sessions, true).contains("over"));
    }

    #[test]
    fn sessions_are_made_of_their_starts_and_ends() {
        let mut found = SessionTable::default();
        for line in [
            r#"{"time":"2026-01-31T14:00:05.123Z","event":"session_started","session":"aaaabbbbccccdddd0000","node":"web1","user":"ada","login":"root","source":"192.0.2.1:4","kind":"shell","terminal":"/dev/pts/3"}"#,
            r#"{"time":"2026-01-31T14:00:06.123Z","event":"session_started","session":"bb","node":"web1","login":"ada","kind":"exec","command":"make\u001b all"}"#,
            r#"{"time":"2026-01-31T14:00:07.123Z","event":"session_ended","session":"aaaabbbbccccdddd0000","node":"web2","code":1}"#,
            r#"{"time":"2026-01-31T14:00:08.123Z","event":"session_ended","session":"bb","node":"web1","signal":9,"ended_by":"uid 0"}"#,
            r#"{"event":"session_ended","session":"cc"}"#,
            r#"{"event":"session_started"}"#,
            "session_started, but no JSON",
        ] {
            found.take(line);
        }
        let sessions: Vec<Session> = found.0.into_values().collect();
        assert_eq!(
            table(&sessions, true),
            "\
session           user  login  node  from         since                ended                what
aaaabbbbccccdddd  ada   root   web1  192.0.2.1:4  2026-01-31 14:00:05  runs                 shell on pts/3
bb                      ada    web1               2026-01-31 14:00:06  2026-01-31 14:00:08  make\u{fffd} all
"
        );
        assert!(sessions[0].runs, "another node's word ends nothing");
        let ended = document(&sessions[1]);
        assert_eq!(
            (ended["signal"].as_i64(), ended["ended_by"].as_str()),
            (Some(9), Some("uid 0"))
        );
    }

    #[test]
    fn no_proxy_ends_a_session_that_another_told_of() {
        let mut found = SessionTable::default();
        for line in [
            r#"{"event":"session_started","session":"dd","node":"db1","proxy":"edge"}"#,
            r#"{"event":"session_ended","session":"dd","node":"db1","proxy":"west"}"#,
            r#"{"event":"session_started","session":"ee","node":"db1","proxy":"edge"}"#,
            r#"{"event":"session_ended","session":"ee","claimed_node":"db1","proxy":"edge"}"#,
        ] {
            found.take(line);
        }
        let runs: Vec<bool> = found.0.into_values().map(|session| session.runs).collect();
        assert_eq!(runs, [true, false]);
    }

    #[test]
    fn an_id_that_no_session_has_is_cut_between_characters() {
        let mut found = SessionTable::default();
        for id in ["aaaabbbbccccdddéeeee", "ééééééééééééééééééééééé"] {
            found.take(&format!(
                r#"{{"event":"session_started","session":"{id}","node":"web1"}}"#
            ));
        }
        let sessions: Vec<Session> = found.0.into_values().collect();
        let rows = table(&sessions, false);
        let ids: Vec<_> = rows
            .lines()
            .skip(1)
            .map(|row| row.split("  ").next().unwrap_or_default())
            .collect();
        assert_eq!(ids, ["aaaabbbbccccdddé", "éééééééééééééééé"]);
    }
}
