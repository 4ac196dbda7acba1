//! What the deaths of those who watch cost a watched session: nothing but what was not seen meanwhile, which is told.

use fleetgate_sys::file::flags::O_NONBLOCK;
use fleetgate_sys::{process, signals};
use fleetgate_tests::service::{AUDIT, Manager, Service, audit, audited, descendants, kill, run, ssh, stop};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

/// How /proc shows the call.
const EXECVE: &str = if cfg!(target_arch = "x86_64") {
    "59 "
} else {
    "221 "
};

fn configuration() -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\naudit = \"commands\"\n"
    )
}

/// A session that executes `/bin/echo LINE` for each line that it reads.
struct Echo {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Echo {
    fn new() -> Echo {
        let mut child = ssh("ada")
            .args([
                "gate",
                "while read -r line; do /bin/echo again $line; done; exit 7",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut echo = Echo { child, lines };
        echo.does("first");
        echo
    }

    fn say(&mut self, word: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{word}").expect("it reads");
    }

    fn hear(&mut self, word: &str) {
        let line = self.lines.next().expect("it answers").expect("text");
        assert_eq!(line, format!("again {word}"));
    }

    fn does(&mut self, word: &str) {
        self.say(word);
        self.hear(word);
    }

    fn ends(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.child.wait().expect("ours").code(), Some(7));
    }
}

fn executed(word: &str) -> Value {
    audited("the command is told", |event| {
        event["event"] == "exec" && event["argv"][2] == word
    })
}

fn only(service: &Service, kind: &str) -> i32 {
    let mut found = Vec::new();
    wait_until("there is one of it", || {
        found = service.seats(kind);
        found.len() == 1
    });
    found[0]
}

#[test]
fn a_killed_watcher_costs_a_session_nothing_and_the_gap_is_told() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration());
    let mut echo = Echo::new();
    executed("first");
    let watcher = only(&service, "watcher");

    // A call waits for it when it dies.
    stop(watcher);
    echo.say("second");
    wait_until("a process waits in its execve", || {
        let waits = |pid: &i32| {
            let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            call.starts_with(EXECVE)
        };
        descendants(service.monitor()).iter().any(waits)
    });
    kill(watcher);
    echo.hear("second");
    let gap = audited("the gap is told", |event| event["event"] == "watch_gap");
    assert!(gap["calls"].as_u64().is_some_and(|calls| calls >= 1), "{gap}");
    assert!(gap["lasted_ms"].is_u64() && gap["session"].is_string(), "{gap}");
    audited("the death is told", |event| {
        event["event"] == "process_died" && event["process"] == "watcher"
    });

    echo.does("third");
    executed("third");
    assert_ne!(only(&service, "watcher"), watcher);
    // New sessions are watched too.
    assert_eq!(run("ada", "/bin/echo x fourth"), "x fourth\n");
    executed("fourth");
    echo.ends();
}

#[test]
fn a_killed_guardian_is_replaced_and_the_next_one_guards() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration());
    let mut echo = Echo::new();
    let guardian = only(&service, "guardian");
    kill(guardian);
    audited("the death is told", |event| {
        event["event"] == "process_died" && event["process"] == "guardian"
    });
    wait_until("there is another", || {
        service.seats("guardian").iter().any(|pid| *pid != guardian)
    });
    // The new guardian keeps what the watcher holds once the watcher has heard of it: a session that begins now comes
    // behind that.
    assert_eq!(run("ada", "/bin/echo x between"), "x between\n");
    executed("between");
    echo.does("second");
    executed("second");
    let watcher = only(&service, "watcher");
    stop(watcher);
    echo.say("third");
    kill(watcher);
    echo.hear("third");
    audited("the gap is told", |event| event["event"] == "watch_gap");
    echo.does("fourth");
    executed("fourth");
    echo.ends();
}

#[test]
fn a_service_that_stops_breaks_nothing_and_a_dead_monitor_neither() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration());
    let mut echo = Echo::new();
    let monitor = service.monitor();
    let (watcher, guardian) = (only(&service, "watcher"), only(&service, "guardian"));
    let cgroup = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    assert_ne!(
        cgroup(guardian),
        cgroup(monitor),
        "it lives outside of the service"
    );

    // A daemon, which answers each line that somebody writes into its pipe. It opens the pipe once, for reading and writing, and so
    // never meets its end, whenever a writer closes it.
    let daemon = "cd /tmp; rm -f fg-in fg-out; mkfifo fg-in; \
                  setsid sh -c 'echo $$ > fg-pid; exec 9<> fg-in; while read line <&9; do /bin/echo $line > fg-out; done' > /dev/null 2>&1 < /dev/null &";
    run("ada", daemon);
    let mut answers = 0;
    let mut answered = || {
        answers += 1;
        let word = format!("answer-{answers}\n");
        // Not a wait for a reader, who may be gone.
        let open = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(O_NONBLOCK)
                .open("/tmp/fg-in")
        };
        let mut pipe = None;
        wait_until("somebody reads", || {
            pipe = open().ok();
            pipe.is_some()
        });
        let mut pipe = pipe.expect("opened");
        pipe.write_all(word.as_bytes()).expect("written");
        wait_until("the daemon answers", || {
            std::fs::read_to_string("/tmp/fg-out").is_ok_and(|text| text == word)
        });
    };
    answered();
    audited("the daemon is watched", |event| event["argv"][1] == "answer-1");

    service.signal(signals::TERM);
    service.end();
    echo.does("second");
    executed("second");
    answered();
    let deaths = |event: &Value| event["event"] == "process_died";
    assert!(!audit().iter().any(deaths), "nobody died");

    kill(monitor);
    let mut ends = [monitor, watcher].map(|pid| process::pidfd_open(pid).ok());
    for end in ends.iter_mut().flatten() {
        fleetgate_tests::world::wait_for(end, "the watcher ends with the monitor");
    }
    answered();
    let guardian = process::pidfd_open(guardian).expect("it lives");
    answered();
    // With the last of its sessions' processes it ends as well.
    let pid = std::fs::read_to_string("/tmp/fg-pid").expect("the daemon's number");
    kill(pid.trim().parse().expect("a number"));
    let mut client = echo.child;
    let _ = client.kill();
    let _ = client.wait();
    fleetgate_tests::world::wait_for(&guardian, "the guardian ends");
}
