//! Where a cluster's files and its proxy are on this machine, and which roles its configuration names. It reads that one file and
//! leaves what the sections say to the roles.

use crate::flags::Arguments;
use fleetgate_policy::toml_mistake::Mistake;
use fleetgate_sys::process;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The configuration's name in a state directory.
pub const FILE: &str = "fleetgate.toml";
/// The auth service's socket in its own directory.
const SOCKET: &str = "auth.sock";
/// The configuration of a machine's own cluster services.
pub const SYSTEM_CONFIG: &str = "/etc/fleetgate/fleetgate.toml";
/// The state of a machine's own cluster services.
const SYSTEM_STATE: &str = "/var/lib/fleetgate";

/// Where the proxy listens unless told otherwise.
pub const PORT: u16 = 3080;

/// A service of the cluster, in the order in which they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has the authorities and the state.
    Auth,
    /// Faces the world.
    Proxy,
    /// Serves this machine.
    Node,
}

impl Role {
    const ALL: [Role; 3] = [Role::Auth, Role::Proxy, Role::Node];

    /// The name under which its listening sockets are kept over a restart.
    pub fn stored(self) -> &'static str {
        match self {
            Role::Auth => "fleetgate-auth",
            Role::Proxy => "fleetgate-proxy",
            Role::Node => "fleetgate-node",
        }
    }

    /// Its section, and its command.
    pub fn name(self) -> &'static str {
        match self {
            Role::Auth => "auth",
            Role::Proxy => "proxy",
            Role::Node => "node",
        }
    }
}

/// The state directory: `--state`, else the usual one.
pub fn state(given: &Arguments) -> Result<PathBuf, String> {
    match given.value("state") {
        Some(path) => absolute(Path::new(path)),
        None if is_root() => Ok(SYSTEM_STATE.into()),
        None => own_state(),
    }
}

/// The auth service's socket, where its owner and root administer.
pub fn socket(state: &Path) -> PathBuf {
    state.join("auth").join(SOCKET)
}

/// Where the configuration is: `--config`, else in `--state`, else the usual one.
pub fn configuration(given: &Arguments) -> Result<PathBuf, String> {
    match (given.value("config"), given.value("state")) {
        (Some(path), _) => absolute(Path::new(path)),
        (None, Some(state)) => Ok(absolute(Path::new(state))?.join(FILE)),
        (None, None) if is_root() => Ok(SYSTEM_CONFIG.into()),
        (None, None) => Ok(own_state()?.join(FILE)),
    }
}

/// The roles that have a section.
pub fn roles(config: &Path) -> Result<Vec<Role>, String> {
    fleetgate_base::own::unchanged(config)?;
    let text = std::fs::read_to_string(config).map_err(|e| {
        let remedy = match e.kind() {
            std::io::ErrorKind::NotFound => {
                "; `fleetgate init` makes a cluster and this file, `fleetgate join` makes this machine a node of one"
            },
            _ => "",
        };
        format!("{}: {e}{remedy}", config.display())
    })?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|e| format!("{}: {}", config.display(), Mistake::new(&text, &e, &[])))?;
    if let Some(other) = table.keys().find(|k| Role::ALL.iter().all(|r| r.name() != *k)) {
        return Err(format!(
            "{}: there is no role `{other}`; a section is [auth], [proxy] or [node]",
            config.display()
        ));
    }
    let roles: Vec<Role> = Role::ALL
        .into_iter()
        .filter(|r| table.contains_key(r.name()))
        .collect();
    match roles.is_empty() {
        true => Err(format!(
            "{}: it names no role; a section [auth], [proxy] or [node] does",
            config.display()
        )),
        false => Ok(roles),
    }
}

/// A `[node]` section for a node that is reached through the proxy alone and keeps its files below `state`.
pub fn node_section<'a>(state: &Path, labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let path = |path: &Path| quoted(&path.to_string_lossy());
    let mut text = format!("[node]\nlisten = []\nstate_directory = {}\n", path(state));
    // A machine's own node has /run/fleetgate and /var/log/fleetgate.
    if !state.starts_with(SYSTEM_STATE) {
        text += &format!("runtime_directory = {}\n", path(&state.join("run")));
        text += &format!("audit_log = {}\n", path(&state.join("audit.jsonl")));
    }
    let labels: Vec<String> = labels
        .map(|(k, v)| format!("{} = {}\n", quoted(k), quoted(v)))
        .collect();
    if !labels.is_empty() {
        text += &format!("\n[node.labels]\n{}", labels.concat());
    }
    text
}

/// A text as TOML has it: a basic string's escapes are JSON's.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether this is root.
pub fn is_root() -> bool {
    process::effective_uid() == 0
}

/// This machine's name as a name in the cluster: its first part, in small letters, without what a name cannot have.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = name
        .trim()
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let name: String = first
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .collect();
    match name.trim_start_matches('-') {
        "" => "node".to_owned(),
        name => name.to_owned(),
    }
}

/// Without root: below the home directory.
fn own_state() -> Result<PathBuf, String> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("fleetgate"))
        .ok_or_else(|| "HOME is not set; say where the state is with --state DIR".to_owned())
}

/// On every address, of both families where the machine has both.
pub fn listen(given: &Arguments, port: u16) -> SocketAddr {
    // It was read once by the parser.
    if let Some(address) = given.value("listen").and_then(|a| a.parse().ok()) {
        return address;
    }
    let both = SocketAddr::from(([0u16; 8], 0));
    match std::net::UdpSocket::bind(both) {
        Ok(_) => SocketAddr::from(([0u16; 8], port)),
        Err(_) => SocketAddr::from(([0u8; 4], port)),
    }
}

/// The address itself where it is one, else this machine's name.
pub fn public(listen: SocketAddr) -> String {
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

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_the_sections_in_the_order_of_their_start() {
        let path = std::env::temp_dir().join(format!("fleetgate-roles-{}.toml", std::process::id()));
        for (text, found) in [
            ("[node]\n[auth]\n[proxy]\nlisten = []\n", Ok("auth proxy node")),
            ("[proxy]\n", Ok("proxy")),
            ("", Err("it names no role")),
            ("[prxy]\n", Err("there is no role `prxy`")),
            ("[auth\n", Err("line 1: unclosed table, expected `]`")),
        ] {
            std::fs::write(&path, text).expect("written");
            let got = roles(&path).map(|roles| roles.iter().map(|r| r.name()).collect::<Vec<_>>().join(" "));
            match (found, got) {
                (Ok(names), Ok(got)) => assert_eq!(got, names),
                (Err(words), Err(got)) => {
                    assert!(
                        got.contains(words) && got.contains(&path.display().to_string()),
                        "{got}"
                    );
                }
                (wanted, got) => panic!("{text}: {wanted:?}, not {got:?}"),
            }
        }
        std::fs::remove_file(&path).expect("removed");
        let error = roles(&path).expect_err("it is gone");
        assert!(error.contains("fleetgate init"), "{error}");
    }
}
