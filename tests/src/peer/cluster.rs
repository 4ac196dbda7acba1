//! A cluster in a world: auth and proxy on this machine, a user who is logged in, and the token with which the server
//! under test joins. What is typed here is what an administrator and a user type.

use super::world::DIR;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Where the proxy is.
pub const PROXY: &str = "127.0.0.1:3080";
/// Where the node's files are.
pub const NODE_STATE: &str = "/run/test/node";
/// The name under which it joins.
pub const NODE_NAME: &str = "gate";
/// Where the user's login is.
pub const HOME: &str = "/run/home/root/.fleetgate";

/// Makes the cluster and its people; `up` runs it.
const MAKE: &str = r#"set -eu
cd /run/test
"$F" init --state cluster --name test --listen 127.0.0.1:3080 --public 127.0.0.1:3080
sed -i '/^\[node/,$d' cluster/fleetgate.toml
"#;

/// Once it runs.
const PEOPLE: &str = r#"set -eu
cd /run/test
cat > role.toml <<'EOF'
[role.everything]
nodes = ["*"]
logins = ["ada", "bea", "root"]
kinds = ["all"]
EOF
"$F" role apply --state cluster -f role.toml
"$F" user add --state cluster ada --role everything > invite
"$F" token add --state cluster > token
echo 'a long password of ada' > password
"$F" login --proxy 127.0.0.1:3080 --invite-file invite --password-file password --authenticator totp --no-agent
"#;

/// The server under test joins.
const JOIN: &str = r#"set -eu
cd /run/test
"$F" join --proxy 127.0.0.1:3080 --token-file token --name gate --state node
"#;

/// A running cluster.
pub struct Cluster {
    up: Child,
}

impl Cluster {
    /// Makes one and starts it; the node has joined and is not started.
    pub fn start() -> Cluster {
        script(MAKE);
        let log = std::fs::File::create(format!("{DIR}/cluster.log")).expect("create");
        let mut up = super::server::confined()
            .arg(crate::fleetgate())
            .args(["up", "--state", "/run/test/cluster"])
            .env("HOME", "/run/home/root")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(log)
            .spawn()
            .expect("unshare");
        crate::world::wait_until("the cluster is up", || {
            assert!(up.try_wait().expect("ours").is_none(), "{}", Cluster::said());
            std::net::TcpStream::connect(PROXY).is_ok()
        });
        script(PEOPLE);
        script(JOIN);
        Cluster { up }
    }

    /// What it logged.
    pub fn said() -> String {
        std::fs::read_to_string(format!("{DIR}/cluster.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the cluster's log:\n{}", Cluster::said());
        }
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

/// Runs a script with the program as `$F`; it has to succeed.
pub fn script(text: &str) {
    let done = Command::new("bash")
        .args(["-c", text])
        .env("F", crate::fleetgate())
        .env("HOME", "/run/home/root")
        .env_remove("SSH_AUTH_SOCK")
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let said = String::from_utf8_lossy(&done.stderr);
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{text}\n{printed}\n{said}\n{}",
        Cluster::said()
    );
}

/// A port on which every connection is carried by a program of its own, on its standard input and output: what a
/// ProxyCommand is to ssh, for clients that know no such thing.
pub struct Bridge {
    over: Arc<AtomicBool>,
    address: (&'static str, u16),
    children: Arc<Mutex<Vec<Child>>>,
}

impl Bridge {
    /// Listens; `command` is run for each connection.
    pub fn listen(address: (&'static str, u16), command: Vec<String>) -> Bridge {
        let listener = TcpListener::bind(address).expect("bound");
        let over = Arc::new(AtomicBool::new(false));
        let children = Arc::new(Mutex::new(Vec::new()));
        let (ends, running) = (over.clone(), children.clone());
        let log = PathBuf::from(format!("{DIR}/bridge.log"));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let said = std::fs::File::options().create(true).append(true).open(&log);
                let input = OwnedFd::from(stream.try_clone().expect("dup"));
                let child = Command::new(&command[0])
                    .args(&command[1..])
                    .env("HOME", "/run/home/root")
                    .env_remove("SSH_AUTH_SOCK")
                    .stdin(Stdio::from(input))
                    .stdout(Stdio::from(OwnedFd::from(stream)))
                    .stderr(said.expect("a log"))
                    .spawn()
                    .expect("spawned");
                let mut children: std::sync::MutexGuard<'_, Vec<Child>> =
                    running.lock().expect("no panic holds it");
                children.retain_mut(|c| matches!(c.try_wait(), Ok(None)));
                children.push(child);
            }
        });
        Bridge {
            over,
            address,
            children,
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(self.address);
        for child in self.children.lock().expect("no panic holds it").iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
