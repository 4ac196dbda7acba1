//! `fleetgate-exec`: what `fleetgate container exec` does, by the small program; and what it leaves to the whole one.

use fleetgate_tests::containers::{Container, Runtime, errors, line_of, on_terminal};
use fleetgate_tests::folder::Folder;
use fleetgate_tests::needs_root;
use std::process::{Command, Output, Stdio};

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
    assert_eq!(out.status.code(), Some(125));
    assert!(errors(&out).contains("--nonsense"), "{}", errors(&out));
}

/// Flags, words, the exit code, and what is said.
type Case = (
    &'static [&'static str],
    &'static [&'static str],
    i32,
    &'static str,
);

const CASES: [Case; 20] = [
    // As docker's users type it: standard input is passed on anyway, a terminal is there or refused.
    (&["-i"], &["true"], 0, ""),
    (&["--interactive", "-i"], &["true"], 0, ""),
    (
        &["-it"],
        &["true"],
        125,
        "`-t`: standard input and output are not both a terminal: leave it out",
    ),
    (&["--tty"], &["true"], 125, "leave it out"),
    (
        &[],
        &["-it", "sh"],
        125,
        "-it: flags stand before the container's NAME, as `fleetgate container exec",
    ),
    (
        &["-d"],
        &["true"],
        125,
        "is `fleetgate container exec NAME COMMAND &`",
    ),
    (&["--privileged"], &["true"], 125, "`--user root` has what"),
    (
        &["--env-file", "x"],
        &["true"],
        125,
        "each variable is an `--env NAME=VALUE`",
    ),
    // A program's own 2 is told from a mistake in the words.
    (&[], &["sh", "-c", "exit 2"], 2, ""),
    (&["--nonsense"], &["true"], 125, "there is no flag `--nonsense`"),
    (&["-e", "A"], &["true"], 125, "it is NAME=VALUE, as --env LANG=C"),
    (&[], &[""], 125, "the COMMAND has no name"),
    // What is not there inside.
    (&[], &["nonsense"], 127, "has no program \"nonsense\""),
    (
        &[],
        &["/etc/passwd"],
        126,
        "\"/etc/passwd\" cannot be executed: is it a program",
    ),
    (
        &["-w", "/nowhere"],
        &["true"],
        125,
        "begin elsewhere, as with -w /",
    ),
    (
        &["-w", "/etc/passwd"],
        &["true"],
        125,
        "/etc/passwd, in the container: it is no directory; begin elsewhere, as with -w /",
    ),
    // Another group, and the container's own user.
    (
        &["-u", ":app"],
        &["sh", "-c", "[ $(id -u) = 0 ] && [ $(id -gn) = app ]"],
        0,
        "",
    ),
    (
        &["-u", ":nothing"],
        &["true"],
        125,
        "the group nothing: the container has no such",
    ),
    (
        &["-u", "nobody-here"],
        &["true"],
        125,
        "--user takes a name of its /etc/passwd (a group: of its /etc/group), or a number",
    ),
    (
        &["-u", "app:nobody-here"],
        &["true"],
        125,
        "the group nobody-here: the container has no such account or group",
    ),
];

#[test]
fn both_programs_say_what_helps_with_the_same_code() {
    needs_root!("containers");
    let container = Container::new();
    for (flags, words, code, said) in CASES {
        for command in [
            &mut command(&container, flags, words),
            &mut container.command(flags, words),
        ] {
            let out = command.stdin(Stdio::null()).output().expect("it runs");
            let line = line_of(command);
            assert_eq!(out.status.code(), Some(code), "{line}: {}", errors(&out));
            assert!(errors(&out).contains(said), "{line}: {}", errors(&out));
        }
    }
    // By docker's words on a terminal.
    for flags in [&["-it"][..], &["-i", "-t"], &["--interactive", "--tty"]] {
        for command in [
            &command(&container, flags, &["tty"]),
            &container.command(flags, &["tty"]),
        ] {
            let (text, _) = on_terminal(&line_of(command));
            assert!(text.contains("/dev/pts/0"), "{text}");
        }
    }
    let (text, _) = on_terminal(&line_of(&command(&container, &["-t", "-T"], &["tty"])));
    assert!(text.contains("`-t` and `-T` contradict each other"), "{text}");
}

#[test]
fn who_names_no_container_is_told_what_there_is() {
    needs_root!("containers");
    let container = Container::new();
    let whole = fleetgate_tests::fleetgate().to_str().expect("text").to_owned();
    let root = container.root();
    let empty = Folder::new();
    for program in [&[program().as_str()][..], &[&whole, "container", "exec"]] {
        for (words, said) in [
            (
                &["--root", &root, "nothing", "true"][..],
                format!("there are {}", container.name),
            ),
            (
                &["--root", &empty.word("."), "web", "true"],
                "without it the usual places are searched".to_owned(),
            ),
            (
                &["--root", "/nowhere", "web", "true"],
                "there is no such directory".to_owned(),
            ),
            (
                &["nothing", "true"],
                "no container \"nothing\" runs here".to_owned(),
            ),
            (
                &["", "true"],
                "NAME is empty: `fleetgate container ls`".to_owned(),
            ),
            (
                &["--pid", "4194305", "true"],
                "--pid 4194305: there is no such process; `fleetgate container ls`".to_owned(),
            ),
            (&["--pid", "0", "true"], "wants the id of a process".to_owned()),
        ] {
            let out = Command::new(program[0])
                .args(&program[1..])
                .args(words)
                .stdin(Stdio::null())
                .output();
            let out = out.expect("it runs");
            assert_eq!(out.status.code(), Some(125), "{words:?}: {}", errors(&out));
            assert!(errors(&out).contains(&said), "{words:?}: {}", errors(&out));
        }
    }
}

#[test]
fn a_container_without_a_shell_or_a_devpts_says_so() {
    needs_root!("containers");
    let container = Container::with(Runtime::Runc, |config| {
        let mounts = config["mounts"].as_array_mut().expect("a list");
        mounts.retain(|mount| mount["destination"] != "/dev/pts");
    });
    let (text, _) = on_terminal(&line_of(&container.command(&[], &["true"])));
    assert!(
        text.contains("/dev/pts") && text.contains("-T does without a terminal"),
        "{text}"
    );
    std::fs::remove_file(container.path("bin/sh")).expect("removed");
    let out = exec(&container, &[], &[]);
    assert_eq!(out.status.code(), Some(127), "{}", errors(&out));
    assert!(
        errors(&out).contains("has no shell: write a COMMAND that it has"),
        "{}",
        errors(&out)
    );
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
