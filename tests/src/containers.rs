//! Containers that real runtimes start, for the tests that enter them: a root of busybox, a configuration as `runc spec`
//! writes it, a state directory of the test's own.

use crate::folder::Folder;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What busybox is called inside.
const TOOLS: [&str; 23] = [
    "sh", "sleep", "id", "cat", "ls", "ps", "true", "false", "ln", "echo", "env", "pwd", "hostname", "tty",
    "stty", "mkfifo", "mount", "nc", "sed", "umount", "rm", "mv", "mkdir",
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
    /// What stands before each command of its runtime's.
    before: Vec<String>,
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
        Container::made(runtime, None, Vec::new(), change)
    }

    /// Where runc keeps containers unless it is told otherwise, and whoever looks for them finds them.
    pub fn at_the_usual_place(change: impl FnOnce(&mut Value)) -> Container {
        Container::made(Runtime::Runc, Some("/run/runc"), Vec::new(), change)
    }

    /// The same on the machine that this process sees, where a test has a node in namespaces of its own. Its number is that
    /// machine's.
    pub fn beside(process: i32) -> Container {
        let pid = process.to_string();
        let words = ["nsenter", "--pid", "--mount", "--target", &pid, "--"].map(str::to_owned);
        Container::made(Runtime::Runc, Some("/run/runc"), words.into(), |_| {})
    }

    fn made(
        runtime: Runtime,
        root: Option<&str>,
        before: Vec<String>,
        change: impl FnOnce(&mut Value),
    ) -> Container {
        let folder = Folder::below(std::path::Path::new("/var/tmp")).with_mode(0o755);
        make_root(&folder);
        let mut config = specification(&folder);
        change(&mut config);
        std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
        let mut container = Container {
            name: format!("fg-{}", folder.file_name().expect("a name").to_string_lossy()),
            root: root.map_or_else(|| folder.word("state"), str::to_owned),
            folder,
            runtime,
            before,
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
        vec![name.to_owned(), "--root".to_owned(), self.root()]
    }

    /// Where the runtime keeps it: what `fleetgate container --root` takes.
    pub fn root(&self) -> String {
        self.root.clone()
    }

    /// A path in its root directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join("rootfs").join(name.trim_start_matches('/'))
    }

    /// Whether its first process is there.
    pub fn runs(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}/root/", self.pid)).exists()
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
        command.arg("60").arg(crate::fleetgate());
        command.args(["container", "exec", "--root", &self.root()]);
        command
            .args(flags)
            .arg(&self.name)
            .args(words)
            .stdin(Stdio::null());
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

fn make_root(folder: &Folder) {
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
fn specification(folder: &Folder) -> Value {
    let made = Command::new("runc").arg("spec").current_dir(&**folder).status();
    assert!(made.expect("runc is installed").success());
    let mut config: Value = serde_json::from_str(&folder.text("config.json")).expect("JSON");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["sleep", "600"]);
    config["root"]["readonly"] = json!(false);
    config["root"]["path"] = json!(folder.join("rootfs"));
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
