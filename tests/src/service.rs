//! `fleetgate node` as a service manager starts it: with sockets handed over and a socket to say readiness on. The test
//! plays the manager, sees the processes and ends them one by one.

use crate::peer::{DIR, World};
use crate::world::wait_until;
use fleetgate_sys::process::{self, Exit};
use fleetgate_sys::spawn::{Child, Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Fd, file, net};
use serde_json::Value;
use std::ffi::CString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Where the audit events of every service in a world go.
pub const AUDIT: &str = "/run/test/audit.jsonl";
/// Where the program is installed, in the world's own memory.
const INSTALLED: &str = "/run/test/fleetgate";
/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a manager keeps over restarts: the listening socket and the socket for notifications.
pub struct Manager {
    listeners: Vec<Fd>,
    notifications: UnixDatagram,
    name: String,
    starts: std::cell::Cell<u32>,
    monitors: std::cell::RefCell<Vec<(i32, Fd)>>,
}

/// A running service.
pub struct Service {
    child: Child,
    log: PathBuf,
}

impl Manager {
    /// One in a world of its own; None without root.
    pub fn in_world() -> Option<(World, Manager)> {
        if !crate::is_root() {
            crate::skip("a network and accounts of its own need root");
            return None;
        }
        let world = World::new();
        let manager = Manager::new(&world);
        Some((world, manager))
    }

    /// One that hands over no socket; None without root.
    pub fn without_port() -> Option<(World, Manager)> {
        let (world, mut manager) = Manager::in_world()?;
        manager.listeners.clear();
        Some((world, manager))
    }

    /// Listens on the world's one port.
    pub fn new(_: &World) -> Manager {
        let name = format!(
            "fleetgate-test-{}-{:?}",
            process::id(),
            std::thread::current().id()
        );
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let notifications = UnixDatagram::bind_addr(&address).expect("bound");
        notifications.set_read_timeout(Some(PATIENCE)).expect("a time");
        install();
        let mut manager = Manager {
            listeners: Vec::new(),
            notifications,
            name,
            starts: std::cell::Cell::new(0),
            monitors: Default::default(),
        };
        manager.listen(net::Address::v4([127, 0, 0, 1], crate::peer::PORT));
        manager
    }

    /// Listens on one more address, for what is started from now on.
    pub fn listen(&mut self, address: net::Address) {
        let listener = net::tcp(&address).expect("socket");
        net::set_reuse_address(&listener).expect("reuse");
        net::bind(&listener, &address).expect("bind");
        net::listen(&listener, 128).expect("listen");
        self.listeners.push(listener);
    }

    /// Replaces the installed program, as a package's upgrade does.
    pub fn upgrade(&self) {
        install();
    }

    /// Starts it with this configuration and waits for READY=1.
    pub fn start(&self, configuration: &str) -> Service {
        self.start_through(&[], configuration)
    }

    /// The same through a program that executes the words behind its own.
    pub fn start_through(&self, program: &[&str], configuration: &str) -> Service {
        let service = self.begin_through(program, configuration);
        self.hear("READY=1", &service);
        let monitor = service.monitor();
        let pidfd = process::pidfd_open(monitor).expect("it lives");
        self.monitors.borrow_mut().push((monitor, pidfd));
        service
    }

    /// Starts it and does not wait.
    pub fn begin(&self, configuration: &str) -> Service {
        self.begin_through(&[], configuration)
    }

    fn begin_through(&self, program: &[&str], configuration: &str) -> Service {
        self.starts.set(self.starts.get() + 1);
        let config = format!("{DIR}/service.toml");
        std::fs::write(&config, forgiving(configuration)).expect("write");
        let log = PathBuf::from(format!("{DIR}/service-{}.log", self.starts.get()));
        let output = std::fs::File::create(&log).expect("create");
        // sd_listen_fds(3) wants the process's own number, which only it knows before it starts.
        let script = format!("LISTEN_PID=$$ LISTEN_FDS={} exec \"$@\"", self.listeners.len());
        let words = program
            .iter()
            .copied()
            .chain(["sh", "-c", &script, "service", INSTALLED])
            .chain([
                "--log-format",
                "json",
                "--log-level",
                "debug",
                "node",
                "--config",
                &config,
            ])
            .map(|w| CString::new(w).expect("no zero"))
            .collect::<Vec<_>>();
        let environment = [
            format!("NOTIFY_SOCKET=@{}", self.name),
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ]
        .map(|v| CString::new(v).expect("no zero"));
        let path = match program.first() {
            Some(path) => CString::new(*path).expect("no zero"),
            None => c"/bin/sh".into(),
        };
        let argv = Strings::new(words.iter().map(CString::as_c_str));
        let envp = Strings::new(environment.iter().map(CString::as_c_str));
        let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0).expect("/dev/null");
        let output = Fd::from(output);
        let mut fds = vec![null.raw(), output.raw(), output.raw()];
        fds.extend(self.listeners.iter().map(Fd::raw));
        let what = Spawn {
            program: Program::Path(&path),
            argv: &argv,
            envp: &envp,
            fds: &fds,
            cgroup: None,
        };
        let child = spawn(&what, &mut Stack::new().expect("a stack")).expect("spawned");
        Service { child, log }
    }

    /// Waits for a notification that holds `word`; what came before it is gone.
    pub fn hear(&self, word: &str, service: &Service) -> String {
        let mut buffer = [0; 4096];
        loop {
            let n = match self.notifications.recv(&mut buffer) {
                Ok(n) => n,
                Err(e) => panic!("no {word}: {e}; the log:\n{}", service.log()),
            };
            let said = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if said.contains(word) {
                return said;
            }
        }
    }
}

impl Drop for Manager {
    /// A monitor outlives its starter by design, but not its test.
    fn drop(&mut self) {
        for (pid, pidfd) in self.monitors.get_mut().drain(..) {
            // Not reaped by us, so the number may be another's once it has ended: the descriptor knows.
            if process::signal(&pidfd, 0).is_ok() {
                let below = descendants(pid);
                let _ = process::signal(&pidfd, process::SIGKILL);
                below.into_iter().for_each(kill);
            }
        }
    }
}

impl Service {
    /// All of its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The starter's number.
    pub fn pid(&self) -> i32 {
        self.child.pid
    }

    /// The monitor's.
    pub fn monitor(&self) -> i32 {
        named(&children(self.child.pid), " monitor ")[0]
    }

    /// Its processes of this kind: `lobby`, `front`, `tunnel`, `recorder`.
    pub fn seats(&self, kind: &str) -> Vec<i32> {
        let image = match kind {
            "tunnel" | "recorder" => kind,
            _ => "front",
        };
        named(&children(self.monitor()), &format!("{image} {kind}"))
    }

    /// Sends the starter a signal.
    pub fn signal(&self, signal: i32) {
        process::signal(&self.child.pidfd, signal).expect("it lives");
    }

    /// Waits for the starter's end.
    pub fn end(&self) -> Exit {
        crate::world::wait_for(&self.child.pidfd, "the service's first process ends");
        process::wait(&self.child.pidfd, true)
            .expect("ours")
            .expect("ended")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the service's log:\n{}", self.log());
        }
        for pid in descendants(self.child.pid).into_iter().rev() {
            kill(pid);
        }
        let _ = process::signal(&self.child.pidfd, process::SIGKILL);
        let _ = process::wait(&self.child.pidfd, true);
    }
}

/// A test does from one address what a crowd does in a day. Unless it says how strangers are treated, nobody pays for what
/// he did before, and every line is told.
pub fn forgiving(configuration: &str) -> String {
    match configuration.contains("[strangers]") {
        true => configuration.to_owned(),
        false => format!("{configuration}\n[strangers]\npenalties = false\nlines = 100000\n"),
    }
}

/// Puts the program in its place: the old file is another, and goes with its last user.
fn install() {
    let new = format!("{INSTALLED}.new");
    std::fs::copy(crate::fleetgate(), &new).expect("copied");
    crate::seal::without_writer(Path::new(&new));
    std::fs::rename(&new, INSTALLED).expect("renamed");
}

/// Stops a process for good: each of its threads stands still. Only one of them is told by the kernel at once.
pub fn stop(pid: i32) {
    const SIGSTOP: i32 = 19;
    process::signal(&process::pidfd_open(pid).expect("it lives"), SIGSTOP).expect("signalled");
    wait_until("all of it stands still", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    });
}

/// Lets it go on.
pub fn go_on(pid: i32) {
    const SIGCONT: i32 = 18;
    process::signal(&process::pidfd_open(pid).expect("it lives"), SIGCONT).expect("signalled");
}

/// Ends a process of the test's own at once.
pub fn kill(pid: i32) {
    if let Ok(pidfd) = process::pidfd_open(pid) {
        let _ = process::signal(&pidfd, process::SIGKILL);
    }
}

/// The children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(list.split_whitespace().filter_map(|p| p.parse::<i32>().ok()));
    }
    all
}

/// All processes below one, parents first.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut all = children(pid);
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

/// Those whose command line holds `words`.
fn named(pids: &[i32], words: &str) -> Vec<i32> {
    let holds = |pid: &i32| command_line(*pid).contains(words);
    pids.iter().copied().filter(holds).collect()
}

/// When a process began, in ticks since boot; 0 of one that is gone.
pub fn start_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, the state is the third field and this the 22nd.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields
        .split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0)
}

/// A process's words.
pub fn command_line(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// `ssh` with the world's configuration, as `user`.
pub fn ssh(user: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "/run/test/config", "-l", user])
        .env("HOME", "/run/home/root")
        .stdin(Stdio::null());
    ssh
}

/// Runs a command through a login of its own; its output has to come whole.
pub fn run(user: &str, command: &str) -> String {
    let out = output(ssh(user).args(["gate", command]));
    String::from_utf8(out.stdout).expect("text")
}

/// Runs it, and fails with what it said.
pub fn output(command: &mut Command) -> Output {
    let out = command.output().expect("it starts");
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// A connection that stays open, over which sessions are asked for (ControlMaster).
pub struct Open {
    child: std::process::Child,
    socket: PathBuf,
    user: String,
}

impl Open {
    /// Logs in.
    pub fn new(user: &str, name: &str) -> Open {
        let socket = Path::new(DIR).join(format!("master-{name}"));
        let child = ssh(user)
            .args(["-M", "-N", "-S"])
            .arg(&socket)
            .arg("gate")
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        wait_until("the master listens", || socket.exists());
        Open {
            child,
            socket,
            user: user.to_owned(),
        }
    }

    /// A session over it.
    pub fn session(&self, command: &str) -> Command {
        let mut ssh = ssh(&self.user);
        ssh.arg("-S").arg(&self.socket).args(["gate", command]);
        ssh
    }

    /// What a session over it prints.
    pub fn run(&self, command: &str) -> String {
        String::from_utf8(output(&mut self.session(command)).stdout).expect("text")
    }

    /// Waits until the client has ended.
    pub fn ended(&mut self) {
        wait_until("the connection ends", || {
            self.child.try_wait().expect("ours").is_some()
        });
    }

    /// Whether it is still open.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("ours").is_none()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Audit events so far.
pub fn audit() -> Vec<Value> {
    let text = std::fs::read_to_string(AUDIT).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Waits until an event is there for which `is` holds.
pub fn audited(what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    wait_until(what, || {
        found = audit().into_iter().find(|event| is(event));
        found.is_some()
    });
    found.expect("waited for")
}
