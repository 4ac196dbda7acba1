//! The node as a service: starts, reloads, restarts under load, and what the death of each of its processes costs.

use fleetgate_sys::process::Exit;
use fleetgate_sys::signals;
use fleetgate_tests::service::{AUDIT, Manager, Open, audited, children, kill, run, ssh};
use fleetgate_tests::world::wait_until;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

fn cmdline(pid: i32) -> String {
    format!("/proc/{pid}/cmdline")
}

pub(super) fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\n{more}"
    )
}

/// The sessions of all events of this name, in order.
pub(super) fn told(event: &str) -> Vec<String> {
    let of_it = |e: &serde_json::Value| {
        (e["event"] == event).then(|| e["session"].as_str().expect("text").to_owned())
    };
    fleetgate_tests::service::audit()
        .iter()
        .filter_map(of_it)
        .collect()
}

/// Notes of sessions that a keeper is to close.
pub(super) fn notes() -> usize {
    std::fs::read_dir("/run/fleetgate/sessions").map_or(0, |list| list.flatten().count())
}

/// A session that answers each line with `again LINE`.
struct Echo {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Echo {
    fn new(user: &str) -> Echo {
        let mut child = ssh(user)
            .args(["gate", "while read -r line; do echo again $line; done; exit 7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut echo = Echo { child, lines };
        assert!(echo.answers("first"));
        echo
    }

    /// Whether the session still does what it should.
    fn answers(&mut self, word: &str) -> bool {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{word}").is_ok()
            && matches!(self.lines.next(), Some(Ok(line)) if line == format!("again {word}"))
    }

    /// Ends it from its own side; its exit code has to come.
    fn ends(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.child.wait().expect("ours").code(), Some(7));
    }

    /// Waits until the client has lost it.
    fn lost(mut self) {
        wait_until("the client loses its connection", || {
            self.child
                .try_wait()
                .expect("ours")
                .is_some_and(|s| s.code() == Some(255))
        });
    }
}

#[test]
fn a_reload_counts_for_what_comes_after_it_and_a_bad_one_for_nothing() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    assert_eq!(run("ada", "echo in"), "in\n");
    let mut before = Echo::new("ada");

    std::fs::write("/run/test/service.toml", configuration("deny_users = [\"ada\"]")).expect("write");
    service.signal(signals::HUP);
    manager.hear("RELOADING=1", &service);
    manager.hear("READY=1", &service);
    let refused = ssh("ada")
        .args(["gate", "true"])
        .stderr(Stdio::null())
        .status()
        .expect("ssh");
    assert_eq!(refused.code(), Some(255), "ada is denied now");
    assert_eq!(run("bea", "echo in"), "in\n");
    assert!(before.answers("still here"), "who was in stays in");

    std::fs::write("/run/test/service.toml", "listen = 7").expect("write");
    service.signal(signals::HUP);
    let status = manager.hear("STATUS=", &service);
    assert!(status.contains("service.toml:1:10"), "{status}");
    assert_eq!(run("bea", "echo in"), "in\n", "the old configuration stays");
    before.ends();
}

#[test]
fn an_upgrade_under_load_ends_no_session_and_refuses_no_connection() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let first = manager.start(&configuration(""));
    let old_monitor = first.monitor();
    let mut through = Echo::new("ada");
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        // Commands one after the other, over connections of their own, all through the restarts.
        let load = scope.spawn(|| {
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(run("bea", "echo done"), "done\n");
                done += 1;
            }
            done
        });
        let mut service = first;
        for _ in 0..3 {
            service.signal(signals::TERM);
            manager.hear("STOPPING=1", &service);
            assert_eq!(service.end(), Exit::Code(0));
            manager.upgrade();
            service = manager.start(&configuration(""));
            assert!(through.answers("after a restart"));
        }
        stop.store(true, Ordering::Relaxed);
        (service, load.join().expect("no command failed"))
    });
    assert!(done.1 > 0);
    assert!(
        !children(old_monitor).is_empty(),
        "the first monitor lives for the session that it began"
    );
    through.ends();
    wait_until("the first monitor ends with its last connection", || {
        !std::path::Path::new(&format!("/proc/{old_monitor}/exe")).exists()
    });
}

#[test]
fn a_killed_lobby_costs_those_who_are_not_logged_in() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut session = Echo::new("ada");
    let lobby = service.seats("lobby")[0];
    // Somebody in the middle of a handshake.
    let mut half =
        std::net::TcpStream::connect(("127.0.0.1", fleetgate_tests::peer::PORT)).expect("connects");
    let mut greeting = [0; 4];
    std::io::Read::read_exact(&mut half, &mut greeting).expect("a version line");
    assert_eq!(&greeting, b"SSH-");
    kill(lobby);
    wait_until("a new lobby", || {
        service.seats("lobby").iter().any(|pid| *pid != lobby)
    });
    let mut rest = Vec::new();
    let ended = std::io::Read::read_to_end(&mut half, &mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    assert!(session.answers("still here"));
    assert_eq!(run("bea", "echo in"), "in\n");
    audited("the lobby's end is recorded", |e| {
        e.to_string().contains("lobby") && e.to_string().contains("signal")
    });
    session.ends();
}

#[test]
fn a_killed_front_costs_its_own_login_alone() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut others = Echo::new("bea");
    let before = service.seats("front");
    let own = Echo::new("ada");
    let front = service
        .seats("front")
        .into_iter()
        .find(|pid| !before.contains(pid))
        .expect("a front of ada's");
    kill(front);
    own.lost();
    assert!(others.answers("still here"));
    assert_eq!(run("ada", "echo in again"), "in again\n");
    audited("the front's end is recorded", |e| {
        e.to_string().contains("front") && e.to_string().contains("signal")
    });
    others.ends();
    wait_until("fronts go with their last connection", || {
        service.seats("front").is_empty()
    });
}

#[test]
fn a_killed_monitor_is_mended_at_the_next_start() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let mut terminal = ssh("ada")
        .args(["-tt", "gate"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("ssh starts");
    let who =
        || String::from_utf8(std::process::Command::new("who").output().expect("who").stdout).expect("text");
    wait_until("ada stands in utmp", || who().contains("ada"));
    kill(service.monitor());
    assert_ne!(
        service.end(),
        Exit::Code(0),
        "a service manager has to start it again"
    );
    let _ = terminal.kill();
    let _ = terminal.wait();
    let again = manager.start(&configuration(""));
    wait_until("the record is closed", || !who().contains("ada"));
    assert_eq!(run("ada", "echo in again"), "in again\n");
    drop(again);
}

/// Where the program carries images: the one without is its own.
#[test]
fn the_first_process_goes_on_as_a_small_program() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    let said =
        || String::from_utf8_lossy(&std::fs::read(cmdline(service.pid())).unwrap_or_default()).into_owned();
    if !std::env::var("FLEETGATE_SUBJECT").is_ok_and(|s| s == "plain") {
        wait_until("it waits", || said().starts_with("fleetgate-front\0starter\0"));
        // It has the name as soon as it is executed, and shuts itself in a moment later.
        let status = || std::fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("it lives");
        wait_until("it is shut in", || status().contains("Seccomp:\t2"));
        let status = status();
        for has in ["NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
            assert!(status.contains(has), "{has} in {status}");
        }
        let open = std::fs::read_dir(format!("/proc/{}/fd", service.pid()))
            .expect("it lives")
            .count();
        // Three streams; the monitor, its end, systemd; signals, and what waits for all of it.
        assert_eq!(open, 8);
    }
    assert_eq!(run("ada", "echo in"), "in\n");
    service.signal(signals::HUP);
    manager.hear("RELOADING=1", &service);
    manager.hear("READY=1", &service);
    kill(service.monitor());
    assert_eq!(service.end(), Exit::Code(1));
    assert!(
        service
            .log()
            .contains("the monitor was ended by signal 9; its log says why")
    );
}

#[test]
fn a_changed_login_shell_counts_at_the_next_session_of_an_open_connection() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let _service = manager.start(&configuration(""));
    let mut open = Open::new("ada", "shell");
    assert_eq!(open.run("echo $0"), "bash\n");
    let passwd = std::fs::read_to_string("/etc/passwd").expect("read");
    let changed = passwd.replace("/run/home/ada:/bin/bash", "/run/home/ada:/bin/sh");
    assert_ne!(passwd, changed);
    std::fs::write("/etc/passwd", changed).expect("write");
    assert_eq!(open.run("echo $0"), "sh\n");
    assert!(open.lives());
}

/// The page of metrics at this port; none: nobody serves it.
fn metrics(port: u16) -> Option<String> {
    let mut to = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    to.write_all(b"GET /metrics HTTP/1.1\r\nHost: gate\r\n\r\n")
        .ok()?;
    let mut page = String::new();
    std::io::Read::read_to_string(&mut to, &mut page).ok()?;
    page.contains("fleetgate_build_info").then_some(page)
}

/// The port of metrics, the audit log, notes, cgroups and watchers, at an upgrade while a session is open.
#[test]
fn an_upgrade_hands_over_everything_of_which_there_is_one() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let config = configuration("metrics = \"127.0.0.1:9464\"\naudit = \"commands\"\nunwatched = \"allow\"\n");
    let mut service = manager.start(&config);
    // The service may be ready a moment before its port of metrics is.
    wait_until("the first monitor serves metrics", || metrics(9464).is_some());
    let mut through = Echo::new("ada");
    for _ in 0..2 {
        service.signal(signals::TERM);
        assert_eq!(service.end(), Exit::Code(0));
        manager.upgrade();
        service = manager.start(&config);
        assert_eq!(run("bea", "echo in"), "in\n");
        wait_until("the new monitor serves metrics", || {
            metrics(9464).is_some_and(|page| page.contains("fleetgate_connections_total 1\n"))
        });
        assert!(through.answers("after an upgrade"));
    }
    through.ends();
    wait_until("every end is told", || {
        told("session_started").len() == 3 && told("session_ended").len() == 3
    });
    wait_until("no note is left", || notes() == 0);
}

#[test]
fn a_port_of_metrics_that_is_taken_is_told_and_costs_nobody_a_login() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:9465").expect("bound");
    let service = manager.start(&configuration("metrics = \"127.0.0.1:9465\"\n"));
    assert_eq!(run("bea", "echo in"), "in\n");
    wait_until("it is told", || service.log().contains("metrics are not served"));
    drop(taken);
    wait_until("it is served once the port is free", || metrics(9465).is_some());
    assert_eq!(run("bea", "echo in"), "in\n");
}

#[test]
fn a_node_without_root_reads_nothing_of_the_machines_configuration() {
    let Some((_world, _manager)) = Manager::in_world() else {
        return;
    };
    std::fs::create_dir_all("/etc/fleetgate").expect("made");
    for name in ["node.toml", "fleetgate.toml"] {
        std::fs::write(format!("/etc/fleetgate/{name}"), "listen = 7\n").expect("written");
    }
    let home = std::path::Path::new("/run/test/home-of-somebody");
    let check = |flags: &[&str]| {
        let out = std::process::Command::new(fleetgate_tests::fleetgate())
            .args(["node", "--check"])
            .args(flags)
            .env("HOME", home)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .output()
            .expect("it starts");
        (
            out.status.success(),
            String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout),
        )
    };
    let (good, said) = check(&[]);
    assert!(
        !good && said.contains("/etc/fleetgate/node.toml:1:10"),
        "control: {said}"
    );
    let (good, said) = check(&["--user-mode"]);
    assert!(good, "{said}");
    let own = home.join(".config/fleetgate/node.toml");
    std::fs::create_dir_all(own.parent().expect("it has one")).expect("made");
    std::fs::write(&own, "listen = 8\n").expect("written");
    let (good, said) = check(&["--user-mode"]);
    assert!(
        !good && said.contains(&format!("{}:1:10", own.display())),
        "{said}"
    );
}

/// What commands, sftp and forwardings bring, each by a connection of its own; none: refused.
fn ways_in() -> [Option<String>; 3] {
    let peer = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = peer.local_addr().expect("an address").to_string();
    let greeter = std::thread::spawn(move || {
        let (mut to, _) = peer.accept().expect("a connection");
        let _ = to.write_all(b"hello");
    });
    let brings = |arguments: &[&str], input: &str| {
        let out = ssh("ada")
            .args(arguments)
            .stdin(std::fs::File::open(input).expect("it is there"))
            .output()
            .expect("ssh starts");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (out.status.success() && !text.is_empty()).then_some(text)
    };
    let init = "/run/test/sftp-init";
    std::fs::write(init, b"\0\0\0\x05\x01\0\0\0\x03").expect("written");
    let got = [
        brings(&["gate", "echo in"], "/dev/null"),
        brings(&["-s", "gate", "sftp"], init),
        brings(&["-W", &address, "gate"], "/dev/null"),
    ];
    // Where nobody came, this is the connection that it waits for.
    let _ = std::net::TcpStream::connect(&address);
    greeter.join().expect("it ends");
    got
}

#[test]
fn nothing_runs_as_a_user_without_the_context_that_is_required() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    if std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        return fleetgate_tests::skip("the kernel runs SELinux");
    }
    let service = manager.start(&configuration(""));
    let [command, sftp, forwarding] = ways_in();
    assert_eq!(command.as_deref(), Some("in\n"), "control");
    assert!(
        sftp.is_some_and(|words| words.contains("posix-rename")),
        "control"
    );
    assert_eq!(forwarding.as_deref(), Some("hello"), "control");
    drop(service);
    let _service = manager.start(&configuration("selinux = \"required\"\n"));
    assert_eq!(ways_in(), [None, None, None]);
}
