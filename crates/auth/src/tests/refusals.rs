//! Strangers who are refused without end leave a bounded number of audit lines, and every refusal is in a line or a sum.

use super::place::{Keys, Place, run};
use crate::RefusedKind;
use crate::caller::{Caller, CallerProof};
use fleetgate_policy::strangers::Settings;
use fleetgate_proto::v1;
use std::net::SocketAddr;

const TRIES: u64 = 10_000;

fn stranger() -> Caller {
    Caller {
        who: CallerProof::Nobody,
        address: Some(SocketAddr::from(([203, 0, 113, 9], 1024))),
    }
}

/// How many lines of this kind there are, and how many refusals are in sums.
async fn told(place: &Place, what: &str) -> (u64, u64) {
    let lines = place.events(what).await.len() as u64;
    let sums = place.events("strangers").await;
    let of = sums.iter().filter(|sum| sum["of"] == what);
    let count = of.map(|sum| {
        assert_eq!(sum["source"], "203.0.113.9", "{sum}");
        assert!(sum["first"].as_str() <= sum["last"].as_str(), "{sum}");
        sum["count"].as_u64().expect("a number")
    });
    (lines, count.sum())
}

#[test]
fn ten_thousand_wrong_secrets_are_a_few_lines_whose_sums_add_up() {
    run(async {
        let place = Place::new().await;
        let service = place.service();
        let token = place.token("node", "web1").await;
        let join = |secret: String| v1::JoinRequest {
            secret,
            name: "web2".into(),
            ..Keys::fresh().join()
        };
        let (unknown, other) = (join("x".repeat(43)), join(token.secret().to_string()));
        let login = v1::LoginRequest {
            user: "eve".into(),
            keys: Some(Keys::fresh().request()),
            ..v1::LoginRequest::default()
        };
        let mut looked_at = 0;
        for _ in 0..TRIES {
            // Tokens that there are not, one that is for another machine, invites, passwords.
            let refused = service.join(&stranger(), unknown.clone()).await.map(drop);
            let kind = refused.expect_err("no such token").kind;
            looked_at += u64::from(kind == RefusedKind::Unproven);
            let refused = service.join(&stranger(), other.clone()).await.map(drop);
            refused.expect_err("the token is for another name");
            let refused = service.begin_invite(&stranger(), "none").await.map(drop);
            refused.expect_err("no such invite");
            let refused = service.login(&stranger(), login.clone()).await.map(drop);
            refused.expect_err("nobody");
        }
        assert!(
            (1..100).contains(&looked_at),
            "the control: most came too often: {looked_at}"
        );
        place.clock.advance(61);
        service.turn().await;
        let most = u64::from(Settings::default().lines);
        for (what, tries) in [
            ("join_refused", 2 * TRIES),
            ("invite_refused", TRIES),
            ("login_refused", TRIES),
        ] {
            let (lines, summed) = told(&place, what).await;
            assert_eq!(lines + summed, tries, "{what}: {lines} lines");
            assert_eq!(lines, most, "{what}");
        }
        // The next minute has lines of its own.
        let refused = service.join(&stranger(), other).await.map(drop);
        refused.expect_err("the token is for another name");
        assert_eq!(told(&place, "join_refused").await.0, most + 1);
    });
}

#[test]
fn sums_are_written_when_the_service_stops() {
    run(async {
        let place = Place::new().await;
        for _ in 0..20 {
            let refused = place.service().begin_invite(&stranger(), "none").await.map(drop);
            refused.expect_err("no such invite");
        }
        let (directory, clock) = place.stop().await;
        let place = Place::on(directory, clock).await;
        assert_eq!(told(&place, "invite_refused").await, (10, 10));
    });
}
