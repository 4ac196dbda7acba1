//! A cluster of ours in a lab: authorities and proxy in the place `proxy`, a node in `target`, and in `user` somebody who
//! has logged in. It is made by what people type, which stands here and nowhere else.
//!
//! All state is in each place's own /run. A directory of the caller's has the logs, and what people hand to each other.

use crate::{Error, Lab, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the proxy listens, in its place.
const PORT: u16 = 3080;
/// Where the user's login is, in his place; it is also his home.
const HOME: &str = "/run/fleet";
/// How long the node may take until a session can be opened on it.
const SERVES_WITHIN: Duration = Duration::from_secs(30);

/// Before anything starts in a place: login records are its own.
const PREPARE: &str = r#"
mkdir -p -m 700 /run/fleet
mount -t tmpfs -o mode=755 none /var/log
touch /var/log/wtmp /var/log/lastlog
if [ -d /var/lib/wtmpdb ]; then mount -t tmpfs -o mode=755 none /var/lib/wtmpdb; fi
"#;
/// In proxy.
const INIT: &str = r#"
"$F" init --state /run/fleet --name lab --listen 0.0.0.0:3080 --public proxy:3080 --no-node
"#;
/// In proxy, once the services run. Root, since every machine has that account.
const PEOPLE: &str = r#"
printf '[role.lab]\nnodes = ["*"]\nlogins = ["root"]\n' > "$D/role.toml"
"$F" role apply --state /run/fleet -f "$D/role.toml"
umask 077
"$F" user add --state /run/fleet ada --role lab > "$D/invite"
"$F" token add --state /run/fleet > "$D/token"
"#;
/// In target.
const JOIN: &str = r#"
"$F" join --state /run/fleet --proxy proxy:3080 --token-file "$D/token" --name target
"#;
/// In user.
const LOGIN: &str = r#"
echo correct horse battery staple > /run/fleet/password
"$F" login --proxy proxy:3080 --invite-file "$D/invite" --password-file /run/fleet/password \
    --authenticator /run/fleet/authenticator --no-agent
"$F" config ssh --write
"#;

/// A running cluster. Its processes are the lab's.
pub struct Fleet {
    fleetgate: PathBuf,
    directory: PathBuf,
}

impl Fleet {
    /// Starts it with the program `fleetgate`. Set the links' times afterwards: it goes faster.
    pub fn start(lab: &Lab, fleetgate: &Path, directory: &Path) -> Result<Fleet> {
        let fleet = Fleet {
            fleetgate: fleetgate.to_owned(),
            directory: directory.to_owned(),
        };
        let type_in = |place, script| fleet.type_in(lab, place, script);
        let serve = |place, log: &str| {
            let mut up = fleet.command(&["up", "--state", HOME]);
            lab.serve(place, &mut up, &directory.join(log))
        };
        for place in ["proxy", "target", "user"] {
            type_in(place, PREPARE)?;
        }
        type_in("proxy", INIT)?;
        let cluster = serve("proxy", "cluster.log")?;
        lab.wait_until_it_accepts("proxy", &cluster, PORT)?;
        type_in("proxy", PEOPLE)?;
        type_in("target", JOIN)?;
        let node = serve("target", "node.log")?;
        type_in("user", LOGIN)?;
        let until = Instant::now() + SERVES_WITHIN;
        while let Err(e) = type_in("user", "\"$F\" ssh root@target true") {
            if !matches!(node.has_ended(), Ok(None)) || Instant::now() > until {
                return Err(e);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(fleet)
    }

    /// A command of `fleetgate`, for any of the places.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.fleetgate);
        self.environment(&mut command).args(words);
        command
    }

    /// `fleetgate ssh target true`, for the place `user`.
    pub fn ssh(&self) -> Command {
        self.command(&["ssh", "-o", "ControlPersist=no", "root@target", "true"])
    }

    /// The same by the master, over the SSH connection that it keeps from the first time on.
    pub fn ssh_kept(&self) -> Command {
        self.command(&["ssh", "root@target", "true"])
    }

    /// The same with an SSH connection of its own, over the connection to the proxy that was kept.
    pub fn ssh_lent(&self) -> Command {
        self.command(&["ssh", "-v", "root@target", "true"])
    }

    /// The same with OpenSSH's client as `fleetgate config ssh` tells it: through the proxy, over a connection that it
    /// keeps from the first time on.
    pub fn openssh(&self) -> Command {
        let mut command = Command::new("ssh");
        let config = format!("{HOME}/.fleetgate/ssh_config");
        self.environment(&mut command).args([
            "-F",
            &config,
            "-o",
            "BatchMode=yes",
            "root@target.lab",
            "true",
        ]);
        command
    }

    /// Runs a script in `place`; what it wrote is in the error.
    fn type_in(&self, lab: &Lab, place: &str, script: &str) -> Result<()> {
        let failed = |why: String| {
            let logs = self.directory.display();
            Error::new(format!("in {place}, with logs in {logs}, {}", script.trim()), why)
        };
        let mut shell = Command::new("sh");
        self.environment(&mut shell).args(["-ec", script]);
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let out = lab.start_in(place, &mut shell)?.output();
        let out = out.map_err(|e| failed(e.to_string()))?;
        match out.status.success() {
            true => Ok(()),
            false => Err(failed(format!(
                "{}: {}",
                out.status,
                String::from_utf8_lossy(&out.stderr).trim()
            ))),
        }
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let names = ["SSH_AUTH_SOCK", "FLEETGATE_HOME", "XDG_STATE_HOME"];
        names.into_iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .env("F", &self.fleetgate)
            .env("D", &self.directory)
            .env("HOME", HOME)
    }
}
