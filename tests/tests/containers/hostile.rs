//! Containers that are no good, or that mean harm to whoever enters: a clear error, soon, and nothing left behind.

use fleetgate_tests::containers::{Container, Runtime, on_terminal};
use fleetgate_tests::needs_root;
use serde_json::json;
use std::process::Command;
use std::time::Duration;

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
    let why = fleetgate_tests::containers::errors(&out);
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
    fleetgate_tests::world::wait_until("its first process is gone", || !container.runs());
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
        ("its directory", directory.clone(), "no container"),
        ("its state", directory.join("state.json"), "no container"),
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
    assert!(
        fleetgate_tests::containers::errors(&out).contains("config.json is not where"),
        "{out:?}"
    );
    assert_eq!(out.status.code(), Some(125));
    // A link of a user's to a directory of root's, with files of the user's in it, is no directory of root's.
    let elsewhere = fleetgate_tests::folder::Folder::new();
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
    let said = fleetgate_tests::containers::errors(&out);
    assert!(said.contains("no container"), "{said}");
}

/// Containers that die while they are entered: each time a program that ran, or a clear error; no process is left.
#[test]
fn entering_one_that_dies_meanwhile() {
    needs_root!("containers");
    for round in 0..6 {
        let container = Container::new();
        let mut all = Vec::new();
        for _ in 0..8 {
            let mut command = container.command(&[], &["true"]);
            command
                .stderr(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null());
            all.push(command.spawn().expect("it runs"));
        }
        std::thread::sleep(Duration::from_millis(round * 4));
        let _ = container
            .runtime(&["kill", &container.name, "KILL"])
            .stderr(std::process::Stdio::null())
            .status();
        for child in all {
            let out = child.wait_with_output().expect("it ends");
            let why = fleetgate_tests::containers::errors(&out);
            let killed = out.status.code() == Some(128 + 9);
            assert!(
                out.status.success() || killed || why.contains("has ended"),
                "{out:?} {why}"
            );
        }
    }
}
