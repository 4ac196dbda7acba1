//! What is left of recordings when those who make them die: everything but the last second, and nobody is fooled about it.

use fleetgate_record::frame::Kind;
use fleetgate_tests::recording::{Recording, configuration, path, session};
use fleetgate_tests::service::{Manager, Service, audited, go_on, kill, ssh, stop};
use fleetgate_tests::world::wait_until;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

/// A terminal session that says every line again.
struct Parrot {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    command: String,
}

impl Parrot {
    fn new(name: &str) -> Parrot {
        let command = format!("stty -echo; while read -r line; do echo {name} $line; done; exit 7");
        let mut child = ssh("ada")
            .args(["-tt", "gate", &command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ssh starts");
        let mut parrot = Parrot {
            input: child.stdin.take().expect("piped"),
            lines: BufReader::new(child.stdout.take().expect("piped")).lines(),
            child,
            command,
        };
        parrot.does(name, "one");
        parrot
    }

    fn does(&mut self, name: &str, word: &str) {
        self.input
            .write_all(format!("{word}\n").as_bytes())
            .expect("it reads");
        let wanted = format!("{name} {word}");
        let said = self
            .lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.trim_end() == wanted);
        assert!(said, "no {wanted}");
    }

    fn id(&self) -> serde_json::Value {
        session(&self.command)
    }

    /// Waits until this is on the disk, where a crash leaves it: within a second.
    fn is_saved(&self, words: &str) {
        let tail = path(&self.id()).with_extension("tail");
        wait_until("the tail has it", || {
            let bytes = std::fs::read(&tail).unwrap_or_default();
            bytes.windows(words.len()).any(|w| w == words.as_bytes())
        });
    }

    fn ends(mut self) {
        self.input.write_all(&[4]).expect("it reads");
        assert_eq!(self.child.wait().expect("ours").code(), Some(7));
    }
}

fn recorder(service: &Service) -> i32 {
    let mut found = Vec::new();
    wait_until("there is one recorder", || {
        found = service.seats("recorder");
        found.len() == 1
    });
    found[0]
}

#[test]
fn a_killed_recorder_costs_a_session_nothing_and_the_gap_is_told() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("sessions = \"output\""));
    let mut parrot = Parrot::new("loud");
    let first = recorder(&service);
    for round in 0..5 {
        let before = recorder(&service);
        parrot.does("loud", &format!("before {round}"));
        parrot.is_saved(&format!("loud before {round}\r\n"));
        kill(before);
        wait_until("there is another", || {
            service.seats("recorder").iter().any(|pid| *pid != before)
        });
        parrot.does("loud", &format!("after {round}"));
    }
    assert_ne!(recorder(&service), first);
    let id = parrot.id();
    parrot.ends();
    let recording = Recording::of(&id);
    let shown = recording.text(Kind::Output);
    for round in 0..5 {
        assert!(shown.contains(&format!("loud before {round}\r\n")), "{shown}");
    }
    assert!(shown.contains("loud after 4\r\n"), "{shown}");
    let gaps = recording.frames.iter().filter(|f| f.0 == Kind::Gap).count();
    assert_eq!(gaps, 5);
}

#[test]
fn what_a_killed_node_recorded_is_finished_by_the_next_one() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let settings = configuration("sessions = \"output\"");
    let service = manager.start(&settings);
    let mut parrot = Parrot::new("lost");
    parrot.does("lost", "two");
    parrot.is_saved("lost two\r\n");
    let id = parrot.id();
    let path = path(&id);
    assert!(path.with_extension("tail").exists());
    kill(service.monitor());
    let _ = parrot.child.wait();
    service.end();

    let _service = manager.start(&settings);
    let recording = Recording::of(&id);
    let shown = recording.text(Kind::Output);
    assert!(shown.contains("lost two\r\n"), "{shown}");
    assert_eq!(recording.json(Kind::End)["recovered"], true);
    let told = audited("it is told", |event| {
        event["event"] == "recorded" && event["session"] == id
    });
    assert_eq!(told["recovered"], true);
    assert!(!path.with_extension("tail").exists());
}

#[test]
fn a_recorder_that_stands_still_ends_the_session_that_must_be_recorded() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration("sessions = \"output\""));
    let parrot = Parrot::new("held");
    let recorder = recorder(&service);
    stop(recorder);
    let out = ssh("ada").args(["-tt", "gate", "yes"]).output().expect("ssh");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        told.contains("the session was ended: it has to be recorded"),
        "{told}"
    );
    let told = audited("it is told", |event| event["event"] == "not_recorded");
    assert_eq!(told["ended"], true);
    // The pipe and one read: nothing went to the client that the recorder did not have a place for.
    assert!(out.stdout.len() < 300_000, "{} bytes", out.stdout.len());
    go_on(recorder);
    let id = parrot.id();
    parrot.ends();
    Recording::of(&id);
}

#[test]
fn a_node_that_ends_waits_for_its_recordings() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    for round in 0..4 {
        let service = manager.start(&configuration("sessions = \"output\""));
        let parrot = Parrot::new(&format!("over{round}"));
        let id = parrot.id();
        service.signal(fleetgate_sys::signals::TERM);
        service.end();
        parrot.ends();
        let recording = Recording::of(&id);
        assert_eq!(recording.json(Kind::End)["status"], 7, "round {round}");
    }
}
