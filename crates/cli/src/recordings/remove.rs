//! `fleetgate sessions rm`: recordings that auth keeps are removed for good.

use super::place::Cluster;
use super::table;
use crate::flags::{Arguments, Outcome, session_id};
use crate::output;
use fleetgate_client::error::ClientError;
use fleetgate_client::prompt::Terminal;
use fleetgate_playback::list::Listing;
use fleetgate_proto::v1::RecordingsRequest;
use serde_json::json;

/// Removes recordings.
pub fn remove(given: &Arguments) -> Outcome {
    let cluster = Cluster::connect(given)?;
    let mut meant: Vec<String> = Vec::new();
    let mut found: Vec<Listing> = Vec::new();
    for word in given.operands.iter().filter_map(|word| word.to_str()) {
        let id = session_id(word).map_err(|why| given.wrong(why))?;
        let listing = find(&cluster, &id)?;
        let id = listing.as_ref().map_or(id, |listing| listing.entry.id.clone());
        if !meant.contains(&id) {
            meant.push(id);
            found.extend(listing);
        }
    }
    if !given.has("yes") && !confirmed(&meant, &found)? {
        return Err(ClientError::Refused("nothing was removed".to_owned()).into());
    }
    let mut removed = Vec::new();
    let mut failed = None;
    for id in &meant {
        match cluster.delete(id) {
            Ok(()) => removed.push(id.as_str()),
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
    }
    output::either(
        given.has("json"),
        || json!({ "removed": removed }),
        || {
            let lines = removed.iter().map(|id| format!("{id} was removed\n"));
            lines.collect()
        },
    )?;
    match failed {
        Some(failed) => Err(failed.into()),
        None => Ok(0),
    }
}

/// The one whose id begins so. A whole id may be one that the caller may delete and not list.
fn find(cluster: &Cluster, id: &str) -> Result<Option<Listing>, ClientError> {
    const WHOLE: usize = 32;
    let wanted = RecordingsRequest {
        session: id.to_owned(),
        limit: 2,
        ..RecordingsRequest::default()
    };
    let mut found = match cluster.list(wanted) {
        Err(ClientError::Refused(_)) if id.len() == WHOLE => Vec::new(),
        listed => listed?,
    };
    match (found.len(), id.len()) {
        (1, _) => Ok(found.pop()),
        (0, WHOLE) => Ok(None),
        (0, _) => Err(ClientError::Refused(format!(
            "no recording that you may see has the id {id}: `fleetgate sessions ls --recorded --cluster` lists them"
        ))),
        _ => Err(ClientError::Usage(format!(
            "{id} begins the ids of several recordings: give more of it"
        ))),
    }
}

fn confirmed(meant: &[String], found: &[Listing]) -> Result<bool, ClientError> {
    let mut terminal = Terminal::open().ok_or(ClientError::NoTerminal(
        "confirmation",
        "--yes removes without it",
    ))?;
    match found.len() < meant.len() {
        true => terminal.say(&format!("{}\n", meant.join("\n"))),
        false => terminal.say(&table(found)),
    }
    let answer = terminal.line("Remove for good? (yes or no) ")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
