//! `fleetgate join`: keys are made or found, a token is shown, and what comes of it is written where the role looks.

use crate::cluster;
use crate::flags::{Given, Outcome};
use crate::show;
use fleetgate_client::ask::{self, Answer};
use fleetgate_client::error::ClientError;
use fleetgate_client::join::{self, Joined, Machine};
use fleetgate_client::{files, reach};
use fleetgate_net::x509::Key;
use fleetgate_node::config::Config;
use fleetgate_node::identity::{self, Identity};
use fleetgate_node::monitor::{self, Signed};
use fleetgate_proto::v1::JoinReply;
use serde_json::json;
use std::path::Path;

/// Joins; a machine that has joined says so.
pub fn run(given: &Given) -> Outcome {
    let state = cluster::state(given)?;
    if let Some(known) = Identity::load(&state)? {
        let text = format!(
            "this machine is the node {} of the cluster {}; to join another, remove {} first",
            known.node,
            known.cluster,
            state.join(identity::DIRECTORY).display()
        );
        return show::either(
            given.has("json"),
            || json!({ "joined": false, "cluster": known.cluster, "name": known.node, "kind": "node" }),
            || format!("{text}\n"),
        );
    }
    let proxy = given.value("proxy").ok_or_else(|| {
        ClientError::Usage("--proxy HOST:PORT is missing: where the cluster's proxy is".to_owned())
    })?;
    let text = match (given.value("token"), given.value("token-file")) {
        (Some(token), None) => zeroize::Zeroizing::new(token.to_owned()),
        (None, Some(path)) => ask::secret(&Answer::From(path), "Token", "")?,
        (None, None) => ask::secret(
            &Answer::Asked,
            "Token",
            "give --token-file FILE, or - for standard input",
        )?,
        (Some(_), Some(_)) => {
            return Err(ClientError::Usage("--token and --token-file: one of them".to_owned()).into());
        }
    };
    let token = join::token(&text)?;
    let path = cluster::configuration(given)?;
    let own = match path.exists() {
        true => None,
        false => Some(cluster::node_section(&state, given.pairs("label"))),
    };
    let config = match &own {
        Some(text) => Config::parse(&path, text)?,
        None => Config::load(&path)?,
    };
    let machine = Machine {
        name: given
            .value("name")
            .map_or_else(cluster::machine_name, str::to_owned),
        host_keys: monitor::host_keys(&config, !cluster::is_root())?,
        labels: given
            .pairs("label")
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let joined = reach::run(join::join(proxy, &token, machine))?;
    let reply = &joined.reply;
    let section = match reply.kind.as_str() {
        "proxy" => keep_proxy(given, &state, proxy, &joined)?,
        _ => {
            let state = match &own {
                Some(_) => &state,
                None => &config.state_directory,
            };
            let mut proxies = vec![proxy.to_owned()];
            proxies.extend(joined.state.proxies.iter().filter(|p| *p != proxy).cloned());
            keep_node(state, proxies, &joined.tls_key, reply)?;
            own.clone().unwrap_or_default()
        }
    };
    if own.is_some() {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(ClientError::file(parent))?;
        }
        files::write(
            &path,
            0o644,
            format!("# Written by `fleetgate join`.\n{section}").as_bytes(),
        )?;
    }
    show::either(
        given.has("json"),
        || json!({ "joined": true, "cluster": reply.cluster, "name": reply.name, "kind": reply.kind }),
        || {
            // The service fleetgate-node may be there, which has a configuration of its own and the same state.
            let hint = match reply.kind == "node" {
                true => "; a node that runs already joins when its service is reloaded, or at SIGHUP",
                false => "",
            };
            format!(
                "this machine is the {} {} of the cluster {} now; `fleetgate up --config {}` serves it, or the \
                 service fleetgate{hint}\n",
                reply.kind,
                reply.name,
                reply.cluster,
                path.display()
            )
        },
    )
}

/// Writes what a proxy reads. The answer is its section of a configuration.
fn keep_proxy(
    given: &Given,
    state: &Path,
    proxy: &str,
    joined: &Joined,
) -> Result<String, Box<dyn std::error::Error>> {
    let directory = state.join("proxy");
    let signed = joined.reply.state.clone().unwrap_or_default();
    fleetgate_proxy::identity::install(&directory, &joined.tls_key, &joined.reply.tls_chain, &signed)?;
    // The auth service is where the first proxy is, unless somebody says otherwise.
    let first = proxy.rsplit_once(':').map_or(proxy, |(host, _)| host);
    let auth = given
        .value("auth")
        .map_or_else(|| format!("{first}:3025"), str::to_owned);
    Ok(format!(
        "[proxy]\nstate_directory = {}\nauth = {}\n",
        cluster::quoted(&directory.to_string_lossy()),
        cluster::quoted(&auth)
    ))
}

/// Writes what a node reads, the identity last: it is there with its key and state or not at all.
pub fn keep_node(
    state: &Path,
    proxies: Vec<String>,
    key: &Key,
    reply: &JoinReply,
) -> Result<(), Box<dyn std::error::Error>> {
    identity::save_tls_key(state, key.pkcs8())?;
    let signed = reply.state.clone().unwrap_or_default();
    Signed {
        document: signed.document.to_vec(),
        signature: signed.signature.to_vec(),
    }
    .save(state)?;
    Identity {
        cluster: reply.cluster.clone(),
        node: reply.name.clone(),
        proxies,
        tls_chain: reply.tls_chain.iter().map(|der| der.to_vec()).collect(),
        host_certificates: reply.host_certificates.iter().map(|blob| blob.to_vec()).collect(),
        labels: reply.labels.clone().into_iter().collect(),
    }
    .save(state)?;
    Ok(())
}
