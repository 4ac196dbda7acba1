//! `fleetgate-exec`: what `fleetgate container exec` does, by the small program; and what it leaves to the whole one.

use fleetgate_tests::containers::{Container, errors, line_of, on_terminal};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use std::process::{Command, Output};

fn program() -> String {
    let path = fleetgate_tests::fleetgate().with_file_name("fleetgate-exec");
    path.to_str().expect("text").to_owned()
}

fn command(container: &Container, flags: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", &program(), "--root", &container.root()]);
    command.args(flags).arg(&container.name).args(words);
    command
}

fn exec(container: &Container, flags: &[&str], words: &[&str]) -> Output {
    command(container, flags, words).output().expect("it runs")
}

#[test]
fn the_small_program_does_what_container_exec_does() {
    needs_root!("containers");
    let container = Container::new();
    let script = "id -u; pwd; echo $A; cat; exit 7";
    let flags = ["--user", "app", "-w", "/srv", "--env", "A=1"];
    let piped = |mut command: Command| {
        command.stdin(std::fs::File::open("/etc/hostname").expect("a file"));
        let out = command.output().expect("it runs");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
            errors(&out),
        )
    };
    let ours = piped(command(&container, &flags, &["sh", "-c", script]));
    assert_eq!(ours, piped(container.command(&flags, &["sh", "-c", script])));
    assert_eq!(ours.0, Some(7), "{ours:?}");

    for (words, code) in [
        (&["nonsense"][..], 127),
        (&["/etc/passwd"], 126),
        (&["sh", "-c", "kill -9 $$"], 137),
    ] {
        assert_eq!(
            exec(&container, &[], words).status.code(),
            Some(code),
            "{words:?}"
        );
    }
    // A process of it, and one that is in none.
    let by_process = |pid: &str| Command::new(program()).args(["--pid", pid, "hostname"]).output();
    let out = by_process(&container.pid.to_string()).expect("it runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "runc\n", "{}", errors(&out));
    assert_eq!(
        by_process(&std::process::id().to_string())
            .expect("it runs")
            .status
            .code(),
        Some(125)
    );
    // Who is not root is told so.
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &program(),
        &container.name,
        "true",
    ]);
    let out = other.output().expect("it runs");
    assert_eq!(out.status.code(), Some(125));
    assert!(errors(&out).contains("this takes root"), "{}", errors(&out));
    let out = exec(&container, &["--user", "nobody-here"], &["true"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(errors(&out).contains("nobody-here"), "{}", errors(&out));
    let mut lost = Command::new(program());
    let out = lost
        .args(["--root", &container.root(), "nothing", "true"])
        .output()
        .expect("it runs");
    assert!(
        errors(&out).contains(&container.name),
        "what is there is named: {}",
        errors(&out)
    );
}

#[test]
fn a_terminal_help_and_mistakes_are_the_whole_program_s() {
    needs_root!("containers");
    let container = Container::new();
    let (text, out) = on_terminal(&line_of(&command(&container, &[], &["tty"])));
    assert!(text.contains("/dev/pts/0"), "{text} {out:?}");
    let out = Command::new(program()).arg("--help").output().expect("it runs");
    assert!(String::from_utf8_lossy(&out.stdout).contains("usage: fleetgate container exec"));
    let out = exec(&container, &["--nonsense"], &["true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(errors(&out).contains("--nonsense"), "{}", errors(&out));
}

#[test]
fn what_a_user_put_beside_it_is_not_executed() {
    needs_root!("containers");
    let folder = Folder::new().with_mode(0o1777);
    let copy = folder.word("fleetgate-exec");
    std::fs::copy(program(), &copy).expect("copied");
    let beside = folder.join("fleetgate");
    std::fs::write(&beside, "#!/bin/sh\necho taken\n").expect("written");
    std::fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
    let taken = || {
        let out = Command::new(&copy).arg("--help").output().expect("it runs");
        String::from_utf8_lossy(&out.stdout).contains("taken")
    };
    assert!(!taken(), "the directory is everybody's");
    std::fs::set_permissions(&*folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
    std::os::unix::fs::chown(&beside, Some(1000), None).expect("chown");
    assert!(!taken(), "the file is a user's");
    // The control, where no package's stands before it.
    std::os::unix::fs::chown(&beside, Some(0), None).expect("chown");
    assert!(taken() || std::path::Path::new("/usr/bin/fleetgate").exists());
}
