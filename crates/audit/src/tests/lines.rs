//! What each event's line is, word for word.

use super::{ID, line};
use crate::*;
use fleetgate_base::audit::{MAX_TEXT, utc};
use fleetgate_sys::clock::Time;
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::watch::{Field, Source, Value};
use fleetgate_wire::sftp::Event as FileEvent;
use std::time::Duration;

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
                not_recorded: None,
                recording: None,
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
                onward_ssh: true,
            },
            "\"event\":\"forwarded\",\"connection\":7,\"login\":\"ada\",\"to\":\"db:5432\",\"sent\":3,\
             \"received\":4,\"onward_ssh\":true"
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
    let line = super::line(&Event::Denied {
        connection: 1,
        login: "x".into(),
        what: whole.clone(),
    });
    assert!(line.contains(&format!("{whole}\"")));
}
