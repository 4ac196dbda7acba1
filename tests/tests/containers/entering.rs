//! A program inside has what the runtime's own `exec` gives it.

use fleetgate_tests::containers::{Container, Runtime, errors, line_of, on_terminal, with_users};
use fleetgate_tests::needs_root;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// All that can be told from inside about the process itself.
pub const STATE: &str = "cat /proc/self/status | while read key rest; do case $key in \
    Uid:|Gid:|Groups:|CapInh:|CapPrm:|CapEff:|CapBnd:|CapAmb:|NoNewPrivs:|Seccomp:|Seccomp_filters:) echo $key $rest;; esac; \
    done; cat /proc/self/limits /proc/self/oom_score_adj /proc/self/cgroup; umask; pwd; hostname; \
    for kind in ipc mnt net pid user uts cgroup; do ls -l /proc/self/ns/$kind; done | sed 's/.* -> //'; ls -l /proc/self/fd | wc -l";

/// What a test does to a configuration.
type Change = fn(&mut Value);

/// Ours and the runtime's, beside each other.
fn both(container: &Container) -> (String, String) {
    let words = ["sh", "-c", STATE];
    (container.says(&[], &words), container.runtime_says(&words))
}

#[test]
fn what_a_program_gets_is_what_runc_gives_it() {
    needs_root!("containers");
    let change: [(&str, Change); 5] = [
        ("as runc spec has it", |_| {}),
        ("an ordinary user", |config| {
            config["process"]["user"] = json!({ "uid": 1000, "gid": 1001, "additionalGids": [77] });
            config["process"]["noNewPrivileges"] = json!(false);
            config["process"]["cwd"] = json!("/srv");
        }),
        ("all capabilities, some of them ambient", |config| {
            let all = json!([
                "CAP_CHOWN",
                "CAP_SETUID",
                "CAP_SETGID",
                "CAP_NET_BIND_SERVICE",
                "CAP_NET_ADMIN"
            ]);
            for set in ["bounding", "effective", "permitted", "inheritable"] {
                config["process"]["capabilities"][set] = all.clone();
            }
            config["process"]["capabilities"]["ambient"] = json!(["CAP_NET_ADMIN"]);
            config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
        }),
        // Go's own start raises a soft limit, and runc 1.1 does not always take that back.
        ("no capability, a score, a limit", |config| {
            config["process"]["capabilities"] = json!({});
            config["process"]["oomScoreAdj"] = json!(321);
            config["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 200, "hard": 200 }]);
        }),
        ("a user namespace", with_users),
    ];
    for (what, change) in change {
        let container = Container::with(Runtime::Runc, change);
        let (ours, theirs) = both(&container);
        assert_eq!(ours, theirs, "{what}");
    }
}

#[test]
fn crun_s_containers_too() {
    needs_root!("containers");
    let container = Container::with(Runtime::Crun, |_| {});
    // Its own `exec` takes neither limits nor no_new_privs from the configuration.
    let own = |text: &String| {
        let passed = |line: &&str| !line.starts_with("NoNewPrivs:") && !line.starts_with("Max open files");
        text.lines().filter(passed).map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, theirs) = both(&container);
    assert_eq!(own(&ours), own(&theirs));
    let container = Container::with(Runtime::Crun, |config| {
        config["process"]["user"] = json!({ "uid": 1000, "gid": 1001, "umask": 0o27 });
    });
    assert_eq!(container.says(&[], &["sh", "-c", "id -u; umask"]), "1000\n0027\n");
}

#[test]
fn streams_codes_and_variables_pass() {
    needs_root!("containers");
    let container = Container::new();
    assert_eq!(
        container.exec(&[], &["sh", "-c", "exit 41"]).status.code(),
        Some(41)
    );
    assert_eq!(
        container.exec(&[], &["sh", "-c", "kill -9 $$"]).status.code(),
        Some(128 + 9)
    );
    assert_eq!(
        container.says(&["-w", "/srv", "-e", "A=b c"], &["sh", "-c", "pwd; echo $A"]),
        "/srv\nb c\n"
    );
    let mut child = container
        .command(&[], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"through and back").expect("written");
    drop(stdin);
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.stdout, b"through and back");
    // Nobody is left inside but the first process and the one that looks.
    let there = container.says(&[], &["sh", "-c", "echo /proc/[0-9]*"]);
    assert_eq!(there.split_whitespace().count(), 2, "{there}");
}

#[test]
fn users_are_the_containers_own() {
    needs_root!("containers");
    let container = Container::new();
    let id = |user: &str| {
        container.says(
            &["--user", user],
            &["sh", "-c", "id -u; id -g; id -G; echo $HOME"],
        )
    };
    assert_eq!(id("app"), "1000\n1001\n1001 77\n/srv\n");
    assert_eq!(id("app:root"), "1000\n0\n0\n/srv\n");
    assert_eq!(id("4711"), "4711\n0\n0\n/\n");
    let why = container.refuses(&["--user", "nobody-there"], &["true"]);
    assert!(
        why.contains("the account nobody-there: the container has no such account"),
        "{why}"
    );
}

#[test]
fn a_terminal_is_the_containers() {
    needs_root!("containers");
    let container = Container::new();
    let command = container.command(
        &["-w", "/srv"],
        &["sh", "-c", "tty; stty size; ls -ln $(tty); kill -HUP $$"],
    );
    let line = format!("stty rows 33 columns 111; exec {}", line_of(&command));
    let (text, out) = on_terminal(&line);
    assert!(
        text.contains("/dev/pts/0\r\n33 111\r\n"),
        "{text}{}",
        errors(&out)
    );
    assert!(text.contains("crw--w----    1 0        5"), "{text}");
    assert_eq!(out.status.code(), Some(128 + 1), "{text}");
}

#[test]
fn a_container_is_found_by_name_id_and_process() {
    needs_root!("containers");
    let container = Container::new();
    let mut list = std::process::Command::new(fleetgate_tests::fleetgate());
    let out = list
        .args(["container", "ls", "--json", "--root", &container.root()])
        .output()
        .expect("it runs");
    let list: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(list["containers"][0]["id"], container.name.as_str());
    assert_eq!(list["containers"][0]["runtime"], "runc");
    assert_eq!(list["containers"][0]["pid"], container.pid);
    let exec = |words: &[&str]| {
        let mut command = std::process::Command::new("timeout");
        command
            .arg("60")
            .arg(fleetgate_tests::fleetgate())
            .args(["container", "exec"]);
        command
            .args(words)
            .stdin(Stdio::null())
            .output()
            .expect("it runs")
    };
    let pid = container.pid.to_string();
    let out = exec(&["--pid", &pid, "hostname"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "runc\n", "{}", errors(&out));
    let own = std::process::id().to_string();
    let out = exec(&["--pid", &own, "hostname"]);
    assert!(errors(&out).contains("is in no container"), "{}", errors(&out));
    let out = exec(&["--root", &container.root(), "no-such-one", "hostname"]);
    assert!(
        errors(&out).contains(&format!("there are {}", container.name)),
        "{}",
        errors(&out)
    );
}
