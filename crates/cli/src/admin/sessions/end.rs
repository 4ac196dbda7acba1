//! `fleetgate sessions end`: the end of one session by an administrator's order. In a cluster the order is a lock on the
//! session, which every node has by the signed state; on one machine root ends it there. It decides nothing itself.

use super::super::{Scope, ask, scope};
use crate::flags::{Given, Outcome};
use crate::show;
use fleetgate_client::error::ClientError;
use fleetgate_launch::present::{self, present};
use fleetgate_node::config::Config;
use fleetgate_proto::v1::{AddLockRequest, EventsRequest, LockTarget};
use fleetgate_sys::process;
use serde_json::{Value, json};

/// The longest reason.
const MAX_REASON: usize = 1024;

/// Ends it.
pub fn end(given: &Given) -> Outcome {
    let id = super::id(given.word().unwrap_or_default()).map_err(ClientError::Usage)?;
    let reason = given.value("reason").unwrap_or_default().to_owned();
    if reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
        let why = format!("`--reason` is one line of at most {MAX_REASON} bytes");
        return Err(ClientError::Usage(why).into());
    }
    let ended = match scope(given)? {
        Scope::Cluster => in_cluster(given, &id, reason)?,
        Scope::Here(config) => here(&config, &id, &reason)?,
    };
    show::either(
        given.has("json"),
        || json!({ "session": ended }),
        || format!("the session {ended} is ended\n"),
    )
}

fn in_cluster(given: &Given, id: &str, reason: String) -> Result<String, ClientError> {
    let request = EventsRequest {
        session: id.to_owned(),
        present: true,
        ..EventsRequest::default()
    };
    ask(given, async |mut admin| {
        let mut events = admin.events(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(event) = events.message().await? {
            let event: Value = serde_json::from_str(&event.line).unwrap_or_default();
            found.extend(event["session"].as_str().map(str::to_owned));
        }
        let session = only(id, found)?;
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
        Ok(session)
    })
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
    let order = json!({ "by": by, "reason": reason }).to_string();
    present::end(&directory, &session, &order).map_err(ClientError::Refused)?;
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
