//! `fleetgate node ls|rm|register`.

use super::{Admin, ask, call, labels_text, moment, word};
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_proto::v1::{Node, NodeName, NodesRequest, RegisterNodeRequest};
use fleetgate_ssh::key::PublicKey;
use serde_json::{Value, json};
use std::path::Path;

/// `node ls`
pub fn list(given: &Arguments) -> Outcome {
    let selector = given.word().unwrap_or_default().to_owned();
    let wanted = selector.clone();
    let nodes = call(given, Admin::nodes, NodesRequest { selector })?.nodes;
    if nodes.is_empty() && !wanted.is_empty() {
        let wanted = output::printable(&wanted);
        let why = format!("no node matches {wanted:?}: `fleetgate node ls` lists them");
        return Err(ClientError::Refused(why).into());
    }
    print_nodes(given.has("json"), &nodes)
}

/// A list of nodes.
pub fn print_nodes(as_json: bool, nodes: &[Node]) -> Outcome {
    let headings = ["node", "state", "version", "labels"];
    output::list(as_json, "nodes", nodes, document, headings, |n| {
        let state = match n.connected {
            _ if n.unreached_since > 0 => {
                format!("not reached since {}", moment(n.unreached_since, "never"))
            }
            true => "connected".to_owned(),
            false => format!("seen {}", moment(n.seen, "never")),
        };
        let version = if n.version.is_empty() { "sshd" } else { &n.version };
        [n.name.clone(), state, version.to_owned(), labels_text(&n.labels)]
    })
}

/// `node rm`
pub fn remove(given: &Arguments) -> Outcome {
    call(given, Admin::remove_node, NodeName { name: word(given) })?;
    Ok(0)
}

/// `node register`
pub fn register(given: &Arguments) -> Outcome {
    let key = |path: &str| -> Result<bytes::Bytes, ClientError> {
        let text = files::read_text(Path::new(path))?;
        if text.starts_with("-----BEGIN") {
            let why = format!("is a private key: give its public half, {path}.pub");
            return Err(ClientError::Broken(path.into(), why));
        }
        let key = PublicKey::from_line(text.trim());
        key.map(|k| k.blob().to_vec().into())
            .map_err(|e| ClientError::Broken(path.into(), e.to_string()))
    };
    let request = RegisterNodeRequest {
        name: word(given),
        // The table requires it.
        address: given.value("address").unwrap_or_default().to_owned(),
        labels: given.labels(),
        host_keys: given.values("host-key").map(key).collect::<Result<_, _>>()?,
    };
    let (before, node) = ask(given, async |mut admin| {
        let selector = request.name.clone();
        let before = admin.nodes(NodesRequest { selector }).await?.into_inner().nodes;
        Ok((before, admin.register_node(request).await?.into_inner()))
    })?;
    // A registration replaces the one before, its labels too: roles may no longer match the node.
    for before in before
        .iter()
        .filter(|n| n.name == node.name && n.labels != node.labels)
    {
        let (had, has) = (labels_text(&before.labels), labels_text(&node.labels));
        let has = if has.is_empty() { "none".to_owned() } else { has };
        let warning = format!("warning: {}: its labels were {had}; now: {has}", node.name);
        eprintln!("{}", output::printable(&warning));
    }
    print_nodes(given.has("json"), &[node])
}

fn document(n: &Node) -> Value {
    json!({
        "name": n.name, "connected": n.connected && n.unreached_since == 0, "seen": n.seen, "version": n.version, "address": n.address,
        "labels": n.labels, "unreached_since": n.unreached_since,
    })
}
