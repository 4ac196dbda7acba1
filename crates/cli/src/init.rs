//! `fleetgate init`: a cluster on this machine. The authorities are the auth service's to make; here stands what belongs
//! to which service, and what to do next.

use crate::cluster;
use crate::flags::{Arguments, Outcome};
use crate::join;
use crate::output::print;
use fleetgate_auth::clock::MachineClock;
use fleetgate_auth::{Kind, RefusedKind, Restored};
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_net::x509::Key;
use fleetgate_node::config::Config;
use fleetgate_node::monitor;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::{JoinReply, JoinRequest};
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the auth service listens unless told otherwise: nobody but proxies speaks to it.
const AUTH: &str = "127.0.0.1:3025";

/// What the services of this machine are made of.
struct Machine<'a> {
    given: &'a Arguments,
    state: PathBuf,
    /// The configuration.
    path: PathBuf,
    cluster: Name,
    node: Name,
    public: String,
    listen: SocketAddr,
}

/// Makes the cluster. Each step that was done before an earlier try ended is found done; the configuration is the last.
pub fn run(given: &Arguments) -> Outcome {
    let path = cluster::configuration(given)?;
    if path.exists() {
        says_the_same(given, &path)?;
        return print(&format!(
            "{} is there already: `fleetgate up` runs what it names; for another cluster give another --state\n",
            path.display()
        ));
    }
    let listen = cluster::listen(given, cluster::PORT);
    if given.value("public").is_some_and(|place| place.ends_with(":0")) {
        return Err(
            ClientError::Usage("`--public` wants a port that others can reach, not 0".to_owned()).into(),
        );
    }
    let public = given
        .value("public")
        .map_or_else(|| cluster::public(listen), str::to_owned);
    let machine = Machine {
        given,
        state: cluster::state(given)?,
        path,
        cluster: name_or_machine(given, "name")?,
        node: node_name(given, &public)?,
        public,
        listen,
    };
    machine.write(async |auth, clock| {
        let proxies = std::slice::from_ref(&machine.public);
        match fleetgate_auth::init(auth, &machine.cluster, proxies, clock).await {
            Err(e) if e.kind != RefusedKind::Exists => return Err(e.into()),
            _ => {}
        }
        if !machine.state.join("proxy/tls.chain").exists() {
            machine.proxy(auth, Taking::Nothing).await?;
        }
        machine.node(auth, Taking::Nothing).await
    })?;
    let Machine {
        cluster: name,
        node,
        public,
        path,
        ..
    } = &machine;
    let (state_flag, up) = machine.starts();
    // Without a node here there is nothing to come to yet.
    let ssh = match given.has("no-node") {
        true => String::new(),
        false => format!("  fleetgate ssh {node}\n"),
    };
    print(&format!(
        "The cluster {name} is made; its configuration is {}. Now:\n\n  \
         {up}\n  \
         fleetgate user add{state_flag} YOU --role admin --role access\n  \
         fleetgate login --proxy {public}        # asks for the invite that the line above printed\n\
         {ssh}\n\
         Another machine joins with a token:\n\n  \
         fleetgate token add{state_flag}\n  \
         fleetgate join --proxy {public} --token-file -   # there\n",
        path.display()
    ))
}

/// A setting that the configuration which is there has otherwise would do nothing.
fn says_the_same(given: &Arguments, path: &Path) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(path).map_err(ClientError::file(path))?;
    for (flag, key) in [
        ("public", "public_address"),
        ("listen", "listen"),
        ("auth-listen", "listen"),
    ] {
        if given.value(flag).is_some_and(|value| !has(&text, key, value)) {
            let words = format!(
                "{} is there already, and says otherwise: change that file, or give another --state for another cluster",
                path.display()
            );
            return Err(given.wrong(format!("`--{flag}`: {words}")).into());
        }
    }
    Ok(())
}

/// Whether a configuration has this value.
fn has(text: &str, key: &str, value: &str) -> bool {
    let line = format!("{key} = {}", cluster::quoted(value));
    text.lines().any(|l| l.trim() == line)
}

/// Makes this machine the one that a restored cluster's auth service and proxy are on: with a proxy's keys of its own,
/// those of the lost machine are none any more, and a configuration.
pub fn again(given: &Arguments, restored: &Restored) -> Outcome {
    let public = restored.proxies.first().ok_or_else(|| {
        ClientError::Usage("the restored state names no proxy: write the configuration by hand".to_owned())
    })?;
    let port = public.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let machine = Machine {
        given,
        state: cluster::state(given)?,
        path: cluster::configuration(given)?,
        cluster: restored.cluster.clone(),
        node: node_name(given, public)?,
        public: public.clone(),
        listen: cluster::listen(given, port.unwrap_or(cluster::PORT)),
    };
    // Only a name that somebody typed is taken from the machine that had it.
    let taking = match given.value("node-name") {
        Some(_) => Taking::Place,
        None => Taking::Nothing,
    };
    machine.write(async |auth, _| {
        machine.proxy(auth, Taking::Place).await?;
        machine.node(auth, taking).await
    })?;
    print(&format!(
        "The cluster {} is restored, and this machine is its auth service and proxy; the configuration is {}. People and \
         nodes look for the proxy at {public}: see that this machine is found there. Now:\n\n  {}\n",
        machine.cluster,
        machine.path.display(),
        machine.starts().1
    ))
}

/// Whether a machine takes the place of one that had its name.
#[derive(Clone, Copy, PartialEq)]
enum Taking {
    Nothing,
    Place,
}

impl Machine<'_> {
    /// Does what the services need, and writes the configuration then.
    fn write(
        &self,
        make: impl AsyncFnOnce(&Path, Arc<MachineClock>) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        files::private_directory(&self.state)?;
        let auth = self.state.join("auth");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(make(&auth, Arc::new(MachineClock)))?;
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent).map_err(ClientError::file(parent))?;
        }
        files::write(&self.path, 0o644, self.configuration().as_bytes())?;
        Ok(())
    }

    fn configuration(&self) -> String {
        let auth = self.given.value("auth-listen").unwrap_or(AUTH);
        let text = format!(
            "# The services of the cluster {} on this machine; `fleetgate up` runs them.\n\n\
             [auth]\nstate_directory = {}\nlisten = {}\n\n\
             [proxy]\nstate_directory = {}\nlisten = {}\nauth = {}\npublic_address = {}\n",
            self.cluster,
            cluster::quoted(&self.state.join("auth").to_string_lossy()),
            cluster::quoted(auth),
            cluster::quoted(&self.state.join("proxy").to_string_lossy()),
            cluster::quoted(&self.listen.to_string()),
            cluster::quoted(auth),
            cluster::quoted(&self.public),
        );
        match self.given.has("no-node") {
            true => text,
            false => format!("{text}\n{}", self.node_section()),
        }
    }

    fn node_section(&self) -> String {
        cluster::node_section(&self.state.join("node"), self.given.pairs("label"))
    }

    /// The flag that names the state, if one is needed, and the command that starts the services.
    fn starts(&self) -> (String, String) {
        match self.given.value("state") {
            Some(state) => (
                format!(" --state {state}"),
                format!("fleetgate up --state {state}"),
            ),
            None if cluster::is_root() => (
                String::new(),
                "systemctl enable --now fleetgate   # or: fleetgate up".into(),
            ),
            None => (String::new(), "fleetgate up".into()),
        }
    }

    async fn proxy(&self, auth: &Path, taking: Taking) -> Result<(), Box<dyn Error>> {
        let key = Key::generate();
        let reply = enter(auth, Kind::Proxy, request("proxy", &key), taking).await?;
        let signed = reply.state.clone().unwrap_or_default();
        fleetgate_proxy::identity::install(&self.state.join("proxy"), &key, &reply.tls_chain, &signed)?;
        Ok(())
    }

    async fn node(&self, auth: &Path, taking: Taking) -> Result<(), Box<dyn Error>> {
        let state = self.state.join("node");
        if self.given.has("no-node") || fleetgate_node::identity::NodeIdentity::load(&state)?.is_some() {
            return Ok(());
        }
        let config = Config::parse(&self.path, &self.node_section())?;
        let keys = monitor::host_keys(&config, !cluster::is_root())?;
        let key = Key::generate();
        let request = JoinRequest {
            host_keys: keys.into_iter().map(Into::into).collect(),
            labels: self.given.labels(),
            ..request(self.node.as_str(), &key)
        };
        let reply = enter(auth, Kind::Node, request, taking).await?;
        let log = monitor::audit_log(&config, !cluster::is_root());
        join::keep_node(&state, &log, vec![self.public.clone()], &key, &reply)
    }
}

fn request(name: &str, key: &Key) -> JoinRequest {
    JoinRequest {
        name: name.to_owned(),
        tls_public: key.public().spki().to_vec().into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..JoinRequest::default()
    }
}

async fn enter(
    auth: &Path,
    kind: Kind,
    request: JoinRequest,
    taking: Taking,
) -> Result<JoinReply, Box<dyn Error>> {
    let clock = Arc::new(MachineClock);
    let entered = match taking {
        Taking::Nothing => fleetgate_auth::join_here(auth, kind, request, clock).await,
        Taking::Place => fleetgate_auth::join_anew(auth, kind, request, clock).await,
    };
    Ok(entered?)
}

/// What a flag says, or the machine's name.
fn name_or_machine(given: &Arguments, flag: &str) -> Result<Name, ClientError> {
    let text = given
        .value(flag)
        .map_or_else(cluster::machine_name, str::to_owned);
    Name::parse(&text).map_err(|e| ClientError::Usage(format!("`--{flag}`: {e}")))
}

/// What this machine is called as a node: its name, unless users find the proxy by it, since a name means one thing.
fn node_name(given: &Arguments, public: &str) -> Result<Name, ClientError> {
    let name = name_or_machine(given, "node-name")?;
    let host = public.rsplit_once(':').map_or(public, |(host, _)| host);
    if host != name.as_str() || given.has("no-node") {
        return Ok(name);
    }
    let name = match given.value("node-name") {
        None => Name::parse(&format!("{name}-node")).map_err(|e| e.to_string()),
        Some(_) => Err(format!(
            "users find the proxy by the name {name} (`--public {public}`): give the node another one"
        )),
    };
    name.map_err(|why| ClientError::Usage(format!("`--node-name`: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_a_cluster_that_is_there_is_compared() {
        let text = "[auth]\nlisten = \"127.0.0.1:3081\"\n\n[proxy]\nlisten = \"[::]:3080\"\npublic_address = \"gate:3080\"\n";
        for (key, value, there) in [
            ("public_address", "gate:3080", true),
            ("public_address", "other:3080", false),
            ("listen", "127.0.0.1:3081", true),
            ("listen", "[::]:3080", true),
            ("listen", "[::]:443", false),
        ] {
            assert_eq!(has(text, key, value), there, "{key} {value}");
        }
    }
}
