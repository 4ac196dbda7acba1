//! What each event's line is, word for word, and what becomes of events that cannot be written.

use super::*;
use fleetgate_base::audit::{MAX_TEXT, utc};
use fleetgate_sys::clock::Time;
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::watch::{Field, Source, Value};
use fleetgate_wire::sftp::Event as FileEvent;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const AT: Time = Time {
    sec: 1_700_000_000,
    nsec: 123_456_789,
};
pub(super) const ID: [u8; 16] = [0xab; 16];

pub(super) fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_line(AT, &mut line);
    String::from_utf8(line)
        .expect("text")
        .strip_suffix('\n')
        .expect("a whole line")
        .to_owned()
}

fn field(name: &std::ffi::CStr, source: Source, value: Value) -> Field {
    Field {
        name: name.into(),
        source,
        value,
    }
}

fn watched(what: WatchReport) -> Event {
    Event::Watched(Box::new(WatchedEvent {
        connection: 7,
        session: ID,
        login: "ada".into(),
        what,
    }))
}

#[test]
fn each_event_has_its_line() {
    let source = "192.0.2.7:4711".parse().expect("an address");
    let login = || "ada".to_owned();
    let session = "\"session\":\"abababababababababababababababab\"";
    let file = |done| Event::File {
        connection: 7,
        session: ID,
        login: "ada".to_owned(),
        done,
    };
    let path = || c"/home/ada/x\xff".to_owned();
    for (event, wanted) in [
        (
            Event::NodeStarted {
                version: "1.2.3".into(),
                sessions: Some(Vec::new()),
            },
            "\"event\":\"node_started\",\"version\":\"1.2.3\",\"sessions\":[]".to_owned(),
        ),
        (
            Event::NodeReloaded {
                refused: Some("node.toml:1:1: no".into()),
            },
            "\"event\":\"node_reloaded\",\"done\":false,\"reason\":\"node.toml:1:1: no\"".into(),
        ),
        (
            Event::ConnectionRefused {
                source,
                reason: "too many".into(),
                via: None,
            },
            "\"event\":\"connection_refused\",\"source\":\"192.0.2.7:4711\",\"reason\":\"too many\"".into(),
        ),
        (
            Event::ConnectionEnded {
                connection: 7,
                source,
                login: None,
                reason: "the peer closed it".into(),
                received: 1,
                sent: 2,
                lasted: Duration::from_millis(1500),
                via: None,
            },
            "\"event\":\"connection_ended\",\"connection\":7,\"source\":\"192.0.2.7:4711\",\
             \"reason\":\"the peer closed it\",\"received\":1,\"sent\":2,\"lasted_ms\":1500"
                .into(),
        ),
        (
            Event::LoginAccepted {
                connection: 7,
                source,
                login: login(),
                identity: "key SHA256:x".into(),
                cluster: None,
                via: Some("p1".into()),
            },
            "\"event\":\"login_accepted\",\"connection\":7,\"login\":\"ada\",\"source\":\"192.0.2.7:4711\",\
             \"via\":\"p1\",\"identity\":\"key SHA256:x\""
                .into(),
        ),
        (
            Event::LoginRefused {
                connection: 7,
                source,
                login: "a\nb\"".into(),
                method: "publickey".into(),
                reason: "no key of his".into(),
                user: None,
                rule: None,
                via: None,
            },
            "\"event\":\"login_refused\",\"connection\":7,\"login\":\"a\\nb\\\"\",\
             \"source\":\"192.0.2.7:4711\",\"method\":\"publickey\",\"reason\":\"no key of his\""
                .into(),
        ),
        (
            Event::LoginRefused {
                connection: 7,
                source,
                login: login(),
                method: "publickey".into(),
                reason: "role dba asks for more".into(),
                user: Some("ada".into()),
                rule: Some("role dba".into()),
                via: None,
            },
            "\"event\":\"login_refused\",\"connection\":7,\"login\":\"ada\",\"source\":\"192.0.2.7:4711\",\
             \"method\":\"publickey\",\"reason\":\"role dba asks for more\",\"user\":\"ada\",\"rule\":\"role dba\""
                .into(),
        ),
        (
            Event::Locked {
                connection: 7,
                source,
                login: login(),
                user: Some("ada".into()),
                rule: "lock l1".into(),
                reason: "user ada is locked".into(),
            },
            "\"event\":\"locked\",\"connection\":7,\"login\":\"ada\",\"source\":\"192.0.2.7:4711\",\"user\":\"ada\",\
             \"rule\":\"lock l1\",\"reason\":\"user ada is locked\""
                .into(),
        ),
        (
            Event::ClusterState {
                serial: 3,
                refused: None,
                sessions: Some(vec!["0a".into(), "0b".into()]),
            },
            "\"event\":\"cluster_state\",\"serial\":3,\"done\":true,\"sessions\":[\"0a\",\"0b\"]".into(),
        ),
        (
            Event::ClusterState {
                serial: 3,
                refused: Some("forged".into()),
                sessions: None,
            },
            "\"event\":\"cluster_state\",\"serial\":3,\"done\":false,\"reason\":\"forged\"".into(),
        ),
        (
            Event::SessionStarted {
                audit: Some("files"),
                unwatched: None,
                connection: 7,
                session: ID,
                login: login(),
                source,
                user: Some("ada.l".into()),
                kind: SessionKind::Exec,
                pid: 42,
                terminal: Some("/dev/pts/3".into()),
                command: Some(b"echo \x1b".to_vec()),
                original: None,
                runs_as: None,
                container: None,
                strategy: "memfd",
                unrecorded: Some("lastlog: No space left on device".into()),
            },
            format!(
                "\"event\":\"session_started\",\"connection\":7,\"login\":\"ada\",{session},\
                 \"source\":\"192.0.2.7:4711\",\"user\":\"ada.l\",\"kind\":\"exec\",\"pid\":42,\"terminal\":\"/dev/pts/3\",\"command\":\"echo \\u001b\",\"strategy\":\"memfd\",\
                 \"unrecorded\":\"lastlog: No space left on device\",\"audit\":\"files\""
            ),
        ),
        (
            Event::SessionRefused {
                connection: 7,
                login: login(),
                reason: "no".into(),
            },
            "\"event\":\"session_refused\",\"connection\":7,\"login\":\"ada\",\"reason\":\"no\"".into(),
        ),
        (
            Event::SessionEnded {
                connection: 7,
                session: ID,
                login: login(),
                code: Some(1),
                signal: None,
                lasted: Some(Duration::from_secs(2)),
                usage: Usage {
                    cpu_micros: Some(5),
                    memory: Some(6),
                    read: None,
                    written: Some(8),
                },
                end_command: Some(EndCommand {
                    by: "uid 0".into(),
                    reason: "maintenance".into(),
                }),
                inherited: false,
            },
            format!(
                "\"event\":\"session_ended\",\"connection\":7,\"login\":\"ada\",{session},\"code\":1,\
                 \"lasted_ms\":2000,\"cpu_us\":5,\"memory\":6,\"written\":8,\"ended_by\":\"uid 0\",\
                 \"reason\":\"maintenance\""
            ),
        ),
        (
            Event::SessionEnded {
                connection: 7,
                session: ID,
                login: login(),
                code: None,
                signal: None,
                lasted: None,
                usage: Usage::default(),
                end_command: None,
                inherited: true,
            },
            format!("\"event\":\"session_ended\",\"connection\":7,\"login\":\"ada\",{session},\"inherited\":true"),
        ),
        (
            file(FileEvent::Opened {
                path: path(),
                flags: 1,
                errno: 13,
            }),
            format!(
                "\"event\":\"file\",\"connection\":7,\"login\":\"ada\",{session},\"operation\":\"open\",\
                 \"path\":\"/home/ada/x\u{fffd}\",\"errno\":13,\"flags\":1"
            ),
        ),
        (
            file(FileEvent::AttributesSet {
                path: c"/x".to_owned(),
                size: None,
                uid: Some(1),
                gid: None,
                mode: Some(0o644),
                times: true,
                errno: 0,
            }),
            format!(
                "\"event\":\"file\",\"connection\":7,\"login\":\"ada\",{session},\"operation\":\"attributes\",\
                 \"path\":\"/x\",\"errno\":0,\"uid\":1,\"mode\":\"644\",\"times\":true"
            ),
        ),
        (
            file(FileEvent::Renamed {
                from: c"/x".to_owned(),
                to: c"/y".to_owned(),
                errno: 0,
            }),
            format!(
                "\"event\":\"file\",\"connection\":7,\"login\":\"ada\",{session},\"operation\":\"rename\",\
                 \"path\":\"/x\",\"errno\":0,\"to\":\"/y\""
            ),
        ),
        (
            Event::Forwarded {
                connection: 7,
                login: login(),
                to: "db:5432".into(),
                sent: 3,
                received: 4,
            },
            "\"event\":\"forwarded\",\"connection\":7,\"login\":\"ada\",\"to\":\"db:5432\",\"sent\":3,\
             \"received\":4"
                .into(),
        ),
        (
            watched(WatchReport::Call {
                event: "exec",
                fields: vec![
                    field(c"pid", Source::Kernel, Value::Number { number: 9 }),
                    // Whose it is, no watcher says.
                    field(
                        c"login",
                        Source::Kernel,
                        Value::Text {
                            bytes: b"eve".to_vec(),
                            cut: false,
                        },
                    ),
                    field(
                        c"path",
                        Source::Claimed,
                        Value::Text {
                            bytes: b"/bin/\xff".to_vec(),
                            cut: false,
                        },
                    ),
                    field(
                        c"argv",
                        Source::Claimed,
                        Value::Words {
                            words: vec![Blob {
                                bytes: b"a b".to_vec(),
                            }],
                            cut: true,
                        },
                    ),
                    field(c"flags", Source::Register, Value::Truth { truth: true }),
                ],
            }),
            format!(
                "\"event\":\"exec\",\"connection\":7,\"login\":\"ada\",{session},\"pid\":9,\
                 \"path\":\"/bin/\u{fffd}\",\"argv\":[\"a b\"],\"flags\":true,\"kernel\":[\"pid\"],\
                 \"register\":[\"flags\"],\"claimed\":[\"path\",\"argv\"],\"cut\":[\"argv\"]"
            ),
        ),
        (
            watched(WatchReport::Gap {
                lasted_ms: 12,
                calls: 3,
            }),
            format!(
                "\"event\":\"watch_gap\",\"connection\":7,\"login\":\"ada\",{session},\"lasted_ms\":12,\
                 \"calls\":3"
            ),
        ),
        (
            watched(WatchReport::Lost { count: 4 }),
            format!(
                "\"event\":\"watch_lost\",\"connection\":7,\"login\":\"ada\",{session},\"count\":4"
            ),
        ),
        (
            Event::Listening {
                connection: 7,
                login: login(),
                on: "127.0.0.1:8080".into(),
            },
            "\"event\":\"listening\",\"connection\":7,\"login\":\"ada\",\"on\":\"127.0.0.1:8080\"".into(),
        ),
        (
            Event::Denied {
                connection: 7,
                login: login(),
                what: "a terminal".into(),
            },
            "\"event\":\"denied\",\"connection\":7,\"login\":\"ada\",\"what\":\"a terminal\"".into(),
        ),
        (
            Event::ProcessDied {
                process: "lobby".into(),
                pid: 9,
                how: "signal 9".into(),
            },
            "\"event\":\"process_died\",\"process\":\"lobby\",\"pid\":9,\"how\":\"signal 9\"".into(),
        ),
        (
            Event::Lost { gap: Gap {
                count: 5,
                first: Time { sec: 1, nsec: 0 },
                last: Time { sec: 60, nsec: 0 },
                cut: true,
            } },
            "\"event\":\"audit_lost\",\"count\":5,\"first\":\"1970-01-01T00:00:01.000Z\",\
             \"last\":\"1970-01-01T00:01:00.000Z\",\"cut\":true"
                .into(),
        ),
    ] {
        let wanted = format!("{{\"time\":\"2023-11-14T22:13:20.123Z\",{wanted}}}");
        assert_eq!(line(&event), wanted);
        let value: serde_json::Value = serde_json::from_str(&wanted).expect("JSON");
        assert!(value["event"].is_string());
    }
}

#[test]
fn moments_are_dates() {
    for (sec, wanted) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (4_107_542_399, "2100-02-28T23:59:59.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
    ] {
        assert_eq!(utc(Time { sec, nsec: 0 }), wanted);
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "ä".repeat(MAX_TEXT);
    let line = line(&Event::Denied {
        connection: 1,
        login: "x".into(),
        what: text,
    });
    assert!(line.len() < MAX_TEXT + 200, "{}", line.len());
    assert!(line.ends_with("ä…\"}"));
    let whole = "a".repeat(MAX_TEXT);
    let line = self::line(&Event::Denied {
        connection: 1,
        login: "x".into(),
        what: whole.clone(),
    });
    assert!(line.contains(&format!("{whole}\"")));
}

/// A directory of this test's own, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("fleetgate-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }
    fn log(&self) -> PathBuf {
        self.0.join("log/audit.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn denied(what: &str) -> Event {
    Event::Denied {
        connection: 1,
        login: "x".into(),
        what: what.into(),
    }
}

fn whats(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the log");
    let one = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        match value["event"].as_str() {
            Some("audit_lost") => format!("lost {}", value["count"]),
            _ => value["what"].as_str().expect("what").to_owned(),
        }
    };
    text.lines().map(one).collect()
}

#[test]
fn the_file_is_appended_to_and_its_owners_alone_may_read_it() {
    let place = Place::new("append");
    for part in ["a", "b"] {
        let (audit, writing) = Audit::start(&place.log()).expect("a log");
        audit.tell(denied(part));
        drop(audit);
        writing.finish();
    }
    assert_eq!(whats(&place.log()), ["a", "b"]);
    let mode = std::fs::metadata(place.log())
        .expect("the log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let place = Place::new("rotate");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    let old = place.0.join("log/audit.jsonl.1");
    audit.tell(denied("before"));
    // The line stands there before the file is moved: the moved one is then the old one for sure.
    while std::fs::metadata(place.log()).expect("the log").size() == 0 {
        std::thread::yield_now();
    }
    std::fs::rename(place.log(), &old).expect("moved");
    audit.reopen();
    audit.tell(denied("after"));
    drop(audit);
    writing.finish();
    assert_eq!(whats(&old), ["before"]);
    assert_eq!(whats(&place.log()), ["after"]);
}

#[test]
fn what_the_disk_has_no_room_for_is_counted() {
    // /dev/full takes nothing, ever; it stands where the log does, as a link.
    let place = Place::new("full");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", place.log()).expect("a link");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    audit.tell(denied("never written"));
    while audit.lost() == 0 {
        std::thread::yield_now();
    }
    std::fs::remove_file(place.log()).expect("room again");
    audit.tell(denied("written"));
    let lost = audit.lost();
    drop(audit);
    writing.finish();
    assert_eq!(
        (lost, whats(&place.log())),
        (1, vec!["lost 1".to_owned(), "written".to_owned()])
    );
}

#[test]
fn what_is_missing_is_told_with_its_times() {
    let place = Place::new("gap");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", place.log()).expect("a link");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    let at = |sec| Time { sec, nsec: 0 };
    for (sec, lost) in [(60, 1), (3600, 2)] {
        audit.tell_at(at(sec), denied("never written"));
        while audit.lost() < lost {
            std::thread::yield_now();
        }
    }
    std::fs::remove_file(place.log()).expect("room again");
    audit.tell(denied("written"));
    drop(audit);
    writing.finish();
    let text = std::fs::read_to_string(place.log()).expect("the log");
    let gap: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(gap["count"], 2, "{text}");
    assert_eq!(
        (gap["first"].as_str(), gap["last"].as_str()),
        (Some("1970-01-01T00:01:00.000Z"), Some("1970-01-01T01:00:00.000Z"))
    );
}

#[test]
fn a_line_that_an_earlier_process_left_cut_is_ended_and_told() {
    let place = Place::new("cut");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    for (before, behind) in [
        ("{\"event\":\"denied\",\"what\":\"whole\"}\n", 1),
        ("{\"event\":\"denied\",\"wh", 2),
    ] {
        std::fs::write(place.log(), before).expect("a log");
        let (audit, writing) = Audit::start(&place.log()).expect("a log");
        audit.tell(denied("next"));
        drop(audit);
        writing.finish();
        let text = std::fs::read_to_string(place.log()).expect("the log");
        let new: Vec<serde_json::Value> = text
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        assert_eq!(new.len(), behind, "{text}");
        assert_eq!(new[behind - 1]["what"], "next", "{text}");
        if behind == 2 {
            assert_eq!(new[0]["event"], "audit_lost", "{text}");
            assert_eq!(
                (&new[0]["count"], &new[0]["cut"]),
                (&1.into(), &true.into()),
                "{text}"
            );
            assert!(
                new[0]["first"].is_string() && new[0]["last"].is_string(),
                "{text}"
            );
        }
    }
}

#[test]
fn a_full_queue_loses_and_says_so() {
    // A pipe that nobody reads holds the thread up, as a hung disk does.
    let place = Place::new("queue");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    let fifo = place.log();
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    let reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .expect("both ends");
    let (audit, writing) = Audit::with_queue(&fifo, 4).expect("a log");
    let long = "x".repeat(MAX_TEXT);
    let mut told = 0u64;
    while audit.lost() == 0 {
        audit.tell(denied(&long));
        told += 1;
    }
    let lost = audit.lost();
    drop(audit);
    let read = std::thread::spawn(move || {
        use std::io::BufRead;
        let mut lines = Vec::new();
        let mut count = 0;
        for line in std::io::BufReader::new(reader).lines() {
            let value: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            match value["event"].as_str() {
                Some("audit_lost") => count += value["count"].as_u64().expect("a count"),
                _ => lines.push(value),
            }
            if lines.len() as u64 + count == told {
                break;
            }
        }
        count
    });
    assert_eq!(read.join().expect("the reader"), lost);
    writing.finish();
}
