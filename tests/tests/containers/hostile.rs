//! Containers that are no good, or that mean harm to whoever enters: a clear error, soon, and nothing left behind.

use fleetgate_tests::containers::{Container, Machine, Runtime, cgroups_called, errors, on_terminal};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;
use serde_json::json;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

fn remove(container: &Container, name: &str) {
    std::fs::remove_file(container.path(name)).expect("it was there");
}

fn fifo(container: &Container, name: &str) {
    let made = Command::new("mkfifo").arg(container.path(name)).status();
    assert!(made.expect("mkfifo runs").success());
}

#[test]
fn accounts_that_are_no_file_hold_nobody_up() {
    needs_root!("containers");
    let container = Container::new();
    remove(&container, "etc/passwd");
    fifo(&container, "etc/passwd");
    let why = container.refuses(&["--user", "app"], &["true"]);
    assert!(why.contains("/etc/passwd, in the container"), "{why}");
    // The machine's own accounts are not taken for it, by whatever way.
    for target in [
        "/proc/self/root/etc/passwd",
        "/proc/1/root/etc/passwd",
        "../../../../etc/shadow",
    ] {
        remove(&container, "etc/passwd");
        std::os::unix::fs::symlink(target, container.path("etc/passwd")).expect("a link");
        let why = container.refuses(&["--user", "daemon"], &["true"]);
        assert!(
            why.contains("daemon") || why.contains("/etc/passwd"),
            "{target}: {why}"
        );
    }
    remove(&container, "etc/passwd");
    std::fs::write(container.path("etc/passwd"), vec![b'x'; 3 << 20]).expect("written");
    let why = container.refuses(&["--user", "app"], &["true"]);
    assert!(why.contains("EFBIG"), "{why}");
    // Without any, numbers still do.
    remove(&container, "etc/passwd");
    assert_eq!(
        container.says(&["--user", "12:13"], &["sh", "-c", "id -u; id -g"]),
        "12\n13\n"
    );
}

#[test]
fn a_devpts_that_is_none_is_no_terminal() {
    needs_root!("containers");
    let with_terminal = |container: &Container| {
        let line = format!(
            "exec {} container exec --root {} {} tty",
            fleetgate_tests::fleetgate().display(),
            container.root(),
            container.name
        );
        on_terminal(&line).0
    };
    let all = json!(["CAP_SYS_ADMIN", "CAP_MKNOD"]);
    let container = Container::with(Runtime::Runc, |config| {
        for set in ["bounding", "effective", "permitted"] {
            config["process"]["capabilities"][set] = all.clone();
        }
    });
    assert!(with_terminal(&container).contains("/dev/pts/0"));
    // Something is mounted over the file that makes terminals.
    let over = "echo > /tmp/ptmx; mount --bind /tmp/ptmx /dev/pts/ptmx";
    container.says(&[], &["sh", "-c", over]);
    let said = with_terminal(&container);
    assert!(
        said.contains("opening a terminal of the container's /dev/pts"),
        "{said}"
    );
    container.says(
        &[],
        &[
            "sh",
            "-c",
            "umount /dev/pts/ptmx; mount -t tmpfs none /dev/pts; mkfifo /dev/pts/ptmx",
        ],
    );
    let said = with_terminal(&container);
    assert!(
        said.contains("opening a terminal of the container's /dev/pts"),
        "{said}"
    );
}

#[test]
fn a_directory_outside_is_not_worked_in() {
    needs_root!("containers");
    let container = Container::new();
    for directory in [
        "/proc/self/fd/3",
        "/proc/self/fd/4",
        "/proc/self/fd/5",
        "/proc/self/fd/6",
        "/proc/self/fd/7",
    ] {
        let why = container.refuses(&["-w", directory], &["cat", "../../../../../etc/hostname"]);
        assert!(why.contains(directory), "{why}");
    }
    let why = container.refuses(&["-w", "/no/such"], &["true"]);
    assert!(why.contains("/no/such, in the container"), "{why}");
}

#[test]
fn what_is_not_there_is_named() {
    needs_root!("containers");
    let container = Container::new();
    let out = container.exec(&[], &["no-such-program"]);
    assert_eq!(out.status.code(), Some(127), "{out:?}");
    let why = errors(&out);
    assert!(why.contains("no-such-program"), "{why}");
    remove(&container, "bin/sh");
    let why = container.refuses(&[], &[]);
    assert!(why.contains("/bin/sh"), "{why}");
}

#[test]
fn paused_and_ended_containers_are_not_entered() {
    needs_root!("containers");
    let container = Container::new();
    let pause = container
        .runtime(&["pause", &container.name])
        .status()
        .expect("runc runs");
    if pause.success() {
        let why = container.refuses(&[], &["true"]);
        assert!(why.contains("it is paused"), "{why}");
        let list = Command::new(fleetgate_tests::fleetgate())
            .args(["container", "ls", "--root", &container.root()])
            .output()
            .expect("it runs");
        assert!(
            String::from_utf8_lossy(&list.stdout).contains("paused"),
            "{list:?}"
        );
        assert!(
            container
                .runtime(&["resume", &container.name])
                .status()
                .expect("runc runs")
                .success()
        );
    }
    assert_eq!(container.says(&[], &["echo", "back"]), "back\n");
    let kill = container.runtime(&["kill", &container.name, "KILL"]).status();
    assert!(kill.expect("runc runs").success());
    wait_until("its first process is gone", || !container.runs());
    let why = container.refuses(&[], &["true"]);
    assert!(why.contains("it has ended"), "{why}");
}

#[test]
fn a_number_that_is_somebody_else_s_now_is_not_entered() {
    needs_root!("containers");
    let container = Container::new();
    let state = std::path::PathBuf::from(container.root())
        .join(&container.name)
        .join("state.json");
    let text = std::fs::read_to_string(&state).expect("its state");
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let began = document["init_process_start"].as_u64().expect("a number");
    document["init_process_start"] = json!(began + 1);
    std::fs::write(&state, document.to_string()).expect("written");
    let why = container.refuses(&[], &["true"]);
    std::fs::write(&state, text).expect("written");
    assert!(why.contains("it has ended"), "{why}");
}

/// What a user may write says nothing: not by a directory of his, a file, a link, or a bundle in his hands.
#[test]
fn only_what_root_keeps_is_believed() {
    needs_root!("containers");
    let container = Container::new();
    let give = |path: &std::path::Path, uid| std::os::unix::fs::chown(path, Some(uid), None).expect("chown");
    let directory = std::path::PathBuf::from(container.root()).join(&container.name);
    let bundle = container.path("..");
    for (what, path, why) in [
        ("its directory", directory.clone(), "does not belong to root"),
        (
            "its state",
            directory.join("state.json"),
            "does not belong to root",
        ),
        (
            "its configuration",
            bundle.join("config.json"),
            "others than root may change",
        ),
        ("the bundle", bundle.clone(), "others than root may change"),
    ] {
        assert_eq!(container.says(&[], &["echo", "in"]), "in\n");
        give(&path, 1000);
        let said = container.refuses(&[], &["true"]);
        give(&path, 0);
        assert!(said.contains(why), "{what}: {said}");
    }
    // One that is gone says nothing, and is no leave to enter without it.
    let config = bundle.join("config.json");
    std::fs::rename(&config, bundle.join("away")).expect("moved");
    let out = container.exec(&[], &["true"]);
    std::fs::rename(bundle.join("away"), &config).expect("moved");
    assert!(errors(&out).contains("config.json is not where"), "{out:?}");
    assert_eq!(out.status.code(), Some(125));
    // The bundle's place is a link of a user's to a configuration of root's, which gives more.
    let user = Folder::new().with_mode(0o755);
    let link = user.join("bundle");
    std::os::unix::fs::symlink(&bundle, &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(1000), None).expect("chown");
    let state = directory.join("state.json");
    let text = std::fs::read_to_string(&state).expect("its state");
    let moved = format!("bundle={}", link.display());
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    document["config"]["labels"] = json!([moved]);
    let entered_by = |document: &serde_json::Value| {
        std::fs::write(&state, document.to_string()).expect("written");
        container.exec(&[], &["true"])
    };
    let out = entered_by(&document);
    assert!(errors(&out).contains("others than root may change"), "{out:?}");
    // The control: root's own link is as good as its target.
    std::os::unix::fs::lchown(&link, Some(0), None).expect("chown");
    let out = entered_by(&document);
    assert!(out.status.success(), "{out:?}");
    std::fs::write(&state, text).expect("written");
    // A link of a user's to a directory of root's, with files of the user's in it, is no directory of root's.
    let elsewhere = Folder::new();
    std::os::unix::fs::symlink(&directory, elsewhere.join(&container.name)).expect("a link");
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(fleetgate_tests::fleetgate())
        .args(["container", "exec", "--root"]);
    let out = command
        .arg(&*elsewhere)
        .args([&container.name, "true"])
        .output()
        .expect("it runs");
    let said = errors(&out);
    assert!(said.contains("no container"), "{said}");
}

/// How many containers die, how often each is entered, and how many enter it at a time.
const CONTAINERS: usize = 25;
const JOINS: usize = 40;
const AT_A_TIME: usize = 8;

/// What a join may say: each names the container's end.
const REFUSALS: [&str; 6] = [
    "container NAME: it has ended; start it, then try again",
    "no container \"NAME\" runs here, nor any other by what --root /run/runc has: without it the usual places are searched",
    "container NAME: the container: it has ended: No such process (ESRCH)",
    "container NAME: the container: it has ended: No such file or directory (ENOENT)",
    "container NAME: the container: it has ended: No such device (ENODEV)",
    "container NAME: the container: it has ended: Cannot allocate memory (ENOMEM)",
];

/// Enters a container [`JOINS`] times while it ends, which it does when `moment` joins have begun; what came of them. Every
/// twentieth runs a program that ends only with its container.
fn join_while_it_ends(container: &Container, moment: usize, end: &[&str]) -> Vec<Output> {
    let begun = AtomicUsize::new(0);
    let join = |number: usize| match (number % 20, number % 2) {
        (0, _) => container.exec(&[], &["sleep", "600"]),
        (_, 0) => container.exec(&[], &["true"]),
        _ => container.exec(&["--user", "app"], &["true"]),
    };
    let joins = || -> Vec<Output> {
        let numbers = std::iter::from_fn(|| Some(begun.fetch_add(1, Ordering::Relaxed)));
        numbers.take_while(|number| *number < JOINS).map(join).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(joins)).collect();
        wait_until("joins begin", || begun.load(Ordering::Relaxed) > moment);
        let ended = container.runtime(end).output().expect("runc runs");
        assert!(ended.status.success(), "{end:?}: {}", errors(&ended));
        let all = threads.into_iter().map(|thread| thread.join().expect("joins"));
        all.flatten().collect()
    })
}

/// 1,000 joins to containers that die meanwhile, each of them at another moment: each time a program that ran, one that was
/// killed with its container, or an error that says why. Every second container is removed at once, and its cgroups with it.
/// Nothing is left: no process, mount or cgroup; descriptors are gone with the processes.
#[test]
fn entering_one_that_dies_meanwhile() {
    needs_root!("containers");
    let folder = Folder::new();
    let machine = Machine::with_a_small_program(&folder);
    let before = machine.traces();
    let mut killed = 0;
    for round in 0..CONTAINERS {
        let container = Container::beside(machine.first);
        let name = container.name.clone();
        let end: &[&str] = match round % 2 {
            0 => &["kill", &name, "KILL"],
            _ => &["delete", "--force", &name],
        };
        let all = join_while_it_ends(&container, round * JOINS / CONTAINERS, end);
        assert_eq!(all.len(), JOINS);
        for out in all {
            let said = errors(&out).replace(&name, "NAME");
            let refusal = said
                .strip_prefix("fleetgate: ")
                .and_then(|said| said.strip_suffix('\n'));
            match (out.status.code(), refusal) {
                (Some(0), None) if said.is_empty() => {}
                (Some(137), None) if said.is_empty() => killed += 1,
                (Some(125), Some(refusal)) if REFUSALS.contains(&refusal) => {}
                (code, _) => panic!("{code:?} {said:?}"),
            }
        }
        drop(container);
        for left in cgroups_called(&name) {
            // runc gives up after a few tries on a cgroup that a helper is still in, and nobody else removes it.
            assert!(round % 2 == 1, "{left:?}");
            std::fs::remove_dir(&left).expect("nobody is in it");
        }
    }
    assert!(killed > 0, "no join was inside when its container died");
    machine.returns_to(&before);
}
