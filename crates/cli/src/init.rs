//! `fleetgate init`: a cluster on this machine. The authorities are the auth service's to make; here stands what belongs
//! to which service, and what to do next.

use crate::cluster;
use crate::flags::{Given, Outcome};
use crate::{join, print};
use fleetgate_auth::clock::MachineClock;
use fleetgate_auth::{Kind, RefusedKind};
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_net::x509::Key;
use fleetgate_node::config::Config;
use fleetgate_node::monitor;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::{JoinReply, JoinRequest};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Where the proxy listens unless told otherwise.
const PORT: u16 = 3080;
/// Where the auth service listens unless told otherwise: nobody but proxies speaks to it.
const AUTH: &str = "127.0.0.1:3025";

/// Makes the cluster. Each step that was done before an earlier try ended is found done; the configuration is the last.
pub fn run(given: &Given) -> Outcome {
    let state = cluster::state(given)?;
    let path = cluster::configuration(given)?;
    if path.exists() {
        return print(&format!(
            "{} is there already: `fleetgate up` runs what it names; for another cluster give another --state\n",
            path.display()
        ));
    }
    let name = name(given, "name")?;
    let node = name_or_machine(given, "node-name")?;
    let listen = listen(given);
    let auth = given.value("auth-listen").unwrap_or(AUTH);
    let public = given
        .value("public")
        .map_or_else(|| public(listen), str::to_owned);
    files::private_directory(&state)?;
    let mut text = format!(
        "# The services of the cluster {name} on this machine; `fleetgate up` runs them.\n\n\
         [auth]\nstate_directory = {}\nlisten = {}\n\n\
         [proxy]\nstate_directory = {}\nlisten = {}\nauth = {}\npublic_address = {}\n",
        cluster::quoted(&state.join("auth").to_string_lossy()),
        cluster::quoted(auth),
        cluster::quoted(&state.join("proxy").to_string_lossy()),
        cluster::quoted(&listen.to_string()),
        cluster::quoted(auth),
        cluster::quoted(&public),
    );
    let node_state = state.join("node");
    let section = cluster::node_section(&node_state, given.pairs("label"));
    if !given.has("no-node") {
        text += &format!("\n{section}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let auth = state.join("auth");
        let clock = Arc::new(MachineClock);
        match fleetgate_auth::init(&auth, &name, std::slice::from_ref(&public), clock).await {
            Err(e) if e.kind != RefusedKind::Exists => return Err(e.into()),
            _ => {}
        }
        proxy(&auth, &state.join("proxy"), "proxy").await?;
        if !given.has("no-node") {
            let config = Config::parse(&path, &section)?;
            let keys = monitor::host_keys(&config, !cluster::is_root())?;
            self::node(&auth, &node_state, &node, keys, given, &public).await?;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(ClientError::file(parent))?;
    }
    files::write(&path, 0o644, text.as_bytes())?;
    let (state_flag, up) = match given.value("state") {
        Some(state) => (
            format!(" --state {state}"),
            format!("fleetgate up --state {state}"),
        ),
        None if cluster::is_root() => (
            String::new(),
            "systemctl enable --now fleetgate   # or: fleetgate up".into(),
        ),
        None => (String::new(), "fleetgate up".into()),
    };
    print(&format!(
        "The cluster {name} is made; its configuration is {}. Now:\n\n  \
         {up}\n  \
         fleetgate user add{state_flag} YOU --role admin --role access\n  \
         fleetgate login --proxy {public}        # asks for the invite that the line above printed\n  \
         fleetgate ssh {node}\n\n\
         Another machine joins with a token:\n\n  \
         fleetgate token add{state_flag}\n  \
         fleetgate join --proxy {public} --token-file -   # there\n",
        path.display()
    ))
}

async fn proxy(auth: &Path, state: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    if state.join("tls.chain").exists() {
        return Ok(());
    }
    let key = Key::generate();
    let reply = enter(auth, Kind::Proxy, request(name, &key)).await?;
    let signed = reply.state.clone().unwrap_or_default();
    fleetgate_proxy::identity::install(state, &key, &reply.tls_chain, &signed)?;
    Ok(())
}

async fn node(
    auth: &Path,
    state: &Path,
    name: &Name,
    host_keys: Vec<Vec<u8>>,
    given: &Given,
    public: &str,
) -> Result<(), Box<dyn Error>> {
    if fleetgate_node::identity::Identity::load(state)?.is_some() {
        return Ok(());
    }
    let key = Key::generate();
    let request = JoinRequest {
        host_keys: host_keys.into_iter().map(Into::into).collect(),
        labels: given
            .pairs("label")
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
        ..request(name.as_str(), &key)
    };
    let reply = enter(auth, Kind::Node, request).await?;
    join::keep_node(state, vec![public.to_owned()], &key, &reply)
}

fn request(name: &str, key: &Key) -> JoinRequest {
    JoinRequest {
        name: name.to_owned(),
        tls_public: key.public().spki().to_vec().into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..JoinRequest::default()
    }
}

async fn enter(auth: &Path, kind: Kind, request: JoinRequest) -> Result<JoinReply, Box<dyn Error>> {
    Ok(fleetgate_auth::join_here(auth, kind, request, Arc::new(MachineClock)).await?)
}

fn name(given: &Given, flag: &str) -> Result<Name, ClientError> {
    name_or_machine(given, flag)
}

fn name_or_machine(given: &Given, flag: &str) -> Result<Name, ClientError> {
    let text = given
        .value(flag)
        .map_or_else(cluster::machine_name, str::to_owned);
    Name::parse(&text).map_err(|e| ClientError::Usage(format!("--{flag}: {e}")))
}

/// On every address, of both families where the machine has both.
fn listen(given: &Given) -> SocketAddr {
    // It was read once by the parser.
    if let Some(address) = given.value("listen").and_then(|a| a.parse().ok()) {
        return address;
    }
    let both = SocketAddr::from(([0u16; 8], 0));
    match std::net::UdpSocket::bind(both) {
        Ok(_) => SocketAddr::from(([0u16; 8], PORT)),
        Err(_) => SocketAddr::from(([0u8; 4], PORT)),
    }
}

/// The address itself where it is one, else this machine's name.
fn public(listen: SocketAddr) -> String {
    if !listen.ip().is_unspecified() {
        return listen.to_string();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = match name.trim() {
        "" | "(none)" => "localhost",
        name => name,
    };
    format!("{name}:{}", listen.port())
}
