//! Where it is measured: a lab with the places user, proxy and target, OpenSSH's server in two of them, and keys. All
//! files are in target/bench/regions, all processes end with the lab.

use crate::bench::{Bench, rival};
use crate::shell::{Result, run, target};
use fleetgate_lab::{Lab, Recording};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where sshd listens, in its place.
const PORT: u16 = 2222;
/// How often a leg's time is measured; the least counts.
const TRIES: usize = 5;
/// How far a leg may be off, beyond which the machine is too busy to measure on it.
const OFF_BY: Duration = Duration::from_millis(2);

/// The legs that are recorded: who asks, who answers.
pub const LEGS: [(&str, &str); 3] = [("user", "proxy"), ("proxy", "target"), ("user", "target")];

/// Lab, keys and servers.
pub struct World {
    /// The three places.
    pub lab: Lab,
    /// Where files are.
    pub at: PathBuf,
    /// `fleetgate`, with its images.
    pub fleetgate: PathBuf,
    ssh: PathBuf,
}

impl World {
    /// Makes all of it, with links that do not delay.
    pub fn new(bench: &Bench) -> Result<World> {
        if let Some(why) = fleetgate_lab::unavailable() {
            return Err(format!("no lab can be made here: {why}"));
        }
        let at = target().join("bench/regions");
        let _ = std::fs::remove_dir_all(&at);
        std::fs::create_dir_all(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        let world = World {
            lab: Lab::new(&LEGS.map(|(from, to)| (from, to, Duration::ZERO)))?,
            fleetgate: bench.built.fleetgate.clone(),
            ssh: rival("ssh", "openssh-client")?,
            at,
        };
        world.keys()?;
        world.sshd()?;
        Ok(world)
    }

    fn keys(&self) -> Result {
        for key in ["host", "user"] {
            let mut make = Command::new(rival("ssh-keygen", "openssh-client")?);
            make.args(["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"]);
            run(make.arg(self.at.join(key)))?;
        }
        let host = crate::shell::read_text(&self.at.join("host.pub"))?;
        self.write("known_hosts", &format!("bench {host}"))?;
        // In a file, since the client that ProxyJump starts gets no options but -F.
        let at = self.at.display();
        self.write(
            "ssh_config",
            &format!(
                "Host *\n    User root\n    Port {PORT}\n    HostKeyAlias bench\n    IdentityFile {at}/user\n    \
                 IdentitiesOnly yes\n    IdentityAgent none\n    UserKnownHostsFile {at}/known_hosts\n    \
                 GlobalKnownHostsFile /dev/null\n    StrictHostKeyChecking yes\n    UpdateHostKeys no\n    \
                 BatchMode yes\n    KexAlgorithms curve25519-sha256\n    HostKeyAlgorithms ssh-ed25519\n    \
                 LogLevel ERROR\n"
            ),
        )
    }

    /// OpenSSH's server, in proxy and target. Without PAM, and root's shell for everybody.
    fn sshd(&self) -> Result {
        let at = self.at.display();
        self.write(
            "sshd_config",
            &format!(
                "ListenAddress 0.0.0.0\nPort {PORT}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\n\
                 StrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nPidFile none\n"
            ),
        )?;
        let sshd = rival("sshd", "openssh-server")?;
        for place in ["proxy", "target"] {
            let mut command = Command::new(&sshd);
            command.args(["-D", "-e", "-f"]).arg(self.at.join("sshd_config"));
            let server = self
                .lab
                .serve(place, &mut command, &self.at.join(format!("sshd-{place}.log")))?;
            self.lab.wait_until_it_accepts(place, &server, PORT)?;
        }
        Ok(())
    }

    /// Runs a client in user and waits for it; what it said is in the error. It says it to a file, as a client that keeps
    /// its connection would hold a pipe open.
    pub fn client(&self, command: &mut Command) -> Result {
        let log = self.at.join("client.log");
        let said = std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let status = self
            .lab
            .start_in("user", command)?
            .wait()
            .map_err(|e| e.to_string())?;
        if status.success() {
            return Ok(());
        }
        let said = crate::shell::read_text(&log)?;
        Err(format!("{command:?}: {status}: {}", said.trim()))
    }

    /// `ssh target true`: by way of the proxy's sshd, or direct.
    pub fn openssh(&self, jump: bool) -> Result {
        let mut command = Command::new(&self.ssh);
        command.arg("-F").arg(self.at.join("ssh_config"));
        if jump {
            command.args(["-J", "proxy"]);
        }
        self.client(command.args(["target", "true"]))
    }

    /// Sets the links' times and measures them; an error if one is not what was set.
    pub fn set(&self, legs: [(&'static str, &'static str, Duration); 3]) -> Result {
        for (from, to, round_trip) in legs {
            self.lab.set_round_trip(from, to, round_trip)?;
        }
        let mut said = Vec::new();
        for (from, to, round_trip) in legs {
            let tries: Vec<Duration> = (0..TRIES)
                .map(|_| self.lab.measure(from, to))
                .collect::<std::result::Result<_, _>>()?;
            let least = tries.into_iter().min().unwrap_or_default();
            let [set, is] = [round_trip, least].map(|d| d.as_secs_f64() * 1e3);
            said.push(format!("{from}-{to} {set} ms: {is:.2}"));
            if least < round_trip || least > round_trip + OFF_BY {
                return Err(format!(
                    "the lab's link from {from} to {to} takes {is:.2} ms to connect over and was set to {set}: \
                     this machine is too busy to measure on"
                ));
            }
        }
        println!(
            "round trips of the lab's links, set and measured: {}",
            said.join(", ")
        );
        Ok(())
    }

    /// Begins to record all legs.
    pub fn record(&self) -> Result<Vec<Recording>> {
        let begun = LEGS.iter().map(|(asks, answers)| self.lab.record(asks, answers));
        Ok(begun.collect::<std::result::Result<_, _>>()?)
    }

    fn write(&self, name: &str, text: &str) -> Result {
        let path: &Path = &self.at.join(name);
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}
