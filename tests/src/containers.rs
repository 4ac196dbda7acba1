//! Containers that real runtimes start, for the tests that enter them: a root of busybox, a configuration as `runc spec`
//! writes it, a state directory of the test's own; and machines below this one, on which nothing stays.

use crate::folder::Folder;
use crate::world::wait_until;
use fleetgate_sys::{poll, process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a process that was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What busybox is called inside.
const TOOLS: [&str; 24] = [
    "sh", "sleep", "id", "cat", "ls", "ps", "true", "false", "ln", "echo", "env", "pwd", "hostname", "tty",
    "stty", "mkfifo", "mount", "nc", "sed", "umount", "rm", "mv", "mkdir", "readlink",
];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/srv:/bin/sh\n";
const GROUP: &str = "root:x:0:\napp:x:1001:\nmore:x:77:app\n";

/// Who starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Debian's runc.
    Runc,
    /// Debian's crun.
    Crun,
}

/// A running container, ended and removed with this value.
pub struct Container {
    folder: Folder,
    runtime: Runtime,
    root: String,
    /// What stands before each command about it: the way to the machine on which it runs.
    before: Vec<String>,
    /// Who starts it; none: root.
    owner: Option<u32>,
    /// Its id.
    pub name: String,
    /// Its first process.
    pub pid: i32,
}

impl Container {
    /// One of runc's whose first process sleeps.
    pub fn new() -> Container {
        Container::with(Runtime::Runc, |_| {})
    }

    /// The same by `runtime`, with its configuration changed.
    pub fn with(runtime: Runtime, change: impl FnOnce(&mut Value)) -> Container {
        Container::made(runtime, None, Vec::new(), None, change)
    }

    /// One that an ordinary user starts, in a user namespace of his own.
    pub fn rootless(runtime: Runtime, owner: u32) -> Container {
        Container::made(runtime, None, Vec::new(), Some(owner), |_| {})
    }

    /// Where runc keeps containers unless it is told otherwise, and whoever looks for them finds them.
    pub fn at_the_usual_place(change: impl FnOnce(&mut Value)) -> Container {
        Container::made(Runtime::Runc, Some("/run/runc"), Vec::new(), None, change)
    }

    /// The same on the machine that this process sees, where a test has a node in namespaces of its own. Its number is that
    /// machine's.
    pub fn beside(process: i32) -> Container {
        Container::beside_with(process, |_| {})
    }

    /// The same with its configuration changed.
    pub fn beside_with(process: i32, change: impl FnOnce(&mut Value)) -> Container {
        Container::made(Runtime::Runc, Some("/run/runc"), way_to(process), None, change)
    }

    /// The same where containerd keeps those that Kubernetes has it start: what their annotations say of a pod counts there.
    pub fn of_a_pod_beside(process: i32, change: impl FnOnce(&mut Value)) -> Container {
        let root = Some("/run/containerd/runc/k8s.io");
        Container::made(Runtime::Runc, root, way_to(process), None, change)
    }

    fn made(
        runtime: Runtime,
        root: Option<&str>,
        before: Vec<String>,
        owner: Option<u32>,
        change: impl FnOnce(&mut Value),
    ) -> Container {
        let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
        make_root(&folder);
        let mut config = specification(&folder, owner);
        change(&mut config);
        std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
        if let Some(owner) = owner {
            let owner = format!("{owner}:{owner}");
            let given = Command::new("chown").args(["-R", &owner]).arg(&*folder).status();
            assert!(given.expect("chown runs").success());
        }
        let mut container = Container {
            name: format!("fg-{}", folder.file_name().expect("a name").to_string_lossy()),
            root: root.map_or_else(|| folder.word("state"), str::to_owned),
            folder,
            runtime,
            before,
            owner,
            pid: 0,
        };
        container.start();
        container
    }

    /// Changes its configuration behind its runtime's back: who enters from now on goes by it.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Value)) {
        let mut config: Value = serde_json::from_str(&self.folder.text("config.json")).expect("JSON");
        change(&mut config);
        std::fs::write(self.folder.join("config.json"), config.to_string()).expect("written");
    }

    fn start(&mut self) {
        let pid = self.folder.join("pid");
        let script = match self.runtime {
            Runtime::Runc => "exec \"$@\"",
            // crun knows cgroups of version 2 alone or of version 1 alone, and this machine may have both.
            Runtime::Crun => "mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"",
        };
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).arg("unshare");
        if self.runtime == Runtime::Crun {
            command.arg("--mount");
        }
        command.args(["sh", "-c", script, "runtime"]);
        command.args(self.runtime_words());
        if self.runtime == Runtime::Crun {
            command.arg("--cgroup-manager=disabled");
        }
        command.args(["run", "--detach", "--bundle"]).arg(&*self.folder);
        command.arg("--pid-file").arg(&pid).arg(&self.name);
        let log = std::fs::File::create(self.folder.join("log")).expect("a log");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(log);
        let status = command.status().expect("the runtime runs");
        assert!(
            status.success(),
            "{:?}: {}",
            self.runtime,
            self.folder.text("log")
        );
        self.pid = self.folder.text("pid").trim().parse().expect("a number");
    }

    fn runtime_words(&self) -> Vec<String> {
        let name = match self.runtime {
            Runtime::Runc => "runc",
            Runtime::Crun => "crun",
        };
        let mut words = self.owner.map_or_else(Vec::new, as_user);
        words.extend([name.to_owned(), "--root".to_owned(), self.root()]);
        words
    }

    /// Where the runtime keeps it: what `fleetgate container --root` takes.
    pub fn root(&self) -> String {
        self.root.clone()
    }

    /// A path in its root directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join("rootfs").join(name.trim_start_matches('/'))
    }

    /// Whether its first process is there: asked on its own machine, where alone its number means that process.
    pub fn runs(&self) -> bool {
        let place = format!("/proc/{}/root/", self.pid);
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).args(["test", "-e", &place]);
        command.status().expect("it runs").success()
    }

    /// A command of its runtime's about it.
    pub fn runtime(&self, words: &[&str]) -> Command {
        let own = self.runtime_words();
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).args(own);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// `fleetgate container exec` in it.
    pub fn command(&self, flags: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).arg(crate::fleetgate());
        command.args(["container", "exec", "--root", &self.root()]);
        command
            .args(flags)
            .arg(&self.name)
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// The same by the number of its first process, for one that has no name here.
    pub fn by_process(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").args(&self.before).arg(crate::fleetgate());
        command.args(["container", "exec", "--pid", &self.pid.to_string()]);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// What it comes to.
    pub fn exec(&self, flags: &[&str], words: &[&str]) -> Output {
        self.command(flags, words).output().expect("it runs")
    }

    /// Its standard output; it must succeed.
    pub fn says(&self, flags: &[&str], words: &[&str]) -> String {
        let out = self.exec(flags, words);
        assert!(out.status.success(), "{words:?}: {}", errors(&out));
        String::from_utf8(out.stdout).expect("text")
    }

    /// Why it is refused; it must be.
    pub fn refuses(&self, flags: &[&str], words: &[&str]) -> String {
        let out = self.exec(flags, words);
        assert!(
            !out.status.success(),
            "{words:?} ran: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        errors(&out)
    }

    /// The same of the runtime's own `exec`, which must succeed.
    pub fn runtime_says(&self, words: &[&str]) -> String {
        let out = self
            .runtime(&["exec", &self.name])
            .args(words)
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{words:?}: {}", errors(&out));
        String::from_utf8(out.stdout).expect("text")
    }
}

impl Default for Container {
    fn default() -> Container {
        Container::new()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self
            .runtime(&["resume", &self.name])
            .stderr(Stdio::null())
            .status();
        let _ = self
            .runtime(&["delete", "--force", &self.name])
            .stderr(Stdio::null())
            .status();
    }
}

/// Processes, mounts and a `/run` of their own, below those of this machine: what a test starts here is counted, and all of it
/// ends with this value.
pub struct Machine {
    outer: Child,
    /// The process that is 1 there, by its number here.
    pub first: i32,
}

/// What a machine has that is to be the same before and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    processes: Vec<(i32, String)>,
    mounts: Vec<String>,
}

impl Machine {
    /// With nothing on it but a process that waits for those whose parents are gone.
    pub fn new() -> Machine {
        let script = "mount -t tmpfs -o mode=755 none /run && echo ready && { sleep 600 & wait; }";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--propagation", "private", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // It complains of the signals that a killed child leaves blocked.
        let mut outer = command.stderr(Stdio::null()).spawn().expect("unshare runs");
        let mut said = String::new();
        let stdout = outer.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut said).expect("it speaks");
        assert_eq!(said, "ready\n", "a machine below this one");
        let children = format!("/proc/{0}/task/{0}/children", outer.id());
        let children = std::fs::read_to_string(children).expect("it runs");
        let first = children.trim().parse().expect("one child");
        let machine = Machine { outer, first };
        machine.process("sleep 600");
        machine
    }

    /// The same, where the program under test has no debugging information, which a plain build copies into each helper: for
    /// tests that start it a thousand times. `folder` has it.
    pub fn with_a_small_program(folder: &Folder) -> Machine {
        let (small, program) = (folder.word("fleetgate"), crate::fleetgate());
        let mut strip = Command::new("strip");
        let stripped = strip.arg("-o").arg(&small).arg(&program).status();
        assert!(stripped.expect("strip runs").success());
        let machine = Machine::new();
        machine.says(&["mount", "--bind", &small, program.to_str().expect("text")]);
        machine
    }

    /// A command there.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").args(way_to(self.first)).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Its standard output; it must succeed.
    pub fn says(&self, words: &[&str]) -> String {
        let out = self.command(words).output().expect("it runs");
        assert!(out.status.success(), "{words:?}: {}", errors(&out));
        String::from_utf8(out.stdout).expect("text")
    }

    /// `fleetgate container` there.
    pub fn fleetgate(&self, words: &[&str]) -> Command {
        let program = crate::fleetgate();
        let mut all = vec![program.to_str().expect("text"), "container"];
        all.extend(words);
        self.command(&all)
    }

    /// A path of its, as it is reached from here.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.first)).join(name.trim_start_matches('/'))
    }

    /// Its processes, by their numbers there, and their words.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let entries = std::fs::read_dir(self.path("/proc"))
            .expect("its /proc")
            .flatten();
        let mut all: Vec<(i32, String)> = entries
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok()?;
                // One that has ended meanwhile is none, and a zombie has no words.
                let words = std::fs::read(entry.path().join("cmdline")).ok()?;
                let words = String::from_utf8_lossy(&words).replace('\0', " ");
                Some((pid, words.trim().to_owned()))
            })
            .collect();
        all.sort();
        all
    }

    /// The number there of the process whose words begin so; waits for it.
    pub fn process(&self, words: &str) -> i32 {
        let mut pid = 0;
        wait_until(words, || {
            let all = self.processes();
            let fits = all.into_iter().find(|(_, own)| own.starts_with(words));
            fits.inspect(|(number, _)| pid = *number).is_some()
        });
        pid
    }

    /// What is there now.
    pub fn traces(&self) -> Traces {
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.first));
        Traces {
            processes: self.processes(),
            mounts: mounts.expect("it runs").lines().map(str::to_owned).collect(),
        }
    }

    /// Waits until there is no more and no less than this.
    pub fn returns_to(&self, before: &Traces) {
        // A process that was killed takes a moment to go.
        let end = Instant::now() + PATIENCE;
        while self.traces() != *before && Instant::now() < end {
            let _ = poll::poll(&mut [], Some(10));
        }
        assert_eq!(&self.traces(), before);
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel ends all others there before the first has ended.
        let first = process::pidfd_open(self.first);
        let _ = first.map(|first| process::signal(&first, process::SIGKILL));
        let _ = self.outer.wait();
    }
}

/// What stands before a command that runs where `process` is.
fn way_to(process: i32) -> Vec<String> {
    let pid = process.to_string();
    ["nsenter", "--pid", "--mount", "--target", &pid, "--"]
        .map(str::to_owned)
        .into()
}

/// What stands before a command that a user runs.
fn as_user(uid: u32) -> Vec<String> {
    let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    ["setpriv".to_owned(), user, group, "--clear-groups".to_owned()].into()
}

/// The cgroups whose names begin so, in whatever hierarchy and however deep, and those below them; the innermost come first.
pub fn cgroups_called(name: &str) -> Vec<PathBuf> {
    let pattern = format!("*/{name}*");
    let words = ["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &pattern];
    // Other cgroups come and go meanwhile, of which find complains.
    let out = Command::new("find").args(words).output().expect("find runs");
    let list = String::from_utf8(out.stdout).expect("text");
    list.lines().map(PathBuf::from).collect()
}

/// A command as a shell's line, for [`on_terminal`]: without the `timeout` before it, which would take it into the background.
pub fn line_of(command: &Command) -> String {
    let words: Vec<String> = command
        .get_args()
        .skip(1)
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    words.join(" ")
}

/// Runs a shell's line on a terminal of its own; what came on it. What script says when it has read all of nothing is echoed
/// somewhere, and is left out.
pub fn on_terminal(line: &str) -> (String, Output) {
    let words = [
        "60",
        "script",
        "--quiet",
        "--return",
        "--command",
        line,
        "/dev/null",
    ];
    let mut command = Command::new("timeout");
    let out = command
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    (String::from_utf8_lossy(&out.stdout).replace("^@", ""), out)
}

/// What a command said on standard error.
pub fn errors(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A root directory of busybox in `folder`, called `rootfs`.
pub fn make_root(folder: &Folder) {
    let root = folder.join("rootfs");
    for name in ["bin", "etc", "proc", "dev", "sys", "tmp", "root", "srv"] {
        std::fs::create_dir_all(root.join(name)).expect("mkdir");
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
    for tool in TOOLS {
        symlink("busybox", root.join("bin").join(tool)).expect("a link");
    }
    std::fs::write(root.join("etc/passwd"), PASSWD).expect("written");
    std::fs::write(root.join("etc/group"), GROUP).expect("written");
}

/// runc's own, for a first process that sleeps.
fn specification(folder: &Folder, owner: Option<u32>) -> Value {
    let mut command = Command::new("runc");
    command.arg("spec").current_dir(&**folder);
    if owner.is_some() {
        command.arg("--rootless");
    }
    assert!(command.status().expect("runc is installed").success());
    let mut config: Value = serde_json::from_str(&folder.text("config.json")).expect("JSON");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["sleep", "600"]);
    config["root"]["readonly"] = json!(false);
    config["root"]["path"] = json!(folder.join("rootfs"));
    if let Some(owner) = owner {
        // It took the user who runs this test.
        config["linux"]["uidMappings"][0]["hostID"] = json!(owner);
        config["linux"]["gidMappings"][0]["hostID"] = json!(owner);
    }
    config
}

/// Gives it a user namespace, whose root is nobody on this machine.
pub fn with_users(config: &mut Value) {
    let namespaces = config["linux"]["namespaces"].as_array_mut().expect("a list");
    namespaces.push(json!({ "type": "user" }));
    let mapping = json!([{ "containerID": 0, "hostID": 100_000, "size": 65_536 }]);
    config["linux"]["uidMappings"] = mapping.clone();
    config["linux"]["gidMappings"] = mapping;
}
