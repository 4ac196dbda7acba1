//! Ends of sessions: each is told once, whichever process of the node was restarted or killed meanwhile.

use super::service::{configuration, notes, told};
use fleetgate_sys::process::Exit;
use fleetgate_sys::signals;
use fleetgate_tests::service::{Manager, audited, kill, run, ssh};
use fleetgate_tests::world::wait_until;
use std::process::Stdio;

/// A session of ada's that runs until it is let go, whatever becomes of its client.
struct Held {
    client: std::process::Child,
    fifo: std::path::PathBuf,
    id: String,
    pid: i32,
}

impl Held {
    fn new(name: &str) -> Held {
        let command = format!("mkfifo {name} && read -r x < {name}");
        let client = ssh("ada")
            .args(["gate", &command])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        let started = audited("the session is told of", |e| {
            e["event"] == "session_started" && e["command"] == command.as_str()
        });
        let fifo = std::path::Path::new("/run/home/ada").join(name);
        wait_until("it waits", || fifo.exists());
        Held {
            client,
            fifo,
            id: started["session"].as_str().expect("text").to_owned(),
            pid: started["pid"].as_i64().expect("a number") as i32,
        }
    }

    /// Its client dies, and the connection with it.
    fn lose_client(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }

    /// It ends by itself.
    fn let_go(&self) {
        std::fs::write(&self.fifo, "\n").expect("it reads");
    }

    fn ends_told(&self) -> usize {
        told("session_ended").iter().filter(|id| **id == self.id).count()
    }

    fn end_is_told(&self) {
        wait_until("the end of the session is told", || self.ends_told() > 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lose_client();
        kill(self.pid);
    }
}

#[test]
fn a_draining_monitor_waits_for_its_sessions_and_tells_their_ends() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let first = manager.start(&configuration(""));
    let old_monitor = first.monitor();
    let mut held = Held::new("held");
    first.signal(signals::TERM);
    assert_eq!(first.end(), Exit::Code(0));
    let _second = manager.start(&configuration(""));
    held.lose_client();
    audited("its connection ended", |e| {
        e["event"] == "connection_ended" && e["login"] == "ada"
    });
    assert_eq!(run("bea", "echo in"), "in\n");
    assert!(
        std::path::Path::new(&format!("/proc/{old_monitor}/exe")).exists(),
        "it waits for its session"
    );
    held.let_go();
    held.end_is_told();
    wait_until("the old monitor ends with its last session", || {
        !std::path::Path::new(&format!("/proc/{old_monitor}/exe")).exists()
    });
    wait_until("its notes are gone", || notes() == 0);
    assert_eq!(held.ends_told(), 1);
}

#[test]
fn starts_and_ends_of_sessions_are_equal_over_restarts_and_kills_of_every_process() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let again = || manager.start(&configuration(""));
    let mut service = again();

    let own = Held::new("own");
    kill(own.pid);
    own.end_is_told();

    let front = Held::new("front");
    service.seats("front").into_iter().for_each(kill);
    audited("the front's end is recorded", |e| {
        e["event"] == "process_died" && e["process"] == "front"
    });
    front.let_go();
    front.end_is_told();

    let others = Held::new("others");
    service.seats("lobby").into_iter().for_each(kill);
    audited("the lobby's end is recorded", |e| {
        e["event"] == "process_died" && e["process"] == "lobby"
    });
    others.let_go();
    others.end_is_told();

    // The session goes on without a monitor, and ends under the next one.
    let adopted = Held::new("adopted");
    kill(service.monitor());
    service.end();
    service = again();
    assert_eq!(adopted.ends_told(), 0);
    adopted.let_go();
    adopted.end_is_told();

    // The session ends while there is no monitor.
    let alone = Held::new("alone");
    kill(service.monitor());
    service.end();
    alone.let_go();
    wait_until("it has ended", || {
        std::fs::read_to_string(format!("/proc/{}/stat", alone.pid)).map_or(true, |s| s.contains(") Z "))
    });
    service = again();
    alone.end_is_told();

    // A starter that is killed leaves a monitor that drains.
    let mut drained = Held::new("drained");
    kill(service.pid());
    service.end();
    service = again();
    drained.lose_client();
    drained.let_go();
    drained.end_is_told();

    // The draining monitor is killed too: the next start mends it.
    let twice = Held::new("twice");
    let draining = service.monitor();
    service.signal(signals::TERM);
    service.end();
    service = again();
    kill(draining);
    wait_until("it is gone", || {
        !std::path::Path::new(&format!("/proc/{draining}/exe")).exists()
    });
    service.signal(signals::TERM);
    service.end();
    service = again();
    twice.let_go();
    twice.end_is_told();

    assert_eq!(run("bea", "echo in"), "in\n");
    let sorted = |event| {
        let mut all = told(event);
        all.sort();
        all
    };
    wait_until("the last end is told", || {
        let starts = told("session_started").len();
        starts >= 8 && starts == told("session_ended").len()
    });
    assert_eq!(sorted("session_started"), sorted("session_ended"));
    assert_eq!(told("session_started").len(), 8);
    wait_until("no note is left", || notes() == 0);
    drop(service);
}
