//! The audit log: what nodes hand in is verified, kept once, and there after a restart; what is asked for is found.

use super::place::{Holder, Place, run};
use crate::audit::{self, Batch, Event, Line, Log, Mark, Query, Settings, event};
use crate::clock::{Clock, SetClock};
use fleetgate_proto::{signed, v1};
use std::sync::Arc;
use tonic::Code;

fn batch(holder: &Holder, name: &str, log: &str, offset: u64, lines: &str) -> v1::AuditFrom {
    let mut batch = v1::AuditBatch {
        log: log.to_string(),
        offset,
        lines: lines.to_string().into(),
        signature: Default::default(),
        certificate: holder.chain[0].clone(),
    };
    batch.signature = holder.keys.tls.sign(&signed::audit(name, &batch)).into();
    v1::AuditFrom {
        source: name.to_string(),
        batch: Some(batch),
    }
}

const ONE: &str = "{\"event\":\"session_started\",\"user\":\"ada\",\"node\":\"web9\"}\n";
const TWO: &str = "{\"event\":\"session_ended\",\"user\":\"ada\"}\n";

#[test]
fn records_of_nodes_are_kept_once_and_in_their_own_name() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let both = format!("{ONE}{TWO}");
        let end = both.len() as u64;
        let kept = proxy
            .audit(batch(&web1, "web1", "a", 0, ONE))
            .await
            .unwrap()
            .into_inner();
        assert_eq!((kept.log.as_str(), kept.offset), ("a", ONE.len() as u64));
        // The answer was lost: it is sent again, with more behind it.
        for _ in 0..3 {
            let kept = proxy
                .audit(batch(&web1, "web1", "a", 0, &both))
                .await
                .unwrap()
                .into_inner();
            assert_eq!(kept.offset, end);
        }
        let kept = proxy
            .audit(batch(&web1, "web1", "a", 0, ONE))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(kept.offset, end, "what was kept stays kept");
        let started = place.events("session_started").await;
        assert_eq!(started.len(), 1);
        assert_eq!(started[0]["node"], "web1", "whatever it says of itself");
        // Something is missing, and said to be.
        let kept = proxy
            .audit(batch(&web1, "web1", "a", end + 100, TWO))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(kept.offset, end + 100 + TWO.len() as u64);
        assert_eq!(place.events("audit_gap").await[0]["missing_bytes"], 100);
        // Another file of the same node; a proxy's own; what is no record.
        proxy.audit(batch(&web1, "web1", "b", 0, ONE)).await.unwrap();
        proxy
            .audit(batch(&edge, "edge", "a", 0, "{\"event\":\"dial\"}\n"))
            .await
            .unwrap();
        proxy
            .audit(batch(&web1, "web1", "c", 0, "no json\n\n[1]\n"))
            .await
            .unwrap();
        assert_eq!(place.events("session_started").await.len(), 2);
        assert_eq!(place.events("unreadable").await.len(), 2);
        // A position outlives a restart.
        let (directory, clock) = place.stop().await;
        let place = Place::on(directory, clock).await;
        let mut proxy = place.proxy(&edge).await;
        proxy.audit(batch(&web1, "web1", "b", 0, ONE)).await.unwrap();
        assert_eq!(place.events("session_started").await.len(), 2);
    });
}

#[test]
fn records_by_another_hand_are_refused() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        place.clock.advance(30);
        let web2 = place.machine("node", "web2").await;
        let mut proxy = place.proxy(&edge).await;
        let with = |change: fn(&mut v1::AuditBatch)| {
            let mut from = batch(&web1, "web1", "a", 0, ONE);
            change(from.batch.as_mut().unwrap());
            from
        };
        let large = "x".repeat(audit::MAX_BATCH + 1);
        let table = [
            (
                "another's name",
                batch(&web2, "web1", "a", 0, ONE),
                Code::Unauthenticated,
            ),
            (
                "another's certificate",
                with(|b| b.certificate = Default::default()),
                Code::InvalidArgument,
            ),
            (
                "other lines",
                with(|b| b.lines = TWO.into()),
                Code::Unauthenticated,
            ),
            ("another place", with(|b| b.offset = 1), Code::Unauthenticated),
            ("another log", with(|b| b.log = "b".into()), Code::Unauthenticated),
            ("no log", with(|b| b.log.clear()), Code::InvalidArgument),
            (
                "no signature",
                with(|b| b.signature.clear()),
                Code::Unauthenticated,
            ),
            ("nothing", v1::AuditFrom::default(), Code::InvalidArgument),
            (
                "too much",
                batch(&web1, "web1", "a", 0, &large),
                Code::InvalidArgument,
            ),
        ];
        for (what, request, code) in table {
            let status = proxy.audit(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{what}: {status}");
        }
        proxy
            .audit(batch(&web1, "web1", "a", 0, ONE))
            .await
            .expect("the control");
        place
            .admin()
            .await
            .remove_node(v1::NodeName {
                name: "web1".into(),
                force: false,
            })
            .await
            .unwrap();
        let status = proxy.audit(batch(&web1, "web1", "a", 0, ONE)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(status.message().contains("removed"), "{status}");
    });
}

#[test]
fn events_are_found_by_what_they_are_about_and_followed() {
    run(async {
        let place = Place::new().await;
        for user in ["ada", "bob"] {
            place.user(user, &["access"]).await;
        }
        place.posted().await;
        let ask = async |request: v1::EventsRequest| {
            let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
            let mut found = Vec::new();
            while let Some(event) = stream.message().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
                found.push(format!("{} {}", line["event"], line["user"]).replace('"', ""));
            }
            found
        };
        let plain = v1::EventsRequest::default;
        let ada = ask(v1::EventsRequest {
            user: "ada".into(),
            ..plain()
        })
        .await;
        assert_eq!(ada, ["user_added ada", "invite_accepted ada"]);
        let last = ask(v1::EventsRequest { limit: 1, ..plain() }).await;
        assert_eq!(last, ["invite_accepted bob"]);
        let both = v1::EventsRequest {
            user: "bob".into(),
            event: "user_added".into(),
            ..plain()
        };
        assert_eq!(ask(both).await, ["user_added bob"]);
        let now = place.now();
        assert_eq!(
            ask(v1::EventsRequest {
                from: now + 1,
                ..plain()
            })
            .await,
            [""; 0]
        );
        assert_eq!(
            ask(v1::EventsRequest {
                until: now - 60,
                ..plain()
            })
            .await,
            [""; 0]
        );
        assert_eq!(
            ask(v1::EventsRequest {
                user: "' OR 1=1 --".into(),
                ..plain()
            })
            .await,
            [""; 0]
        );
        let request = v1::EventsRequest {
            event: "lock_added".into(),
            follow: true,
            ..plain()
        };
        let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "user".into(),
                name: "bob".into(),
            }),
            ..v1::AddLockRequest::default()
        };
        place.admin().await.add_lock(lock).await.unwrap();
        assert!(stream.message().await.unwrap().unwrap().line.contains("bob"));
    });
}

#[test]
fn events_of_a_login_have_its_user() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let (web1, web2) = (
            place.machine("node", "web1").await,
            place.machine("node", "web2").await,
        );
        let mut proxy = place.proxy(&edge).await;
        let (first, later) = ("a".repeat(32), "b".repeat(32));
        let lines = [
            // Ada's connection, in two batches.
            r#"{"event":"login_accepted","connection":1,"login":"root","user":"ada"}"#.to_owned(),
            format!(
                r#"{{"event":"session_started","connection":1,"login":"root","session":"{first}","user":"ada"}}"#
            ),
            r#"{"event":"denied","connection":1,"login":"root","what":"one"}"#.to_owned(),
            String::new(),
            r#"{"event":"denied","connection":1,"login":"root","what":"two"}"#.to_owned(),
            // The node begins anew, and so do its numbers: by a key of its own somebody comes in, and then bob.
            r#"{"event":"login_refused","connection":1,"login":"root"}"#.to_owned(),
            r#"{"event":"connection_ended","connection":1}"#.to_owned(),
            r#"{"event":"login_accepted","connection":1,"login":"root"}"#.to_owned(),
            r#"{"event":"denied","connection":1,"login":"root","what":"three"}"#.to_owned(),
            String::new(),
            r#"{"event":"login_accepted","connection":1,"login":"root","user":"bob \"b\""}"#.to_owned(),
            format!(
                r#"{{"event":"session_started","connection":1,"login":"root","session":"{later}","user":"bob \"b\""}}"#
            ),
            String::new(),
            r#"{"event":"denied","connection":1,"login":"root","what":"four"}"#.to_owned(),
            format!(r#"{{"event":"session_ended","connection":1,"login":"root","session":"{first}"}}"#),
            format!(r#"{{"event":"session_ended","connection":1,"login":"root","session":"{later}"}}"#),
        ];
        let mut offset = 0;
        for part in lines.split(String::is_empty) {
            let text: String = part.iter().map(|line| format!("{line}\n")).collect();
            proxy
                .audit(batch(&web1, "web1", "a", offset, &text))
                .await
                .unwrap();
            offset += text.len() as u64;
        }
        // Another node's connection of that number, and its word about another's session.
        let other = format!(
            "{}\n{}\n",
            r#"{"event":"denied","connection":1,"login":"root","what":"five"}"#,
            format_args!(r#"{{"event":"session_ended","connection":1,"login":"root","session":"{first}"}}"#)
        );
        proxy.audit(batch(&web2, "web2", "a", 0, &other)).await.unwrap();
        let of = async |user: &str| {
            let request = v1::EventsRequest {
                user: user.into(),
                events: ["denied", "session_ended", "login_refused", "connection_ended"]
                    .map(Into::into)
                    .to_vec(),
                ..v1::EventsRequest::default()
            };
            let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
            let mut found = Vec::new();
            while let Some(event) = stream.message().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
                assert_eq!((&line["user"], &line["node"]), (&user.into(), &"web1".into()));
                let what = line["what"]
                    .as_str()
                    .or(line["session"].as_str().map(|id| &id[..1]));
                found.push(what.unwrap_or("?").to_owned());
            }
            found
        };
        assert_eq!(of("ada").await, ["one", "two", "a"]);
        assert_eq!(of("bob \"b\"").await, ["four", "b"]);
        assert_eq!(place.events("denied").await.len(), 5, "control");
    });
}

#[test]
fn events_come_in_order_of_their_own_time_by_session_and_connection() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let now = place.now() * 1000;
        let line = |event: &str, session: char, connection: u64, ago: u64| {
            let session: String = std::iter::repeat_n(session, 32).collect();
            let time = crate::clock::rfc3339(now - ago * 1000);
            format!(
                "{{\"time\":\"{time}\",\"event\":\"{event}\",\"session\":\"{session}\",\"connection\":{connection},\"user\":\"ada\"}}\n"
            )
        };
        // What waited at the node longest is handed in last; one has a clock that nobody believes.
        let late = [
            line("session_started", 'a', 1, 50),
            line("session_started", 'b', 2, 400),
            line("session_ended", 'b', 2, 300),
            line("session_started", 'c', 2, 100),
            "{\"time\":\"1999-01-01T00:00:00.000Z\",\"event\":\"file\",\"connection\":9}\n".to_owned(),
        ]
        .concat();
        proxy.audit(batch(&web1, "web1", "a", 0, &late)).await.unwrap();
        let plain = v1::EventsRequest::default;
        let ask = async |request: v1::EventsRequest| {
            let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
            let mut found = String::new();
            while let Some(event) = stream.message().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
                let session = line["session"].as_str().unwrap_or("-");
                found += &format!(
                    "{}{} ",
                    &session[..1],
                    &line["event"].as_str().unwrap()[..9.min(line["event"].as_str().unwrap().len())]
                );
            }
            found.trim_end().to_owned()
        };
        let node = || v1::EventsRequest {
            node: "web1".into(),
            from: 1,
            ..plain()
        };
        let of_node = ask(v1::EventsRequest {
            events: ["session_started", "session_ended", "file"]
                .map(Into::into)
                .to_vec(),
            ..node()
        })
        .await;
        assert_eq!(of_node, "bsession_s bsession_e csession_s asession_s -file");
        let last = ask(v1::EventsRequest {
            limit: 2,
            events: vec!["session_started".into()],
            ..node()
        })
        .await;
        assert_eq!(last, "csession_s asession_s");
        let window = v1::EventsRequest {
            until: place.now() - 200,
            ..node()
        };
        assert_eq!(ask(window).await, "bsession_s bsession_e");
        let session = v1::EventsRequest {
            session: "BBBBBBBB".into(),
            ..plain()
        };
        assert_eq!(ask(session).await, "bsession_s bsession_e");
        let connection = v1::EventsRequest {
            connection: 2,
            ..plain()
        };
        assert_eq!(ask(connection).await, "bsession_s bsession_e csession_s");
        let present = v1::EventsRequest {
            present: true,
            ..plain()
        };
        assert_eq!(
            ask(present.clone()).await,
            "csession_s asession_s",
            "who is in now"
        );
        // Another machine's word ends no session of this one.
        let web2 = place.machine("node", "web2").await;
        proxy
            .audit(batch(&web2, "web2", "a", 0, &line("session_ended", 'a', 1, 0)))
            .await
            .unwrap();
        assert_eq!(ask(present.clone()).await, "csession_s asession_s");
        let end = line("session_ended", 'a', 1, 0);
        proxy.audit(batch(&web1, "web1", "b", 0, &end)).await.unwrap();
        assert_eq!(ask(present).await, "csession_s");
        for request in [
            v1::EventsRequest {
                session: "'; --".into(),
                ..plain()
            },
            v1::EventsRequest {
                session: "a".repeat(33),
                ..plain()
            },
            v1::EventsRequest {
                events: vec!["x".into(); 33],
                ..plain()
            },
        ] {
            let refused = place.admin().await.events(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
    });
}

#[test]
fn a_log_that_is_too_large_is_cut_at_its_oldest_end_and_says_so() {
    run(async {
        let directory = std::env::temp_dir().join(format!("fleetgate-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let settings = Settings {
            size: 1 << 20,
            clock: Arc::new(SetClock::at(1_000)),
        };
        let log = Log::open(&directory.join("audit.db"), settings).unwrap();
        for i in 0..100u32 {
            let line = |j: u32| Line {
                end: 0,
                origin: Some(format!("{i} {j}")),
                time: 1,
                event: "filler".into(),
                of: None,
                user: None,
                node: None,
                text: format!(
                    "{{\"event\":\"filler\",\"i\":{},\"text\":\"{}\"}}",
                    i * 100 + j,
                    "x".repeat(300)
                ),
            };
            let batch = Batch {
                source: "auth".into(),
                log: String::new(),
                offset: 0,
                lines: (0..100).map(line).collect(),
            };
            log.write(batch).await.unwrap();
        }
        let size = std::fs::metadata(directory.join("audit.db")).unwrap().len();
        assert!(size < 2 << 20, "{size}");
        let cut = log
            .page(
                &Query {
                    events: vec!["audit_cut".into()],
                    ..Query::default()
                },
                Mark::Arrival(0),
            )
            .await
            .unwrap();
        assert!(!cut.is_empty(), "it says so");
        let last = log
            .begin(&Query {
                limit: 1,
                events: vec!["filler".into()],
                ..Query::default()
            })
            .await
            .unwrap();
        let last = log
            .page(
                &Query {
                    events: vec!["filler".into()],
                    ..Query::default()
                },
                last,
            )
            .await
            .unwrap();
        assert!(last[0].line.contains("\"i\":9999"), "the newest are there");
        drop(log);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

#[test]
fn another_programs_file_is_not_taken_for_the_log() {
    let directory = std::env::temp_dir().join(format!("fleetgate-audit-bad-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let settings = || Settings {
        size: 1 << 20,
        clock: Arc::new(SetClock::at(1_000)),
    };
    let path = directory.join("audit.db");
    std::fs::write(
        &path,
        "no database at all, and long enough to look like one".repeat(100),
    )
    .unwrap();
    assert!(Log::open(&path, settings()).is_err());
    std::fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(other);
    let said = Log::open(&path, settings()).map(drop).unwrap_err().to_string();
    assert!(said.contains("another program's"), "{said}");
    std::os::unix::fs::symlink("/dev/null", directory.join("link.db")).unwrap();
    assert!(
        Log::open(&directory.join("link.db"), settings()).is_err(),
        "no link is followed"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What was taken over knows the ids of sessions, and says what it likes.
#[test]
fn a_proxy_speaks_for_plain_sshds_and_for_no_node() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let west = place.machine("proxy", "west").await;
        let web1 = place.machine("node", "web1").await;
        let register = v1::RegisterNodeRequest {
            name: "db1".into(),
            address: "db1.example:22".into(),
            ..v1::RegisterNodeRequest::default()
        };
        place.admin().await.register_node(register).await.unwrap();
        let mut proxy = place.proxy(&edge).await;
        let line = |event: &str, session: &str, rest: &str| {
            format!("{{\"event\":\"{event}\",\"session\":\"{session}\",\"login\":\"root\",{rest}}}\n")
        };
        let present = async || {
            let request = v1::EventsRequest {
                present: true,
                ..v1::EventsRequest::default()
            };
            let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
            let mut found = String::new();
            while let Some(event) = stream.message().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
                found += line["session"].as_str().unwrap();
            }
            found
        };
        let of_web1 = line(
            "session_started",
            "a",
            "\"connection\":1,\"user\":\"ada\",\"proxy\":\"edge\"",
        );
        proxy.audit(batch(&web1, "web1", "a", 0, &of_web1)).await.unwrap();
        let started = place.events("session_started").await;
        assert_eq!(
            (&started[0]["proxy"], &started[0]["claimed_proxy"]),
            (&serde_json::Value::Null, &"edge".into())
        );
        let of_db1 = line("session_started", "b", "\"node\":\"db1\",\"user\":\"bob\"");
        proxy.audit(batch(&edge, "edge", "a", 0, &of_db1)).await.unwrap();
        assert_eq!(present().await, "ab");
        // In the node's name, and in another proxy's.
        let forged = [
            line(
                "session_ended",
                "a",
                "\"node\":\"web1\",\"user\":\"eve\",\"proxy\":\"other\"",
            ),
            line("session_ended", "b", "\"node\":\"db1\",\"proxy\":\"edge\""),
            line(
                "login_accepted",
                "c",
                "\"node\":\"web1\",\"connection\":2,\"user\":\"eve\"",
            ),
            "{\"event\":\"dial_ended\",\"node\":\"web1\",\"proxy\":\"edge\"}\n".to_owned(),
            "no json\n".to_owned(),
        ];
        proxy
            .audit(batch(&west, "west", "a", 0, &forged.concat()))
            .await
            .unwrap();
        assert_eq!(present().await, "ab", "no other machine's word");
        let ended = place.events("session_ended").await;
        let names = |event: &serde_json::Value| {
            ["node", "claimed_node", "proxy"].map(|field| event[field].as_str().unwrap_or("-").to_owned())
        };
        assert_eq!(names(&ended[0]), ["-", "web1", "west"]);
        assert_eq!(names(&ended[1]), ["db1", "-", "west"]);
        assert_eq!(
            names(&place.events("dial_ended").await[0]),
            ["web1", "-", "west"],
            "its own word"
        );
        assert_eq!(names(&place.events("unreadable").await[0]), ["-", "-", "west"]);
        let denied = line("denied", "d", "\"connection\":2");
        proxy.audit(batch(&web1, "web1", "b", 0, &denied)).await.unwrap();
        let denied = place.events("denied").await;
        assert_eq!(
            denied[0]["user"],
            serde_json::Value::Null,
            "nobody's whom the proxy names"
        );
        // Its own session it ends, also when the sshd was removed meanwhile.
        place
            .admin()
            .await
            .remove_node(v1::NodeName {
                name: "db1".into(),
                force: false,
            })
            .await
            .unwrap();
        let end = line("session_ended", "b", "\"node\":\"db1\"");
        proxy.audit(batch(&edge, "edge", "b", 0, &end)).await.unwrap();
        assert_eq!(present().await, "a");
        assert_eq!(
            names(&place.events("session_ended").await[2]),
            ["-", "db1", "edge"]
        );
    });
}

#[test]
fn a_session_that_its_node_does_not_know_any_more_is_over() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let now = place.clock.millis();
        let line = |after: u64, rest: &str| {
            let time = crate::clock::rfc3339(now + after);
            format!("{{\"time\":\"{time}\",{rest}}}\n")
        };
        let started = |after, id: &str| {
            line(
                after,
                &format!("\"event\":\"session_started\",\"session\":\"{id}\",\"login\":\"ada\""),
            )
        };
        let of_sshd = line(
            0,
            "\"event\":\"session_started\",\"session\":\"dd\",\"node\":\"db1\",\"proxy\":\"edge\"",
        );
        let present = async || {
            let request = v1::EventsRequest {
                present: true,
                ..v1::EventsRequest::default()
            };
            let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
            let mut found = Vec::new();
            while let Some(event) = stream.message().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&event.line).unwrap();
                found.push(line["session"].as_str().unwrap().to_owned());
            }
            found.sort();
            found
        };
        // The log of a node, one batch after the other.
        let mut offset = 0;
        let mut tell = async |lines: String| {
            let from = batch(&web1, "web1", "a", offset, &lines);
            offset += lines.len() as u64;
            proxy.audit(from).await.unwrap();
        };
        tell(started(0, "aa") + &started(0, "bb") + &started(8_000, "cc")).await;
        place
            .proxy(&edge)
            .await
            .audit(batch(&edge, "edge", "1", 0, &of_sshd))
            .await
            .unwrap();
        let all = ["aa", "bb", "cc", "dd"];
        assert_eq!(present().await, all);
        // A state that is refused, and a node that is older or has too many to tell, say nothing of sessions.
        tell(line(9_000, "\"event\":\"cluster_state\",\"done\":false")).await;
        assert_eq!(present().await, all);
        // It has one of three: the third began so short a time before that it may not be among those that were told.
        tell(line(
            9_000,
            "\"event\":\"cluster_state\",\"done\":true,\"sessions\":[\"bb\"]",
        ))
        .await;
        assert_eq!(present().await, ["bb", "cc", "dd"]);
        // No machine but auth's tells of a restore.
        tell(line(9_000, "\"event\":\"restored\"")).await;
        let of_edge = line(9_000, "\"event\":\"restored\"");
        place
            .proxy(&edge)
            .await
            .audit(batch(&edge, "edge", "2", 0, &of_edge))
            .await
            .unwrap();
        assert_eq!(present().await, ["bb", "cc", "dd"]);
        // Nobody knows of a plain sshd's, and a restore forgets what it was told meanwhile.
        place
            .service()
            .ledger
            .tell(Event::new(event::RESTORED, now + 9_000))
            .await
            .unwrap();
        assert_eq!(present().await, ["bb", "cc"]);
        // The machine was off.
        tell(line(30_000, "\"event\":\"node_started\",\"sessions\":[]")).await;
        assert_eq!(present().await, [""; 0]);
    });
}

/// All events behind a mark: their lines, each with its mark.
async fn behind(place: &Place, after: &str) -> Vec<(String, String)> {
    let request = v1::EventsRequest {
        after: after.to_owned(),
        ..v1::EventsRequest::default()
    };
    let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        all.push((event.line, event.mark));
    }
    all
}

#[test]
fn reading_goes_on_behind_a_mark_over_a_restart_with_nothing_lost_or_twice() {
    run(async {
        let mut place = Place::new().await;
        place.user("ada", &["access"]).await;
        place.posted().await;
        let before = behind(&place, "").await;
        assert!(before.len() > 2, "{before:?}");
        // Whoever follows has come to the order of arrival.
        let follow = v1::EventsRequest {
            follow: true,
            ..v1::EventsRequest::default()
        };
        let mut stream = place.admin().await.events(follow).await.unwrap().into_inner();
        for (line, _) in &before {
            assert_eq!(stream.message().await.unwrap().unwrap().line, *line);
        }
        place.machine("node", "web1").await;
        let joined = loop {
            let event = stream.message().await.unwrap().unwrap();
            if event.line.contains("\"joined\"") {
                break event;
            }
        };
        let (directory, clock) = place.stop().await;
        place = Place::on(directory, clock).await;
        let all = behind(&place, "").await;
        for (at, (_, mark)) in before.iter().enumerate() {
            let rest = behind(&place, mark).await;
            let lines =
                |all: &[(String, String)]| all.iter().map(|(line, _)| line.clone()).collect::<Vec<_>>();
            assert_eq!(
                lines(&rest),
                lines(&before[at + 1..]),
                "as many as there were: {mark}"
            );
        }
        let rest = behind(&place, &joined.mark).await;
        let at = all
            .iter()
            .position(|(line, _)| *line == joined.line)
            .expect("it is there");
        assert_eq!(rest.len(), all.len() - at - 1);
        let request = v1::EventsRequest {
            after: "x".to_owned(),
            ..v1::EventsRequest::default()
        };
        let status = place.admin().await.events(request).await.map(drop).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    });
}
