//! Containers by way of the node: Debian's ssh, scp and sftp as `ACCOUNT+CONTAINER@node`, and what is refused there.

use fleetgate_tests::containers::{Container, errors, on_terminal};
use fleetgate_tests::service::{AUDIT, Manager, Service, audit, audited};
use fleetgate_tests::world::wait_until;
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

/// A program of OpenSSH's, with the world's keys.
fn openssh(program: &str, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["60", program, "-F", "/run/test/config"])
        .args(words);
    command.stdin(Stdio::null()).output().expect("it runs")
}

fn said(out: &Output) -> String {
    assert!(out.status.success(), "{}", errors(out));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A node with these lines more.
fn node(manager: &Manager, lines: &str) -> Service {
    let own = "host_keys = [\"/run/test/host_ed25519\"]\npam = \"off\"\n";
    manager.start(&format!("{own}audit_log = {AUDIT:?}\n{lines}"))
}

/// By the node that runs.
fn ssh(words: &[&str]) -> Output {
    openssh("ssh", words)
}

#[test]
fn plain_ssh_enters_with_all_that_is_built_on_it() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let container = Container::at_the_usual_place(|config| {
        config["process"]["user"] = json!({ "uid": 1000, "gid": 1001, "additionalGids": [77] });
        config["process"]["cwd"] = json!("/srv");
        config["process"]["env"] = json!(["PATH=/bin", "FROM=the image"]);
    });
    let service = node(&manager, "containers = [\"ada+fg-*\"]\n");
    let to = format!("ada+{}@gate", container.name);

    // A command, its code, its streams.
    let state = "id -u; id -G; pwd; hostname; echo $FROM; echo $HOME; echo err >&2; exit 41";
    let out = ssh(&[&to, state]);
    assert_eq!(out.status.code(), Some(41), "{}{}", errors(&out), service.log());
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "1000\n1001 77\n/srv\nrunc\nthe image\n/srv\n"
    );
    assert_eq!(errors(&out), "err\n");

    // A terminal, of the size and with the modes that the client has.
    let line = format!(
        "stty rows 33 columns 111; exec ssh -F /run/test/config -tt {to} 'tty; stty size; echo $SSH_TTY'"
    );
    let (text, _) = on_terminal(&line);
    let wanted = "/dev/pts/0\r\n33 111\r\n/dev/pts/0\r\n";
    assert!(text.contains(wanted), "{text}{}", service.log());

    // Files: the container's, as its user.
    std::fs::write("/run/test/there", "some bytes\n").expect("written");
    std::os::unix::fs::chown(container.path("srv"), Some(1000), Some(1001)).expect("chown");
    said(&openssh("scp", &["/run/test/there", &format!("{to}:copy")]));
    assert_eq!(
        std::fs::read_to_string(container.path("srv/copy")).expect("it came"),
        "some bytes\n"
    );
    let out = openssh("scp", &[&format!("{to}:/etc/passwd"), "/run/test/passwd"]);
    said(&out);
    assert!(
        std::fs::read_to_string("/run/test/passwd")
            .expect("it came")
            .contains("app:x:1000")
    );
    let out = openssh("scp", &["/run/test/there", &format!("{to}:/etc/passwd")]);
    assert!(
        !out.status.success() && errors(&out).contains("Permission denied"),
        "{}",
        errors(&out)
    );

    // Why a container is not entered is told to whoever copies and forwards, too.
    let none = "ada+fg-none@gate";
    for out in [
        openssh("scp", &["/run/test/there", &format!("{none}:copy")]),
        openssh("scp", &["-O", "/run/test/there", &format!("{none}:copy")]),
        ssh(&["-o", "LogLevel=INFO", "-W", "127.0.0.1:9000", none]),
    ] {
        let said = errors(&out);
        assert!(
            !out.status.success() && said.contains("no container \"fg-none\" runs here"),
            "{said}"
        );
    }
    let refused = audited("that a forward is refused is told", |event| {
        event["event"] == "denied"
            && event["what"]
                .as_str()
                .is_some_and(|what| what.contains("forwarding: "))
    });
    assert!(refused["what"].to_string().contains("fg-none"), "{refused}");

    // A forward ends in the container's network.
    let mut listener = container
        .command(&["-e", "A=1"], &["sh", "-c", "echo from inside | nc -l -p 9000"])
        .spawn()
        .expect("it runs");
    let seen = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let out = ssh(&["-W", "127.0.0.1:9000", &to]);
        (!out.stdout.is_empty()).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    });
    assert_eq!(seen.as_deref(), Some("from inside\n"), "{}", service.log());
    let _ = listener.wait();

    // Neither agent nor display are of use inside.
    let out = ssh(&["-A", &to, "echo ${SSH_AUTH_SOCK:-none}"]);
    assert_eq!(said(&out), "none\n");

    // Who did what where.
    let log = audit();
    let login = format!("ada+{}", container.name);
    let of = |event: &str| {
        log.iter()
            .filter(|line| line["event"] == event && line["login"] == login.as_str())
            .count()
    };
    let ids = log.iter().filter_map(|line| line["container"].as_str());
    assert!(
        ids.clone().count() >= 5 && ids.clone().all(|id| id == container.name),
        "{log:?}"
    );
    let terminals: Vec<_> = log.iter().filter_map(|line| line["terminal"].as_str()).collect();
    assert_eq!(terminals, ["/dev/pts/0"]);
    assert!(of("login_accepted") >= 6 && of("session_started") >= 5, "{log:?}");
    drop(service);
}

#[test]
fn what_runs_inside_is_watched_as_elsewhere() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let container = Container::at_the_usual_place(|_| {});
    let service = node(&manager, "audit = \"commands\"\ncontainers = [\"ada+fg-*\"]\n");
    let to = format!("ada+{}@gate", container.name);
    let out = ssh(&[&to, "/bin/busybox echo seen-inside; /bin/busybox true; exit 3"]);
    assert_eq!(out.status.code(), Some(3), "{}{}", errors(&out), service.log());
    let is_it = |event: &Value| event["event"] == "exec" && event["argv"][2] == "seen-inside";
    let seen = audited("what it executed is told", is_it);
    let started = audited("that it is watched is told", |event| {
        event["event"] == "session_started" && event["session"] == seen["session"]
    });
    assert_eq!(
        (&started["audit"], &started["unwatched"]),
        (&json!("commands"), &Value::Null)
    );
    let ended = audited("its end is told", |event| {
        event["event"] == "session_ended" && event["session"] == seen["session"]
    });
    assert_eq!(ended["code"], 3);
    drop(service);
}

#[test]
fn who_may_not_enter_is_told_so() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let container = Container::at_the_usual_place(|_| {});
    let service = node(&manager, "root_login = \"yes\"\n");
    // Nobody but root, unless node.toml says so.
    let out = ssh(&[&format!("ada+{}@gate", container.name), "true"]);
    assert!(
        errors(&out).contains("Permission denied"),
        "{}{}",
        errors(&out),
        service.log()
    );
    assert!(
        service.log().contains("`containers` does not let ada into"),
        "{}",
        service.log()
    );
    drop(service);

    let service = node(&manager, "containers = [\"ada+*\"]\n");
    let out = ssh(&["ada+no-such-container@gate", "true"]);
    assert!(
        errors(&out).contains("no container \"no-such-container\" runs here"),
        "{}",
        errors(&out)
    );
    // One that has ended.
    let to = format!("ada+{}@gate", container.name);
    assert_eq!(said(&ssh(&[&to, "echo in"])), "in\n");
    let killed = container.runtime(&["kill", &container.name, "KILL"]).status();
    assert!(killed.expect("runc runs").success());
    wait_until("its first process is gone", || !container.runs());
    let out = ssh(&[&to, "true"]);
    assert!(errors(&out).contains("it has ended"), "{}", errors(&out));
    drop(service);

    // Off: a plus is a letter like others.
    let service = node(&manager, "containers = []\n");
    let out = ssh(&[&to, "true"]);
    assert!(errors(&out).contains("Permission denied"), "{}", errors(&out));
    assert_eq!(said(&ssh(&["ada@gate", "echo still"])), "still\n");
    drop(service);
}
