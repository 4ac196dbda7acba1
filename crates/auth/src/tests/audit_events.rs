//! Events that are asked for: by user, session, connection and time, behind a mark, or as they come.

use super::place::{Place, run};
use super::records::batch;
use fleetgate_proto::v1;
use tonic::Code;

/// All events that are asked for: their lines, each with its mark.
async fn read_marked(place: &Place, request: v1::EventsRequest) -> Vec<(String, String)> {
    let mut stream = place.admin().await.events(request).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        all.push((event.line, event.mark));
    }
    all
}

/// All events that are asked for.
pub(super) async fn read_events(place: &Place, request: v1::EventsRequest) -> Vec<serde_json::Value> {
    let all = read_marked(place, request).await;
    let read = |line: &str| serde_json::from_str(line).unwrap();
    all.iter().map(|(line, _)| read(line)).collect()
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
            let found = read_events(&place, request).await;
            let words = |line: &serde_json::Value| format!("{} {}", line["event"], line["user"]);
            let found = found.iter().map(|line| words(line).replace('"', ""));
            found.collect::<Vec<_>>()
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
        let (first, later, refused) = ("a".repeat(32), "b".repeat(32), "c".repeat(32));
        let lines = [
            // Ada's connection, in two batches.
            r#"{"event":"login_accepted","connection":1,"login":"root","user":"ada"}"#.to_owned(),
            format!(
                r#"{{"event":"session_started","connection":1,"login":"root","session":"{first}","user":"ada"}}"#
            ),
            r#"{"event":"denied","connection":1,"login":"root","what":"one"}"#.to_owned(),
            // A session that runs, and one that was refused for this.
            format!(r#"{{"event":"not_recorded","connection":1,"login":"root","session":"{first}"}}"#),
            format!(r#"{{"event":"not_recorded","connection":1,"login":"root","session":"{refused}"}}"#),
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
            // Of ada's session, though the connection's number is bob's now.
            format!(r#"{{"event":"not_recorded","connection":1,"login":"root","session":"{first}"}}"#),
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
                events: [
                    "denied",
                    "not_recorded",
                    "session_ended",
                    "login_refused",
                    "connection_ended",
                ]
                .map(Into::into)
                .to_vec(),
                ..v1::EventsRequest::default()
            };
            let mut found = Vec::new();
            for line in read_events(&place, request).await {
                assert_eq!((&line["user"], &line["node"]), (&user.into(), &"web1".into()));
                let what = line["what"]
                    .as_str()
                    .or(line["session"].as_str().map(|id| &id[..1]));
                found.push(what.unwrap_or("?").to_owned());
            }
            found
        };
        assert_eq!(of("ada").await, ["one", "a", "c", "two", "a", "a"]);
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
            let mut found = String::new();
            for line in read_events(&place, request).await {
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

/// All events behind a mark.
async fn behind(place: &Place, after: &str) -> Vec<(String, String)> {
    let request = v1::EventsRequest {
        after: after.to_owned(),
        ..v1::EventsRequest::default()
    };
    read_marked(place, request).await
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
