//! Containers that Docker, Podman and LXC start: found by the names that people gave, and entered as their own `exec` enters them.

use crate::entering::STATE;
use crate::runtimes::{Cgroups, Running, own_namespaces, said};
use fleetgate_tests::containers::{Machine, cgroups_called, errors, make_root};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Puts a layer over what engines write to that is not theirs alone, so the machine below keeps its own.
const LAYERS: &str = "for place in /etc /var/lib; do own=/run/layers$place && mkdir -p $own/upper $own/work && \
    mount -t overlay -o lowerdir=$place,upperdir=$own/upper,workdir=$own/work none $place || exit; done; \
    for place in /var/lib/docker /var/lib/containers; do mkdir -p $place && mount -t tmpfs none $place || exit; done";
/// An engine's place for containers, when it is not the usual one.
const ELSEWHERE: &str = "/run/elsewhere";
/// What an image says of its containers.
const IMAGE: [&str; 8] = [
    "--change",
    "USER app",
    "--change",
    "WORKDIR /srv",
    "--change",
    "ENV FROM=image",
    "--change",
    "CMD [\"/bin/sleep\",\"601\"]",
];

/// A machine with an engine's command on it.
struct Engine {
    // The machine goes first: what is in cgroups ends with it.
    machine: Machine,
    cgroups: Cgroups,
    folder: Folder,
    /// The command, and the flags that all of its commands take.
    words: Vec<&'static str>,
}

/// The container called so, as fleetgate lists it.
fn listed(machine: &Machine, name: &str) -> Value {
    let out = machine.fleetgate(&["ls", "--json"]).output();
    let list: Value = serde_json::from_str(&said(&out.expect("it runs"))).expect("JSON");
    let all = list["containers"].as_array().expect("a list");
    let found = all.iter().find(|found| found["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {list}")).clone()
}

/// `fleetgate container exec` with these words.
fn exec(machine: &Machine, words: &[&str]) -> Output {
    let words = [&["exec"], words].concat();
    machine.fleetgate(&words).output().expect("it runs")
}

/// Ends a machine. What it had in these cgroups has ended with it, and they are empty.
fn end(machine: Machine, cgroups: Vec<Cgroups>) {
    drop(machine);
    let names: Vec<String> = cgroups.iter().map(|cgroups| cgroups.0.clone()).collect();
    drop(cgroups);
    for name in names {
        assert_eq!(cgroups_called(&name), Vec::<PathBuf>::new());
    }
}

impl Engine {
    fn new(words: &[&'static str]) -> Engine {
        let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
        make_root(&folder);
        let mut tar = Command::new("tar");
        tar.args([
            "-C",
            &folder.word("rootfs"),
            "-cf",
            &folder.word("image.tar"),
            ".",
        ]);
        said(&tar.output().expect("tar runs"));
        let machine = Machine::new();
        machine.says(&["sh", "-c", LAYERS]);
        Engine {
            machine,
            cgroups: Cgroups::of(&folder),
            folder,
            words: words.to_vec(),
        }
    }

    fn says(&self, words: &[&str]) -> String {
        self.machine.says(&[&self.words, words].concat())
    }

    fn import(&self) {
        let image = self.folder.word("image.tar");
        self.says(&[&["import"], &IMAGE[..], &[&image, "test"]].concat());
    }

    /// Starts a container; its id.
    fn run(&self, name: &str, flags: &[&str]) -> String {
        let parent = format!("/{}", self.cgroups.0);
        let own = ["--name", name, "--network", "none", "--cgroup-parent", &parent];
        let words = [&["run", "--detach"], &own[..], flags, &["test"]].concat();
        self.says(&words).trim().to_owned()
    }

    fn exec(&self, words: &[&str]) -> Output {
        exec(&self.machine, words)
    }

    fn listed(&self, name: &str) -> Value {
        listed(&self.machine, name)
    }

    /// What a program says that fleetgate starts in a container, beside what it says by the engine, but for lines that begin so.
    fn both(&self, container: &str, script: &str, but: &[&str]) -> [Vec<String>; 2] {
        let words = [container, "sh", "-c", script];
        let ours = said(&self.exec(&words));
        let theirs = self.says(&[&["exec"], &words[..]].concat());
        [ours, theirs].map(|text| {
            let lines = text.lines();
            let kept = lines.filter(|line| !but.iter().any(|beginning| line.starts_with(beginning)));
            kept.map(str::to_owned).collect()
        })
    }

    /// All that Docker and Podman have in common. `but`: beginnings of lines in which the engine's own `exec` differs from what it
    /// writes into the container's configuration.
    fn check(&self, engine: &str, but: &[&str]) {
        self.import();
        let id = self.run("web", &["--label", "app=shop"]);
        let root = ["--user", "root", "--cap-add", "NET_ADMIN", "--cap-drop", "CHOWN"];
        self.run("root", &[&root[..], &["--memory", "64m"]].concat());
        let before = self.listed("web");
        assert_eq!((&before["id"], &before["runtime"]), (&json!(id), &json!(engine)));

        let user = "1000\n1001\nimage\n/srv\n";
        for name in ["web", &id, &id[..6]] {
            let out = self.exec(&[name, "sh", "-c", "id -u; id -g; echo $FROM; pwd"]);
            assert_eq!(said(&out), user, "{name}");
        }
        for name in ["web", "root"] {
            let [ours, theirs] = self.both(name, STATE, but);
            assert_eq!(ours, theirs, "{name}");
            let more = [&["USER=", "LOGNAME=", "SHELL="], but].concat();
            let [mut ours, mut theirs] = self.both(name, "env", &more);
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{name}");
        }

        self.says(&["pause", "web"]);
        let why = errors(&self.exec(&["web", "true"]));
        assert!(why.contains("container web: it is paused"), "{why}");
        self.says(&["unpause", "web"]);
        assert_eq!(said(&self.exec(&["web", "echo", "on"])), "on\n");

        self.says(&["restart", "-t", "0", "web"]);
        let after = self.listed("web");
        assert_eq!(after["id"], before["id"]);
        assert_ne!(after["pid"], before["pid"]);
        assert_eq!(said(&self.exec(&["web", "echo", "again"])), "again\n");

        self.says(&["stop", "-t", "0", "web"]);
        let why = errors(&self.exec(&["web", "true"]));
        assert!(why.contains("no container \"web\" runs here"), "{why}");
    }

    fn end(self) {
        end(self.machine, vec![self.cgroups]);
    }
}

/// Starts the daemon of Docker, with nothing to do with this machine's network.
fn dockerd(engine: &Engine, flags: &[&str]) -> Running {
    let own = ["unshare", "--net", "dockerd", "--iptables=false", "--bridge=none"];
    let words = [&own, flags].concat();
    // Without the bound that stands before each command: on a busy machine its work takes longer than one.
    let bounded = engine.machine.command(&words);
    let mut all = bounded.get_args().skip(1);
    let mut command = Command::new(all.next().expect("a program"));
    command.args(all).stdin(Stdio::null()).process_group(0);
    let daemon = Running::start(command, engine.folder.join("log"));
    wait_until("dockerd answers", || {
        let words = [&engine.words[..], &["version"]].concat();
        let version = engine.machine.command(&words).output();
        version.expect("docker is installed").status.success()
    });
    daemon
}

/// Signals the daemon alone, and not what led to it.
fn signal_dockerd(engine: &Engine, signal: &str) {
    let line = format!("kill -s {signal} $(cat /run/docker.pid)");
    engine.machine.says(&["sh", "-c", &line]);
}

/// Ends it, and waits. Who led to it stops when it is stopped, and does not always go on when it does: that is killed at the end.
fn end_dockerd(engine: &Engine, daemon: Running) {
    signal_dockerd(engine, "TERM");
    wait_until("dockerd has ended", || {
        let all = engine.machine.processes();
        !all.iter().any(|(_, words)| words.starts_with("dockerd"))
    });
    drop(daemon);
}

#[test]
fn docker_s_containers_too() {
    needs_root!("containers");
    let engine = Engine::new(&["docker", "--host", "unix:///run/docker.sock"]);
    let daemon = dockerd(&engine, &[]);
    engine.check("docker", &[]);
    // Docker's labels are all known.
    engine.run("labelled", &["--label", "app=shop"]);
    assert_eq!(engine.listed("labelled")["labels"]["app"], "shop");
    engine.says(&["rename", "labelled", "shop"]);
    assert_eq!(said(&engine.exec(&["shop", "echo", "in"])), "in\n");
    // The daemon would give them ten seconds to end.
    engine.says(&["rm", "-f", "root", "shop"]);
    end_dockerd(&engine, daemon);

    // Its containers are wherever somebody wants them.
    let daemon = dockerd(&engine, &["--data-root", ELSEWHERE]);
    engine.import();
    engine.run("far", &["--label", "app=shop"]);
    let far = engine.listed("far");
    assert_eq!(
        (&far["runtime"], &far["labels"]["app"]),
        (&json!("docker"), &json!("shop"))
    );
    assert_eq!(said(&engine.exec(&["far", "echo", "in"])), "in\n");
    // While the daemon hangs.
    signal_dockerd(&engine, "STOP");
    assert_eq!(said(&engine.exec(&["far", "echo", "still"])), "still\n");
    signal_dockerd(&engine, "CONT");
    engine.says(&["rm", "-f", "far"]);
    end_dockerd(&engine, daemon);
    engine.end();
}

#[test]
fn podman_s_containers_too() {
    needs_root!("containers");
    // crun takes no machine that has both versions of cgroups, as this one may.
    const PODMAN: [&str; 6] = [
        "podman",
        "--cgroup-manager=cgroupfs",
        "--events-backend=file",
        "--runtime=runc",
        "--log-level=error",
        "--storage-driver=overlay",
    ];
    let engine = Engine::new(&PODMAN);
    // Its own `exec` leaves out the group that is the user's first, and the variable.
    engine.check("podman", &["Groups:", "HOSTNAME="]);
    // One that goes when it ends may be in another list.
    engine.run("gone", &["--rm"]);
    assert_eq!(engine.listed("gone")["runtime"], "podman");
    assert_eq!(said(&engine.exec(&["gone", "echo", "in"])), "in\n");
    // Whoever is root there on this machine may change its configuration.
    engine.run("users", &["--user", "root", "--uidmap", "0:100000:65536"]);
    let why = errors(&engine.exec(&["users", "true"]));
    assert!(
        why.contains("others than root may change /var/lib/containers"),
        "{why}"
    );
    engine.end();

    // Where its storage has another form and place.
    let engine = Engine::new(&[&PODMAN[..5], &["--storage-driver=vfs", "--root", ELSEWHERE]].concat());
    engine.import();
    engine.run("far", &[]);
    assert_eq!(engine.listed("far")["runtime"], "podman");
    assert_eq!(said(&engine.exec(&["far", "echo", "in"])), "in\n");
    engine.end();
}

/// A first process that goes to a cgroup below its own, as systemd does, in the hierarchies that systemd uses.
const INIT: &str = "#!/bin/sh\n\
    go() { mount \"$@\" none /srv && mkdir /srv/init.scope && echo $$ > /srv/init.scope/cgroup.procs && umount /srv; }\n\
    go -t cgroup2\n\
    case $(cat /proc/self/cgroup) in *name=systemd*) go -t cgroup -o none,name=systemd;; esac\n\
    exec sleep 601\n";
/// The words of a first process that sleeps.
const SLEEPS: &[&str] = &["/bin/sleep", "601"];
/// Lines of LXC's that give a container a user namespace.
const USERS: &str = "lxc.idmap = u 0 100000 65536\nlxc.idmap = g 0 100000 65536\n";

/// What a folder is called.
fn name_of(folder: &Folder) -> String {
    folder.file_name().expect("a name").display().to_string()
}

/// LXC on a machine of its own.
struct Lxc {
    // The machine goes first: what is in cgroups ends with it.
    machine: Machine,
    cgroups: Vec<Cgroups>,
    folder: Folder,
}

impl Lxc {
    fn new() -> Lxc {
        let machine = Machine::new();
        // It makes cgroups where the machine's first process is, and people's machines have that at the top.
        for top in [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/systemd",
        ] {
            let procs = Path::new(top).join("cgroup.procs");
            if procs.exists() {
                std::fs::write(procs, machine.first.to_string()).expect("moved");
            }
        }
        let folder = Folder::below(Path::new("/var/tmp")).with_mode(0o755);
        let own = name_of(&folder);
        // The last is where its watching process goes in the end.
        let names = [
            format!("lxc.payload.{own}"),
            format!("lxc.monitor.{own}"),
            "lxc.pivot".to_owned(),
        ];
        Lxc {
            machine,
            cgroups: names.map(Cgroups).into(),
            folder,
        }
    }

    /// Makes a container with these lines in its configuration; its name.
    fn make(&self, kind: &str, lines: &str) -> String {
        let name = format!("{}-{kind}", name_of(&self.folder));
        make_root(&self.folder);
        let root = self.folder.join(&name).join("rootfs");
        std::fs::create_dir(self.folder.join(&name)).expect("mkdir");
        std::fs::rename(self.folder.join("rootfs"), &root).expect("moved");
        std::fs::write(root.join("bin/init"), INIT).expect("written");
        std::fs::set_permissions(root.join("bin/init"), PermissionsExt::from_mode(0o755)).expect("chmod");
        if lines == USERS {
            let mut chown = Command::new("chown");
            said(
                &chown
                    .args(["-R", "100000:100000"])
                    .arg(&root)
                    .output()
                    .expect("chown runs"),
            );
        }
        let config = format!(
            "lxc.rootfs.path = dir:{}\nlxc.uts.name = {kind}\nlxc.net.0.type = empty\nlxc.tty.max = 0\n\
             lxc.mount.auto = proc:mixed sys:ro\nlxc.apparmor.profile = unconfined\n{lines}",
            root.display()
        );
        std::fs::write(self.folder.join(&name).join("config"), config).expect("written");
        name
    }

    /// A command of LXC's about a container.
    fn says(&self, command: &str, name: &str, words: &[&str]) -> String {
        let place = self.folder.display().to_string();
        let all = [&[command, "--lxcpath", &place, "--name", name], words].concat();
        self.machine.says(&all)
    }

    fn start(&self, name: &str, words: &[&str]) {
        self.says("lxc-start", name, &[&["--daemon", "--"], words].concat());
    }

    /// The number of its first process, as LXC has it.
    fn first(&self, name: &str) -> Value {
        let pid = self.says("lxc-info", name, &["--pid", "--no-humanize"]);
        json!(pid.trim().parse::<i32>().expect("a number"))
    }
}

#[test]
fn lxc_s_containers_too() {
    needs_root!("containers");
    let lxc = Lxc::new();
    let says = |name: &str, script: &str| said(&exec(&lxc.machine, &[name, "sh", "-c", script]));
    for (kind, lines, words, sleeps, owner) in [
        ("plain", "", SLEEPS, "/bin/sleep 601", "0"),
        ("users", USERS, SLEEPS, "/bin/sleep 601", "100000"),
        ("system", "", &["/bin/init"], "sleep 601", "0"),
    ] {
        let name = lxc.make(kind, lines);
        lxc.start(&name, words);
        lxc.machine.process(sleeps);
        let found = listed(&lxc.machine, &name);
        assert_eq!(
            (&found["runtime"], &found["pid"]),
            (&json!("lxc"), &lxc.first(&name))
        );

        // Root there, with what containers usually have, where its first process is.
        assert_eq!(says(&name, "hostname; id -u; id -g"), format!("{kind}\n0\n0\n"));
        let attach = ["--", "sh", "-c", &own_namespaces()];
        assert_eq!(
            says(&name, &own_namespaces()),
            lxc.says("lxc-attach", &name, &attach)
        );
        let state = says(&name, "cat /proc/self/status /proc/self/uid_map");
        let field = |name: &str| {
            state
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        assert_eq!(field("CapEff:"), Some("00000000a80425fb"), "{kind}");
        let map: Vec<&str> = state.lines().last().expect("one").split_whitespace().collect();
        assert_eq!(map[..2], ["0", owner]);
        assert_eq!(
            says(&name, "cat /proc/self/cgroup"),
            says(&name, "cat /proc/1/cgroup")
        );

        lxc.says("lxc-freeze", &name, &[]);
        let why = errors(&exec(&lxc.machine, &[&name, "true"]));
        assert!(why.contains("it is paused"), "{why}");
        lxc.says("lxc-unfreeze", &name, &[]);
        assert_eq!(says(&name, "echo on"), "on\n");

        lxc.says("lxc-stop", &name, &["--kill"]);
        let why = errors(&exec(&lxc.machine, &[&name, "true"]));
        assert!(why.contains("runs here"), "{why}");
        lxc.start(&name, SLEEPS);
        let again = listed(&lxc.machine, &name);
        assert_eq!(again["pid"], lxc.first(&name));
        assert_ne!(again["pid"], found["pid"]);
        lxc.says("lxc-stop", &name, &["--kill"]);
    }
    let Lxc { machine, cgroups, .. } = lxc;
    end(machine, cgroups);
}
