//! What is wrong with this host, or will be missed, as seen by a node that would start now. It changes nothing and
//! starts nothing.

use super::listener::listener;
use fleetgate_base::own;
use fleetgate_node::config::cluster::{Cluster, removed_words, stale_words};
use fleetgate_node::config::{Config, ConfigError, PamUse};
use fleetgate_node::monitor::running_monitor;
use fleetgate_policy::cluster::STALE;
use fleetgate_sys::{clock, process};
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Good,
    /// It works, with less than there could be.
    Less,
    /// A node will not start, or lets nobody in.
    Wrong,
}

impl Grade {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Grade::Good => "good",
            Grade::Less => "less",
            Grade::Wrong => "wrong",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub what: &'static str,
    /// How bad.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing is to be done.
    pub remedy: String,
}

impl Finding {
    pub(super) fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            what,
            grade: Grade::Good,
            found: found.into(),
            remedy: String::new(),
        }
    }

    pub(super) fn less(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            grade: Grade::Less,
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn wrong(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            grade: Grade::Wrong,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

/// The oldest kernel that all of it was written for.
const KERNEL: (u32, u32) = (5, 10);
/// Where cgroup version 2 may be mounted.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Looks at everything that the configuration at `path` makes a node need.
pub(super) fn examine(path: &Path) -> Vec<Finding> {
    let mut findings = vec![root(), kernel(), clock_kept()];
    let config = match Config::load(path) {
        Ok(config) => {
            findings.push(Finding::good("configuration", described(path)));
            config
        }
        Err(e) => {
            findings.push(unusable(&e));
            return findings;
        }
    };
    let serves = path.exists() || process::effective_uid() == 0;
    let runs = running_monitor(&config.state_directory);
    let is_own = matches!(runs, Ok(Some(_)));
    findings.extend(config.listen.iter().map(|address| port(*address, serves, is_own)));
    let cluster = cluster(&config);
    // Only a node that has joined notes that it runs. Where this may not be read, nothing is said.
    if let (true, Ok(runs)) = (cluster.is_some(), runs) {
        findings.push(process_of(runs));
    }
    findings.push(account(&config.user));
    findings.extend(host_keys(&config));
    findings.push(way_in(&config, cluster.is_some()));
    let is_joined = cluster.is_some();
    findings.extend(cluster);
    findings.extend(own::unchanged(&config.state_directory).err().map(|why| {
        Finding::wrong(
            "state directory",
            why,
            "a node that may be told by others whom to believe does not start",
        )
    }));
    findings.push(pam(&config));
    findings.push(super::selinux::look(&config));
    findings.extend(super::recordings::look(&config, is_joined));
    findings.push(cgroups(&config));
    findings.extend(files(&config));
    findings
}

fn described(path: &Path) -> String {
    if path.exists() {
        path.display().to_string()
    } else {
        format!("{} is not there: the defaults", path.display())
    }
}

fn unusable(e: &ConfigError) -> Finding {
    Finding::wrong(
        "configuration",
        e.to_string(),
        "mend that file; `fleetgate node --check --config FILE` looks at one again",
    )
}

fn root() -> Finding {
    if process::effective_uid() == 0 {
        return Finding::good("privileges", "root");
    }
    Finding::less(
        "privileges",
        "not root: a node can serve its own user only, and this report cannot see everything",
        "run it as root, or start the node with --user-mode",
    )
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(version) if version >= KERNEL => Finding::good("kernel", release),
        _ => Finding::less(
            "kernel",
            format!("{release}: older than {}.{}", KERNEL.0, KERNEL.1),
            "what is missing is probed and done without where that is possible; a newer kernel is better",
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn clock_kept() -> Finding {
    match clock::is_synchronised() {
        Ok(true) => Finding::good("clock", "kept right"),
        Ok(false) => Finding::less(
            "clock",
            "nobody keeps it right: certificates are judged by it",
            "run chrony or systemd-timesyncd",
        ),
        Err(e) => Finding::less(
            "clock",
            format!("the kernel does not say whether it is kept right: {e}"),
            "",
        ),
    }
}

/// Whether the node runs.
fn process_of(runs: Option<u32>) -> Finding {
    const WHAT: &str = "node";
    match runs {
        Some(pid) => Finding::good(WHAT, format!("runs, pid {pid}")),
        None => Finding::less(
            WHAT,
            "does not run",
            "systemctl start fleetgate-node, or fleetgate up",
        ),
    }
}

/// `serves`: a node is configured here, or root asks. To anybody else a low port of the defaults is no concern. `is_own`: the
/// node of this configuration runs.
fn port(address: SocketAddr, serves: bool, is_own: bool) -> Finding {
    // Binding and letting go is the only way to know; nothing is accepted.
    match TcpListener::bind(address) {
        Ok(_) => Finding::good("listen", format!("{address} is free")),
        Err(e) if e.kind() == ErrorKind::AddrInUse && is_own => {
            Finding::good("listen", format!("{address} is taken while this node runs"))
        }
        Err(e) if e.kind() == ErrorKind::AddrInUse => port_taken(address, listener(address)),
        Err(e) if e.kind() == ErrorKind::PermissionDenied && !serves => Finding::less(
            "listen",
            format!("{address} is root's to take, and no node is configured here"),
            "nothing, where this machine is to be no node; else run it as root, or start the node with --user-mode",
        ),
        Err(e) => Finding::wrong("listen", format!("{address}: {e}"), "correct `listen`"),
    }
}

/// A port that is taken, by whom if that can be seen.
fn port_taken(address: SocketAddr, by: Option<(u32, String)>) -> Finding {
    const WHAT: &str = "listen";
    match by {
        // A node that has not joined notes nowhere that it runs.
        Some((pid, name)) if name.starts_with("fleetgate") => {
            Finding::good(WHAT, format!("{address} is taken by {name}, pid {pid}"))
        }
        Some((pid, name)) => Finding::less(
            WHAT,
            format!("{address} is taken by {name}, pid {pid}"),
            "stop it, or choose another port with `listen`",
        ),
        None => Finding::less(
            WHAT,
            format!("{address} is taken: by this node, if it runs alone, else by another server"),
            "run this as root to see by which; stop the other server, or choose another port with `listen`",
        ),
    }
}

fn account(name: &str) -> Finding {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let there = passwd.lines().any(|line| line.split(':').next() == Some(name));
    if there {
        return Finding::good("unprivileged user", name);
    }
    Finding::less(
        "unprivileged user",
        format!("{name} is not in /etc/passwd: lobby and fronts run as nobody"),
        format!("the packages make it; by hand: useradd --system --no-create-home {name}"),
    )
}

fn host_keys(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "host key";
    if config.host_keys.is_empty() {
        return vec![Finding::good(
            WHAT,
            "the machine's own in /etc/ssh, or made at the first start",
        )];
    }
    let look = |path: &PathBuf| match fs::metadata(path) {
        Err(e) => Finding::wrong(
            WHAT,
            format!("{}: {e}", path.display()),
            format!(
                "correct `host_keys`, or make it: ssh-keygen -t ed25519 -N '' -f {}",
                path.display()
            ),
        ),
        Ok(meta) if meta.mode() & 0o077 != 0 => Finding::wrong(
            WHAT,
            format!(
                "{}: others may read it (mode {:04o})",
                path.display(),
                meta.mode() & 0o7777
            ),
            format!("chmod 600 {}", path.display()),
        ),
        Ok(_) => Finding::good(WHAT, path.display().to_string()),
    };
    config.host_keys.iter().map(look).collect()
}

/// The cluster that the machine joined, if it did.
fn cluster(config: &Config) -> Option<Finding> {
    const WHAT: &str = "cluster";
    let now = u64::try_from(clock::wall().sec).unwrap_or(0);
    Some(match Cluster::load(config) {
        Ok(None) => return None,
        Ok(Some(cluster)) if cluster.is_removed(now) => Finding::wrong(
            WHAT,
            removed_words(cluster.node().as_str(), cluster.state().cluster.as_str()),
            "make a token with `fleetgate token add`, and join with it: fleetgate join",
        ),
        Ok(Some(cluster)) => {
            let (name, age) = (&cluster.state().cluster, cluster.age(now));
            let found = format!("{} in {name}, state {}", cluster.node(), cluster.state().serial);
            match age > STALE {
                false => Finding::good(WHAT, found),
                true => Finding::less(
                    WHAT,
                    format!("{found}: {}", stale_words(age)),
                    "see that the node runs and reaches a proxy; its log says which of them it does not reach",
                ),
            }
        }
        Err(why) if process::effective_uid() != 0 => Finding::less(WHAT, why, "run this as root"),
        Err(why) => Finding::wrong(WHAT, why, "join again: fleetgate join"),
    })
}

fn way_in(config: &Config, joined: bool) -> Finding {
    const WHAT: &str = "ways in";
    let mut ways = Vec::new();
    if joined {
        ways.push("certificates of the cluster");
    }
    if let Some(ca) = &config.trusted_user_ca {
        if let Err(e) = fs::metadata(ca) {
            return Finding::wrong(
                WHAT,
                format!("trusted_user_ca: {}: {e}", ca.display()),
                "correct its path",
            );
        }
        ways.push("certificates of the user CA");
    }
    if config.uses_authorized_keys(joined) {
        ways.push("authorized_keys");
    }
    if config.password {
        ways.push("passwords");
    }
    if config.keyboard_interactive {
        ways.push("keyboard-interactive");
    }
    if ways.is_empty() {
        return Finding::wrong(
            WHAT,
            "none: nobody can log in",
            "set `trusted_user_ca` or `authorized_keys = true`",
        );
    }
    Finding::good(WHAT, ways.join(", "))
}

fn pam(config: &Config) -> Finding {
    const WHAT: &str = "PAM";
    let file = Path::new("/etc/pam.d").join(&config.pam_service);
    let needed = config.password || config.keyboard_interactive;
    match (config.pam, file.exists()) {
        (PamUse::Off, _) if needed => Finding::wrong(
            WHAT,
            "off, but passwords and keyboard-interactive go through PAM only",
            "set `pam = \"auto\"`, or switch them off",
        ),
        (PamUse::Off, _) => Finding::good(WHAT, "off"),
        (_, true) => Finding::good(WHAT, file.display().to_string()),
        (PamUse::On, false) => Finding::wrong(
            WHAT,
            format!("on, but {} is not there: every login is refused", file.display()),
            "the packages install it; or set `pam = \"auto\"`",
        ),
        (PamUse::Auto, false) => Finding::less(
            WHAT,
            format!(
                "not used: {} is not there. Account and session modules have no say",
                file.display()
            ),
            "the packages install it; or set `pam = \"off\"` if that is meant",
        ),
    }
}

fn cgroups(config: &Config) -> Finding {
    const WHAT: &str = "cgroup per session";
    match CGROUPS
        .iter()
        .find(|dir| Path::new(dir).join("cgroup.controllers").exists())
    {
        Some(directory) => Finding::good(WHAT, format!("version 2 at {directory}")),
        None if config.kill_user_processes => Finding::wrong(
            WHAT,
            "cgroup version 2 is not mounted, and kill_user_processes needs it",
            "boot with systemd.unified_cgroup_hierarchy=1, or switch it off",
        ),
        None => Finding::less(
            WHAT,
            "cgroup version 2 is not mounted: what a session used is known less well",
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
    }
}

fn files(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = [
        ("revoked_keys", config.revoked_keys.as_ref()),
        ("banner", config.banner.as_ref()),
        ("xauth", config.x11_forwarding.then_some(&config.xauth)),
    ];
    for (what, path) in named {
        let Some(path) = path else { continue };
        findings.push(match fs::metadata(path) {
            Ok(_) => Finding::good(what, path.display().to_string()),
            Err(e) => Finding::wrong(
                what,
                format!("{}: {e}", path.display()),
                format!("correct `{what}`"),
            ),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Config {
        Config::parse(Path::new("node.toml"), text).expect(text)
    }

    /// A port that this process may not take: below 1024 without the capability. Where it may, nothing is refused.
    #[test]
    fn a_port_that_only_root_may_take_is_wrong_where_a_node_is_meant() {
        let low = SocketAddr::from(([127, 0, 0, 1], 1));
        match TcpListener::bind(low).map_err(|e| e.kind()) {
            Err(ErrorKind::PermissionDenied) => {
                assert_eq!(port(low, false, false).grade, Grade::Less);
                assert_eq!(port(low, true, false).grade, Grade::Wrong);
            }
            _ => assert_ne!(port(low, false, false).grade, Grade::Wrong),
        }
        // The node's own port is no fault while it runs.
        let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("an address");
        assert_eq!(port(address, true, true).grade, Grade::Good);
        let by = |name: &str| port_taken(address, Some((7, name.to_owned())));
        assert_eq!(by("fleetgate").grade, Grade::Good);
        assert_eq!(by("sshd").grade, Grade::Less);
        assert!(by("sshd").found.ends_with("is taken by sshd, pid 7"));
        assert_eq!(port_taken(address, None).grade, Grade::Less);
        // An address that is not this machine's is wrong for anybody.
        let foreign = SocketAddr::from(([192, 0, 2, 1], 0));
        assert_eq!(port(foreign, false, false).grade, Grade::Wrong);
    }

    #[test]
    fn kernels_are_told_apart() {
        for (release, found) in [
            ("6.18.5-cloud", Some((6, 18))),
            ("5.10", Some((5, 10))),
            ("", None),
        ] {
            assert_eq!(version(release), found, "{release}");
        }
    }

    #[test]
    fn what_keeps_everybody_out_is_wrong_and_says_what_to_do() {
        let grade = |finding: Finding| {
            assert_eq!(
                finding.grade == Grade::Good,
                finding.remedy.is_empty(),
                "{finding:?}"
            );
            finding.grade
        };
        for (text, expected) in [
            ("", Grade::Good),
            ("authorized_keys = false", Grade::Wrong),
            (
                "authorized_keys = false\nkeyboard_interactive = true",
                Grade::Good,
            ),
            ("trusted_user_ca = \"/no/such/file\"", Grade::Wrong),
        ] {
            assert_eq!(grade(way_in(&with(text), false)), expected, "{text}");
        }
        for (text, expected) in [
            ("pam = \"off\"", Grade::Good),
            ("pam = \"off\"\npassword = true", Grade::Wrong),
            ("pam = \"on\"\npam_service = \"no-such-service\"", Grade::Wrong),
            ("pam_service = \"no-such-service\"", Grade::Less),
        ] {
            assert_eq!(grade(pam(&with(text))), expected, "{text}");
        }
        let missing = host_keys(&with("host_keys = [\"/no/such/key\"]")).remove(0);
        assert_eq!(grade(missing), Grade::Wrong);
        let open = host_keys(&with("host_keys = [\"/etc/passwd\"]")).remove(0);
        assert!(open.found.contains("others may read"), "{open:?}");
    }
}
