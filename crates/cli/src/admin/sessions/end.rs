//! `fleetgate sessions end`: the end of one session by an administrator's command. In a cluster the command is a lock on the
//! session, which every node has by the signed state; on one machine root ends it there. It decides nothing itself.

use super::list::{ENDED, STARTED};
use crate::admin::{Admin, Scope, ask, events, scope};
use crate::flags::{Arguments, Outcome, session_id};
use crate::output;
use fleetgate_client::error::ClientError;
use fleetgate_client::waiting::{Peer, with_timeout};
use fleetgate_launch::present::{self, present};
use fleetgate_node::config::Config;
use fleetgate_proto::v1::{AddLockRequest, EventsRequest, LockTarget};
use fleetgate_sys::process;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is looked whether the session ended.
const LOOK: Duration = Duration::from_millis(200);
/// The longest reason.
const MAX_REASON: usize = 1024;

/// Ends it.
pub fn end(given: &Arguments) -> Outcome {
    let id = session_id(given.word().unwrap_or_default()).map_err(ClientError::Usage)?;
    let reason = given.value("reason").unwrap_or_default().to_owned();
    if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
        let why = format!("`--reason` is one line of at most {MAX_REASON} bytes");
        return Err(ClientError::Usage(why).into());
    }
    let ended = match scope(given)? {
        Scope::Cluster => in_cluster(given, &id, reason)?,
        Scope::Here(config) => here(&config, &id, &reason)?,
    };
    output::either(
        given.has("json"),
        || json!({ "session": ended }),
        || format!("the session {ended} is ended\n"),
    )
}

fn in_cluster(given: &Arguments, id: &str, reason: String) -> Result<String, ClientError> {
    ask(given, async |mut admin| {
        let running = sessions(&mut admin, id, &Value::Null, Wanted::Present).await?;
        let begun = match running.is_empty() {
            true => sessions(&mut admin, id, &Value::Null, Wanted::Events(STARTED)).await?,
            false => running.clone(),
        };
        let session = only(id, begun.keys().cloned().collect())?;
        let started = begun.get(&session).cloned().unwrap_or_default();
        if running.is_empty() {
            let ended = sessions(&mut admin, &session, &started, Wanted::Events(ENDED)).await?;
            if let Some(why) = why_not(&session, &started, ended.get(&session)) {
                return Err(ClientError::Refused(why));
            }
        }
        let target = LockTarget {
            kind: "session".to_owned(),
            name: session.clone(),
        };
        let lock = AddLockRequest {
            target: Some(target),
            reason,
            lifetime: 0,
        };
        admin.add_lock(lock).await?;
        let peer = Peer {
            name: format!("the node {}", node_of(&started)),
            remedy: "the order is kept for a day, and ends the session when the node hears of it; `fleetgate ls` says \
                     whether the node is connected",
        };
        with_timeout(&peer, async {
            loop {
                // In this order: what is not there any more has its end in the log, or none.
                let runs = !sessions(&mut admin, &session, &started, Wanted::Present)
                    .await?
                    .is_empty();
                let ended = sessions(&mut admin, &session, &started, Wanted::Events(ENDED)).await?;
                match (ended.is_empty(), runs) {
                    (false, _) => return Ok(()),
                    (true, false) if !running.is_empty() => {
                        return Err(ClientError::Refused(unknown(&session, &started)));
                    }
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        })
        .await?;
        Ok(session)
    })
}

/// Which events of a session are asked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// How those began that run.
    Present,
    /// Events of this name.
    Events(&'static str),
}

/// Such events of the sessions whose ids begin so, by their ids; where one's start is given, as the same machine told them.
async fn sessions(
    admin: &mut Admin,
    id: &str,
    started: &Value,
    wanted: Wanted,
) -> Result<BTreeMap<String, Value>, ClientError> {
    let mut request = EventsRequest {
        session: id.to_owned(),
        node: started["node"].as_str().unwrap_or_default().to_owned(),
        ..EventsRequest::default()
    };
    match wanted {
        Wanted::Present => request.present = true,
        Wanted::Events(name) => request.event = name.to_owned(),
    }
    let mut found = BTreeMap::new();
    let take = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let is_same = started.is_null() || event["proxy"] == started["proxy"];
        if let Some(session) = event["session"].as_str().filter(|_| is_same) {
            found.insert(session.to_owned(), event);
        }
    };
    events(admin, request, take).await?;
    Ok(found)
}

/// Why there is nothing to end of a session that does not run as far as auth knows. None: it may run for all that.
fn why_not(session: &str, started: &Value, ended: Option<&Value>) -> Option<String> {
    match ended {
        Some(ended) => Some(format!(
            "the session {session} ended at {}",
            output::moment(ended["time"].as_str().unwrap_or_default())
        )),
        // Nobody says of a plain sshd which sessions it has.
        None if started["proxy"].is_string() => None,
        None => Some(unknown(session, started)),
    }
}

fn unknown(session: &str, started: &Value) -> String {
    format!(
        "the node {} does not know the session {session}: it is over, and its end was never told",
        node_of(started)
    )
}

/// Of a plain sshd that is removed by now the proxy has only claimed the name.
fn node_of(started: &Value) -> &str {
    let names = ["node", "claimed_node"].map(|field| started[field].as_str());
    names.into_iter().flatten().next().unwrap_or_default()
}

fn here(config: &Config, id: &str, reason: &str) -> Result<String, ClientError> {
    let directory = config.runtime_directory.join("sessions");
    let running = present(&directory).map_err(ClientError::file(&directory))?;
    let found = running
        .into_iter()
        .map(|one| one.id)
        .filter(|known| known.starts_with(id));
    let session = only(id, found.collect())?;
    let by = format!("uid {}", process::effective_uid());
    let command = json!({ "by": by, "reason": reason }).to_string();
    present::end(&directory, &session, &command).map_err(|e| ClientError::Refused(e.to_string()))?;
    Ok(session)
}

/// The one session whose id begins so.
fn only(id: &str, mut found: Vec<String>) -> Result<String, ClientError> {
    found.sort();
    found.dedup();
    match (found.pop(), found.len()) {
        (Some(session), 0) => Ok(session),
        (None, _) => Err(ClientError::Refused(format!(
            "no session that runs has an id that begins with {id}: `fleetgate sessions ls` lists them"
        ))),
        (_, more) => Err(ClientError::Usage(format!(
            "SESSION: {id} begins the ids of {} sessions: give more of it",
            more + 1
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_ended_is_told_as_it_is() {
        let (of_node, of_sshd) = (
            json!({ "node": "web1" }),
            json!({ "node": "db1", "proxy": "edge" }),
        );
        let ended = json!({ "time": "2026-01-31T14:00:05.123Z" });
        for (started, ended, words) in [
            (
                &of_node,
                Some(&ended),
                Some("the session ab ended at 2026-01-31 14:00:05"),
            ),
            (
                &of_node,
                None,
                Some("the node web1 does not know the session ab: it is over, and its end was never told"),
            ),
            (
                &of_sshd,
                Some(&ended),
                Some("the session ab ended at 2026-01-31 14:00:05"),
            ),
            (&of_sshd, None, None),
        ] {
            assert_eq!(why_not("ab", started, ended).as_deref(), words);
        }
    }
}
