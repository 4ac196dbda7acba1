//! The lines of events with other optional fields than in `tests`, and of every operation of the file server.

use super::tests::{AT, ID, line};
use super::*;
use fleetgate_sys::clock::Time;
use fleetgate_wire::sftp::Event as FileEvent;
use std::time::Duration;

#[test]
fn optional_fields_and_every_operation_have_their_lines() {
    let source = "[2001:db8::7]:22".parse().expect("an address");
    let head = "\"connection\":7,\"login\":\"ada\"";
    let file = |done, fields: &str| {
        let event = Event::File {
            connection: 7,
            session: ID,
            login: "ada".to_owned(),
            done,
        };
        let session = "\"session\":\"abababababababababababababababab\"";
        (event, format!("\"event\":\"file\",{head},{session},{fields}"))
    };
    let path = || c"/x".to_owned();
    let moment = Time { sec: 1, nsec: 0 };
    let strangers = |source: Option<&str>, tunnelled| Event::Strangers {
        of: "login_refused",
        source: source.map(str::to_owned),
        tunnelled,
        count: 3,
        first: moment,
        last: AT,
    };
    let moments = "\"first\":\"1970-01-01T00:00:01.000Z\",\"last\":\"2023-11-14T22:13:20.123Z\"";
    let ended = |reason: &str| Event::SessionEnded {
        connection: 7,
        session: ID,
        login: "ada".to_owned(),
        code: None,
        signal: Some(9),
        lasted: None,
        usage: Usage {
            cpu_micros: None,
            memory: None,
            read: Some(7),
            written: None,
        },
        end_command: Some(EndCommand {
            by: "user eve".to_owned(),
            reason: reason.to_owned(),
        }),
        inherited: false,
    };
    for (event, wanted) in [
        (
            Event::NodeStarted {
                version: "1".to_owned(),
                sessions: None,
            },
            "\"event\":\"node_started\",\"version\":\"1\"".to_owned(),
        ),
        (
            Event::NodeReloaded { refused: None },
            "\"event\":\"node_reloaded\",\"done\":true".to_owned(),
        ),
        (
            Event::ConnectionRefused {
                source,
                reason: String::new(),
                via: Some("p1".to_owned()),
            },
            "\"event\":\"connection_refused\",\"source\":\"[2001:db8::7]:22\",\"via\":\"p1\",\"reason\":\"\""
                .to_owned(),
        ),
        (
            strangers(Some("192.0.2.0/24"), true),
            format!(
                "\"event\":\"strangers\",\"of\":\"login_refused\",\"source\":\"192.0.2.0/24\",\"tunnelled\":true,\
                 \"count\":3,{moments}"
            ),
        ),
        (
            strangers(None, false),
            format!("\"event\":\"strangers\",\"of\":\"login_refused\",\"count\":3,{moments}"),
        ),
        (
            Event::ConnectionEnded {
                connection: 7,
                source,
                login: Some("ada".to_owned()),
                reason: "x".to_owned(),
                received: 1,
                sent: 2,
                lasted: Duration::from_micros(1999),
                via: Some("p1".to_owned()),
            },
            format!(
                "\"event\":\"connection_ended\",{head},\"source\":\"[2001:db8::7]:22\",\"via\":\"p1\",\
                 \"reason\":\"x\",\"received\":1,\"sent\":2,\"lasted_ms\":1"
            ),
        ),
        (
            Event::LoginAccepted {
                connection: 7,
                source,
                login: "ada".to_owned(),
                identity: "certificate".to_owned(),
                cluster: Some(ClusterUser {
                    user: "ada.l".to_owned(),
                    roles: "dba,ops".to_owned(),
                    mfa: Some(1_700_000_000),
                    device: Some("laptop".to_owned()),
                }),
                via: None,
            },
            format!(
                "\"event\":\"login_accepted\",{head},\"source\":\"[2001:db8::7]:22\",\"identity\":\"certificate\",\
                 \"user\":\"ada.l\",\"roles\":\"dba,ops\",\"mfa\":1700000000,\"device\":\"laptop\""
            ),
        ),
        (
            ended(""),
            format!(
                "\"event\":\"session_ended\",{head},\"session\":\"abababababababababababababababab\",\"signal\":9,\
                 \"read\":7,\"ended_by\":\"user eve\""
            ),
        ),
        (
            Event::SessionStarted {
                audit: None,
                unwatched: Some("no filter".to_owned()),
                connection: 7,
                session: ID,
                login: "ada".to_owned(),
                source,
                user: None,
                kind: SessionKind::Sftp,
                pid: -1,
                terminal: None,
                command: None,
                original: Some(b"\xffx".to_vec()),
                runs_as: Some("root".to_owned()),
                container: None,
                strategy: "installed",
                unrecorded: None,
                not_recorded: Some(NotRecorded {
                    reason: "the disk is full".to_owned(),
                }),
                recording: None,
            },
            format!(
                "\"event\":\"session_started\",{head},\"session\":\"abababababababababababababababab\",\
                 \"source\":\"[2001:db8::7]:22\",\"kind\":\"sftp\",\"pid\":-1,\"original\":\"\u{fffd}x\",\"runs_as\":\"root\",\
                 \"strategy\":\"installed\",\"unwatched\":\"no filter\",\
                 \"recorded\":false,\"reason\":\"the disk is full\""
            ),
        ),
        (
            Event::Lost {
                gap: Gap {
                    count: 1,
                    first: moment,
                    last: AT,
                    cut: false,
                },
            },
            format!("\"event\":\"audit_lost\",\"count\":1,{moments}"),
        ),
        file(
            FileEvent::Closed {
                path: path(),
                read: 1,
                written: 2,
                flags: 1,
            },
            "\"operation\":\"close\",\"path\":\"/x\",\"read\":1,\"written\":2",
        ),
        file(
            FileEvent::Listed {
                path: path(),
                errno: 2,
            },
            "\"operation\":\"list\",\"path\":\"/x\",\"errno\":2",
        ),
        file(
            FileEvent::Removed {
                path: path(),
                directory: true,
                errno: 0,
            },
            "\"operation\":\"rmdir\",\"path\":\"/x\",\"errno\":0",
        ),
        file(
            FileEvent::Removed {
                path: path(),
                directory: false,
                errno: 0,
            },
            "\"operation\":\"remove\",\"path\":\"/x\",\"errno\":0",
        ),
        file(
            FileEvent::DirectoryMade {
                path: path(),
                mode: 0o755,
                errno: 0,
            },
            "\"operation\":\"mkdir\",\"path\":\"/x\",\"errno\":0,\"mode\":\"755\"",
        ),
        file(
            FileEvent::AttributesSet {
                path: path(),
                size: Some(5),
                uid: None,
                gid: Some(6),
                mode: None,
                times: false,
                errno: 0,
            },
            "\"operation\":\"attributes\",\"path\":\"/x\",\"errno\":0,\"size\":5,\"gid\":6,\"times\":false",
        ),
        file(
            FileEvent::Linked {
                path: path(),
                target: c"/y".to_owned(),
                symbolic: true,
                errno: 0,
            },
            "\"operation\":\"symlink\",\"path\":\"/x\",\"errno\":0,\"target\":\"/y\"",
        ),
        file(
            FileEvent::Linked {
                path: path(),
                target: c"/y".to_owned(),
                symbolic: false,
                errno: 1,
            },
            "\"operation\":\"link\",\"path\":\"/x\",\"errno\":1,\"target\":\"/y\"",
        ),
        file(FileEvent::Lost { count: 4 }, "\"operation\":\"lost\",\"count\":4"),
    ] {
        assert_eq!(
            line(&event),
            format!("{{\"time\":\"2023-11-14T22:13:20.123Z\",{wanted}}}")
        );
    }
}
