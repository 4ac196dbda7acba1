//! `fleetgate node ls|rm|register`.

use super::{Admin, ask, call, labels_text, moment, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_proto::v1::{Node, NodeName, NodesReply, NodesRequest, Proxy, RegisterNodeRequest};
use fleetgate_ssh::key::PublicKey;
use serde_json::{Value, json};
use std::path::Path;

/// `node ls`
pub fn list(given: &Arguments) -> Outcome {
    let selector = given.word().unwrap_or_default().to_owned();
    let wanted = selector.clone();
    let NodesReply { nodes, proxies } = call(given, Admin::nodes, NodesRequest { selector })?;
    if nodes.is_empty() && proxies.is_empty() && !wanted.is_empty() {
        let wanted = output::printable(&wanted);
        let why = format!("no node matches {wanted:?}: `fleetgate node ls` lists them");
        return Err(ClientError::Refused(why).into());
    }
    output::either(
        given.has("json"),
        || {
            let proxy = |p: &Proxy| json!({ "name": p.name, "version": p.version });
            json!({
                "nodes": nodes.iter().map(document).collect::<Vec<_>>(),
                "proxies": proxies.iter().map(proxy).collect::<Vec<_>>(),
            })
        },
        || table(&nodes, &proxies),
    )
}

/// A list of nodes.
pub fn print_nodes(as_json: bool, nodes: &[Node]) -> Outcome {
    output::either(
        as_json,
        || json!({ "nodes": nodes.iter().map(document).collect::<Vec<_>>() }),
        || table(nodes, &[]),
    )
}

/// Proxies are below the nodes: auth knows of them that they joined, and not whether they are reached.
fn table(nodes: &[Node], proxies: &[Proxy]) -> String {
    let node = |n: &Node| {
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
    let proxy = |p: &Proxy| {
        vec![
            p.name.clone(),
            "proxy".to_owned(),
            p.version.clone(),
            String::new(),
        ]
    };
    let rows: Vec<Vec<String>> = nodes.iter().map(node).chain(proxies.iter().map(proxy)).collect();
    output::table(&["node", "state", "version", "labels"], &rows)
}

/// `node rm`
pub fn remove(given: &Arguments) -> Outcome {
    let name = word(given);
    let force = given.has("force");
    call(
        given,
        Admin::remove_node,
        NodeName {
            name: name.clone(),
            force,
        },
    )?;
    removed(given, &name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_stand_below_the_nodes() {
        let node = Node {
            name: "db1".to_owned(),
            connected: true,
            ..Node::default()
        };
        let proxy = Proxy {
            name: "edge".to_owned(),
            version: "0.1.0".to_owned(),
        };
        let text = table(&[node], &[proxy]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["db1", "connected", "sshd"]);
        assert_eq!(rows[2], ["edge", "proxy", "0.1.0"]);
    }
}
