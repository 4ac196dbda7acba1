//! Rotation: the next authority is trusted before it signs, the one before until the grace period is over, and nobody joins
//! or logs in again.

use super::machines::renewal;
use super::place::{Holder, Keys, Place, run};
use crate::documents::{Phase, Purpose};
use crate::rotation::{MAX_SETTLE, SETTLE};
use fleetgate_policy::cluster::State;
use fleetgate_proto::v1;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_ssh::key::Certificate;
use tonic::Code;

fn phases(place: &Place, purpose: Purpose) -> Vec<Phase> {
    let service = place.service();
    let cache = service.cache();
    let mut all: Vec<Phase> = cache.authorities_of(purpose).map(|a| a.document.phase).collect();
    all.sort_by_key(|phase| phase.name());
    all
}

fn state(place: &Place) -> State {
    (*place.service().published().state).clone()
}

/// Time passes, and the service looks what it did.
async fn pass(place: &Place, seconds: u64) {
    place.clock.advance(seconds);
    let service = place.service();
    service.turn().await;
    let serial = service.cache().serial.as_ref().unwrap().document.serial;
    let mut published = service.published.clone();
    published.wait_for(|p| p.state.serial == serial).await.unwrap();
}

fn rotate(kind: &str, grace: u32) -> v1::RotateRequest {
    v1::RotateRequest {
        kind: kind.to_string(),
        grace,
        sshds_ready: false,
    }
}

#[test]
fn every_authority_is_replaced_with_a_grace_period() {
    run(async {
        let place = Place::new().await;
        let first = state(&place);
        let trusted = |state: &State, purpose| match purpose {
            Purpose::User => state.trust.user_ca.clone(),
            Purpose::Host => state.trust.host_ca.clone(),
            Purpose::Tls => state.trust.tls_ca.clone(),
            Purpose::State => state.trust.state_keys.clone(),
        };
        let reply = place
            .admin()
            .await
            .rotate_authorities(rotate("all", 4000))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(reply.authorities.len(), 8);
        let both = state(&place);
        for purpose in Purpose::ALL {
            assert_eq!(
                phases(&place, purpose),
                [Phase::Active, Phase::Next],
                "{purpose:?}"
            );
            assert_eq!(trusted(&both, purpose).len(), 2);
            assert_eq!(
                trusted(&both, purpose)[0],
                trusted(&first, purpose)[0],
                "the old one still signs"
            );
        }
        let again = place
            .admin()
            .await
            .rotate_authorities(rotate("tls", 0))
            .await
            .unwrap_err();
        assert_eq!(again.code(), Code::FailedPrecondition);
        assert!(again.message().contains("being replaced already"), "{again}");
        // Nobody has to be waited for: there is no node.
        pass(&place, SETTLE).await;
        let turned = state(&place);
        for purpose in Purpose::ALL {
            assert_eq!(
                phases(&place, purpose),
                [Phase::Active, Phase::Retired],
                "{purpose:?}"
            );
            assert_eq!(
                trusted(&turned, purpose)[0],
                trusted(&both, purpose)[1],
                "the new one signs"
            );
            assert_eq!(
                trusted(&turned, purpose)[1],
                trusted(&first, purpose)[0],
                "the old one is trusted"
            );
            let service = place.service();
            let retired = {
                let cache = service.cache();
                let mut all = cache.authorities_of(purpose).map(|a| a.document.clone());
                all.find(|a| a.phase == Phase::Retired).unwrap()
            };
            let key = crate::authorities::secret_key(purpose, &retired.id);
            let secret = service
                .ledger
                .secret::<crate::authorities::PrivateBytes>(&key)
                .await
                .unwrap();
            assert!(secret.is_none(), "the private key of {purpose:?} is gone");
        }
        pass(&place, 3999).await;
        assert_eq!(
            state(&place),
            State {
                as_of: state(&place).as_of,
                ..turned.clone()
            }
        );
        pass(&place, 1).await;
        let last = state(&place);
        for purpose in Purpose::ALL {
            assert_eq!(
                trusted(&last, purpose),
                [trusted(&turned, purpose)[0].clone()],
                "{purpose:?}"
            );
        }
        assert!(first.serial < both.serial && both.serial < turned.serial && turned.serial < last.serial);
        for event in ["authority_next", "authority_active", "authority_removed"] {
            assert_eq!(place.events(event).await.len(), 4, "{event}");
        }
        for (bad, words) in [
            (rotate("ssh", 0), "\"user\""),
            (rotate("tls", u32::MAX), "a year"),
        ] {
            let status = place.admin().await.rotate_authorities(bad).await.unwrap_err();
            assert!(status.message().contains(words), "{status}");
        }
    });
}

#[test]
fn the_next_one_signs_when_every_node_knows_it_or_after_a_quarter_of_the_grace_period() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let report = |serial: u64| {
            let facts = v1::NodeFacts {
                serial,
                ..v1::NodeFacts::default()
            };
            place.statement(&web1, "edge", facts)
        };
        place
            .admin()
            .await
            .rotate_authorities(rotate("user", 4000))
            .await
            .unwrap();
        let known = state(&place).serial;
        proxy.report(report(known - 1)).await.unwrap();
        pass(&place, SETTLE).await;
        assert_eq!(
            phases(&place, Purpose::User),
            [Phase::Active, Phase::Next],
            "a node does not know it"
        );
        proxy.report(report(known)).await.unwrap();
        pass(&place, 0).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Retired]);
        pass(&place, 4000).await;
        // A node that is away is not waited for for ever.
        place
            .admin()
            .await
            .rotate_authorities(rotate("user", 4000))
            .await
            .unwrap();
        pass(&place, 999).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Next]);
        pass(&place, 1).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Retired]);
        const { assert!(MAX_SETTLE >= 1000) };
    });
}

#[test]
fn what_is_being_replaced_is_over_sooner_when_that_is_asked_for() {
    run(async {
        let place = Place::new().await;
        let ask = async |kind: &str, grace: u32| {
            let answer = place.admin().await.rotate_authorities(rotate(kind, grace)).await;
            answer
                .map(|reply| reply.into_inner().done)
                .map_err(|e| e.message().to_string())
        };
        place.machine("node", "web1").await;
        // A key is stolen while others are replaced at leisure: the node, which is away, would hold that up for a day.
        assert_eq!(ask("user", 400_000).await.unwrap().len(), 1);
        assert_eq!(ask("tls", 400_000).await.unwrap().len(), 1);
        pass(&place, SETTLE).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Next]);
        assert!(ask("all", 0).await.unwrap_err().contains("--grace"));
        let done = ask("all", 60).await.unwrap();
        assert_eq!(done.len(), 4, "{done:?}");
        assert!(done[0].contains("the next user authority signs from"), "{done:?}");
        assert_eq!(place.events("authority_changed").await.len(), 2);
        pass(&place, 15).await;
        for purpose in Purpose::ALL {
            assert_eq!(
                phases(&place, purpose),
                [Phase::Active, Phase::Retired],
                "{purpose:?}"
            );
        }
        // A longer time is none that it would be over by; a shorter one ends it.
        assert!(ask("user", 4000).await.unwrap_err().contains("changes nothing"));
        let done = ask("user", 10).await.unwrap();
        assert!(done[0].contains("of before is trusted until"), "{done:?}");
        pass(&place, 9).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Retired]);
        pass(&place, 1).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active]);
        assert_eq!(phases(&place, Purpose::Tls), [Phase::Active, Phase::Retired]);
        pass(&place, 50).await;
        assert_eq!(phases(&place, Purpose::Tls), [Phase::Active]);
    });
}

#[test]
fn the_next_user_authority_waits_for_plain_sshds_until_an_administrator_says_otherwise() {
    run(async {
        let place = Place::new().await;
        let register = v1::RegisterNodeRequest {
            name: "db1".into(),
            address: "db1.example:22".into(),
            ..v1::RegisterNodeRequest::default()
        };
        place.admin().await.register_node(register).await.unwrap();
        let ready = v1::RotateRequest {
            sshds_ready: true,
            ..rotate("user", 0)
        };
        let ask = async |request| place.admin().await.rotate_authorities(request).await;
        let reply = ask(rotate("all", 400)).await.unwrap().into_inner();
        let waits: Vec<(&str, &str)> = reply
            .authorities
            .iter()
            .filter(|a| !a.waits.is_empty())
            .map(|a| (a.kind.as_str(), a.phase.as_str()))
            .collect();
        assert_eq!(waits, [("user", "next")]);
        let words = reply
            .authorities
            .iter()
            .map(|a| a.waits.as_str())
            .collect::<String>();
        for part in [
            "sshds db1:",
            "`fleetgate ca show user`",
            "`fleetgate ca rotate user --sshds-ready`",
        ] {
            assert!(words.contains(part), "{words}");
        }
        let again = ask(rotate("user", 0)).await.unwrap_err();
        assert_eq!(again.message(), words, "what there is to do is said again");
        // Neither time nor a shorter grace period has it sign.
        ask(rotate("user", 60)).await.unwrap();
        pass(&place, 400).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Next]);
        assert_eq!(
            phases(&place, Purpose::Host),
            [Phase::Active, Phase::Retired],
            "control"
        );
        ask(ready.clone()).await.unwrap();
        pass(&place, 0).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Retired]);
        pass(&place, 60).await;
        // At once, where that is said when it begins.
        ask(ready).await.unwrap();
        pass(&place, SETTLE).await;
        assert_eq!(phases(&place, Purpose::User), [Phase::Active, Phase::Retired]);
    });
}

#[test]
fn nobody_joins_or_logs_in_again() {
    run(async {
        let place = Place::new().await;
        let ada = place.user("ada", &["access"]).await;
        let (ada, login) = place.log_in(&ada).await;
        let edge = place.machine("proxy", "edge").await;
        place.clock.advance(10);
        let web1 = place.machine("node", "web1").await;
        place
            .admin()
            .await
            .rotate_authorities(rotate("all", 4000))
            .await
            .unwrap();
        let known = state(&place).serial;
        let before = place.channel_of(&edge).await;
        let facts = v1::NodeFacts {
            serial: known,
            ..v1::NodeFacts::default()
        };
        let report = place.statement(&web1, "edge", facts);
        v1::cluster_client::ClusterClient::new(before)
            .report(report)
            .await
            .unwrap();
        pass(&place, SETTLE).await;
        // What everybody has still counts, at a service that shows a new certificate.
        let now = state(&place);
        let ask = async |holder: &Holder| place.by_trust(holder, &now).await;
        let mut user = IdentityClient::new(ask(&ada).await);
        let keys = Keys::fresh();
        let request = v1::RefreshRequest {
            keys: Some(keys.request()),
            ..v1::RefreshRequest::default()
        };
        let fresh = user.refresh(request).await.unwrap().into_inner();
        let ca = |given: &v1::Credentials| {
            Certificate::parse(&given.ssh_certificate)
                .unwrap()
                .ca()
                .blob()
                .to_vec()
        };
        assert_ne!(ca(&fresh), ca(&login));
        assert_eq!(ca(&fresh), now.trust.user_ca[0]);
        let mut proxy = v1::cluster_client::ClusterClient::new(ask(&edge).await);
        let next = Keys::fresh();
        let renew = v1::RenewFor {
            name: "web1".into(),
            renew: Some(renewal(&web1, &next)),
        };
        let renewed = proxy.renew(renew).await.unwrap().into_inner();
        assert_eq!(renewed.refused, "");
        assert_eq!(renewed.tls_chain[1], now.trust.tls_ca[0]);
        let own = Keys::fresh();
        let renew = v1::RenewFor {
            name: "edge".into(),
            renew: Some(renewal(&edge, &own)),
        };
        let renewed = proxy.renew(renew).await.unwrap().into_inner();
        // When the grace period is over, what was renewed counts and what was not does not.
        pass(&place, 4000).await;
        let last = state(&place);
        assert_eq!(last.trust.tls_ca.len(), 1);
        let edge_now = Holder {
            keys: own,
            chain: renewed.tls_chain,
        };
        let watch = v1::WatchRequest { serial: 0 };
        let channel = place.by_trust(&edge_now, &last).await;
        assert!(
            v1::cluster_client::ClusterClient::new(channel)
                .watch(watch)
                .await
                .is_ok()
        );
        let channel = place.by_trust(&edge, &last).await;
        assert!(
            v1::cluster_client::ClusterClient::new(channel)
                .watch(watch)
                .await
                .is_err()
        );
    });
}
