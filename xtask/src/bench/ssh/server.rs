//! The servers that are measured, each with the same host key, logins, shell and limits, and a running one of them.

use super::cluster::Member;
use super::group::Group;
use super::recordings;
use super::world::World;
use crate::shell::Result;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take until it accepts.
const UP_WITHIN: Duration = Duration::from_secs(20);

/// A way to serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `fleetgate node` of a machine that has joined a cluster.
    Ours {
        /// With PAM.
        pam: bool,
        /// Writing down what each step takes.
        timed: bool,
        /// Telling what sessions do, their files too.
        watched: bool,
        /// Of a machine that has joined none.
        alone: bool,
        /// With the images where a package installs them.
        installed: bool,
        /// Recording every session, as much of it as this word of `[recording]` says.
        recorded: Option<&'static str>,
    },
    /// OpenSSH's, of the distribution.
    Sshd {
        /// With PAM.
        pam: bool,
    },
    /// Dropbear, of the distribution. It has no AES-GCM and no PAM.
    Dropbear,
    /// benches/peers/go-sshd.
    Go,
}

/// Ours, as it is measured unless a case says otherwise.
pub const OURS: Kind = Kind::Ours {
    pam: false,
    timed: false,
    watched: false,
    alone: false,
    installed: false,
    recorded: None,
};
/// The same with every session recorded, input too, and with its recordings on their way to auth.
pub const RECORDED: Kind = Kind::Ours {
    pam: false,
    timed: false,
    watched: false,
    alone: false,
    installed: false,
    recorded: Some("full"),
};
/// OpenSSH's, likewise.
pub const SSHD: Kind = Kind::Sshd { pam: false };

impl Kind {
    /// The subject's name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ours { timed: true, .. } => "fleetgate, timed",
            Kind::Ours {
                recorded: Some(_), ..
            } => "fleetgate, recorded",
            Kind::Ours {
                alone: true,
                installed: true,
                ..
            } => "fleetgate, installed, no cluster",
            Kind::Ours { alone: true, .. } => "fleetgate, no cluster",
            Kind::Ours { installed: true, .. } => "fleetgate, installed",
            Kind::Ours { watched: true, .. } => "fleetgate, audit of files",
            Kind::Ours { pam: true, .. } => "fleetgate, PAM",
            Kind::Ours { .. } => "fleetgate",
            Kind::Sshd { pam: true } => "sshd, PAM",
            Kind::Sshd { pam: false } => "sshd",
            Kind::Dropbear => "dropbear",
            Kind::Go => "Go x/crypto/ssh",
        }
    }

    /// Ours as it is, but for its cluster and its images.
    pub const fn with(self, alone: bool, installed: bool) -> Kind {
        match self {
            Kind::Ours {
                pam,
                timed,
                watched,
                recorded,
                ..
            } => Kind::Ours {
                pam,
                timed,
                watched,
                recorded,
                alone,
                installed,
            },
            other => other,
        }
    }

    /// The same as a file's name.
    fn file(self) -> String {
        self.name().replace([' ', ',', '/'], "-")
    }

    /// The node that is to join the cluster first.
    fn member(self, world: &World) -> Result<Option<Member>> {
        match self {
            Kind::Ours { alone: false, .. } => world.cluster()?.member().map(Some),
            _ => Ok(None),
        }
    }

    /// What is executed, in the server's namespace. A `member` has joined then.
    fn command(self, world: &World, port: u16, member: Option<&Member>) -> Result<Vec<String>> {
        let at = world.at.display();
        let config = match member {
            Some(member) => member.config.clone(),
            None => world.at.join(format!("{}.conf", self.file())),
        };
        let text = match (self, member) {
            (
                Kind::Ours {
                    pam,
                    watched,
                    recorded,
                    ..
                },
                member,
            ) => {
                let mut more = String::new();
                if watched {
                    more += "audit = \"files\"\n";
                }
                if let Some(sessions) = recorded {
                    more += "[recording]\n";
                    more += &recordings::settings(&world.recordings(port), sessions);
                }
                let alone = world.at.join("alone");
                node_toml(
                    world,
                    port,
                    pam,
                    &more,
                    member.map_or(&alone, |member| &member.state),
                )
            }
            (Kind::Sshd { pam }, _) => sshd_config(world, port, pam),
            _ => String::new(),
        };
        std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        if let Some(member) = member {
            world.cluster()?.join(member)?;
        }
        let (address, config) = (format!("127.0.0.1:{port}"), config.display().to_string());
        let words = match self {
            Kind::Ours { timed, .. } => {
                let level = if timed { "debug" } else { "warn" };
                let fleetgate = world.fleetgate.display().to_string();
                let words = [
                    "node",
                    "--config",
                    &config,
                    "--log-format",
                    "json",
                    "--log-level",
                    level,
                ];
                let first = match self {
                    Kind::Ours { installed: true, .. } => world.with_installed_images()?,
                    _ => Vec::new(),
                };
                let words = [fleetgate].into_iter().chain(words.map(str::to_owned));
                first.into_iter().chain(words).collect()
            }
            Kind::Sshd { .. } => vec![
                world.sshd.display().to_string(),
                "-D".to_owned(),
                "-e".to_owned(),
                "-f".to_owned(),
                config,
            ],
            Kind::Dropbear => vec![
                world.dropbear.display().to_string(),
                "-F".to_owned(),
                "-E".to_owned(),
                "-s".to_owned(),
                "-P".to_owned(),
                "/run/dropbear.pid".to_owned(),
                "-p".to_owned(),
                address,
                "-r".to_owned(),
                format!("{at}/host.dropbear"),
            ],
            Kind::Go => vec![world.go.display().to_string(), address, format!("{at}/host")],
        };
        Ok(words)
    }
}

/// Every feature as it is by default. The limits are wide enough for 200 connections at once, as sshd's below.
fn node_toml(world: &World, port: u16, pam: bool, more: &str, state: &Path) -> String {
    let (at, state) = (world.at.display(), state.display());
    let pam = if pam { "on" } else { "off" };
    format!(
        "listen = [\"127.0.0.1:{port}\"]\nhost_keys = [\"{at}/host\"]\nauthorized_keys = true\npam = \"{pam}\"\n\
         state_directory = \"{state}\"\nmotd = false\n{more}\n[limits]\nunauthenticated = 1000\n\
         unauthenticated_per_source = 1000\nsessions = 1000\n"
    )
}

/// As Debian's, with what the comparison needs.
fn sshd_config(world: &World, port: u16, pam: bool) -> String {
    let at = world.at.display();
    let pam = if pam { "yes" } else { "no" };
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nUsePAM {pam}\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nX11Forwarding yes\nPrintMotd no\nAcceptEnv LANG LC_*\nPidFile none\n\
         Subsystem sftp internal-sftp\nMaxStartups 1000:30:1000\nMaxSessions 1000\n"
    )
}

/// A server that accepts connections. It ends, with all that it started, when this is dropped.
pub struct Server {
    /// Which.
    pub kind: Kind,
    /// Where, on 127.0.0.1.
    pub port: u16,
    /// All of its processes.
    pub group: Group,
    /// What it wrote.
    pub log: PathBuf,
    child: Child,
}

impl Server {
    /// Starts one and waits until it accepts, and ours until it is connected with its cluster.
    pub fn start(world: &World, kind: Kind) -> Result<Server> {
        let (port, member) = (free_port()?, kind.member(world)?);
        let group = Group::new(&format!("{}-{port}", kind.file()))?;
        let log = world.at.join("log").join(format!("{}-{port}", kind.file()));
        let failed = |e: std::io::Error| format!("{}: {e}", log.display());
        let out = std::fs::File::create(&log).map_err(failed)?;
        let mut command = world.enter(&group);
        command
            .args(kind.command(world, port, member.as_ref())?)
            .stdin(Stdio::null());
        command.stdout(out.try_clone().map_err(failed)?).stderr(out);
        let child = command
            .spawn()
            .map_err(|e| format!("starting {}: {e}", kind.name()))?;
        let mut server = Server {
            kind,
            port,
            group,
            log,
            child,
        };
        server.wait_until("does not accept", || {
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
        })?;
        if let Some(member) = member {
            let cluster = world.cluster()?;
            server.wait_until("is not connected", || cluster.is_connected(&member))?;
            // What holds the connection is measured with the rest.
            if server.group.running("tunnel")?.is_empty() {
                return Err(format!("{} has no tunnel in its group", kind.name()));
            }
        }
        server.group.cpu_at_rest()?;
        server.counts_all()?;
        Ok(server)
    }

    /// Waits until `is_so`; `not` says what it is else.
    fn wait_until(&mut self, not: &str, is_so: impl Fn() -> Result<bool>) -> Result {
        let until = Instant::now() + UP_WITHIN;
        while !is_so()? {
            let ended = self.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || Instant::now() > until {
                let state = ended.map_or(not.to_owned(), |status| status.to_string());
                return Err(format!(
                    "{} did not start: {state}: {}",
                    self.kind.name(),
                    self.said()
                ));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The end of its log.
    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// An error if one of its processes is not counted.
    pub fn counts_all(&self) -> Result {
        self.group.has_all_of(self.child.id())
    }

    /// Microseconds of processor time, once it is at rest; one that records rests when auth has its recordings, and auth does.
    pub fn cpu_at_rest(&self, world: &World) -> Result<u64> {
        let is_recorded = matches!(
            self.kind,
            Kind::Ours {
                recorded: Some(_),
                alone: false,
                ..
            }
        );
        if is_recorded {
            recordings::delivered(&world.recordings(self.port))?;
            world.cluster()?.group.cpu_at_rest()?;
        }
        self.group.cpu_at_rest()
    }

    /// A client's command for this server, as `login`.
    pub fn client(&self, world: &World, login: &str, cipher: &str) -> Command {
        world.client(self.port, login, cipher)
    }

    /// Runs `command` with `words` for the remote side; an error names the server and what it said.
    pub fn run(&self, mut command: Command, words: &[&str]) -> Result {
        let status = command.arg("127.0.0.1").args(words).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!(
                "ssh {words:?}: {status}; the server said: {}",
                self.said()
            )),
            Err(e) => Err(format!("ssh: {e}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection of OpenSSH's client that others use (ControlMaster).
pub struct Master {
    child: Child,
    path: PathBuf,
}

impl Master {
    /// Connects, and waits until it can be used.
    pub fn connect(world: &World, server: &Server, login: &str, cipher: &str) -> Result<Master> {
        let path = world.at.join(format!("m{}-{login}", server.port));
        let mut command = server.client(world, login, cipher);
        command.args(["-N", "-M", "-S"]).arg(&path).arg("127.0.0.1");
        let child = command.spawn().map_err(|e| format!("ssh: {e}"))?;
        let mut master = Master { child, path };
        let until = Instant::now() + UP_WITHIN;
        while !master.path.exists() {
            let ended = master.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || Instant::now() > until {
                return Err(format!(
                    "no connection to {}: {}",
                    server.kind.name(),
                    server.said()
                ));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(master)
    }

    /// Counts its processor time with that group's from now on.
    pub fn enter(&self, group: &Group) -> Result {
        let door = group.door();
        std::fs::write(&door, self.child.id().to_string()).map_err(|e| format!("{}: {e}", door.display()))
    }

    /// A client's command over it.
    pub fn client(&self, world: &World) -> Command {
        let mut command = Command::new(&world.ssh);
        command
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-S"])
            .arg(&self.path);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A killed one leaves it, and the next would not make its own.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("127.0.0.1: {e}"))?;
    listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}
