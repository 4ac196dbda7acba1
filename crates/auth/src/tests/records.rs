//! The audit log: what nodes hand in is verified, kept once, and there after a restart; what is asked for is found.

use super::place::{Holder, Place, run};
use crate::audit::{self, Batch, Event, Line, Log, Query, Settings};
use crate::clock::SetClock;
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
            .remove_node(v1::NodeName { name: "web1".into() })
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
                user: None,
                node: None,
                text: Event::new("filler", 0)
                    .with("i", i * 100 + j)
                    .with("text", "x".repeat(300))
                    .line(),
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
                    event: "audit_cut".into(),
                    ..Query::default()
                },
                0,
            )
            .await
            .unwrap();
        assert!(!cut.is_empty(), "it says so");
        let last = log
            .begin(&Query {
                limit: 1,
                event: "filler".into(),
                ..Query::default()
            })
            .await
            .unwrap();
        let last = log
            .page(
                &Query {
                    event: "filler".into(),
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
