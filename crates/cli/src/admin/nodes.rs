//! `fleetgate node ls|rm|register`.

use super::{ask, labels, labels_text, moment, word};
use crate::flags::{Given, Outcome};
use crate::show;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_proto::v1::{Node, NodeName, NodesRequest, RegisterNodeRequest};
use fleetgate_ssh::key::PublicKey;
use serde_json::{Value, json};
use std::path::Path;

/// `node ls`
pub fn list(given: &Given) -> Outcome {
    let selector = given.word().unwrap_or_default().to_owned();
    let wanted = selector.clone();
    let nodes = ask(given, async |mut admin| {
        Ok(admin.nodes(NodesRequest { selector }).await?.into_inner().nodes)
    })?;
    if nodes.is_empty() && !wanted.is_empty() {
        let wanted = show::printable(&wanted);
        let why = format!("no node matches {wanted:?}: `fleetgate node ls` lists them");
        return Err(ClientError::Refused(why).into());
    }
    print_nodes(given.has("json"), &nodes)
}

/// A list of nodes.
pub fn print_nodes(as_json: bool, nodes: &[Node]) -> Outcome {
    show::either(
        as_json,
        || json!({ "nodes": nodes.iter().map(document).collect::<Vec<_>>() }),
        || {
            let row = |n: &Node| {
                let state = match n.connected {
                    _ if n.unreached_since > 0 => {
                        format!("not reached since {}", moment(n.unreached_since, "never"))
                    }
                    true => "connected".to_owned(),
                    false => format!("seen {}", moment(n.seen, "never")),
                };
                let version = if n.version.is_empty() { "sshd" } else { &n.version };
                vec![n.name.clone(), state, version.to_owned(), labels_text(&n.labels)]
            };
            show::table(
                &["node", "state", "version", "labels"],
                &nodes.iter().map(row).collect::<Vec<_>>(),
            )
        },
    )
}

/// `node rm`
pub fn remove(given: &Given) -> Outcome {
    let name = word(given);
    ask(given, async |mut admin| {
        Ok(admin.remove_node(NodeName { name }).await?.into_inner())
    })?;
    Ok(0)
}

/// `node register`
pub fn register(given: &Given) -> Outcome {
    let key = |path: &str| -> Result<bytes::Bytes, ClientError> {
        let text = files::read_text(Path::new(path))?;
        let key = PublicKey::from_line(text.trim());
        key.map(|k| k.blob().to_vec().into())
            .map_err(|e| ClientError::Broken(path.into(), e.to_string()))
    };
    let request = RegisterNodeRequest {
        name: word(given),
        // The table requires it.
        address: given.value("address").unwrap_or_default().to_owned(),
        labels: labels(given),
        host_keys: given.values("host-key").map(key).collect::<Result<_, _>>()?,
    };
    let node = ask(given, async |mut admin| {
        Ok(admin.register_node(request).await?.into_inner())
    })?;
    print_nodes(given.has("json"), &[node])
}

fn document(n: &Node) -> Value {
    json!({
        "name": n.name, "connected": n.connected, "seen": n.seen, "version": n.version, "address": n.address,
        "labels": n.labels, "unreached_since": n.unreached_since,
    })
}
