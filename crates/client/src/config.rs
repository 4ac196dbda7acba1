//! What plain ssh is told: through which command to reach a node, with which key, whom to believe. Text and nothing else.

use crate::profile::{Home, Profile};
use std::path::Path;

/// How long ssh keeps a connection after its last session.
const PERSIST: &str = "10m";

/// After how many silent seconds ssh asks whether the node is there: many firewalls forget a connection that was silent for
/// five minutes.
const ALIVE: u32 = 60;

/// The ssh_config for these hosts, by default those below the cluster's name. `fleetgate` is this program's path.
#[must_use]
pub fn ssh_config(home: &Home, profile: &Profile, fleetgate: &Path, hosts: &[&str]) -> String {
    let file = |name: &str| quoted(&home.file(name).to_string_lossy());
    let own = format!("*.{}", profile.cluster);
    let mut patterns = vec![own.as_str()];
    patterns.extend(hosts);
    format!(
        "# The nodes of the cluster {cluster}, for plain ssh. Written by `fleetgate config ssh`.\n\
         Host {patterns}\n    \
             ProxyCommand {program} proxy-command --home {home_path} --login %r %h %p\n    \
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
        cluster = profile.cluster,
        patterns = patterns.join(" "),
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
            "Host *.demo web*",
            "ProxyCommand '/usr/bin/fleetgate' proxy-command --home '/home/a b/100%%/.fleetgate' --login %r %h %p",
            "IdentityFile \"/home/a b/100%%/.fleetgate/id\"",
            "ControlPath \"/home/a b/100%%/.fleetgate/mux/%C\"",
            "StrictHostKeyChecking yes",
            "ServerAliveInterval 60",
        ] {
            assert!(text.lines().any(|l| l.trim() == line), "{line}\n{text}");
        }
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
