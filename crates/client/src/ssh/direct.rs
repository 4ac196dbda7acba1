//! Connections without a proxy: `--direct`, to any SSH server with keys of the user's, and `--address`, to a node's own port with
//! the login's certificate. A session goes by a master, as through a proxy, where nobody has to be asked for it.

use super::by_master::{self, SessionOutcome};
use super::carrier::TcpCarrier;
use super::login::held_by_agent;
use super::options::{LogLevel, Options, SSH_PORT, host_and_port};
use super::plan::plan;
use super::{Credential, Hosts, Plan, ServerMemory, SshError, Strict};
use crate::background::Starter;
use crate::profile::{Home, name_here, of_login};
use crate::timings::Timings;
use crate::{agent, config, stderr};
use fleetgate_wire::master::{Server, Way};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Keys that are looked for in `~/.ssh` where none is named.
const USUAL_KEYS: [&str; 5] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];

/// To a node's own port, as the login's user.
pub(super) async fn to_port(
    options: &Options,
    address: &str,
    starter: Option<Starter>,
    timings: &mut Timings,
) -> Result<i32, SshError> {
    let (host, port) = host_and_port(address).map_err(SshError::Local)?;
    let home = Home::find(options.home.as_deref())?;
    let profile = home.login()?;
    let user = options.login(|container| profile.account(container));
    let node = config::node(&options.host, &profile.cluster);
    let mut plan = plan(options, user, "client-node", starter);
    node.clone_into(&mut plan.place);
    let way = CString::new(address).ok().map(|address| Way::Port { address });
    if let SessionOutcome::Over(code) =
        by_master(&home, way, node, &format!("{node} at {address}"), &plan).await?
    {
        return Ok(code);
    }
    let hosts = Hosts::of_cluster(node, home.file("known_hosts"));
    let key = Credential::of_files(&home.file("id"), Some(&home.file("id-cert.pub")), &Vec::new)
        .map_err(of_login)?;
    let mut memory = ServerMemory::of_node(&home, node);
    let mut carrier = TcpCarrier {
        host,
        port,
        time: options.connect_time,
    };
    super::run(&plan, &hosts, &mut memory, vec![key], &mut carrier, timings).await
}

/// To an SSH server.
pub(super) async fn to_server(
    options: &Options,
    starter: Option<Starter>,
    timings: &mut Timings,
) -> Result<i32, SshError> {
    let port = options.port.unwrap_or(SSH_PORT);
    let known = known_hosts(options)?;
    let here = match &options.user {
        Some(user) => user.clone(),
        None => name_here().ok_or_else(|| {
            SshError::Local(
                "which account? USER is not set, and no account here has this process's user id; say it: USER@HOST or \
                 -l USER"
                    .into(),
            )
        })?,
    };
    let user = options.login(|_| here);
    let plan = plan(options, user, "client-node", starter);
    let named = named_keys(options);
    let home = Home::find(options.home.as_deref());
    if let Ok(home) = &home {
        let server = server(options, port, &known, &named);
        let way = server.map(|server| Way::Server { server });
        if let SessionOutcome::Over(code) = by_master(home, way, &options.host, &options.host, &plan).await? {
            return Ok(code);
        }
    }
    let strict = match (options.strict, options.batch) {
        (Strict::Ask, true) => Strict::Yes,
        (strict, _) => strict,
    };
    let hosts = match &options.alias {
        // ssh_config(5), HostKeyAlias: the alias is looked up as it stands, without a port.
        Some(alias) => Hosts::known(alias, SSH_PORT, known, strict),
        None => Hosts::known(&options.host, port, known, strict),
    };
    // Without a home there is nothing to remember by.
    let mut memory = home.map_or_else(
        |_| ServerMemory::default(),
        |home| ServerMemory::of_host(&home, &options.host, port),
    );
    let mut carrier = TcpCarrier {
        host: options.host.clone(),
        port,
        time: options.connect_time,
    };
    let keys = keys(options, &named)?;
    super::run(&plan, &hosts, &mut memory, keys, &mut carrier, timings).await
}

/// The plan's session by the master of that way; there is none for a way that the master cannot go.
async fn by_master(
    home: &Home,
    way: Option<Way>,
    node: &str,
    whom: &str,
    plan: &Plan,
) -> Result<SessionOutcome, SshError> {
    match way.filter(|_| by_master::can_run(plan)) {
        Some(way) => by_master::run(home, way, node, whom, plan).await,
        None => Ok(SessionOutcome::Cold),
    }
}

/// What the master needs to know of a server. None: the ssh-agent may have to be asked, or the user.
fn server(options: &Options, port: u16, known: &[PathBuf], named: &[PathBuf]) -> Option<Server> {
    let has_agent = std::env::var_os(agent::SOCKET).is_some_and(|socket| !socket.is_empty());
    let keys = match named.is_empty() {
        false => named.to_vec(),
        true if has_agent && !options.identities_only => return None,
        true => {
            let folder = home(".ssh").ok()?;
            let usual = USUAL_KEYS.iter().map(|name| folder.join(name));
            usual.filter(|path| path.exists()).collect()
        }
    };
    if keys.is_empty() || !options.ways.keys {
        return None;
    }
    // The master's directory is another one.
    let absolute =
        |path: &PathBuf| CString::new(std::path::absolute(path).ok()?.into_os_string().into_vec()).ok();
    Some(Server {
        port: port.into(),
        alias: match &options.alias {
            Some(alias) => Some(CString::new(alias.as_str()).ok()?),
            None => None,
        },
        known_hosts: known.iter().map(absolute).collect::<Option<_>>()?,
        keys: keys.iter().map(absolute).collect::<Option<_>>()?,
    })
}

/// The files of known hosts; a new host goes into the first.
fn known_hosts(options: &Options) -> Result<Vec<PathBuf>, SshError> {
    let system = || {
        options
            .global_hosts
            .clone()
            .unwrap_or_else(|| vec!["/etc/ssh/ssh_known_hosts".into()])
    };
    if options.known_hosts.is_empty() {
        return Ok([vec![home(".ssh/known_hosts")?], system()].concat());
    }
    let mut known = options.known_hosts.clone();
    known.extend(options.global_hosts.clone().unwrap_or_default());
    Ok(known)
}

/// The files of keys that were named and are there. As ssh: a file that is not there is no file that was named.
fn named_keys(options: &Options) -> Vec<PathBuf> {
    let is_there = |path: &&PathBuf| match std::fs::metadata(path) {
        Ok(_) => true,
        Err(e) => {
            if options.level >= LogLevel::Info {
                let why = e.to_string();
                let why = why.split(" (os error").next().unwrap_or_default();
                stderr::line(format_args!(
                    "Warning: Identity file {} not accessible: {why}.",
                    path.display()
                ));
            }
            false
        }
    };
    options.identities.iter().filter(is_there).cloned().collect()
}

/// The files that were named, or the agent's keys and the usual files.
fn keys(options: &Options, named: &[PathBuf]) -> Result<Vec<Credential>, SshError> {
    let load = |path: &Path| Credential::with_certificate_beside(path, &held_by_agent);
    if !named.is_empty() {
        return named
            .iter()
            .map(|path| load(path))
            .collect::<Result<_, _>>()
            .map_err(|e| SshError::Login(e.to_string()));
    }
    let mut keys = match options.identities_only {
        true => Vec::new(),
        false => Credential::of_agent(),
    };
    if let Ok(folder) = home(".ssh") {
        for key in USUAL_KEYS.iter().filter_map(|name| load(&folder.join(name)).ok()) {
            // One with a passphrase may be among the agent's already.
            if !keys.iter().any(|k| k.is_shown_as(&key)) {
                keys.push(key);
            }
        }
    }
    Ok(keys)
}

fn home(file: &str) -> Result<PathBuf, SshError> {
    match std::env::var_os("HOME").filter(|h| !h.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(file)),
        None => Err(SshError::Local("HOME is not set".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::options::Invocation;
    use std::ffi::OsString;

    fn options(line: &str) -> Options {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match Options::parse(&words) {
            Ok(Invocation::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn an_identity_file_that_is_not_there_does_not_end_the_command() {
        let keys = |line| {
            let options = options(line);
            keys(&options, &named_keys(&options))
        };
        assert!(keys("--direct -i /nowhere/fleetgate-key -o IdentitiesOnly=yes web1").is_ok());
        // One that is there and is no key does.
        assert!(keys("--direct -i /nowhere/fleetgate-key -i /etc/passwd web1").is_err());
    }

    #[test]
    fn the_master_is_told_of_keys_in_files_only() {
        let server = |line: &str, named: &[&str]| {
            let named: Vec<PathBuf> = named.iter().map(PathBuf::from).collect();
            server(&options(line), 2222, &["known".into()], &named)
        };
        let found = server("--direct web1", &["/a/key", "key"]).expect("files");
        assert_eq!((found.port, found.keys.len()), (2222, 2));
        let is_absolute = |path: &CString| path.as_bytes().starts_with(b"/");
        assert!(found.keys.iter().chain(&found.known_hosts).all(is_absolute));
        assert!(server("--direct -o PubkeyAuthentication=no web1", &["/a/key"]).is_none());
    }
}
