//! A cluster and a machine beside it that has a plain sshd: Debian's, which lets in by certificates of the cluster's user
//! authority and by nothing else. It was registered by what docs/cluster.md tells an administrator to type.

use crate::cluster::Cluster;
use crate::peer::{DIR, SSHD_BESIDE, confined};
use crate::world::wait_until;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Where it listens.
const ADDRESS: &str = "127.0.0.1:2222";
/// The page, and where its part about such machines begins.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster.md");
const PART: &str = "## Machines without fleetgate\n";
/// Longer than this only a hang takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What every sshd is told beside the page's lines: nothing but a certificate lets in.
const SSHD: &str = "AuthorizedKeysFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
";

/// The host keys that it has otherwise than the registered one.
pub const HOST_KEYS: &str = "HostKey /run/test/host_ecdsa256
HostKey /run/test/host_rsa
";
/// The registered one.
pub const REGISTERED: &str = "HostKey /run/test/ssh_host_ed25519_key
";

/// A way through the proxy: its name, and what makes `W` the client, `C` the file client and `P` the copier.
pub struct Way {
    /// Its name.
    pub name: &'static str,
    /// Bash.
    pub words: &'static str,
}

/// All of them.
pub const WAYS: [Way; 3] = [
    Way {
        name: "fleetgate ssh",
        words: r#"W=("$F" ssh --no-master); C=("$F" sftp); P=("$F" scp)"#,
    },
    Way {
        name: "ProxyCommand",
        words: r#"o=(-F "$H.config" -o IdentityAgent=SSH_AUTH_SOCK -o "ProxyCommand=$F proxy-command --home $H --login %r %h %p")
            W=(ssh "${o[@]}"); C=(sftp -q "${o[@]}"); P=(scp -q "${o[@]}")"#,
    },
    Way {
        name: "ssh -J",
        words: r#"o=(-F "$H.config" -o IdentityAgent=SSH_AUTH_SOCK -J ada@127.0.0.1:3080)
            W=(ssh "${o[@]}"); C=(sftp -q "${o[@]}"); P=(scp -q "${o[@]}")"#,
    },
];

/// One more, by which all commands of a row share a connection.
pub const BY_MASTER: Way = Way {
    name: "fleetgate ssh by the master",
    words: r#"W=("$F" ssh); C=("$F" sftp); P=("$F" scp)"#,
};

/// Behind a way's words: `w` is ada at the machine.
pub const WORDS: &str = r#"
w() { "${W[@]}" "$@"; }
"#;

/// The cluster and the sshd.
pub struct Machine {
    /// The cluster: the sshd is its node `db1`.
    pub cluster: Cluster,
    sshd: Option<Child>,
    log: Arc<Mutex<Vec<String>>>,
}

/// The indented lines of the page's part, in their order.
pub fn typed() -> Vec<String> {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let (_, part) = page.split_once(PART).expect("the part");
    let part = part.split("\n## ").next().unwrap_or_default();
    let lines = part.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

impl Machine {
    /// A cluster, and the machine: its sshd runs, is registered, and ada has come in there.
    pub fn registered() -> Machine {
        let machine = Machine::unregistered();
        machine.page("fleetgate node register");
        wait_until("the machine is reached through the proxy", || {
            machine
                .cluster
                .attempt(r#""$F" ssh --home home ada@db1 true"#)
                .is_ok()
        });
        machine
    }

    /// The same before it is registered.
    pub fn unregistered() -> Machine {
        let mut machine = Machine {
            cluster: Cluster::new(),
            sshd: None,
            log: Arc::default(),
        };
        machine.cluster.script(
            "echo 127.0.0.1 db1.example >> /etc/hosts
             cp host_ed25519 ssh_host_ed25519_key; cp host_ed25519.pub ssh_host_ed25519_key.pub",
        );
        machine.page("fleetgate ca show");
        machine.start(REGISTERED);
        machine
    }

    /// Types the page's lines that begin so, with another port than 22, which is not for tests; what they printed.
    pub fn page(&self, begin: &str) -> String {
        let lines: Vec<String> = typed().into_iter().filter(|l| l.starts_with(begin)).collect();
        assert!(!lines.is_empty(), "docs/cluster.md has no line {begin:?}");
        let lines = lines.join("\n").replace(":22 ", ":2222 ");
        self.cluster.script(&format!(
            "fleetgate() {{ \"$F\" \"$@\" --state cluster; }}\n{lines}"
        ))
    }

    /// Starts its sshd, with the page's lines for it and these.
    pub fn start(&mut self, lines: &str) {
        self.stop();
        let page: String = typed()
            .iter()
            .filter(|l| l.starts_with("TrustedUserCAKeys"))
            .map(|l| format!("{l}\n"))
            .collect();
        assert!(!page.is_empty(), "docs/cluster.md tells sshd nothing");
        let config = format!("{DIR}/sshd_config");
        // The first word on a matter counts.
        std::fs::write(&config, format!("{lines}{page}{SSHD}{SSHD_BESIDE}")).expect("write");
        let mut child = confined()
            .args(["/usr/sbin/sshd", "-D", "-e", "-f", &config])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare: install util-linux");
        let (told, heard) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().expect("piped")).split(b'\n');
        let kept = self.log.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.contains("Server listening on") {
                    let _ = told.send(());
                }
                kept.lock().expect("no panic holds it").push(line);
            }
        });
        self.sshd = Some(child);
        let listens = heard.recv_timeout(PATIENCE).is_ok();
        assert!(listens, "sshd does not listen:\n{}", self.log().join("\n"));
    }

    /// Ends its sshd, and the sessions on it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.sshd.take() {
            let _ = child.kill();
            let _ = child.wait();
            // The last of its namespace's processes goes a moment after the first.
            wait_until("nobody listens there", || TcpStream::connect(ADDRESS).is_err());
        }
    }

    /// What the sshd has logged.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic holds it").clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}
