//! The servers: Debian's sshd and the node, each on the world's one port, with the same keys, accounts and rules.
//!
//! A server runs in a process namespace of its own whose first process dies with the test, so that nothing of it
//! outlives a test that fails: neither its parts nor the sessions it started.

use super::world::{DIR, World};
use super::{PORT, rows};
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
}

/// A server that listens.
pub struct Server {
    /// Which one it is.
    pub subject: Subject,
    /// Its world.
    pub world: World,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

/// The subjects of this run, each with the number of rows of a table that it is asked: all of them the node, and the
/// first one Debian's sshd, so that a broken world shows as such. `FLEETGATE_INTEROP` (`sshd`, `node`, `both`) asks
/// those all of them.
pub fn subjects() -> Vec<(Subject, usize)> {
    let all = usize::MAX;
    match std::env::var("FLEETGATE_INTEROP").as_deref() {
        Ok("sshd") => vec![(Subject::Sshd, all)],
        Ok("node") => vec![(Subject::Node, all)],
        Ok("both") => vec![(Subject::Sshd, all), (Subject::Node, all)],
        Err(_) => vec![(Subject::Sshd, 1), (Subject::Node, all)],
        Ok(other) => panic!("FLEETGATE_INTEROP={other}: it takes sshd, node or both"),
    }
}

/// What sshd is told. The algorithms are its own defaults.
const SSHD: &str = "ListenAddress 127.0.0.1:2222
HostKey /run/test/host_ed25519
HostKey /run/test/host_ecdsa256
HostKey /run/test/host_rsa
TrustedUserCAKeys /run/test/user_ca.pub
AuthorizedKeysFile .ssh/authorized_keys
Subsystem sftp /usr/lib/openssh/sftp-server
AcceptEnv LANG LC_*
UsePAM yes
KbdInteractiveAuthentication yes
PermitRootLogin yes
X11Forwarding yes
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
const NODE: &str = "listen = [\"127.0.0.1:2222\"]
host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]
authorized_keys = true
trusted_user_ca = \"/run/test/user_ca.pub\"
password = true
keyboard_interactive = true
root_login = \"yes\"
x11_forwarding = true
gateway_ports = true
";

impl Server {
    /// Starts it in a fresh world and waits until it listens.
    pub fn start(subject: Subject) -> Server {
        let world = World::new();
        let mut server = Command::new("unshare");
        // The shell is the first process: it reaps orphans, which neither server expects to be its own.
        server
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
            .arg("\"$@\" & wait $!")
            .arg("server");
        let ready = match subject {
            Subject::Sshd => {
                let config = format!("{DIR}/sshd_config");
                std::fs::write(&config, format!("{SSHD}{SSHD_CERTIFICATES}")).expect("write");
                server.args(["/usr/sbin/sshd", "-D", "-e", "-f", &config]);
                "Server listening on"
            }
            Subject::Node => {
                let config = format!("{DIR}/node.toml");
                std::fs::write(&config, NODE).expect("write");
                server.arg(crate::fleetgate()).args(["node", "--config", &config]);
                "listening"
            }
        };
        let mut child = server
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
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

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
