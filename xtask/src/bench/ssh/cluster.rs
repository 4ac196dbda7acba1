//! A running cluster: auth and proxy by `fleetgate up`, a user who has logged in, a token for any number of nodes. What is
//! typed here is what an administrator and a user type. And what its services cost: each is a process.

use super::group::Group;
use super::server::free_port;
use super::world::{World, login};
use crate::shell::{Result, output, read_text, target};
use serde_json::Value;
use std::cell::Cell;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a service may take until it accepts.
const UP_WITHIN: Duration = Duration::from_secs(30);
/// The kernel's clock ticks in a second, as /proc/PID/stat counts them on every Linux.
const TICKS: f64 = 100.0;

/// The named command `load` of nodes, and NRPE's: the check of a mail that wished for fast commands by SSH.
pub const CHECK_LOAD: &str = "/usr/lib/nagios/plugins/check_load -w 15,10,5 -c 30,25,20";

const MAKE: &str = r#"set -eu
"$F" init --state cluster --name bench --listen "127.0.0.1:$PORT" --public "127.0.0.1:$PORT" --auth-listen "127.0.0.1:$AUTH" --no-node
"#;
const PEOPLE: &str = r#"set -eu
umask 077
printf '[role.everything]\nnodes = ["*"]\nlogins = ["root", "root+*", "%s"]\n' "$LOGIN" > role.toml
"$F" role apply --state cluster -f role.toml
"$F" user add --state cluster ada --role everything > invite
"$F" token add --state cluster --reusable > token
echo correct horse battery staple > password
"$F" login --proxy "127.0.0.1:$PORT" --invite-file invite --password-file password --authenticator authenticator --no-agent
"#;
/// Who may run two named commands and nothing else, as a monitoring system.
const MONITORING: &str = r#"set -eu
umask 077
printf '[role.monitoring]\nnodes = ["*"]\nlogins = ["%s"]\nkinds = []\ncommands = ["echo", "load"]\n' "$LOGIN" > checks.toml
"$F" role apply --state cluster -f checks.toml
"$F" user add --state cluster monitoring --role monitoring > invite
"$F" login --home monitoring --proxy "127.0.0.1:$PORT" --invite-file invite --password-file password --authenticator another --no-agent
"#;
const JOIN: &str = r#"set -eu
"$F" join --state "$STATE" --proxy "127.0.0.1:$PORT" --token-file token --name "$NAME"
"#;

/// A service's memory, in KB.
pub struct Memory {
    /// What it alone has written to.
    pub anonymous: f64,
    /// Its proportional set size.
    pub pss: f64,
}

/// Auth and proxy, and who has logged in. All of it ends when this is dropped.
pub struct Cluster {
    /// `fleetgate`.
    pub fleetgate: PathBuf,
    /// Where everything of it is; also the user's home.
    pub at: PathBuf,
    /// The proxy's port on 127.0.0.1.
    pub port: u16,
    /// Its processes.
    pub group: Group,
    up: Up,
    joined: Cell<usize>,
}

/// A node before it joins.
pub struct Member {
    /// A name that no other node of the cluster has had.
    pub name: String,
    /// Its state directory, which is there and empty.
    pub state: PathBuf,
    /// Where its configuration has to be when it joins.
    pub config: PathBuf,
}

/// A service that runs in a group.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_master();
    }
}

impl Cluster {
    /// Makes one and starts it.
    pub fn start(world: &World, name: &str) -> Result<Cluster> {
        let at = world.at.join(name);
        std::fs::create_dir(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        let (port, auth) = (free_port()?, free_port()?);
        let group = Group::new(&format!("cluster-{port}"))?;
        let script = |text: &str| {
            let mut command = shell(text, &at, &world.fleetgate);
            command
                .env("PORT", port.to_string())
                .env("AUTH", auth.to_string());
            done(command.env("LOGIN", login(0)))
        };
        script(MAKE)?;
        let program = own_program(&world.fleetgate)?;
        let up = start(
            world,
            &program,
            &group,
            &at.join("cluster"),
            &at.join("log"),
            port,
        )?;
        script(PEOPLE)?;
        Ok(Cluster {
            fleetgate: world.fleetgate.clone(),
            at,
            port,
            group,
            up: Up(up),
            joined: Cell::new(0),
        })
    }

    /// The login of a monitoring system: the directory of one that may run the named commands of our nodes, and nothing else.
    pub fn monitoring(&self) -> Result<PathBuf> {
        let mut script = shell(MONITORING, &self.at, &self.fleetgate);
        script.env("PORT", self.port.to_string());
        done(script.env("LOGIN", login(0)))?;
        Ok(self.at.join("monitoring"))
    }

    /// Ends what the user's commands left running, if there is anything.
    pub fn end_master(&self) {
        for words in [
            &["master", "stop"][..],
            &["master", "stop", "--home", "monitoring"],
        ] {
            let mut stop = self.command(words);
            stop.current_dir(&self.at)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let _ = stop.status();
        }
    }

    /// Room for one more node.
    pub fn member(&self) -> Result<Member> {
        let name = format!("node{}", self.joined.replace(self.joined.get() + 1));
        let state = self.at.join(&name);
        std::fs::create_dir(&state).map_err(|e| format!("{}: {e}", state.display()))?;
        let config = state.join("fleetgate.toml");
        Ok(Member { name, state, config })
    }

    /// Joins it.
    pub fn join(&self, member: &Member) -> Result {
        let mut join = shell(JOIN, &self.at, &self.fleetgate);
        join.env("PORT", self.port.to_string()).env("NAME", &member.name);
        done(join.env("STATE", &member.state))
    }

    /// Whether it is connected: the proxy knows first.
    pub fn is_connected(&self, member: &Member) -> Result<bool> {
        let listed = output(&mut self.command(&["ls", "--json"]))?;
        let listed: Value = serde_json::from_str(&listed).map_err(|e| format!("fleetgate ls: {e}"))?;
        let nodes = listed["nodes"].as_array().ok_or("fleetgate ls: no nodes")?;
        Ok(nodes
            .iter()
            .any(|n| n["name"] == member.name.as_str() && n["connected"] == true))
    }

    /// A real node of it, with a port of its own.
    pub fn node(&self, world: &World) -> Result<Node> {
        self.node_that(world, false)
    }

    /// The same of one that records its sessions, input too.
    pub fn recorded_node(&self, world: &World) -> Result<Node> {
        self.node_that(world, true)
    }

    fn node_that(&self, world: &World, is_recorded: bool) -> Result<Node> {
        let member = self.member()?;
        let recordings = is_recorded.then(|| self.at.join(format!("{}-recordings", member.name)));
        let port = free_port()?;
        let mut text = format!(
            "[node]\nlisten = [\"127.0.0.1:{port}\"]\nhost_keys = [\"{}\"]\nstate_directory = \"{}\"\npam = \"off\"\n\
             motd = false\n[node.commands.echo]\nargv = [\"/bin/echo\", \"OK\"]\n\
             [node.commands.load]\nargv = {:?}\n",
            world.at.join("host").display(),
            member.state.display(),
            CHECK_LOAD.split(' ').collect::<Vec<_>>()
        );
        if let Some(directory) = &recordings {
            text += "[node.recording]\n";
            text += &super::recordings::settings(directory, "full");
        }
        std::fs::write(&member.config, text).map_err(|e| format!("{}: {e}", member.config.display()))?;
        self.join(&member)?;
        let group = Group::new(&format!("node-{port}"))?;
        let log = self.at.join(format!("{}-log", member.name));
        let up = start(world, &self.fleetgate, &group, &member.state, &log, port)?;
        let node = Node {
            name: member.name,
            port,
            group,
            recordings,
            _up: Up(up),
        };
        let until = Instant::now() + UP_WITHIN;
        while let Err(why) = done(self.ssh().args([&node.login(), "true"])) {
            if Instant::now() > until {
                let log = read_text(&log).unwrap_or_default();
                return Err(format!("the node does not serve: {why}: {log}"));
            }
            sleep(Duration::from_millis(100));
        }
        Ok(node)
    }

    /// `fleetgate ssh`, as the user.
    pub fn ssh(&self) -> Command {
        let mut command = Command::new(&self.fleetgate);
        command.arg("ssh");
        self.as_user(&mut command);
        command
    }

    /// `fleetgate` with another word.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.fleetgate);
        self.as_user(command.args(words));
        command
    }

    fn as_user(&self, command: &mut Command) {
        command.env("HOME", &self.at).env_remove("SSH_AUTH_SOCK");
        command.env_remove("FLEETGATE_HOME").stdin(Stdio::null());
    }

    /// The process that is `fleetgate SERVICE`.
    pub fn process(&self, service: &str) -> Result<u32> {
        // `up` names no service.
        let mut found = self
            .group
            .running(service)?
            .into_iter()
            .filter(|id| *id != self.up.0.id());
        match (found.next(), found.next()) {
            (Some(id), None) => Ok(id),
            _ => Err(format!("there is not one process `fleetgate {service}`")),
        }
    }

    /// What the proxy has in memory.
    pub fn proxy_memory(&self) -> Result<Memory> {
        memory_of(self.process("proxy")?)
    }

    /// Seconds of processor time that a service has used.
    pub fn cpu(&self, service: &str) -> Result<f64> {
        cpu_of(self.process(service)?)
    }
}

/// What a process has in memory.
pub fn memory_of(process: u32) -> Result<Memory> {
    let value = |file: &str, key: &str| {
        let path = PathBuf::from(format!("/proc/{process}/{file}"));
        let text = read_text(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok())
            .ok_or_else(|| format!("{} has no {key}", path.display()))
    };
    Ok(Memory {
        anonymous: value("status", "RssAnon:")?,
        pss: value("smaps_rollup", "Pss:")?,
    })
}

/// Seconds of processor time that a process has used.
pub fn cpu_of(process: u32) -> Result<f64> {
    let path = PathBuf::from(format!("/proc/{process}/stat"));
    let text = read_text(&path)?;
    // utime and stime: the 12th and 13th behind the name, which may hold anything.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let mut ticks = rest
        .split(' ')
        .skip(11)
        .map_while(|word| word.parse::<f64>().ok());
    match (ticks.next(), ticks.next()) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => Err(format!("{} has no times", path.display())),
    }
}

/// A real node that has joined. It ends when this is dropped.
pub struct Node {
    /// Its name in the cluster.
    pub name: String,
    /// Its own port, on 127.0.0.1.
    pub port: u16,
    /// Its processes.
    pub group: Group,
    /// Where it keeps recordings, where it makes any.
    recordings: Option<PathBuf>,
    _up: Up,
}

impl Node {
    /// Whom `fleetgate ssh` is told to reach: a login on it.
    pub fn login(&self) -> String {
        format!("{}@{}", login(0), self.name)
    }

    /// Waits until auth has what it has recorded.
    pub fn delivered(&self) -> Result {
        self.recordings
            .as_deref()
            .map_or(Ok(()), super::recordings::delivered)
    }
}

/// The program of auth and proxy: a file of their own, so that a measured node shares no page with them.
fn own_program(fleetgate: &Path) -> Result<PathBuf> {
    let at = target().join("bench/cluster");
    let copy = at.join("fleetgate");
    let failed = |e: std::io::Error| format!("{}: {e}", copy.display());
    std::fs::create_dir_all(&at).map_err(failed)?;
    // One that is still being executed cannot be written.
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(fleetgate, &copy).map_err(failed)?;
    Ok(copy)
}

fn shell(text: &str, at: &Path, fleetgate: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", text])
        .current_dir(at)
        .env("HOME", at)
        .env("F", fleetgate);
    command
        .env_remove("SSH_AUTH_SOCK")
        .env_remove("FLEETGATE_HOME")
        .stdin(Stdio::null());
    command
}

/// Runs it; what it said is in the error.
fn done(command: &mut Command) -> Result {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        )),
    }
}

/// `fleetgate up` in a group and a namespace of its own, once it accepts on `port`.
fn start(world: &World, program: &Path, group: &Group, state: &Path, log: &Path, port: u16) -> Result<Child> {
    let failed = |e: std::io::Error| format!("{}: {e}", log.display());
    let out = std::fs::File::create(log).map_err(failed)?;
    let mut command = world.enter(group);
    command
        .arg(program)
        .args(["--log-level", "warn", "up", "--state"])
        .arg(state);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(failed)?)
        .stderr(out);
    let mut child = command.spawn().map_err(|e| format!("fleetgate up: {e}"))?;
    let until = Instant::now() + UP_WITHIN;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "fleetgate up is not there: {ended:?}: {}",
                read_text(log)?
            ));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(child)
}
