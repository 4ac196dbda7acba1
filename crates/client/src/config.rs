//! What plain ssh is told: through which command to reach a node, with which key, whom to believe; and of a container, as whom.
//!
//! ssh takes `NODE+CONTAINER` for a host. Before it connects, its configuration has `fleetgate config container` write what this
//! host is (`Match … exec`), and reads that (`Include`): the login `ACCOUNT+CONTAINER`, and the node's name for the host key. So
//! the container is named in what ssh itself signs, and no proxy can lead it elsewhere.

use crate::error::ClientError;
use crate::files;
use crate::profile::{Home, Profile};
use fleetgate_policy::account_and_container;
use fleetgate_wire::master::container_at;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// How long ssh keeps a connection after its last session.
const PERSIST: &str = "10m";

/// After how many silent seconds ssh asks whether the node is there: many firewalls forget a connection that was silent for
/// five minutes.
const ALIVE: u32 = 60;

/// Where what ssh is told of containers stands, a file for each.
pub const CONTAINERS: &str = "containers";

/// The most of these files; the oldest go.
const MAX_CONTAINERS: usize = 64;

/// The ssh_config for these hosts, by default those below the cluster's name. `fleetgate` is this program's path.
#[must_use]
pub fn ssh_config(home: &Home, profile: &Profile, fleetgate: &Path, hosts: &[&str]) -> String {
    let file = |name: &str| quoted(&home.file(name).to_string_lossy());
    let cluster = &profile.cluster;
    let mut patterns = vec![format!("*.{cluster}"), format!("*.{cluster}+*")];
    let mut containers = vec![format!("*+*.{cluster}"), format!("*.{cluster}+*")];
    for host in hosts {
        patterns.extend([(*host).to_owned(), format!("{host}+*")]);
        containers.push(format!("{host}+*"));
    }
    format!(
        "# The nodes of the cluster {cluster}, for plain ssh. Written by `fleetgate config ssh`.\n\
         Match host \"{containers}\" exec \"{program} config container --home {home_path} '%h'\"\n    \
             Include {container_files}\n\
         Host {patterns}\n    \
             ProxyCommand {program} proxy-command --home {home_path} --login '%r' '%h' '%p'\n    \
             IdentityFile {id}\n    \
             CertificateFile {certificate}\n    \
             IdentitiesOnly yes\n    \
             UserKnownHostsFile {known_hosts}\n    \
             GlobalKnownHostsFile /dev/null\n    \
             StrictHostKeyChecking yes\n    \
             CheckHostIP no\n    \
             ControlMaster auto\n    \
             ControlPath {control}\n    \
             ControlPersist {PERSIST}\n    \
             ServerAliveInterval {ALIVE}\n",
        patterns = patterns.join(" "),
        containers = containers.join(","),
        container_files = file(&format!("{CONTAINERS}/*.conf")),
        program = shell_quoted(&fleetgate.to_string_lossy()),
        home_path = shell_quoted(&home.path().to_string_lossy()),
        id = file("id"),
        certificate = file("id-cert.pub"),
        known_hosts = file("known_hosts"),
        control = file("mux/%C"),
    )
}

/// Whether ssh takes this as one pattern behind `Host`, and as nothing else.
#[must_use]
pub fn is_host_pattern(text: &str) -> bool {
    let may = |c: char| c.is_ascii_alphanumeric() || "._:-*?!%".contains(c);
    !text.is_empty() && text.chars().all(may)
}

/// Of a host `NODE+CONTAINER`, with the cluster's name behind either, the host that is the node, and the container.
#[must_use]
pub fn container_of<'a>(host: &'a str, cluster: &str) -> Option<(String, &'a str)> {
    let at = container_at(host.as_bytes())?;
    let whole = node(host, cluster);
    let (machine, container) = (&host[..at], whole.get(at + 1..)?);
    let is_short = whole.len() < host.len() && node(machine, cluster) == machine;
    let machine = match is_short {
        true => format!("{machine}.{cluster}"),
        false => machine.to_owned(),
    };
    (!container.is_empty() && !machine.is_empty()).then_some((machine, container))
}

/// What ssh connects to, if that is what its user means: a host that is a container with a login that leads there.
pub fn machine_of(host: &str, login: &str, cluster: &str) -> Result<String, ClientError> {
    let Some((machine, container)) = container_of(host, cluster) else {
        return Ok(host.to_owned());
    };
    match account_and_container(login) {
        (_, Some(named)) if named == container => Ok(machine),
        (_, Some(other)) => Err(ClientError::Usage(format!(
            "{host} is the container {container}, and the login {login} leads into {other}: name one of them"
        ))),
        (account, None) => Err(ClientError::Usage(format!(
            "{host} is a container, and the login {account} leads to {machine} itself: leave the account out, or write \
             {account}+{container}@{machine}; if you named none, run `fleetgate config ssh --write` again"
        ))),
    }
}

/// `config container`: writes what ssh is to know of a host that is a container. False: it is none.
pub fn write_container(home: &Home, profile: &Profile, host: &str) -> Result<bool, ClientError> {
    // As ssh writes it later on, whatever its user typed.
    let host = &host.to_ascii_lowercase();
    // What could end ssh's line, or stand for other hosts, is no host's name.
    let may = |c: char| c.is_ascii_alphanumeric() || "._:-+".contains(c);
    let Some((machine, container)) = container_of(host, &profile.cluster).filter(|_| host.chars().all(may))
    else {
        return Ok(false);
    };
    let text = format!(
        "Match host {host}\n    User {}+{container}\n    HostKeyAlias {machine}\n",
        profile.account(Some(container))
    );
    let folder = home.file(CONTAINERS);
    files::private_directory(&folder)?;
    let path = folder.join(format!("at-{host}.conf"));
    if fs::read(&path).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(true);
    }
    remove_oldest(&folder);
    files::write_unsynced(&path, 0o600, text.as_bytes())?;
    Ok(true)
}

/// Makes room for one more.
fn remove_oldest(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let age = |entry: &fs::DirEntry| entry.metadata().and_then(|kept| kept.modified());
    let mut all: Vec<(SystemTime, _)> = entries
        .filter_map(|entry| Some((age(&entry).ok()?, entry.path())))
        .collect();
    all.sort();
    let surplus = (all.len() + 1).saturating_sub(MAX_CONTAINERS);
    for (_, path) in all.drain(..surplus) {
        let _ = fs::remove_file(path);
    }
}

/// The node that ssh's host name means: the cluster's name behind it is left out.
#[must_use]
pub fn node<'a>(host: &'a str, cluster: &str) -> &'a str {
    host.strip_suffix(cluster)
        .and_then(|h| h.strip_suffix('.'))
        .unwrap_or(host)
}

/// A path as ssh_config reads it; a percent sign of its own is doubled, `%C` stays.
fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('%', "%%").replace("%%C", "%C"))
}

/// A word for the shell that ssh gives ProxyCommand to.
fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''").replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_ssh_s_line_is_no_pattern() {
        for good in ["web*", "*.demo", "!db1", "fe80::1%eth0"] {
            assert!(is_host_pattern(good), "{good}");
        }
        for bad in ["", "web* bad\"x", "a b", "a\nMatch all", "a#b"] {
            assert!(!is_host_pattern(bad), "{bad}");
        }
    }

    #[test]
    fn ssh_is_told_all_of_it() {
        let home = Home::find(Some("/home/a b/100%/.fleetgate")).expect("a path");
        let profile = crate::profile::tests::profile();
        let text = ssh_config(&home, &profile, Path::new("/usr/bin/fleetgate"), &["web*"]);
        for line in [
            "Host *.demo *.demo+* web* web*+*",
            "Match host \"*+*.demo,*.demo+*,web*+*\" exec \"'/usr/bin/fleetgate' config container --home '/home/a b/100%%/.fleetgate' '%h'\"",
            "Include \"/home/a b/100%%/.fleetgate/containers/*.conf\"",
            "ProxyCommand '/usr/bin/fleetgate' proxy-command --home '/home/a b/100%%/.fleetgate' --login '%r' '%h' '%p'",
            "IdentityFile \"/home/a b/100%%/.fleetgate/id\"",
            "ControlPath \"/home/a b/100%%/.fleetgate/mux/%C\"",
            "StrictHostKeyChecking yes",
            "ServerAliveInterval 60",
        ] {
            assert!(text.lines().any(|l| l.trim() == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_container_is_a_host_with_a_plus() {
        for (host, machine, container) in [
            ("db1+web", "db1", "web"),
            ("db1+web.demo", "db1.demo", "web"),
            ("db1.demo+web", "db1.demo", "web"),
            ("db1.demo+web.demo", "db1.demo", "web"),
            ("db1+shop.web-1.demo", "db1.demo", "shop.web-1"),
            ("db1+web+2", "db1", "web+2"),
        ] {
            assert_eq!(
                container_of(host, "demo"),
                Some((machine.to_owned(), container)),
                "{host}"
            );
            let login = format!("deploy+{container}");
            assert_eq!(machine_of(host, &login, "demo").expect("it leads there"), machine);
            for other in ["deploy", "", "deploy+other", "+"] {
                assert!(machine_of(host, other, "demo").is_err(), "{host} {other}");
            }
        }
        for none in ["db1", "db1+", "+web", "+", "db1+.demo", "web1.demo", "env=a+b"] {
            assert_eq!(container_of(none, "demo"), None, "{none}");
        }
        assert_eq!(
            machine_of("db1.demo", "deploy", "demo").expect("a node"),
            "db1.demo"
        );
    }

    #[test]
    fn what_ssh_is_told_of_containers_is_bounded() {
        let place = std::env::temp_dir().join(format!("fleetgate-told-{}", std::process::id()));
        let home = Home::find(place.to_str()).expect("a path");
        let profile = crate::profile::tests::profile();
        for n in 0..2 * MAX_CONTAINERS {
            assert!(write_container(&home, &profile, &format!("db1+web{n}.demo")).expect("written"));
        }
        let count = fs::read_dir(home.file(CONTAINERS)).expect("there").count();
        assert_eq!(count, MAX_CONTAINERS);
        let text = fs::read_to_string(home.file("containers/at-db1+web127.demo.conf")).expect("there");
        let account = profile.account(Some("web127"));
        assert_eq!(
            text,
            format!("Match host db1+web127.demo\n    User {account}+web127\n    HostKeyAlias db1.demo\n")
        );
        for bad in [
            "db1",
            "db1+a\nUser root",
            "db1+*",
            "db1+a b",
            "db1+../x",
            "db1+a,b",
            "db1+%h",
        ] {
            assert!(!write_container(&home, &profile, bad).expect("refused"), "{bad}");
        }
        fs::remove_dir_all(place).expect("removed");
    }

    #[test]
    fn names_lose_the_clusters_own() {
        for (host, name) in [
            ("web1.demo", "web1"),
            ("web1", "web1"),
            ("a.b.demo", "a.b"),
            ("demo", "demo"),
            ("webdemo", "webdemo"),
            ("web1.demo.org", "web1.demo.org"),
        ] {
            assert_eq!(node(host, "demo"), name);
        }
    }
}
