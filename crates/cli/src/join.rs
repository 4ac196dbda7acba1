//! `fleetgate join`: keys are made or found, a token is shown, and what comes of it is written where the role looks.

use crate::flags::{Arguments, Outcome};
use crate::{cluster, output};
use fleetgate_client::error::ClientError;
use fleetgate_client::join::{self, Joined, Machine};
use fleetgate_client::prompt::{self, AnswerSource};
use fleetgate_client::{connect, files, time};
use fleetgate_net::tls::Believe;
use fleetgate_net::x509::Key;
use fleetgate_node::config::Config;
use fleetgate_node::config::cluster::{self as state, SignedState};
use fleetgate_node::identity::{self, NodeIdentity};
use fleetgate_node::monitor;
use fleetgate_proto::v1::JoinReply;
use serde_json::json;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Joins; a machine that has joined says so.
pub fn run(given: &Arguments) -> Outcome {
    let state = cluster::state(given)?;
    let path = cluster::configuration(given)?;
    let own = match path.exists() {
        true => None,
        false => Some(cluster::node_section(&state, given.pairs("label"))),
    };
    let config = match &own {
        Some(text) => Config::parse(&path, text)?,
        None => Config::load(&path)?,
    };
    // Where a machine keeps what it is as a node: its configuration may say so.
    let state_place = match &own {
        Some(_) => state.as_path(),
        None => &config.state_directory,
    };
    let known = NodeIdentity::load(state_place)?
        .filter(|_| !given.has("again") && !state::is_removed(state_place, time::now()));
    if let Some(known) = known {
        if let Some(flag) = ["auth", "public", "listen"]
            .into_iter()
            .find(|flag| given.has(flag))
        {
            let words = format!(
                "this machine is the node {} of the cluster {}, and `--{flag}` is for a proxy: `--again` makes it a proxy too, \
                 and uses the token",
                known.node, known.cluster
            );
            return Err(given.wrong(words).into());
        }
        let text = format!(
            "this machine is the node {} of the cluster {}; `fleetgate join --again` with a token joins anew, or \
             another cluster",
            known.node, known.cluster
        );
        return output::either(
            given.has("json"),
            || json!({ "joined": false, "cluster": known.cluster, "name": known.node, "kind": "node" }),
            || format!("{text}\n"),
        );
    }
    let proxy = given
        .value("proxy")
        .ok_or_else(|| given.wrong("`--proxy` is missing: where the cluster's proxy is"))?;
    let proxy = connect::run(connect::address(proxy))?;
    let proxy = proxy.as_str();
    let text = match (given.value("token"), given.value("token-file")) {
        (Some(token), None) => zeroize::Zeroizing::new(token.to_owned()),
        (None, Some(path)) => prompt::secret(&AnswerSource::File(path), "Token", "")?,
        (None, None) => prompt::secret(
            &AnswerSource::Terminal,
            "Token",
            "give --token-file FILE, or - for standard input",
        )?,
        (Some(_), Some(_)) => {
            return Err(given
                .wrong("`--token` and `--token-file` together: give one of them")
                .into());
        }
    };
    let token = join::token(&text)?;
    let machine = Machine {
        name: given
            .value("name")
            .map_or_else(cluster::machine_name, str::to_owned),
        host_keys: monitor::host_keys(&config, !cluster::is_root())?,
        labels: given.labels(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // A token is good once, so a place that cannot be written is found out before the token is shown.
    check_writable(state_place, 0o700)?;
    // Everybody reads the configuration, as `init` has it.
    if let Some(parent) = path
        .parent()
        .filter(|parent| own.is_some() && *parent != state_place)
    {
        check_writable(parent, 0o755)?;
    }
    let joined = connect::run(join::join(proxy, &token, machine))?;
    let reply = &joined.reply;
    let mut proxy_place = None;
    let section = match reply.kind.as_str() {
        "proxy" => {
            let place = Place::of(given, proxy);
            let section = keep_proxy(&state, &place, &joined)?;
            // The machine has joined, whatever comes of this: auth may have to be told first where to listen.
            let found = connect::run(async {
                connect::identity(&place.auth, &Believe::Pin(token.pin), None)
                    .await
                    .map(drop)
            });
            if let Err(why) = found {
                eprintln!("fleetgate: {}", output::printable(&place.unreached(&why)));
            }
            if own.is_none() {
                eprintln!(
                    "{} is there and was not changed; it has to have this section:\n\n{section}",
                    path.display()
                );
            }
            proxy_place = Some(place);
            section
        }
        _ => {
            let mut proxies = vec![proxy.to_owned()];
            proxies.extend(joined.state.proxies.iter().filter(|p| *p != proxy).cloned());
            let log = monitor::audit_log(&config, !cluster::is_root());
            keep_node(state_place, &log, proxies, &joined.tls_key, reply)?;
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
    output::either(
        given.has("json"),
        || json!({ "joined": true, "cluster": reply.cluster, "name": reply.name, "kind": reply.kind }),
        || {
            // The service fleetgate-node may be there, which has a configuration of its own and the same state.
            let hint = match reply.kind == "node" {
                true => {
                    "; a node that runs already joins when its service is reloaded, or at SIGHUP".to_owned()
                }
                false => proxy_place
                    .map(|place| format!("; people reach it at {}", place.public))
                    .unwrap_or_default(),
            };
            // The service reads the machine's own file.
            let service = match path == Path::new(cluster::SYSTEM_CONFIG) {
                true => ", or the service fleetgate",
                false => "",
            };
            format!(
                "this machine is the {} {} of the cluster {} now; `fleetgate up --config {}` serves it{service}{hint}\n",
                reply.kind,
                reply.name,
                reply.cluster,
                path.display()
            )
        },
    )
}

/// As much as a machine writes when it joins: keys, certificates, the cluster's state.
const ROOM: usize = 1 << 20;

/// Makes the directory, where it is missing, and tries a file in it.
fn check_writable(place: &Path, mode: u32) -> Result<(), ClientError> {
    let probe = place.join(".fleetgate-join");
    let made = match place.is_dir() {
        true => Ok(()),
        false => DirBuilder::new().recursive(true).mode(mode).create(place),
    };
    let tried = made
        .map_err(ClientError::file(place))
        .and_then(|()| files::write(&probe, 0o600, &vec![0; ROOM]))
        .and_then(|()| files::remove(&probe));
    if tried.is_err() {
        let _ = files::remove(&probe);
    }
    tried.map_err(|e| match e {
        ClientError::File(_, e) => {
            let remedy = match e.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room for 1 MB",
                _ => "Join as root",
            };
            let why = format!("{e}; the token was not used. {remedy}, or give --state DIR of your own");
            ClientError::Broken(place.to_owned(), why)
        }
        e => e,
    })
}

/// Where a proxy is, and what it needs.
struct Place {
    listen: SocketAddr,
    /// Where people reach it.
    public: String,
    /// Where it reaches the auth service.
    auth: String,
}

impl Place {
    fn of(given: &Arguments, first: &str) -> Place {
        let listen = cluster::listen(given, cluster::PORT);
        Place {
            listen,
            public: given
                .value("public")
                .map_or_else(|| cluster::public(listen), str::to_owned),
            auth: given.value("auth").map_or_else(|| beside(first), str::to_owned),
        }
    }

    fn section(&self, directory: &Path) -> String {
        format!(
            "[proxy]\nstate_directory = {}\nlisten = {}\nauth = {}\npublic_address = {}\n",
            cluster::quoted(&directory.to_string_lossy()),
            cluster::quoted(&self.listen.to_string()),
            cluster::quoted(&self.auth),
            cluster::quoted(&self.public)
        )
    }

    fn unreached(&self, why: &ClientError) -> String {
        format!(
            "the auth service is not reached at {}, so this proxy will not serve yet: {why}. On auth's machine `listen` in [auth] \
             has to be an address that this machine reaches, and `auth` in [proxy] there the same one (docs/proxy.md); it is \
             127.0.0.1:3025 unless `init --auth-listen` said otherwise. Where auth is elsewhere, correct `auth` in [proxy] here",
            self.auth
        )
    }
}

/// The auth service is where the first proxy is, unless somebody says otherwise.
fn beside(first: &str) -> String {
    let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
    format!("{host}:3025")
}

/// Writes what a proxy reads. The answer is its section of a configuration.
fn keep_proxy(state: &Path, place: &Place, joined: &Joined) -> Result<String, Box<dyn std::error::Error>> {
    let directory = state.join("proxy");
    let signed = joined.reply.state.clone().unwrap_or_default();
    fleetgate_proxy::identity::install(&directory, &joined.tls_key, &joined.reply.tls_chain, &signed)?;
    Ok(place.section(&directory))
}

/// Writes what a node reads, the identity last: it is there with its key and state or not at all. Of the audit log the
/// cluster gets what is written from now on; one that the machine was in before gets what it does not have yet.
pub fn keep_node(
    state: &Path,
    audit_log: &Path,
    proxies: Vec<String>,
    key: &Key,
    reply: &JoinReply,
) -> Result<(), Box<dyn std::error::Error>> {
    let signed = reply.state.clone().unwrap_or_default();
    let signed = SignedState {
        document: signed.document.to_vec(),
        signature: signed.signature.to_vec(),
    };
    // A node that runs notes nothing any more once the key is another.
    identity::save_tls_key(state, key.pkcs8())?;
    if !state::is_of_the_same(state, &signed) {
        monitor::audit::begin_at_end(state, audit_log)?;
    }
    signed.save(state)?;
    NodeIdentity {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_place_that_cannot_be_written_is_said_before_the_token_is_used() {
        let directory = std::env::temp_dir().join(format!("fleetgate-join-{}", std::process::id()));
        check_writable(&directory.join("state"), 0o700).expect("made");
        check_writable(&directory.join("etc"), 0o755).expect("made");
        let mode = |name: &str| {
            let meta = std::fs::metadata(directory.join(name)).expect("there");
            meta.permissions().mode() & 0o777
        };
        assert_eq!((mode("state"), mode("etc")), (0o700, 0o755));
        let left = std::fs::read_dir(directory.join("state")).expect("there").count();
        assert_eq!(left, 0, "nothing of the try is left");
        std::fs::remove_dir_all(&directory).expect("removed");
        // Nobody makes a directory there, root included.
        let error = check_writable(Path::new("/proc/fleetgate"), 0o700).expect_err("refused");
        assert_eq!(error.code(), 1);
        let words = error.to_string();
        assert!(
            words.starts_with("/proc/fleetgate: ") && words.contains("the token was not used"),
            "{words}"
        );
    }

    #[test]
    fn a_proxys_section_is_read_by_the_proxy_and_names_what_it_needs() {
        for (first, auth) in [
            ("gate.example.org:3080", "gate.example.org:3025"),
            ("[2001:db8::1]:443", "[2001:db8::1]:3025"),
        ] {
            let place = Place {
                listen: SocketAddr::from(([0u16; 8], cluster::PORT)),
                public: "edge2.example.org:3080".to_owned(),
                auth: beside(first),
            };
            let config =
                fleetgate_proxy::config::Config::parse(&place.section(Path::new("/var/lib/edge/proxy")))
                    .expect("a configuration");
            assert_eq!(config.auth, auth);
            assert_eq!(config.listen.to_string(), "[::]:3080");
            assert_eq!(config.public_address, "edge2.example.org:3080");
            let why = place.unreached(&ClientError::Refused("refused".to_owned()));
            assert!(why.contains(auth) && why.contains("[auth]"), "{why}");
        }
    }
}
