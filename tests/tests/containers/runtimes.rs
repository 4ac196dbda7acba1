//! Containers that others than root's runc and crun start: containerd, systemd-nspawn, a user without root.

use crate::entering::STATE;
use fleetgate_tests::containers::{
    Container, Machine, Runtime, cgroups_called, errors, line_of, make_root, on_terminal,
};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// A user who has no account anywhere.
const OWNER: u32 = 61_236;
/// What containers run that nobody enters.
const SLEEPS: [&str; 2] = ["/bin/sleep", "601"];
/// The namespaces of a process.
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// What a command said; it must succeed.
pub fn said(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn owner_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").uid()
}

/// A command that is at work until this value goes, and its output.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub fn start(mut command: Command, log: PathBuf) -> Running {
        let file = std::fs::File::create(&log).expect("a log");
        command.stdout(file.try_clone().expect("dup")).stderr(file);
        let child = command.spawn().expect("it runs");
        Running { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("its log")
    }

    /// Signals all of it: the command, and what led to it.
    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        let kill = Command::new("kill").args(["-s", signal, "--", &group]).status();
        assert!(kill.expect("kill runs").success(), "{}", self.log());
    }

    /// Waits until it has ended.
    fn ends(mut self) {
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("KILL");
            let _ = self.child.wait();
        }
    }
}

/// The cgroups of a test's, named after its folder: what a failure leaves of them goes with this value.
pub struct Cgroups(pub String);

impl Cgroups {
    pub fn of(folder: &Folder) -> Cgroups {
        Cgroups(folder.file_name().expect("a name").display().to_string())
    }

    /// Those that are there.
    fn list(&self) -> Vec<PathBuf> {
        cgroups_called(&self.0)
    }

    /// One as systemd would have made it for a service, in the hierarchies that it uses: of version 2, and of its own name where
    /// there is version 1. A shell's line that goes there.
    fn service(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
        let mut line = String::new();
        for mount in mounts.lines() {
            let (place, kind) = mount.split_once(" - ").expect("a separator");
            if kind.starts_with("cgroup2 ") || kind.starts_with("cgroup ") && kind.contains("name=systemd") {
                let point = place.split(' ').nth(4).expect("a mount point");
                let group = format!("{point}/{}.service", self.0);
                std::fs::create_dir(&group).expect("a cgroup");
                line += &format!("echo $$ > {group}/cgroup.procs && ");
            }
        }
        line + "true"
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for group in self.list() {
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// Debian's containerd on a machine of its own, where all lies in the usual places.
struct Containerd {
    machine: Machine,
    folder: Folder,
    daemon: Running,
    cgroups: Cgroups,
}

impl Containerd {
    fn start(machine: Machine) -> Containerd {
        let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
        make_root(&folder);
        // The part for Kubernetes wants a network of its own.
        let config = format!(
            "version = 2\nroot = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
            folder.join("root")
        );
        let file = folder.word("config.toml");
        std::fs::write(&file, config).expect("written");
        let daemon = Running::start(
            machine.command(&["containerd", "--config", &file]),
            folder.join("log"),
        );
        let containerd = Containerd {
            cgroups: Cgroups::of(&folder),
            machine,
            folder,
            daemon,
        };
        wait_until("containerd answers", || {
            let version = containerd.machine.command(&["ctr", "version"]).output();
            version.expect("ctr is installed").status.success()
        });
        containerd
    }

    fn ctr(&self, namespace: &str, words: &[&str]) -> String {
        let mut command = self.machine.command(&["ctr", "--namespace", namespace]);
        let out = command.args(words).output().expect("ctr runs");
        assert!(out.status.success(), "{out:?} {}", self.daemon.log());
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn run(&self, namespace: &str, id: &str, flags: &[&str]) {
        let (cgroup, root) = (format!("/{}-{id}", self.cgroups.0), self.folder.word("rootfs"));
        let words = ["run", "--detach", "--cgroup", &cgroup, "--rootfs"];
        self.ctr(namespace, &[&words, flags, &[&root, id], &SLEEPS].concat());
    }

    /// What a program says that fleetgate starts in a container.
    fn says(&self, container: &str, words: &[&str]) -> String {
        let all = [&["exec", container], words].concat();
        said(&self.machine.fleetgate(&all).output().expect("it runs"))
    }

    fn remove(&self, namespace: &str, id: &str) {
        self.ctr(namespace, &["tasks", "delete", "--force", id]);
        self.ctr(namespace, &["containers", "rm", id]);
    }

    /// Ends the daemon; its shims end with their containers.
    fn end(self) -> Machine {
        assert_eq!(self.cgroups.list(), Vec::<PathBuf>::new());
        self.daemon.signal("TERM");
        self.daemon.ends();
        self.machine
    }
}

#[test]
fn containerd_s_containers_too() {
    needs_root!("containers");
    let machine = Machine::new();
    let before = machine.traces();
    let containerd = Containerd::start(machine);
    // runc's state is found in the two usual namespaces of containerd's, containerd's own in others.
    let pod = [
        "io.kubernetes.cri.sandbox-name=shop-7d",
        "io.kubernetes.cri.container-name=web",
        "io.kubernetes.cri.sandbox-namespace=prod",
    ]
    .map(|annotation| ["--annotation", annotation])
    .concat();
    containerd.run("default", "one", &[]);
    containerd.run("k8s.io", "two", &pod);
    containerd.run("own", "three", &[]);
    let list = said(&containerd.machine.fleetgate(&["ls"]).output().expect("it runs"));
    for line in [
        ["one", "one", "containerd"],
        ["shop-7d/web", "two", "kubernetes"],
        ["three", "three", "containerd"],
    ] {
        let has = list.lines().any(|l| l.split_whitespace().take(3).eq(line));
        assert!(has, "{line:?}: {list}");
    }
    for name in ["one", "shop-7d/web", "prod.shop-7d.web", "three"] {
        assert_eq!(containerd.says(name, &["echo", "in"]), "in\n", "{name}");
    }

    // What a program gets is what containerd gives it, but for the score of the out-of-memory killer: a shim raises its own by
    // one, which runc's children inherit.
    let words = ["sh", "-c", STATE];
    let but_score = |text: String| {
        let lines = text.lines().filter(|line| !["0", "1"].contains(line));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for (namespace, id) in [("default", "one"), ("k8s.io", "two"), ("own", "three")] {
        // By way of a file: ctr sometimes ends before it has printed what came.
        let script = format!("{{ {STATE}; }} > /theirs");
        let exec = [
            "tasks",
            "exec",
            "--exec-id",
            "theirs",
            id,
            "/bin/sh",
            "-c",
            &script,
        ];
        containerd.ctr(namespace, &exec);
        let theirs = containerd.folder.text("rootfs/theirs");
        let ours = containerd.says(id, &words);
        assert_eq!(but_score(ours), but_score(theirs), "{id}");
    }

    // While the daemon hangs.
    containerd.daemon.signal("STOP");
    let line = line_of(&containerd.machine.fleetgate(&["exec", "one", "tty"]));
    let (text, out) = on_terminal(&line);
    assert!(text.contains("/dev/pts/0"), "{text} {out:?}");
    containerd.daemon.signal("CONT");

    // One that has ended, and that containerd still keeps.
    containerd.ctr("own", &["tasks", "kill", "--signal", "KILL", "three"]);
    let why = || {
        let out = containerd.machine.fleetgate(&["exec", "three", "true"]).output();
        errors(&out.expect("it runs"))
    };
    wait_until("it has ended", || why().contains("it has ended"));

    for (namespace, id) in [("default", "one"), ("k8s.io", "two"), ("own", "three")] {
        containerd.remove(namespace, id);
    }
    containerd.end().returns_to(&before);
}

/// A root that systemd-nspawn takes for a system's.
fn system() -> Folder {
    let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
    make_root(&folder);
    for name in ["usr", "run", "var"] {
        std::fs::create_dir(folder.join("rootfs").join(name)).expect("mkdir");
    }
    std::fs::write(folder.join("rootfs/etc/os-release"), "ID=test\n").expect("written");
    folder
}

/// The words of systemd-nspawn for a machine called `name`; no systemd makes a scope for it.
fn nspawn<'a>(name: &'a str, root: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let words = ["systemd-nspawn", "--quiet", "--keep-unit", "--console=pipe"];
    let place = ["--machine", name, "--directory", root];
    [&words, flags, &place, &SLEEPS].concat()
}

/// The namespaces of a process by its directory in /proc, a line for each.
fn namespaces(process: &Path) -> String {
    let link = |kind| std::fs::read_link(process.join("ns").join(kind)).expect("it runs");
    NAMESPACES
        .map(|kind| format!("{}\n", link(kind).display()))
        .concat()
}

/// The line of a shell that prints its own.
pub fn own_namespaces() -> String {
    NAMESPACES
        .map(|kind| format!("readlink /proc/self/ns/{kind};"))
        .concat()
}

#[test]
fn machines_of_systemd_nspawn_are_entered_by_their_leader() {
    needs_root!("containers");
    let machine = Machine::new();
    let before = machine.traces();
    let folder = system();
    let root = folder.word("rootfs");
    let with_users = [
        "--register=no",
        "--private-users=100000:65536",
        "--private-network",
    ];
    for (flags, owner) in [(&["--register=no"][..], 0), (&with_users, 100_000)] {
        let running = Running::start(machine.command(&nspawn("box", &root, flags)), folder.join("log"));
        let leader = machine.process(&SLEEPS.join(" "));
        let pid = leader.to_string();
        let says = |script: &str| {
            let mut command = machine.fleetgate(&["exec", "--pid", &pid, "sh", "-c", script]);
            said(&command.output().expect("it runs"))
        };
        assert_eq!(says("hostname; id -u; id -g"), "box\n0\n0\n", "{}", running.log());
        let process = machine.path(&format!("/proc/{leader}"));
        assert_eq!(says(&own_namespaces()), namespaces(&process));
        assert_eq!(says("cat /proc/self/cgroup"), says("cat /proc/1/cgroup"));
        // /tmp is its own.
        says("echo bytes > /tmp/there");
        assert_eq!(owner_of(&process.join("root/tmp/there")), owner);
        let words = ["exec", "--pid", &pid, "sh", "-c", "echo to $(tty) > $(tty)"];
        let (text, out) = on_terminal(&line_of(&machine.fleetgate(&words)));
        assert!(text.contains("to /dev/pts/0"), "{text} {out:?}");
        machine.says(&["kill", "-s", "KILL", &pid]);
        running.ends();
        machine.returns_to(&before);
    }
}

#[test]
fn machines_that_systemd_machined_knows_have_a_name() {
    needs_root!("containers");
    let folder = system();
    let cgroups = Cgroups::of(&folder);
    let machine = Machine::new();
    let before = machine.traces();
    // Both take it for granted that somebody made these.
    machine.says(&["mkdir", "-p", "/run/dbus", "/run/systemd"]);
    let start = |words: &[&str], log: &str| Running::start(machine.command(words), folder.join(log));
    let bus = start(&["dbus-daemon", "--system", "--nofork", "--nopidfile"], "bus");
    wait_until("the bus is there", || {
        machine.path("/run/dbus/system_bus_socket").exists()
    });
    let machined = start(&["/lib/systemd/systemd-machined"], "machined");
    wait_until("machined answers", || {
        let status = machine
            .command(&["busctl", "status", "org.freedesktop.machine1"])
            .output();
        status.expect("busctl is installed").status.success()
    });
    let root = folder.word("rootfs");
    let line = format!(
        "{} && exec {}",
        cgroups.service(),
        nspawn("box", &root, &[]).join(" ")
    );
    let nspawn = start(&["sh", "-c", &line], "log");
    let leader = machine.process(&SLEEPS.join(" "));

    let exec = |words: &[&str]| {
        let mut command = machine.fleetgate(&["exec", "box"]);
        command.args(words).output().expect("it runs")
    };
    wait_until("it is known", || exec(&["true"]).status.success());
    let says = |script: &str| said(&exec(&["sh", "-c", script]));
    assert_eq!(says("hostname; id -u"), "box\n0\n", "{}", nspawn.log());
    assert_eq!(
        says(&own_namespaces()),
        namespaces(&machine.path(&format!("/proc/{leader}")))
    );
    assert_eq!(says("cat /proc/self/cgroup"), says("cat /proc/1/cgroup"));
    let list = said(&machine.fleetgate(&["ls"]).output().expect("it runs"));
    let line = ["box", "box", "machined", &leader.to_string(), "running"];
    assert!(list.lines().any(|l| l.split_whitespace().eq(line)), "{list}");

    machine.says(&["kill", "-s", "KILL", &leader.to_string()]);
    nspawn.ends();
    wait_until("it is not known any more", || {
        errors(&exec(&["true"])).contains("no container \"box\" runs here")
    });
    for daemon in [machined, bus] {
        daemon.signal("TERM");
        daemon.ends();
    }
    machine.returns_to(&before);
    // Those that systemd-nspawn made are below the service's, which nobody is in.
    let name = cgroups.0.clone();
    drop(cgroups);
    assert_eq!(cgroups_called(&name), Vec::<PathBuf>::new());
}

#[test]
fn a_user_s_container_is_entered_by_its_process() {
    needs_root!("containers");
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let container = Container::rootless(runtime, OWNER);
        let says = |words: &[&str]| said(&container.by_process(words).output().expect("it runs"));
        // Its root is the user, outside.
        let first = Path::new("/proc").join(container.pid.to_string());
        assert_eq!(owner_of(&first), OWNER);
        assert_eq!(says(&["sh", "-c", "id -u; id -g"]), "0\n0\n", "{runtime:?}");
        assert_eq!(
            says(&["cat", "/proc/self/uid_map"]),
            std::fs::read_to_string(first.join("uid_map")).expect("it runs")
        );
        assert_eq!(says(&["sh", "-c", &own_namespaces()]), namespaces(&first));
        // It may gain no privileges where its first process may not; runc's specification says so.
        let gains = |status: &str| {
            status
                .lines()
                .find(|line| line.starts_with("NoNewPrivs:"))
                .map(str::to_owned)
        };
        let first_status = std::fs::read_to_string(first.join("status")).expect("it runs");
        assert_eq!(
            gains(&says(&["cat", "/proc/self/status"])),
            gains(&first_status),
            "{runtime:?}"
        );
        // What it writes is the user's.
        says(&["sh", "-c", "echo bytes > /srv/there"]);
        assert_eq!(owner_of(&container.path("srv/there")), OWNER);
        let command = container.by_process(&["sh", "-c", "tty; stty size; echo to $(tty) > $(tty)"]);
        let line = format!("stty rows 33 columns 111; exec {}", line_of(&command));
        let (text, out) = on_terminal(&line);
        assert!(
            text.contains("/dev/pts/0\r\n33 111\r\nto /dev/pts/0\r\n"),
            "{text} {out:?}"
        );
        // What the user says about it is not believed: it has no name.
        let why = container.refuses(&[], &["true"]);
        assert!(
            why.contains("does not belong to root") && why.contains("--pid N"),
            "{why}"
        );
        let list = Command::new(fleetgate_tests::fleetgate())
            .args(["container", "ls", "--root", &container.root()])
            .output()
            .expect("it runs");
        assert!(
            errors(&list).contains("1 container in") && said(&list).contains("no container runs here"),
            "{list:?}"
        );
        // Nobody else is in a namespace that has one user.
        let out = container.by_process(&["--user", "1000", "true"]).output();
        let why = errors(&out.expect("it runs"));
        assert!(why.contains("does not have this user"), "{why}");
    }
}
