//! The demo's last part: a node of the user's own on a free port of loopback, and plain `ssh` through it. Keys,
//! configuration and log live in a directory that goes at the end, as the node does.

use super::{Costs, Result};
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long the node may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Logs in, and adds what it cost.
pub fn run(costs: &mut Costs) -> Result<()> {
    if Command::new("ssh")
        .arg("-V")
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        println!(
            "There is no `ssh` on this machine to log in with: install openssh-client to see this part."
        );
        return Ok(());
    }
    let place = Place::make()?;
    let user_key = place.key("user")?;
    fs::write(place.path("authorized_keys"), &user_key)?;
    let host_key = place.key("host")?;
    fs::write(place.path("node.toml"), configuration(&place))?;
    let node = costs.time("a node of your own, until it listens (once)", || {
        Node::start(&place)
    })?;
    let (ip, port) = (node.address.ip(), node.address.port());
    fs::write(place.path("known_hosts"), format!("[{ip}]:{port} {host_key}\n"))?;

    let shown = "echo \"hello from $(id -un), through SSH from $SSH_CONNECTION\"";
    println!("$ ssh -p {port} {ip} '{shown}'");
    let output = costs.time("plain ssh: connect, log in, run it, end", || {
        place.ssh(node.address).arg(shown).output()
    })?;
    if !output.status.success() {
        let (ssh, log) = (String::from_utf8_lossy(&output.stderr), node.log());
        return Err(format!("ssh ended with {}: {ssh}\nthe node's log:\n{log}", output.status).into());
    }
    print!("{}", String::from_utf8_lossy(&output.stdout));
    for step in ["the same again", "and again"] {
        costs.time(&format!("{step}, `true`"), || {
            place.ssh(node.address).arg("true").status()
        })?;
    }
    Ok(())
}

fn configuration(place: &Place) -> String {
    let path = |name| place.path(name).display().to_string();
    format!(
        "host_keys = [{:?}]\nauthorized_keys = true\nauthorized_keys_files = [{:?}]\nstrict_modes = false\n\
         pam = \"off\"\nroot_login = \"yes\"\nstate_directory = {:?}\nruntime_directory = {:?}\naudit_log = {:?}\n",
        path("host"),
        path("authorized_keys"),
        path("state"),
        path("run"),
        path("audit.jsonl"),
    )
}

/// A private directory.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Place> {
        let [name, _] = fleetgate_sys::exe::random();
        let path = std::env::temp_dir().join(format!("fleetgate-demo-{name:016x}"));
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Place(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new private key in a file; its public line.
    fn key(&self, name: &str) -> Result<String> {
        let (key, text) = PrivateKey::generate(KeyType::Ed25519, "fleetgate-demo")?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(name))?;
        file.write_all(text.as_bytes())?;
        Ok(key.public().line())
    }

    /// The stock client, with nothing of the user's own configuration.
    fn ssh(&self, address: SocketAddr) -> Command {
        let mut ssh = Command::new("ssh");
        let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        ssh.args([
            "-F",
            "/dev/null",
            "-oBatchMode=yes",
            "-oIdentitiesOnly=yes",
            "-oStrictHostKeyChecking=yes",
        ])
        .arg(option("IdentityFile", &self.path("user")))
        .arg(option("UserKnownHostsFile", &self.path("known_hosts")))
        .arg("-p")
        .arg(address.port().to_string())
        .arg(address.ip().to_string())
        .stdin(Stdio::null());
        ssh
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A node, ended when dropped.
struct Node {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Node {
    fn start(place: &Place) -> Result<Node> {
        let log = place.path("log");
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "--log-format",
                "json",
                "node",
                "--user-mode",
                "--listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(place.path("node.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stderr.take().ok_or("no pipe for the node's log")?);
        let mut copy = File::create(&log)?;
        let (told, ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(std::result::Result::ok) {
                let _ = writeln!(copy, "{line}");
                let _ = told.send(line);
            }
        });
        let mut node = Node {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
        };
        loop {
            let Ok(line) = ready.recv_timeout(PATIENCE) else {
                return Err(format!("the node does not come up; its log:\n{}", node.log()).into());
            };
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "listening" {
                node.address = event["address"].as_str().unwrap_or_default().parse()?;
            }
            if event["message"] == "ready" {
                return Ok(node);
            }
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // As Ctrl-C does: the node ends with all its connections.
        if let Ok(pidfd) = fleetgate_sys::process::pidfd_open(self.child.id().cast_signed()) {
            let _ = fleetgate_sys::process::signal(&pidfd, fleetgate_sys::signals::INT);
        }
        let _ = self.child.wait();
    }
}
