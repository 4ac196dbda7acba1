//! The machine's clock is set forward and back by hours. Nobody is refused for it longer than otherwise, and nothing that was
//! given for a minute holds for hours. What cannot be undone waits until the clock has stood for an hour.

use super::devices::{enroll, nonce};
use super::machines::renewal;
use super::place::{Holder, Keys, Place, run};
use crate::RefusedKind;
use crate::caller::{Caller, CallerProof};
use crate::clock_watch::STEADY;
use crate::documents::Purpose;
use crate::error::Refused;
use crate::nodes::SILENT;
use crate::rotation::SETTLE;
use crate::state::Published;
use crate::tries::{FREE_TRIES, MAX_WAIT};
use crate::validity::SKEW;
use fleetgate_net::x509::Certificate;
use fleetgate_policy::cluster::{Attempt, ContainerLabels, Labels, Name, Target, decide_identity};
use fleetgate_proto::v1;
use fleetgate_ssh::key::{Certificate as HostCertificate, KeyType, PrivateKey};
use std::net::SocketAddr;

/// Six hours.
const HOURS: i64 = 6 * 3600;
/// Less than auth's own certificate holds.
const DAYS: i64 = 5 * 86_400;
/// Longer than any certificate holds.
const WEEKS: i64 = 60 * 86_400;

async fn wrong(place: &Place, user: &str, address: &str) -> Refused {
    let caller = Caller {
        who: CallerProof::Nobody,
        address: Some(SocketAddr::new(address.parse().expect("an address"), 1024)),
    };
    let request = v1::LoginRequest {
        user: user.to_string(),
        keys: Some(Keys::fresh().request()),
        ..v1::LoginRequest::default()
    };
    let done = place.service().login(&caller, request).await;
    done.map(drop).expect_err("a wrong password")
}

async fn connected(place: &Place, name: &str) -> bool {
    place.service().turn().await;
    let service = place.service();
    let cache = service.cache();
    let node = service.inventory.shown(&cache, name, place.now());
    node.expect("a node").connected
}

#[test]
fn a_set_clock_neither_lengthens_nor_ends_the_wait_of_a_source() {
    run(async {
        let place = Place::new().await;
        for by in [-HOURS, HOURS, -HOURS] {
            // Names of their own, so that only the source counts.
            let mut tries = 0;
            while wrong(&place, &format!("eve{by}-{tries}"), "203.0.113.9")
                .await
                .kind
                != RefusedKind::Busy
            {
                tries += 1;
                assert!(tries < 1000, "the control: a source has a bound");
            }
            place.clock.set_by(by);
            let refused = wrong(&place, "mallory", "203.0.113.9").await;
            assert_eq!(
                refused.kind,
                RefusedKind::Busy,
                "{by}: a set clock fills no bucket: {refused}"
            );
            place.clock.advance(60);
            let refused = wrong(&place, "mallory", "203.0.113.9").await;
            assert_eq!(
                refused.kind,
                RefusedKind::Unproven,
                "{by}: a minute is a minute: {refused}"
            );
        }
    });
}

#[test]
fn a_clock_that_is_set_back_lengthens_no_wait_after_failures() {
    run(async {
        let place = Place::new().await;
        place.user("ada", &["access"]).await;
        for _ in 0..FREE_TRIES + 8 {
            place.clock.advance(MAX_WAIT);
            wrong(&place, "ada", "203.0.113.9").await;
        }
        place.clock.advance(3);
        let refused = wrong(&place, "ada", "203.0.113.9").await;
        assert_eq!(refused.kind, RefusedKind::Busy, "the control: {refused}");
        place.clock.set_by(-HOURS);
        place.clock.advance(MAX_WAIT);
        let refused = wrong(&place, "ada", "203.0.113.9").await;
        assert_eq!(refused.kind, RefusedKind::Unproven, "{refused}");
        // And from then on its failures count again.
        place.clock.advance(3);
        let refused = wrong(&place, "ada", "203.0.113.9").await;
        assert_eq!(refused.kind, RefusedKind::Busy, "{refused}");
    });
}

#[test]
fn a_nonce_is_good_for_a_minute_however_the_clock_is_set() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (holder, _) = place.log_in(&ada).await;
        let key = PrivateKey::generate(KeyType::Ed25519, "").expect("a key").0;
        let late = nonce(&place).await;
        place.clock.set_by(-HOURS);
        place.clock.advance(61);
        let status = enroll(&place, &holder, &key, &late).await.expect_err("too late");
        assert!(status.message().contains("was used"), "{status}");
        let fresh = nonce(&place).await;
        place.clock.set_by(HOURS);
        enroll(&place, &holder, &key, &fresh)
            .await
            .expect("in its minute");
    });
}

#[test]
fn a_set_clock_neither_loses_a_node_nor_keeps_one_that_is_silent() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let facts = v1::NodeFacts::default();
        for by in [HOURS, -HOURS] {
            let report = place.statement(&web1, "edge", facts.clone());
            proxy.report(report).await.expect("reported");
            assert!(connected(&place, "web1").await, "the control");
            place.clock.set_by(by);
            assert!(connected(&place, "web1").await, "{by}: it is there");
            place.clock.advance(SILENT);
            assert!(!connected(&place, "web1").await, "{by}: it is silent");
        }
    });
}

#[test]
fn a_clock_that_is_set_forward_ends_nothing_for_good_within_an_hour() {
    run(async {
        let place = Place::new().await;
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "login".into(),
                name: "ada".into(),
            }),
            lifetime: 7200,
            ..v1::AddLockRequest::default()
        };
        place.admin().await.add_lock(lock).await.expect("a lock");
        let rotate = v1::RotateRequest {
            kind: "user".into(),
            grace: 7200,
            sshds_ready: false,
        };
        place
            .admin()
            .await
            .rotate_authorities(rotate)
            .await
            .expect("rotated");
        place.clock.advance(SETTLE);
        place.service().turn().await;
        let kept = || {
            let service = place.service();
            let cache = service.cache();
            (cache.locks.len(), cache.authorities_of(Purpose::User).count())
        };
        assert_eq!(
            kept(),
            (1, 2),
            "the next authority signs, the one before is still trusted"
        );
        for by in [HOURS, -HOURS] {
            place.clock.set_by(by);
            place.service().turn().await;
            place.service().turn().await;
            assert_eq!(kept(), (1, 2), "{by}");
        }
        place.clock.set_by(HOURS);
        place.service().turn().await;
        place.clock.advance(STEADY - 1);
        place.service().turn().await;
        assert_eq!(kept(), (1, 2));
        place.clock.advance(1);
        place.service().turn().await;
        assert_eq!(kept(), (0, 1), "the clock has stood: it is believed");
        let set: Vec<i64> = place
            .events("clock_set")
            .await
            .iter()
            .filter_map(|e| e["seconds"].as_i64())
            .collect();
        assert_eq!((set.len(), set.iter().sum::<i64>()), (3, HOURS), "{set:?}");
    });
}

/// The first state after the one of this serial. A turn of the test may find that auth's own turn, a second apart, has seen the
/// clock already and is about to publish.
async fn newer_state(place: &Place, before: u64) -> Published {
    let mut published = place.service().published.clone();
    let newer = published.wait_for(|p| p.state.serial > before).await;
    newer.expect("auth runs").clone()
}

#[test]
fn nodes_are_heard_again_after_the_clock_was_set_back() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let facts = |version: &str| v1::NodeFacts {
            version: version.to_string(),
            ..v1::NodeFacts::default()
        };
        let report = place.statement(&web1, "edge", facts("1"));
        proxy.report(report.clone()).await.expect("reported");
        let before = place.service().published().state.serial;
        place.clock.set_by(-HOURS);
        place.service().turn().await;
        let newer = newer_state(&place, before).await.state;
        assert_eq!(newer.as_of, place.now(), "what nodes sign by");
        proxy.report(report).await.expect_err("it is from the future");
        let report = place.statement(&web1, "edge", facts("2"));
        proxy.report(report).await.expect("by the new state");
        place.clock.advance(SILENT - 1);
        assert!(connected(&place, "web1").await);
        let service = place.service();
        let shown = service.inventory.shown(&service.cache(), "web1", place.now());
        assert_eq!(shown.expect("a node").version, "2", "the newest word counts");
        drop(service);
        // The same while auth did not run.
        let before = place.service().published().state.serial;
        let (directory, clock) = place.stop().await;
        clock.set_by(-HOURS);
        let place = Place::on(directory, clock).await;
        place.service().turn().await;
        let newer = newer_state(&place, before).await.state;
        assert_eq!(newer.as_of, place.now(), "what nodes sign by");
    });
}

#[test]
fn what_machines_get_while_the_clock_is_ahead_holds_elsewhere_until_they_are_removed() {
    run(async {
        let (directory, clock) = Place::new().await.stop().await;
        clock.set_by(HOURS);
        // Auth makes a certificate for itself too. Whoever connects here goes by the right time.
        let place = Place::on(directory, clock).await;
        let watch = v1::WatchRequest { serial: 0 };
        let edge = place.machine("proxy", "edge").await;
        let mut proxy = place.proxy(&edge).await;
        proxy.watch(watch).await.expect("both certificates hold");
        let right = place.now() - HOURS as u64;
        let next = Keys::fresh();
        let request = v1::RenewFor {
            name: "edge".into(),
            renew: Some(renewal(&edge, &next)),
        };
        let renewed = proxy.renew(request).await.expect("an answer").into_inner();
        assert_eq!(renewed.refused, "");
        let host = HostCertificate::parse(&renewed.host_certificates[0]).expect("a certificate");
        assert_eq!(host.check_host("edge", right, 0, |_| true), Ok(()));
        let edge = Holder {
            keys: next,
            chain: renewed.tls_chain,
        };
        let mut proxy = place.proxy(&edge).await;
        proxy.watch(watch).await.expect("the renewed one holds");
        place.clock.set_by(-HOURS);
        place.service().turn().await;
        // A removal ends what was issued in the time to come, and what was issued since the removal before.
        let target = Target::Proxy(Name::parse("edge").expect("a name"));
        let ended = |holder: &Holder| {
            let leaf = Certificate::read(&holder.chain[0]).expect("a certificate");
            let serial = leaf.identity().expect("it says who").expect("somebody").serial;
            let state = place.service().published().state;
            state.locks.on(&target, place.now(), serial).is_some()
        };
        let mut holder = edge;
        for time in ["first", "second", "third"] {
            assert!(!ended(&holder), "the {time} time");
            let name = v1::NodeName {
                name: "edge".into(),
                force: true,
            };
            place.admin().await.remove_node(name).await.expect("removed");
            assert!(ended(&holder), "the {time} time");
            let again = place.machine("proxy", "edge").await;
            let mut proxy = place.proxy(&again).await;
            proxy.watch(watch).await.expect("it is another machine");
            assert!(ended(&holder), "the {time} time");
            holder = again;
        }
    });
}

/// Whether a lock ends this login, at some time from now on at which its certificate holds or one that was set ahead will.
fn is_ended(place: &Place, given: &v1::Credentials) -> bool {
    let leaf = Certificate::read(&given.tls_chain[0]).expect("a certificate");
    let identity = leaf.identity().expect("it says who").expect("somebody");
    let state = place.service().published().state;
    let end = leaf.validity().end.max(place.now() + 1);
    let times = [place.now(), (place.now() + end) / 2, end - 1];
    let ends = times.map(|at| state.locks.against_identity(&identity, at).is_some());
    assert_eq!(ends, [ends[0]; 3], "{times:?}: {:?}", state.locks);
    ends[0]
}

/// Whether this login comes in somewhere now.
fn comes_in(place: &Place, given: &v1::Credentials) -> Result<(), String> {
    let leaf = Certificate::read(&given.tls_chain[0]).expect("a certificate");
    let identity = leaf.identity().expect("it says who").expect("somebody");
    let state = place.service().published().state;
    let attempt = Attempt {
        identity: &identity,
        expires: Some(leaf.validity().end),
        cluster: &state.cluster,
        roles: &state.roles,
        locks: &state.locks,
        node: &Name::parse("web1").expect("a name"),
        labels: &Labels::new(),
        login: "ada",
        container: ContainerLabels::NoContainers,
        now: place.now(),
        skew: SKEW,
    };
    decide_identity(&attempt)
        .map(drop)
        .map_err(|refusal| refusal.words)
}

#[test]
fn logins_of_before_a_change_end_however_the_clock_was_set() {
    run(async {
        // Ahead when the login began, or behind when it is ended.
        for by in [0, HOURS, WEEKS, -HOURS, -DAYS] {
            let place = Place::new().await;
            let ada = place.user("ada", &["access"]).await;
            place.clock.set_by(by.max(0));
            let (_, first) = place.log_in(&ada).await;
            assert!(!is_ended(&place, &first), "{by}: the control");
            match by {
                0.. => place.clock.set_by(-by),
                _ => place.clock.set_by(by),
            }
            let change = |roles: &[&str]| v1::ChangeUserRequest {
                name: "ada".into(),
                roles: roles.iter().map(|role| role.to_string()).collect(),
            };
            place
                .admin()
                .await
                .change_user(change(&[]))
                .await
                .expect("changed");
            assert!(is_ended(&place, &first), "{by}: its roles were changed");
            // The new second factor too knows of no code of a later time.
            let name = || v1::UserName { name: "ada".into() };
            place
                .admin()
                .await
                .change_user(change(&["access"]))
                .await
                .expect("changed");
            let reset = async || {
                place
                    .admin()
                    .await
                    .reset_user(name())
                    .await
                    .expect("reset")
                    .into_inner()
            };
            let ada = place.accept(&reset().await).await;
            // Who logs in now comes in now.
            let (_, second) = place.log_in(&ada).await;
            assert!(!is_ended(&place, &second), "{by}");
            assert_eq!(comes_in(&place, &second), Ok(()), "{by}");
            let invite = reset().await;
            assert!(
                is_ended(&place, &first) && is_ended(&place, &second),
                "{by}: it was reset"
            );
            place.clock.advance(60);
            let ada = place.accept(&invite).await;
            let (_, third) = place.log_in(&ada).await;
            assert_eq!(comes_in(&place, &third), Ok(()), "{by}");
            place.admin().await.remove_user(name()).await.expect("removed");
            for (which, login) in [&first, &second, &third].into_iter().enumerate() {
                assert!(is_ended(&place, login), "{by}: login {which}: it was removed");
            }
            // Another who gets the name, and whose roles change, revives none of them.
            place.clock.advance(60);
            let other = place.user("ada", &["access"]).await;
            let (_, fourth) = place.log_in(&other).await;
            assert_eq!(comes_in(&place, &fourth), Ok(()), "{by}");
            place
                .admin()
                .await
                .change_user(change(&[]))
                .await
                .expect("changed");
            for (which, login) in [&first, &second, &third, &fourth].into_iter().enumerate() {
                assert!(is_ended(&place, login), "{by}: login {which}");
            }
        }
    });
}

#[test]
fn a_login_that_was_under_way_when_the_user_changed_is_ended() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (_, login) = place.log_in(&ada).await;
        let change = v1::ChangeUserRequest {
            name: "ada".into(),
            roles: Vec::new(),
        };
        let request = place.login_request(&ada, &Keys::fresh());
        let mut stranger = place.stranger().await;
        place.clock.advance(30);
        let (changed, under_way) = {
            let mut admin = place.admin().await;
            tokio::join!(admin.change_user(change), stranger.login(request))
        };
        changed.expect("changed");
        assert!(is_ended(&place, &login), "the control");
        if let Ok(given) = under_way {
            let given = given.into_inner();
            let has_roles = !given.roles.is_empty();
            assert_eq!(is_ended(&place, &given), has_roles, "{:?}", given.roles);
        }
    });
}

#[test]
fn machines_are_removed_however_far_the_clock_was_ahead() {
    run(async {
        for (kind, by) in [
            ("node", WEEKS),
            ("proxy", WEEKS),
            ("node", -DAYS),
            ("proxy", -DAYS),
        ] {
            let place = Place::new().await;
            place.clock.set_by(by.max(0));
            let holder = place.machine(kind, "web1").await;
            let ended = |holder: &Holder| {
                let leaf = Certificate::read(&holder.chain[0]).expect("a certificate");
                let identity = leaf.identity().expect("it says who").expect("somebody");
                let target = Target::parse(kind, "web1").expect("a target");
                let state = place.service().published().state;
                let times = [place.now(), leaf.validity().end.max(place.now() + 1) - 1];
                times.map(|at| state.locks.on(&target, at, identity.serial).is_some())
            };
            assert_eq!(ended(&holder), [false; 2], "{kind} {by}: the control");
            place.clock.set_by(match by {
                0.. => -by,
                _ => by,
            });
            let name = || v1::NodeName {
                name: "web1".into(),
                force: true,
            };
            place.admin().await.remove_node(name()).await.expect("removed");
            assert_eq!(ended(&holder), [true; 2], "{kind} {by}");
            let again = place.machine(kind, "web1").await;
            assert_eq!(ended(&again), [false; 2], "{kind} {by}: another of its name");
            place.admin().await.remove_node(name()).await.expect("removed");
            assert_eq!(
                (ended(&holder), ended(&again)),
                ([true; 2], [true; 2]),
                "{kind} {by}"
            );
        }
    });
}
