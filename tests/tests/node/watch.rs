//! Sessions that are watched (`audit = "…"`): exactly what they did is told, and they notice nothing of it.

use fleetgate_policy::Audit;
use fleetgate_tests::fleet::{Card, Fleet, STATE, public};
use fleetgate_tests::service::{AUDIT, Manager, audit, audited, output, run, ssh};
use fleetgate_tests::ways_in::undocumented;
use fleetgate_tests::world::wait_until;
use serde_json::Value;

fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\n{more}"
    )
}

/// glibc asks for it wherever it looks for names, whether there is one or not.
const NSCD: &str = "unix:/var/run/nscd/socket";

/// Runs a command in a session of its own; its output, and what was told of it.
fn session(command: &str) -> (String, Vec<String>) {
    let seen = audit().len();
    let output = run("ada", command);
    // The shell's own end is no event: its last one is waited for by what every session here ends with.
    let mark = format!("/bin/true mark-{seen}");
    run("ada", &format!("exec {mark}"));
    let is_mark = |event: &Value| event["argv"][1] == format!("mark-{seen}");
    let end = audited("the mark is told", is_mark);
    let mut events = audit().split_off(seen);
    events.retain(|event| event["session"] != end["session"]);
    (
        output,
        events
            .iter()
            .filter_map(shown)
            .filter(|shown| *shown != format!("connect {NSCD}"))
            .collect(),
    )
}

/// An event of a watched session in few words; none: of another kind.
fn shown(event: &Value) -> Option<String> {
    let name = event["event"].as_str()?;
    let text = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
    let words = |field: &str| {
        let list = event[field].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    };
    let number = |field: &str| event[field].as_i64().map_or("-".to_owned(), |n| n.to_string());
    Some(match name {
        "exec" => format!("exec {} [{}]", text("path"), words("argv")),
        "executed" => format!("executed {}", text("program")),
        "connect" | "bind" | "send" => format!("{name} {}", text("address")),
        "file" if event["operation"] == "open" => {
            format!("open {} [{}]", text("path"), words("flags"))
        }
        "file" => format!("{} {}", text("operation"), text("path")),
        "mount" => format!("mount {} {} {}", text("source"), text("path"), text("type")),
        "identity" => format!("{} {}", text("operation"), number("real")),
        "ptrace" => format!("ptrace {} {}", number("request"), number("target")),
        "bpf" => format!("bpf {}", number("command")),
        "namespace" => format!("{} {}", text("operation"), number("flags")),
        "io_uring" => format!("io_uring {}", event["refused"]),
        "module" => format!("{} {}", text("operation"), text("name")),
        "socket" => format!("socket {}", number("family")),
        "watch_lost" => format!("lost {}", number("count")),
        "watch_gap" => "gap".to_owned(),
        _ => return None,
    })
}

/// The shell of a session and a script that it becomes: what each session begins with.
fn begun(script: &str) -> Vec<String> {
    vec![
        format!("exec /bin/bash [bash -c {script}]"),
        "executed /usr/bin/bash".to_owned(),
    ]
}

#[test]
fn a_session_leaves_exactly_what_it_did() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("audit = \"commands\"\n"));
    let script = "sh -c '/bin/echo one two; curl -s http://127.0.0.1:9/; true > /dev/null'; setpriv --reuid 0 true 2> /dev/null; :";
    let (output, events) = session(script);
    assert_eq!(output, "one two\n");
    let mut want = begun(script);
    want.extend(
        [
            "exec /usr/bin/sh [sh -c /bin/echo one two; curl -s http://127.0.0.1:9/; true > /dev/null]",
            "executed /usr/bin/dash",
            "exec /bin/echo [/bin/echo one two]",
            "executed /usr/bin/echo",
            "exec /usr/bin/curl [curl -s http://127.0.0.1:9/]",
            "executed /usr/bin/curl",
            "connect 127.0.0.1:9",
            "exec /usr/bin/setpriv [setpriv --reuid 0 true]",
            "executed /usr/bin/setpriv",
            "capset -",
            "setresuid 0",
        ]
        .map(str::to_owned),
    );
    assert_eq!(events, want);
}

/// What has the setuid bit keeps it, and is seen through: no_new_privs is not set.
#[test]
fn programs_with_other_rights_are_told_like_all_others() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    use std::os::unix::fs::PermissionsExt;
    const RULE: &str = "/etc/sudoers.d/fleetgate-test";
    std::fs::write(
        RULE,
        "Defaults:ada !pam_session, !syslog\nada ALL=(ALL) NOPASSWD: ALL\n",
    )
    .expect("written");
    std::fs::set_permissions(RULE, std::fs::Permissions::from_mode(0o440)).expect("set");
    let _service = manager.start(&configuration("audit = \"commands\"\n"));
    let python = "import socket; socket.socket().connect_ex((\"127.0.0.1\", 10))";
    let script =
        format!("sh -c 'curl -s http://127.0.0.1:9/; sudo -n /bin/true; python3 -c \"$0\"' '{python}'; :");
    let (_, mut events) = session(&script);
    // How often sudo and PAM change who they are, and ask the kernel for its audit, is theirs.
    let is_sudos = |event: &Value| {
        event["program"] == "/usr/bin/sudo" && event["event"] != "exec" && event["address"] != NSCD
    };
    let sudos: Vec<Value> = audit().into_iter().filter(is_sudos).collect();
    for event in &sudos {
        let name = event["event"].as_str().unwrap_or_default();
        assert!(["executed", "identity", "bind"].contains(&name), "{event}");
    }
    assert!(
        sudos
            .iter()
            .any(|event| event["operation"] == "setresuid" && event["real"] == 0)
    );
    let own: Vec<String> = sudos.iter().filter_map(shown).collect();
    events.retain(|event| event.starts_with("executed") || !own.contains(event));
    let mut want = begun(&script);
    want.push(format!(
        "exec /usr/bin/sh [sh -c curl -s http://127.0.0.1:9/; sudo -n /bin/true; python3 -c \"$0\" {python}]"
    ));
    want.extend(
        [
            "executed /usr/bin/dash",
            "exec /usr/bin/curl [curl -s http://127.0.0.1:9/]",
            "executed /usr/bin/curl",
            "connect 127.0.0.1:9",
            "exec /usr/bin/sudo [sudo -n /bin/true]",
            "executed /usr/bin/sudo",
            "exec /bin/true [/bin/true]",
            "executed /usr/bin/true",
        ]
        .map(str::to_owned),
    );
    want.push(format!("exec /usr/bin/python3 [python3 -c {python}]"));
    let last = events.split_off(want.len());
    assert_eq!(events, want);
    let [begun, connected] = last.as_slice() else {
        panic!("{last:#?}")
    };
    assert!(begun.starts_with("executed /usr/bin/python3"), "{begun}");
    assert_eq!(connected, "connect 127.0.0.1:10");
    let is_true = |event: &Value| event["program"] == "/usr/bin/true" && event["event"] == "executed";
    let begun = audited("it is told", is_true);
    assert_eq!(begun["uid"], 0, "sudo had its privileges");
}

/// Two messages, of which the second has an address: 127.0.0.1:12. The first goes nowhere, on a socket that is connected.
const SENDMMSG: &str = "s = socket.socket(type=socket.SOCK_DGRAM)
s.connect((\"127.0.0.1\", 13))
a = ctypes.create_string_buffer(struct.pack(\"=HHI8x\", 2, 12 << 8, 0x0100007f))
m = struct.pack(\"=56xI4x\", 0) + struct.pack(\"=QI4xQQQQI4xI4x\", ctypes.addressof(a), 16, 0, 0, 0, 0, 0, 0)
ctypes.CDLL(None).syscall(307, s.fileno(), m, 2, 0)";

/// Each as a shell line, what the level tells of it, and what it prints.
#[cfg(target_arch = "x86_64")]
#[test]
fn each_kind_of_call_is_told_at_its_level() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let perl = |code: &str| format!("exec perl -e '{code}'");
    let python = |code: &str| format!("exec python3 -c 'import ctypes, os, socket, struct\n{code}'");
    let fast_open = "s = socket.socket()\ntry: s.HOW\nexcept OSError: pass";
    // A child in a user namespace of its own, which the kernel may refuse: that it is asked for is told.
    let child =
        "libc = ctypes.CDLL(None)\np = libc.syscall(HOW)\nif p == 0: os._exit(0)\nif p > 0: os.wait()";
    let rows: [(&str, String, &[&str]); 16] = [
        (
            "commands",
            perl("my @s = (\"a\", \"/mnt\", \"tmpfs\"); syscall(165, @s, 0, 0)"),
            &["mount a /mnt tmpfs"],
        ),
        ("commands", perl("syscall(101, 16, 1, 0, 0)"), &["ptrace 16 1"]),
        ("commands", perl("syscall(321, 5, 0, 0)"), &["bpf 5"]),
        (
            "commands",
            perl("syscall(272, 0x10000000)"),
            &["unshare 268435456"],
        ),
        (
            "commands",
            python(&fast_open.replace("HOW", "sendto(b\"x\", 0x20000000, (\"127.0.0.1\", 9))")),
            &["connect 127.0.0.1:9"],
        ),
        (
            "commands",
            python(&fast_open.replace("HOW", "sendmsg([b\"x\"], [], 0x20000000, (\"127.0.0.1\", 10))")),
            &["connect 127.0.0.1:10"],
        ),
        (
            "commands",
            python(&child.replace("HOW", "56, 0x10000011, 0, 0, 0, 0")),
            &["clone 268435473"],
        ),
        (
            "commands",
            python(&child.replace(
                "HOW",
                "435, struct.pack(\"11Q\", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88",
            )),
            &["clone 268435456"],
        ),
        // Threads are made by the same calls, and are not told.
        (
            "commands",
            python(
                "import threading\nfor n in range(4):\n t = threading.Thread(target=int)\n t.start()\n t.join()",
            ),
            &[],
        ),
        (
            "commands",
            perl("my $s = \"fg_none\"; syscall(176, $s, 0)"),
            &["remove fg_none"],
        ),
        ("commands", perl("syscall(425, 1, 0)"), &["io_uring null"]),
        ("commands", "exec true > /tmp/fg-watch-a".to_owned(), &[]),
        (
            "files",
            "cd /tmp; echo x > fg-watch-a; mv fg-watch-a fg-watch-b; exec rm fg-watch-b".to_owned(),
            &[
                "open /dev/tty [read-write]",
                "open fg-watch-a [write create truncate]",
                "rename fg-watch-a",
                "remove fg-watch-b",
            ],
        ),
        (
            "full",
            "read x < /etc/hostname; exec true".to_owned(),
            &["open /etc/hostname [read]"],
        ),
        // Where UDP goes is said in a struct that no filter reads.
        (
            "full",
            python(
                "s = socket.socket(type=socket.SOCK_DGRAM)\ns.sendmsg([b\"x\"], [], 0, (\"127.0.0.1\", 11))",
            ),
            &["send 127.0.0.1:11"],
        ),
        ("full", python(SENDMMSG), &["send 127.0.0.1:12"]),
    ];
    for level in ["commands", "files", "full"] {
        let service = manager.start(&configuration(&format!("audit = \"{level}\"\n")));
        for (_, script, want) in rows.iter().filter(|row| row.0 == level) {
            let (_, events) = session(script);
            let own = |event: &&String| !event.starts_with("exec");
            let events: Vec<&String> = events.iter().filter(own).collect();
            if level == "full" {
                assert!(
                    want.iter().all(|w| events.iter().any(|e| e == w)),
                    "{script}: {events:#?}"
                );
            } else {
                assert_eq!(events, *want, "{script}");
            }
        }
        service.signal(fleetgate_sys::signals::TERM);
        service.end();
    }
}

#[test]
fn every_field_says_how_far_it_can_be_believed() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("audit = \"files\"\n"));
    session("exec touch /tmp/fg-watch-c");
    let events = audit();
    let mut marked = 0;
    for event in events.iter().filter(|event| shown(event).is_some()) {
        let mut fields: Vec<&str> = ["kernel", "register", "claimed"]
            .iter()
            .flat_map(|mark| event[*mark].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        let known = [
            "time",
            "event",
            "connection",
            "login",
            "session",
            "kernel",
            "register",
            "claimed",
        ];
        let all = event.as_object().expect("an object").keys();
        let mut own: Vec<&str> = all.map(String::as_str).filter(|k| !known.contains(k)).collect();
        fields.sort_unstable();
        own.sort_unstable();
        assert_eq!(fields, own, "{event}");
        marked += 1;
    }
    assert!(marked >= 4, "{events:#?}");
    let begun = events.iter().find(|event| event["event"] == "session_started");
    assert_eq!(begun.expect("it began")["audit"], "files");
    assert!(undocumented().is_empty(), "{:#?}", undocumented());
}

#[test]
fn who_is_not_watched_has_no_filter_and_who_is_keeps_his_privileges() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let status = "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'";
    for (more, want, watchers) in [
        ("", "NoNewPrivs:0\nSeccomp:0\n", 0),
        ("audit = \"commands\"\n", "NoNewPrivs:0\nSeccomp:2\n", 1),
    ] {
        let service = manager.start(&configuration(more));
        assert_eq!(run("ada", status), want);
        assert_eq!(service.seats("watcher").len(), watchers);
        assert_eq!(service.seats("guardian").len(), watchers);
        service.signal(fleetgate_sys::signals::TERM);
        service.end();
    }
}

#[test]
fn io_uring_is_refused_where_that_is_asked_for() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("audit = \"commands\"\nio_uring = \"refuse\"\n"));
    let script = "exec perl -e 'print syscall(425, 1, 0), \" \", $!+0'";
    let (output, events) = session(script);
    assert_eq!(output, "-1 1", "EPERM");
    assert!(events.contains(&"io_uring true".to_owned()), "{events:?}");
}

/// What a program in a session does with filters and tracers of its own.
#[test]
fn tracers_work_inside_and_a_second_listener_is_told_no() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration("audit = \"commands\"\n"));
    // seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, { one instruction: allow }) is EBUSY (16).
    if cfg!(target_arch = "x86_64") {
        let script = "exec perl -e 'my $f = pack(\"SCCL\", 6, 0, 0, 0x7fff0000); my $p = pack(\"Sx6P\", 1, $f); \
                      syscall(157, 38, 1, 0, 0, 0); print syscall(317, 1, 8, $p), \" \", $!+0, \" \"; \
                      print syscall(317, 1, 0, $p)'";
        assert_eq!(run("ada", script), "-1 16 0", "one without a listener may be had");
    }
    let traced = output(ssh("ada").args([
        "gate",
        "strace -f -e trace=execve sh -c '/bin/true inside; :' 2>&1",
    ]));
    let traced = String::from_utf8_lossy(&traced.stdout).into_owned();
    assert!(
        traced.contains("execve(\"/bin/true\", [\"/bin/true\", \"inside\"]"),
        "{traced}"
    );
    audited("what strace's program did is told", |event| {
        event["argv"][1] == "inside"
    });
    let gdb = "gdb -batch -ex run -ex 'print $_exitcode' --args sh -c 'exit 3' 2>&1 | tail -1";
    assert_eq!(run("ada", gdb), "$1 = 3\n");
}

/// Binds itself by a filter that allows everything and has a listener, which stays open, and executes its words.
#[cfg(target_arch = "x86_64")]
const HELD: &str = "my $f = pack('SCCL', 6, 0, 0, 0x7fff0000); my $p = pack('Sx6P', 1, $f); \
                    my $l = syscall(317, 1, 8, $p); $l >= 0 or die; syscall(72, $l, 2, 0); exec @ARGV";

#[cfg(target_arch = "x86_64")]
#[test]
fn a_session_that_cannot_be_watched_is_refused_or_says_so() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    for (more, code, told) in [
        ("", 255, "session_refused"),
        ("unwatched = \"allow\"\n", 0, "session_started"),
    ] {
        // Whoever is bound by a listener's filter can have none of his own: so is a service in some containers.
        let service = manager.start_through(
            &["/usr/bin/perl", "-e", HELD],
            &configuration(&format!("audit = \"commands\"\n{more}")),
        );
        let out = ssh("ada").args(["gate", "echo in"]).output().expect("ssh starts");
        assert_eq!(
            out.status.code(),
            Some(code),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let event = audited("it is told", |event| event["event"] == told);
        match code {
            0 => {
                let why = event["unwatched"].as_str().unwrap_or_default();
                assert!(why.contains("somebody watches this service already"), "{event}");
                assert!(event["audit"].is_null());
            }
            _ => {
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(said.contains("is to be watched, and cannot be"), "{said}");
            }
        }
        drop(service);
    }
}

#[test]
fn file_transfer_and_named_commands_are_told_as_they_are() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("audit = \"commands\"\n"));
    let get = "sftp -F /run/test/config -b - -l 1000000 ada@gate <<< 'ls /' > /dev/null 2>&1; echo $?";
    let out = std::process::Command::new("bash")
        .args(["-c", get])
        .env("HOME", "/run/home/root")
        .output()
        .expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n");
    let list = audited("the listing is told", |event| event["operation"] == "list");
    assert!(list["errno"] == 0 && list["kernel"].is_null(), "{list}");
    let started = audited("it began", |event| event["kind"] == "sftp");
    assert!(
        started["audit"].is_null(),
        "the file server tells itself: {started}"
    );
    wait_until("the session has ended", || {
        audit().iter().any(|event| event["event"] == "session_ended")
    });
    service.signal(fleetgate_sys::signals::TERM);
    service.end();

    // A command of the list runs without a shell: nothing of one is told.
    let list = "audit = \"commands\"\nforce_command = \"fleetgate:disk\"\n\
                [commands.disk]\nargv = [\"/bin/echo\", \"of the list\"]\n";
    let _service = manager.start(&configuration(list));
    let seen = audit().len();
    assert_eq!(run("ada", "disk"), "of the list\n");
    audited("it is told", |event| event["program"] == "/usr/bin/echo");
    let events: Vec<String> = audit().split_off(seen).iter().filter_map(shown).collect();
    assert_eq!(
        events,
        ["exec /bin/echo [/bin/echo of the list]", "executed /usr/bin/echo"]
    );
}

/// The roles that let somebody in say how closely he is watched: the strongest of them, and more than node.toml.
#[test]
fn roles_say_who_is_watched() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let mut fleet = Fleet::new();
    for (name, audit) in [
        ("plain", Audit::None),
        ("some", Audit::Commands),
        ("all", Audit::Files),
    ] {
        fleet.role(name, "*", &["{user}"], |role| role.watching.audit = audit);
    }
    fleet.join();
    let _service = manager.start(&format!(
        "host_keys = [\"/run/test/host_ed25519\"]\nstate_directory = \"{STATE}\"\npam = \"off\"\n\
         audit_log = \"{AUDIT}\"\n"
    ));
    const KEY: &str = "/run/test/card";
    for (roles, want) in [
        (&["plain"][..], None),
        (&["plain", "some"], Some("commands")),
        (&["some", "all"], Some("files")),
    ] {
        let seen = audit().len();
        let _ = std::fs::remove_file(KEY);
        std::fs::copy("/run/test/stranger", KEY).expect("copied");
        let certificate = Card::of(roles).sign(&public("/run/test/stranger.pub"), &fleet.user_ca);
        std::fs::write(format!("{KEY}-cert.pub"), certificate.line()).expect("written");
        let mut ssh = std::process::Command::new("ssh");
        ssh.args(["-F", "/run/test/bare", "-i", KEY, "-l", "ada", "gate", "true"])
            .env("HOME", "/run/home/root")
            .stdin(std::process::Stdio::null());
        output(&mut ssh);
        wait_until("it is told", || {
            audit()[seen..]
                .iter()
                .any(|event| event["event"] == "session_started")
        });
        let events = audit().split_off(seen);
        let started = events.iter().find(|event| event["event"] == "session_started");
        assert_eq!(started.expect("found")["audit"].as_str(), want, "{roles:?}");
    }
}
