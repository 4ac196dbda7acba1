//! Strangers who try passwords of somebody lock nobody out but themselves.

use super::devices::{enroll, nonce, proof};
use super::place::{Keys, Member, Place, run};
use crate::RefusedKind;
use crate::caller::{Caller, CallerProof};
use crate::error::Refused;
use fleetgate_proto::v1;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_ssh::key::{KeyType, PrivateKey};
use std::net::SocketAddr;

/// Where users of these tests accepted their invites.
const HOME: &str = "127.0.0.1";
const STRANGER: &str = "203.0.113.9";

fn from(address: &str) -> Caller {
    Caller {
        who: CallerProof::Nobody,
        address: Some(SocketAddr::new(address.parse().expect("an address"), 1024)),
    }
}

async fn wrong(place: &Place, user: &str, address: &str) -> Refused {
    let request = v1::LoginRequest {
        user: user.to_string(),
        password: "wrong horse battery".to_string(),
        code: "000000".to_string(),
        keys: Some(Keys::fresh().request()),
        ..v1::LoginRequest::default()
    };
    let done = place.service().login(&from(address), request).await;
    done.map(drop).expect_err("a wrong password")
}

async fn right(place: &Place, member: &Member, address: &str) -> Result<(), Refused> {
    let request = place.login_request(member, &Keys::fresh());
    place.service().login(&from(address), request).await.map(drop)
}

#[test]
fn a_stranger_keeps_nobody_out() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let mut told = Vec::new();
        for _ in 0..60 {
            place.clock.advance(3);
            told.push(wrong(&place, "ada", STRANGER).await.kind);
        }
        assert_eq!(told[0], RefusedKind::Unproven);
        assert_eq!(told[59], RefusedKind::Busy, "his own tries count");
        right(&place, &ada, HOME)
            .await
            .expect("from where she logged in before");
        // fleetgate login --mfa
        place.clock.advance(30);
        wrong(&place, "ada", STRANGER).await;
        let request = v1::RefreshRequest {
            keys: Some(Keys::fresh().request()),
            code: place.code(&ada.otpauth),
            device: None,
            renew: false,
        };
        let mut asks = IdentityClient::new(place.channel_of(&holder).await);
        asks.refresh(request).await.expect("with her login's certificate");
        right(&place, &ada, "198.51.100.7")
            .await
            .expect("from a new place");
        assert_eq!(wrong(&place, "ada", STRANGER).await.kind, RefusedKind::Busy);
    });
}

#[test]
fn codes_that_are_tried_with_a_login_count_for_that_login() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let mut asks = IdentityClient::new(place.channel_of(&holder).await);
        let request = |code: &str| v1::RefreshRequest {
            keys: Some(Keys::fresh().request()),
            code: code.to_string(),
            device: None,
            renew: false,
        };
        for _ in 0..crate::tries::FREE_TRIES {
            let status = asks.refresh(request("none")).await.expect_err("a wrong code");
            assert!(status.message().contains("code is wrong"), "{status}");
        }
        let status = asks.refresh(request("none")).await.expect_err("too many");
        assert!(status.message().contains("try again in 1 s"), "{status}");
        right(&place, &ada, HOME).await.expect("another login");
    });
}

#[test]
fn tries_from_very_many_places_are_slowed_and_known_places_are_not() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        for n in 0..crate::service::UNSLOWED.burst {
            let refused = wrong(&place, "ada", &format!("203.0.113.{n}")).await;
            assert_eq!(refused.kind, RefusedKind::Unproven, "{refused}");
        }
        let held = async {
            let tries = (0..crate::service::MAX_SLOWED).map(|n| format!("198.51.100.{n}"));
            let tries: Vec<_> = tries.collect();
            let mut all = tokio::task::JoinSet::new();
            for address in tries {
                let service = place.service();
                let request = v1::LoginRequest {
                    user: "ada".into(),
                    keys: Some(Keys::fresh().request()),
                    ..v1::LoginRequest::default()
                };
                all.spawn(async move { service.login(&from(&address), request).await.map(drop) });
            }
            tokio::task::yield_now().await;
            all
        };
        let mut held = held.await;
        while place.service().slowed.held(&"ada".parse().unwrap()) < crate::service::MAX_SLOWED {
            tokio::task::yield_now().await;
        }
        let refused = wrong(&place, "ada", "192.0.2.1").await;
        assert!(refused.words.contains("from many places"), "{refused}");
        right(&place, &ada, HOME)
            .await
            .expect("a known place is not slowed");
        wrong(&place, "eve", "192.0.2.1").await;
        while let Some(done) = held.join_next().await {
            let refused = done.expect("it ends").expect_err("no password");
            assert_eq!(refused.kind, RefusedKind::Unproven, "held, and looked at");
        }
        right(&place, &ada, "198.51.100.200")
            .await
            .expect("slowed, and not refused");
    });
}

#[test]
fn a_device_counts_apart_from_its_address() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let key = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        let device = enroll(&place, &holder, &key, &nonce(&place).await).await.unwrap();
        for _ in 0..12 {
            place.clock.advance(crate::tries::MAX_WAIT);
            wrong(&place, "ada", HOME).await;
        }
        let refused = right(&place, &ada, HOME)
            .await
            .expect_err("who shares the address");
        assert_eq!(refused.kind, RefusedKind::Busy, "{refused}");
        let keys = Keys::fresh();
        let mut request = place.login_request(&ada, &keys);
        request.device = Some(proof(&device.id, &key, &nonce(&place).await, &keys));
        let service = place.service();
        wrong(&place, "ada", HOME).await;
        service
            .login(&from(HOME), request)
            .await
            .map(drop)
            .expect("with the device");
    });
}

#[test]
fn known_places_are_bounded_and_forgotten() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        for n in 0..crate::tries::MAX_KNOWN + 2 {
            right(&place, &ada, &format!("192.0.2.{n}"))
                .await
                .expect("logged in");
        }
        let known = |place: &Place| {
            let service = place.service();
            let cache = service.cache();
            let known = cache.known.get("ada").map(|k| k.document.sources.clone());
            known.unwrap_or_default()
        };
        assert_eq!(known(&place).len(), crate::tries::MAX_KNOWN);
        assert_eq!(known(&place)[0].source, "192.0.2.9");
        place.clock.advance(crate::tries::KNOWN_FOR);
        right(&place, &ada, "192.0.2.9").await.expect("logged in");
        assert_eq!(known(&place).len(), 1, "the others are forgotten");
        let reset = v1::UserName { name: "ada".into() };
        place.admin().await.reset_user(reset).await.expect("reset");
        assert!(known(&place).is_empty());
    });
}
