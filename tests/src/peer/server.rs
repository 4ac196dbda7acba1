//! The servers: Debian's sshd and the node, each on the world's one port, with the same keys, accounts and rules.
//!
//! A server runs in a process namespace of its own whose first process dies with the test, so that nothing of it
//! outlives a test that fails: neither its parts nor the sessions it started.

use super::bridge::Bridge;
use super::world::{DIR, World};
use super::{PORT, rows};
use crate::cluster::{self, Cluster};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Debian's own.
    Sshd,
    /// `fleetgate node`.
    Node,
    /// A node without a port of its own, through the proxy by `ssh -W`, which is what `ssh -J` runs.
    Jump,
    /// The same by `fleetgate proxy-command`.
    ProxyCommand,
}

impl Subject {
    /// Whether the node under test is reached through a proxy.
    pub fn through_proxy(self) -> bool {
        matches!(self, Subject::Jump | Subject::ProxyCommand)
    }
}

/// A server that listens.
pub struct Server {
    /// Which one it is.
    pub subject: Subject,
    /// Its world.
    pub world: World,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// The way to it; ends before the server does.
    _bridge: Option<Bridge>,
    _cluster: Option<Cluster>,
}

/// The subjects of this run, each with the number of rows of a table that it is asked: all of them the node, directly
/// and by each way through the proxy, and the first one Debian's sshd, so that a broken world shows as such. The plain
/// build is asked directly alone. `FLEETGATE_INTEROP` (`sshd`, `node`, `jump`, `proxy-command`) asks one all of them, `both`
/// asks sshd and the node.
pub fn subjects() -> Vec<(Subject, usize)> {
    let all = usize::MAX;
    let plain = std::env::var("FLEETGATE_SUBJECT").is_ok_and(|s| s == "plain");
    match std::env::var("FLEETGATE_INTEROP").as_deref() {
        Ok("sshd") => vec![(Subject::Sshd, all)],
        Ok("node") => vec![(Subject::Node, all)],
        Ok("both") => vec![(Subject::Sshd, all), (Subject::Node, all)],
        Ok("jump") => vec![(Subject::Jump, all)],
        Ok("proxy-command") => vec![(Subject::ProxyCommand, all)],
        Err(_) if plain => vec![(Subject::Sshd, 1), (Subject::Node, all)],
        Err(_) => vec![
            (Subject::Sshd, 1),
            (Subject::Node, all),
            (Subject::Jump, all),
            (Subject::ProxyCommand, all),
        ],
        Ok(other) => panic!("FLEETGATE_INTEROP={other}: it takes both, sshd, node, jump or proxy-command"),
    }
}

/// What sshd is told. The algorithms are its own defaults.
const SSHD: &str = "HostKey /run/test/host_ed25519
HostKey /run/test/host_ecdsa256
HostKey /run/test/host_rsa
TrustedUserCAKeys /run/test/user_ca.pub
AuthorizedKeysFile .ssh/authorized_keys
KbdInteractiveAuthentication yes
X11Forwarding yes
";

/// What any sshd is told that rows are run against; behind everything else, since the first word on a matter counts.
pub const SSHD_BESIDE: &str = "ListenAddress 127.0.0.1:2222
Subsystem sftp /usr/lib/openssh/sftp-server
AcceptEnv LANG LC_*
UsePAM yes
PermitRootLogin yes
GatewayPorts clientspecified
MaxStartups 100
MaxSessions 100
UseDNS no
PrintMotd no
PidFile none
LogLevel VERBOSE
";

/// Host certificates, left out where a row wants plain keys to be learnt.
const SSHD_CERTIFICATES: &str = "HostCertificate /run/test/host_ed25519-cert.pub
HostCertificate /run/test/host_ecdsa256-cert.pub
HostCertificate /run/test/host_rsa-cert.pub
";

/// What the node is told.
const NODE: &str =
    "host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]
authorized_keys = true
trusted_user_ca = \"/run/test/user_ca.pub\"
password = true
keyboard_interactive = true
root_login = \"yes\"
x11_forwarding = true
gateway_ports = true
[strangers]
penalties = false
lines = 100000
";

/// How the node is reached directly.
const DIRECT: &str = "listen = [\"127.0.0.1:2222\"]\n";

/// How it is reached through the proxy alone.
const JOINED: &str = "listen = []\nstate_directory = \"/run/test/node\"\n";

/// It joins by the configuration that it is started with.
const JOIN: &str = r#""$F" token add --state cluster > token
"$F" join --proxy 127.0.0.1:3080 --token-file token --name gate --state node
"#;

/// A command in a process namespace of its own, which ends with it. The shell is the first process there: it reaps
/// orphans, which no server expects to be its own.
pub fn confined() -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
        .arg("\"$@\" & wait $!")
        .arg("server")
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
    command
}

impl Server {
    /// Starts it in a fresh world and waits until it listens.
    pub fn start(subject: Subject) -> Server {
        let world = World::new();
        let mut server = confined();
        let config = format!("{DIR}/node/fleetgate.toml");
        std::fs::create_dir_all(format!("{DIR}/node")).expect("mkdir");
        let reached = if subject.through_proxy() { JOINED } else { DIRECT };
        std::fs::write(&config, format!("{reached}{NODE}")).expect("write");
        let cluster = subject.through_proxy().then(|| {
            let cluster = Cluster::inside(&world);
            cluster.script(JOIN);
            cluster
        });
        let ready = match subject {
            Subject::Sshd => {
                let config = format!("{DIR}/sshd_config");
                std::fs::write(&config, format!("{SSHD}{SSHD_CERTIFICATES}{SSHD_BESIDE}")).expect("write");
                server.args(["/usr/sbin/sshd", "-D", "-e", "-f", &config]);
                "Server listening on"
            }
            Subject::Node => {
                server.arg(crate::fleetgate()).args(["node", "--config", &config]);
                "listening"
            }
            Subject::Jump | Subject::ProxyCommand => {
                server.arg(crate::fleetgate()).args(["node", "--config", &config]);
                "connected to a proxy"
            }
        };
        let mut child = server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare: install util-linux");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (told, heard) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        let kept = log.clone();
        std::thread::spawn(move || {
            let mut told = Some(told);
            for line in lines.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.contains(ready)
                    && let Some(told) = told.take()
                {
                    let _ = told.send(());
                }
                kept.lock().expect("no panic holds it").push(line);
            }
        });
        let server = Server {
            subject,
            world,
            child,
            log,
            _bridge: bridge(subject),
            _cluster: cluster,
        };
        let listens = heard.recv_timeout(rows::PATIENCE).is_ok();
        assert!(listens, "{subject:?} does not listen:\n{}", server.log(200));
        server
    }

    /// Its address, as clients are told.
    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", PORT)
    }

    /// The last lines it has logged.
    pub fn log(&self, lines: usize) -> String {
        let log = self.log.lock().expect("no panic holds it");
        log[log.len().saturating_sub(lines)..].join("\n")
    }

    /// How many lines it has logged.
    pub fn logged(&self) -> usize {
        self.log.lock().expect("no panic holds it").len()
    }
}

/// The world's one port, where the node has none of its own.
fn bridge(subject: Subject) -> Option<Bridge> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let command = match subject {
        Subject::Sshd | Subject::Node => return None,
        Subject::Jump => {
            let known = format!("UserKnownHostsFile={}/known_hosts", cluster::HOME);
            let key = format!("{}/id", cluster::HOME);
            words(&[
                "ssh",
                "-F",
                "/dev/null",
                "-i",
                &key,
                "-o",
                &known,
                "-o",
                "BatchMode=yes",
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                "StrictHostKeyChecking=yes",
                "-o",
                "LogLevel=ERROR",
                "-p",
                "3080",
                "-W",
                "gate:22",
                "ada@127.0.0.1",
            ])
        }
        Subject::ProxyCommand => {
            let program = crate::fleetgate();
            words(&[&program.to_string_lossy(), "proxy-command", cluster::NODE, "22"])
        }
    };
    Some(Bridge::listen(("127.0.0.1", PORT), command))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
