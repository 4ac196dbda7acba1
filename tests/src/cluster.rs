//! A cluster in a world of the test's own: auth and proxy in one `up`, a joined node with a port of its own in another, and
//! people who have logged in. What is typed here is what an administrator and a user type.

use crate::bounded::output_within;
use crate::peer::{DIR, World, confined};
use crate::service::{children, command_line, descendants, start_time};
use crate::world::wait_until;
use fleetgate_sys::{Fd, process, signals};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Where the proxy is.
pub const PROXY: &str = "127.0.0.1:3080";
/// The node's name, and its own address.
pub const NODE: &str = "gate";
/// See [`NODE`].
pub const OWN_PORT: &str = "127.0.0.1:2222";
/// Where ada's login is.
pub const HOME: &str = "/run/test/home";
/// The state directory of auth and proxy, below [`DIR`].
pub const STATE: &str = "cluster";
/// So many lines of a log are told where a test failed.
const TOLD: usize = 40;

/// A script that takes longer hangs.
const SCRIPT: Duration = Duration::from_mins(5);

/// What every script begins with: `role LOGINS MORE` makes the one role, `in_home HOME` logs in as ada there. A test that
/// logs in anew may have to wait until a code was not used yet, so that is tried until it works.
const BEGIN: &str = include_str!("../scripts/cluster.sh");
const MAKE: &str = r#"
"$F" init --state cluster --name test --listen 127.0.0.1:3080 --public 127.0.0.1:3080 --no-node
"#;
const PEOPLE: &str = include_str!("../scripts/people.sh");
const JOIN: &str = include_str!("../scripts/join.sh");

/// A running cluster.
pub struct Cluster {
    services: Vec<(String, Child)>,
    /// Its own, where nobody lent one.
    _world: Option<World>,
}

/// `fleetgate up` under a service manager.
pub struct Managed {
    child: Child,
    output: BufReader<ChildStdout>,
    state: String,
}

impl Cluster {
    /// Auth and proxy, and ada who has logged in, in `home`.
    pub fn new() -> Cluster {
        let world = World::new();
        let mut cluster = Cluster::inside(&world);
        cluster._world = Some(world);
        cluster
    }

    /// The same in a world that somebody else has.
    pub fn inside(world: &World) -> Cluster {
        Cluster::configured(world, "")
    }

    /// The same with a line more in the proxy's section of the configuration.
    pub fn configured(_: &World, proxy: &str) -> Cluster {
        let mut cluster = Cluster {
            services: Vec::new(),
            _world: None,
        };
        cluster.script(&format!(
            "{MAKE}\nsed -i 's,^\\[proxy\\]$,&\\n{proxy},' {STATE}/fleetgate.toml\n\
             printf '\\n[proxy.strangers]\\npenalties = false\\n' >> {STATE}/fleetgate.toml"
        ));
        cluster.up(STATE, PROXY);
        cluster.script(PEOPLE);
        cluster
    }

    /// The same with a node that has joined and is connected.
    pub fn with_node() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.add_node();
        cluster
    }

    /// The node joins, and does not run yet.
    pub fn join_node(&self) {
        self.script(JOIN);
    }

    /// The node joins, and is connected.
    pub fn add_node(&mut self) {
        self.join_node();
        self.up("node", OWN_PORT);
        wait_until("the node is reached through the proxy", || {
            self.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
        });
    }

    /// `fleetgate up` for what is in this state directory; it accepts on `address`. Its first process dies with the test,
    /// and all of it then.
    pub fn up(&mut self, state: &str, address: &str) {
        let log = std::fs::File::create(format!("{DIR}/{state}.log")).expect("create");
        let mut child = confined()
            .arg(crate::fleetgate())
            .args(["up", "--state", &format!("{DIR}/{state}")])
            .env("HOME", "/run/home/root")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(log)
            .spawn()
            .expect("unshare: install util-linux");
        wait_until("the services accept", || {
            assert!(child.try_wait().expect("ours").is_none(), "{}", self.log(state));
            TcpStream::connect(address).is_ok()
        });
        self.services.push((state.to_owned(), child));
    }

    /// The same under a service manager, which starts it again when it is told. It ends with what is given back.
    pub fn managed(&self, state: &str, address: &str) -> Managed {
        let log = std::fs::File::create(format!("{DIR}/{state}.log")).expect("create");
        let mut child = confined()
            .arg("python3")
            .arg(crate::peer::peers().join("python/manager.py"))
            .arg(crate::fleetgate())
            .args(["up", "--state", &format!("{DIR}/{state}")])
            .env("HOME", "/run/home/root")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("unshare: install util-linux");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut managed = Managed {
            child,
            output,
            state: state.to_owned(),
        };
        managed.is_ready();
        TcpStream::connect(address).expect("the services accept");
        managed
    }

    /// Ends what [`Cluster::up`] started for this state directory.
    pub fn down(&mut self, state: &str) {
        let at = self.services.iter().position(|(name, _)| name == state);
        let (_, mut child) = self.services.remove(at.expect("it runs"));
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    /// The process of auth or of the proxy.
    pub fn serving(&self, role: &str) -> Option<i32> {
        let (_, child) = self.services.iter().find(|(name, _)| name == STATE)?;
        let words = format!("fleetgate {role} --config");
        let below = descendants(child.id() as i32);
        below
            .into_iter()
            .find(|pid| command_line(*pid).starts_with(&words))
    }

    /// The process of `fleetgate up` for this state directory, by the number that it has out here.
    pub fn running(&self, state: &str) -> Option<i32> {
        let (_, child) = self.services.iter().find(|(name, _)| name == state)?;
        let program = format!("{} up ", crate::fleetgate().display());
        let mut below = descendants(child.id() as i32).into_iter();
        below.find(|pid| command_line(*pid).starts_with(&program))
    }

    /// Kills a process below the `up` of this state directory, by how its command line begins: it has ended.
    pub fn kill(&self, state: &str, begins: &str) {
        let up = self.running(state).expect("it runs");
        let mut killed = None;
        wait_until(begins, || {
            let pid = descendants(up)
                .into_iter()
                .find(|pid| command_line(*pid).starts_with(begins));
            let pidfd = pid.and_then(|pid| process::pidfd_open(pid).ok());
            killed = pidfd.filter(|pidfd| process::signal(pidfd, signals::KILL).is_ok());
            killed.is_some()
        });
        crate::world::wait_for(&killed.expect("killed"), "its end");
    }

    /// What they logged.
    pub fn log(&self, state: &str) -> String {
        std::fs::read_to_string(format!("{DIR}/{state}.log")).unwrap_or_default()
    }

    /// Runs a script; it has to succeed. What it printed.
    pub fn script(&self, text: &str) -> String {
        self.attempt(text)
            .unwrap_or_else(|said| panic!("{text}\n{said}\n{}", self.log(STATE)))
    }

    /// Runs a script: what it printed, and as an error what it said too.
    pub fn attempt(&self, text: &str) -> Result<String, String> {
        let done = output_within(&mut self.command(text), SCRIPT)?;
        let (out, said) = (
            String::from_utf8_lossy(&done.stdout).into_owned(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        );
        match done.status.success() {
            true => Ok(out),
            false => Err(format!("{out}{said}({})", done.status)),
        }
    }

    /// Begins a script that goes on, with an input that nobody gives or ends: it has printed this line.
    pub fn begin(&self, text: &str, first: &str) -> Child {
        let mut child = self
            .command(text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("readable");
        assert_eq!(line.trim(), first, "{text}");
        child
    }

    /// Waits until every one of these sessions was ended, and not as one that went well.
    pub fn all_ended<'a>(sessions: impl IntoIterator<Item = (&'a str, &'a mut Child)>, why: &str) {
        for (name, session) in sessions {
            let mut ended = None;
            wait_until(&format!("the end of {name}, {why}"), || {
                ended = session.try_wait().expect("ours");
                ended.is_some()
            });
            assert!(!ended.expect("ended").success(), "{name}, {why}");
        }
    }

    /// A script with the program as `$F`, in the world's directory.
    pub fn command(&self, text: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{BEGIN}{text}")])
            .env("F", crate::fleetgate())
            .env("HOME", "/run/home/root")
            .env_remove("SSH_AUTH_SOCK")
            .env_remove("FLEETGATE_HOME")
            .stdin(Stdio::null());
        command
    }
}

impl Managed {
    /// Ends `fleetgate up`, and nothing that it leaves to itself, and starts it again: it is ready.
    pub fn restart(&mut self) {
        let below = descendants(self.child.id() as i32).into_iter();
        let manager = below
            .filter(|pid| command_line(*pid).starts_with("python3 "))
            .min_by_key(|pid| start_time(*pid));
        let pidfd = process::pidfd_open(manager.expect("it runs")).expect("it lives");
        process::signal(&pidfd, signals::HUP).expect("signalled");
        self.is_ready();
    }

    /// Kills `fleetgate up`, which can do nothing about it, and starts it again: it is ready.
    pub fn kill_and_restart(&mut self) {
        let up = process::pidfd_open(self.up().expect("it runs")).expect("it lives");
        process::signal(&up, signals::KILL).expect("signalled");
        crate::world::wait_for(&up, "the end of fleetgate up");
        self.restart();
    }

    /// Ends the process of a role and waits until another one is in its place.
    pub fn restart_role(&self, role: &str) {
        self.replace_role(role, signals::TERM);
    }

    /// The same with a process that is killed.
    pub fn kill_role(&self, role: &str) {
        self.replace_role(role, signals::KILL);
    }

    /// The process of a role that `up` started last, and all below it.
    pub fn processes_of(&self, role: &str) -> Vec<Fd> {
        let first = self.serving(role).expect("it runs");
        let all = descendants(first).into_iter().chain([first]);
        all.filter_map(|pid| process::pidfd_open(pid).ok()).collect()
    }

    /// Ends the process of a role, whatever becomes of the next one.
    pub fn end_role(&self, role: &str) {
        self.signal_role(role, signals::TERM);
    }

    fn signal_role(&self, role: &str, signal: i32) -> Option<i32> {
        let mut old = None;
        wait_until("a process of the role", || {
            old = self.serving(role);
            old.is_some()
        });
        let pidfd = process::pidfd_open(old.expect("it runs")).expect("it lives");
        process::signal(&pidfd, signal).expect("signalled");
        old
    }

    fn replace_role(&self, role: &str, signal: i32) {
        let old = self.signal_role(role, signal);
        wait_until("another process of the role", || {
            self.serving(role).is_some_and(|new| Some(new) != old)
        });
    }

    /// The process of `fleetgate up`.
    fn up(&self) -> Option<i32> {
        let program = format!("{} up ", crate::fleetgate().display());
        let mut all = descendants(self.child.id() as i32).into_iter();
        all.find(|pid| command_line(*pid).starts_with(&program))
    }

    /// The process of a role that `up` started last.
    fn serving(&self, role: &str) -> Option<i32> {
        let begins = |pid: &i32, words: &str| command_line(*pid).starts_with(words);
        let up = self.up()?;
        // A node's starter goes on as the small image, where there is one.
        let words = format!("fleetgate {role} --config");
        let is_starter = |pid: &i32| role == "node" && begins(pid, "fleetgate-front starter");
        let all = children(up)
            .into_iter()
            .filter(|pid| begins(pid, &words) || is_starter(pid));
        // Numbers of processes begin again at their end, so the latest need not have the highest.
        all.max_by_key(|pid| start_time(*pid))
    }

    /// Waits until the service says that it serves.
    fn is_ready(&mut self) {
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let read = self.output.read_line(&mut line).expect("readable");
            assert!(read > 0, "the manager ended");
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        tell_log(&self.state);
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

/// The end of what the services of a state directory logged, for whoever looks why a test failed.
fn tell_log(state: &str) {
    if !std::thread::panicking() {
        return;
    }
    let log = std::fs::read_to_string(format!("{DIR}/{state}.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let end = &lines[lines.len().saturating_sub(TOLD)..];
    eprintln!("the log of {state}:\n{}", end.join("\n"));
}

/// Ends the masters of this thread's world: they would wait for commands for a day.
fn end_masters() {
    let world = std::fs::read_link("/proc/thread-self/ns/mnt").ok();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let name = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if name.starts_with(b"fleetgate-master\0")
            && std::fs::read_link(entry.path().join("ns/mnt")).ok() == world
        {
            crate::service::kill(pid);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end_masters();
        for (state, child) in self.services.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
            tell_log(state);
        }
    }
}
