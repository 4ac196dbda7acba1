//! Audit lines that nodes and proxies hand in: verified, kept once, there after a restart, and each in its own name.

use super::audit_events::read_events;
use super::place::{Holder, Place, run};
use crate::audit::{self, Event, event};
use crate::clock::Clock;
use fleetgate_proto::{signed, v1};
use tonic::Code;

/// Lines of a log from this offset on, signed by their source.
pub(super) fn batch(holder: &Holder, name: &str, log: &str, offset: u64, lines: &str) -> v1::AuditFrom {
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

/// The sessions that are there now, by their ids.
async fn present(place: &Place) -> Vec<String> {
    let request = v1::EventsRequest {
        present: true,
        ..v1::EventsRequest::default()
    };
    let found = read_events(place, request).await;
    let mut ids: Vec<String> = found
        .iter()
        .map(|line| line["session"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
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
        assert_eq!(present(&place).await, ["a", "b"]);
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
        assert_eq!(present(&place).await, ["a", "b"], "no other machine's word");
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
        assert_eq!(present(&place).await, ["a"]);
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
        assert_eq!(present(&place).await, all);
        // A state that is refused, and a node that is older or has too many to tell, say nothing of sessions.
        tell(line(9_000, "\"event\":\"cluster_state\",\"done\":false")).await;
        assert_eq!(present(&place).await, all);
        // It has one of three: the third began so short a time before that it may not be among those that were told.
        tell(line(
            9_000,
            "\"event\":\"cluster_state\",\"done\":true,\"sessions\":[\"bb\"]",
        ))
        .await;
        assert_eq!(present(&place).await, ["bb", "cc", "dd"]);
        // No machine but auth's tells of a restore.
        tell(line(9_000, "\"event\":\"restored\"")).await;
        let of_edge = line(9_000, "\"event\":\"restored\"");
        place
            .proxy(&edge)
            .await
            .audit(batch(&edge, "edge", "2", 0, &of_edge))
            .await
            .unwrap();
        assert_eq!(present(&place).await, ["bb", "cc", "dd"]);
        // Nobody knows of a plain sshd's, and a restore forgets what it was told meanwhile.
        place
            .service()
            .ledger
            .tell(Event::new(event::RESTORED, now + 9_000))
            .await
            .unwrap();
        assert_eq!(present(&place).await, ["bb", "cc"]);
        // The machine was off.
        tell(line(30_000, "\"event\":\"node_started\",\"sessions\":[]")).await;
        assert_eq!(present(&place).await, [""; 0]);
    });
}
