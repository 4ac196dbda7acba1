//! `fleetgate sessions rm`: recordings that auth keeps are removed for good.

use super::place::Cluster;
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
    let node = given.value("node").unwrap_or_default();
    let mut meant: Vec<(String, String)> = Vec::new();
    let mut found: Vec<Listing> = Vec::new();
    for word in given.operands.iter().filter_map(|word| word.to_str()) {
        let id = session_id(word).map_err(|why| given.wrong(why))?;
        let listing = find(&cluster, &id, node)?;
        let entry = listing.as_ref().map(|listing| &listing.entry);
        let one = entry.map_or((id, node.to_owned()), |entry| {
            (entry.id.clone(), entry.maker.clone())
        });
        if !meant.contains(&one) {
            meant.push(one);
            found.extend(listing);
        }
    }
    if !given.has("yes") && !confirmed(&meant, &found)? {
        return Err(ClientError::Refused("nothing was removed".to_owned()).into());
    }
    let mut removed = Vec::new();
    let mut failed = None;
    for (id, node) in &meant {
        match cluster.delete(id, node) {
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
fn find(cluster: &Cluster, id: &str, node: &str) -> Result<Option<Listing>, ClientError> {
    const WHOLE: usize = 32;
    let wanted = RecordingsRequest {
        session: id.to_owned(),
        ..RecordingsRequest::default()
    };
    let mut found = match cluster.list(wanted) {
        Err(ClientError::Refused(_)) if id.len() == WHOLE => Vec::new(),
        listed => listed?,
    };
    let is_meant = |one: &Listing| node.is_empty() || one.entry.maker == node || one.begin.node == node;
    found.retain(is_meant);
    if found.iter().any(|one| one.entry.maker == node) {
        found.retain(|one| one.entry.maker == node);
    }
    match (found.len(), id.len()) {
        (1, _) => Ok(found.pop()),
        (0, WHOLE) => Ok(None),
        (0, _) => Err(ClientError::Refused(format!(
            "no recording that you may see has the id {id}: `fleetgate sessions ls --recorded --cluster` lists them"
        ))),
        (2.., WHOLE) => {
            let makers: Vec<&str> = found.iter().take(3).map(|one| one.entry.maker.as_str()).collect();
            Err(ClientError::Usage(format!(
                "there are recordings of several machines that say they are of the session {id} ({}): say with --node NAME which \
                 one",
                makers.join(", ")
            )))
        }
        _ => Err(ClientError::Usage(format!(
            "{id} begins the ids of several recordings: give more of it"
        ))),
    }
}

fn confirmed(meant: &[(String, String)], found: &[Listing]) -> Result<bool, ClientError> {
    let mut terminal = Terminal::open().ok_or(ClientError::NoTerminal(
        "confirmation",
        "--yes removes without it",
    ))?;
    match found.len() < meant.len() {
        true => {
            let ids: Vec<&str> = meant.iter().map(|(id, _)| id.as_str()).collect();
            terminal.say(&format!("{}\n", ids.join("\n")));
        }
        false => terminal.say(&found.iter().map(description).collect::<String>()),
    }
    let answer = terminal.line("Remove for good? (yes or no) ")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// What is to go, whole: a table would be cut or broken where the terminal is narrow.
fn description(listing: &Listing) -> String {
    let begin = &listing.begin;
    format!(
        "{}\n    {} as {} on {}, {}, {}, {}: {}\n",
        listing.entry.id,
        if begin.user.is_empty() {
            "somebody"
        } else {
            &begin.user
        },
        begin.login,
        begin.node,
        output::moment(&begin.started),
        output::size(listing.length),
        listing.state(),
        begin.what()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_playback::about::Begin;
    use fleetgate_playback::store::Entry;

    #[test]
    fn what_is_to_go_is_said_whole() {
        let listing = Listing {
            entry: Entry {
                id: "7eb5cf005dd24d3b0a1b2c3d4e5f6071".to_owned(),
                day: "2026-11-29".to_owned(),
                path: "7eb5".into(),
                runs: false,
                elsewhere: None,
                maker: "web1".to_owned(),
            },
            begin: Begin {
                user: "ada".to_owned(),
                login: "root".to_owned(),
                node: "web1".to_owned(),
                started: "2026-11-29T10:00:00Z".to_owned(),
                command: "x".repeat(200),
                ..Begin::default()
            },
            end: None,
            length: 2150,
        };
        let command = "x".repeat(200);
        assert_eq!(
            description(&listing),
            format!(
                "7eb5cf005dd24d3b0a1b2c3d4e5f6071\n    ada as root on web1, 2026-11-29 10:00:00, 2.1K, no end: {command}\n"
            )
        );
    }
}
