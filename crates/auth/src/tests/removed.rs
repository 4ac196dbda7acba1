//! A certificate is void once its machine or user was removed or locked, or has another key.

use super::machines::renewal;
use super::place::{Holder, Keys, Place, run};
use fleetgate_net::h2::Channel;
use fleetgate_policy::cluster::{Name, Target};
use fleetgate_proto::v1;
use fleetgate_proto::v1::admin_client::AdminClient;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::v1::identity_client::IdentityClient;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Code;

/// Far longer than anything here takes: a test that would hang fails instead.
const HANG: Duration = Duration::from_secs(60);

/// Every request that a proxy makes, each on a connection of its own, with the answer's code.
async fn requests(place: &Place, holder: &Holder) -> [Code; 8] {
    let cluster = async || ClusterClient::new(place.channel_of(holder).await);
    let watch = v1::WatchRequest { serial: 0 };
    let code = |status: Option<tonic::Status>| status.map_or(Code::Ok, |status| status.code());
    let report = v1::NodeReport {
        name: "nosuch".into(),
        ..v1::NodeReport::default()
    };
    let host = v1::SignHostRequest {
        node: "db1".into(),
        key: Keys::fresh().request().ssh,
    };
    let channel = place.channel_of(holder).await;
    let hello = IdentityClient::new(channel).hello(v1::HelloRequest {}).await;
    let state = match hello {
        Ok(hello) if hello.get_ref().state.is_some() => Code::Ok,
        Ok(_) => Code::Unauthenticated,
        Err(status) => status.code(),
    };
    [
        code(cluster().await.watch(watch).await.err()),
        code(cluster().await.watch_nodes(watch).await.err()),
        code(cluster().await.report(report).await.err()),
        code(cluster().await.audit(v1::AuditFrom::default()).await.err()),
        code(
            cluster()
                .await
                .sign_login(v1::SignLoginRequest::default())
                .await
                .err(),
        ),
        code(cluster().await.sign_host(host).await.err()),
        code(cluster().await.renew(v1::RenewFor::default()).await.err()),
        state,
    ]
}

/// The answers to a proxy that the cluster knows: what is not there is refused for being wrong, not for who asks.
const KNOWN: [Code; 8] = [
    Code::Ok,
    Code::Ok,
    Code::NotFound,
    Code::InvalidArgument,
    Code::InvalidArgument,
    Code::Ok,
    Code::Ok,
    Code::Ok,
];

/// A connection with open streams, as a proxy holds it.
async fn connected(place: &Place, holder: &Holder) -> (Channel, tonic::Streaming<v1::WatchReply>) {
    let channel = place.channel_of(holder).await;
    let watch = v1::WatchRequest { serial: 0 };
    let mut states = ClusterClient::new(channel.clone())
        .watch(watch)
        .await
        .expect("it is watched")
        .into_inner();
    states.message().await.expect("a state").expect("the first");
    (channel, states)
}

/// Waits until auth has ended the connection.
async fn ended(what: &str, channel: &Channel) {
    let mut closed = channel.closed();
    timeout(HANG, closed.wait())
        .await
        .unwrap_or_else(|_| panic!("{what}: the connection lives on"));
}

async fn plain(place: &Place) {
    let request = v1::RegisterNodeRequest {
        name: "db1".into(),
        address: "db1.example:22".into(),
        ..v1::RegisterNodeRequest::default()
    };
    place
        .admin()
        .await
        .register_node(request)
        .await
        .expect("registered");
}

async fn remove(place: &Place, name: &str) {
    let name = v1::NodeName {
        name: name.into(),
        force: false,
    };
    place.admin().await.remove_node(name).await.expect("removed");
}

#[test]
fn a_removed_proxy_has_no_powers_left() {
    run(async {
        let place = Place::new().await;
        plain(&place).await;
        let edge = place.machine("proxy", "edge").await;
        let other = place.machine("proxy", "edge2").await;
        let (channel, _states) = connected(&place, &edge).await;
        assert_eq!(requests(&place, &edge).await, KNOWN, "the control");
        remove(&place, "edge").await;
        ended("a removed proxy", &channel).await;
        assert_eq!(requests(&place, &edge).await, [Code::Unauthenticated; 8]);
        // Nodes hear of it by the state, which holds for a later machine of this name no more.
        let state = place.service().published().state.clone();
        let target = Target::Proxy(Name::parse("edge").unwrap());
        assert!(state.locks.on(&target, place.now(), place.now()).is_some());
        assert!(state.locks.on(&target, place.now(), u64::MAX).is_none());
        // Another proxy is another proxy.
        assert_eq!(requests(&place, &other).await, KNOWN);
        // The name is free; the key before stays out when it is taken.
        let again = place.machine("proxy", "edge").await;
        assert_eq!(requests(&place, &again).await, KNOWN);
        assert_eq!(requests(&place, &edge).await, [Code::Unauthenticated; 8]);
    });
}

#[test]
fn a_key_that_was_replaced_has_no_powers_left() {
    run(async {
        let place = Place::new().await;
        plain(&place).await;
        let edge = place.machine("proxy", "edge").await;
        let (channel, _states) = connected(&place, &edge).await;
        let next = Keys::fresh();
        let request = v1::RenewFor {
            name: "edge".into(),
            renew: Some(renewal(&edge, &next)),
        };
        let renewed = ClusterClient::new(channel.clone()).renew(request).await;
        let renewed = renewed.expect("renewed").into_inner();
        assert_eq!(renewed.refused, "");
        ended("the key before", &channel).await;
        assert_eq!(requests(&place, &edge).await, [Code::Unauthenticated; 8]);
        let edge = Holder {
            keys: next,
            chain: renewed.tls_chain,
        };
        assert_eq!(requests(&place, &edge).await, KNOWN);
    });
}

#[test]
fn a_locked_proxy_is_refused_until_the_lock_is_taken_back() {
    run(async {
        let place = Place::new().await;
        plain(&place).await;
        let edge = place.machine("proxy", "edge").await;
        let (channel, mut states) = connected(&place, &edge).await;
        let lock = |name: &str| v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "proxy".into(),
                name: name.into(),
            }),
            reason: "taken over".into(),
            lifetime: 0,
        };
        let unknown = place.admin().await.add_lock(lock("edge9")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
        let added = place.admin().await.add_lock(lock("edge")).await.expect("locked");
        // It hears the state that says so, for its nodes; and nothing more.
        let told = timeout(HANG, states.message()).await.expect("no word came");
        let told = told.expect("a state").expect("one more").state.expect("another");
        let told = fleetgate_policy::cluster::State::parse_json(&told.document).unwrap();
        let target = Target::Proxy(Name::parse("edge").unwrap());
        assert!(told.locks.on(&target, place.now(), place.now()).is_some());
        ended("a locked proxy", &channel).await;
        let mut refused = [Code::PermissionDenied; 8];
        refused[7] = Code::Unauthenticated;
        assert_eq!(requests(&place, &edge).await, refused);
        // Nor does it get newer certificates by another, or join again.
        let other = place.machine("proxy", "edge2").await;
        let request = v1::RenewFor {
            name: "edge".into(),
            renew: Some(renewal(&edge, &Keys::fresh())),
        };
        let renewed = place
            .proxy(&other)
            .await
            .renew(request)
            .await
            .unwrap()
            .into_inner();
        assert!(renewed.refused.contains("taken over"), "{}", renewed.refused);
        let token = place.token("proxy", "edge").await;
        let status = place.join(&token, "edge", &edge.keys).await.unwrap_err();
        assert!(status.message().contains("taken over"), "{status}");
        let id = added.into_inner().id;
        place.admin().await.remove_lock(v1::LockId { id }).await.unwrap();
        assert_eq!(requests(&place, &edge).await, KNOWN);
    });
}

#[test]
fn a_removed_node_or_user_keeps_no_connection() {
    run(async {
        let place = Place::new().await;
        let root = place.user("root", &["admin", "access"]).await;
        let (root, _) = place.log_in(&root).await;
        let node = place.machine("node", "web1").await;
        let state = async |holder: &Holder| {
            let mut identity = IdentityClient::new(place.channel_of(holder).await);
            let hello = identity.hello(v1::HelloRequest {}).await.expect("hello");
            hello.into_inner().state.is_some()
        };
        assert!(state(&node).await && state(&root).await, "the control");
        let follow = v1::EventsRequest {
            follow: true,
            ..v1::EventsRequest::default()
        };
        let admin = place.channel_of(&root).await;
        let mut events = AdminClient::new(admin.clone())
            .events(follow)
            .await
            .unwrap()
            .into_inner();
        events.message().await.expect("an event").expect("the first");
        let held = place.channel_of(&node).await;
        remove(&place, "web1").await;
        ended("a removed node", &held).await;
        assert!(!state(&node).await);
        let user = v1::UserName { name: "root".into() };
        place.admin().await.remove_user(user).await.expect("removed");
        ended("a removed user", &admin).await;
        assert!(!state(&root).await);
    });
}

#[test]
fn the_lock_of_a_removal_stays_while_certificates_from_before_it_may_be_left() {
    run(async {
        let place = Place::new().await;
        place.user("bob", &["access"]).await;
        place.user("ada", &["access"]).await;
        place.machine("node", "web2").await;
        place.machine("proxy", "edge").await;
        remove(&place, "web2").await;
        let mut last = v1::NodeName {
            name: "edge".into(),
            force: false,
        };
        let status = place.admin().await.remove_node(last.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        for words in ["edge is the cluster's only proxy", "--force"] {
            assert!(status.message().contains(words), "{status}");
        }
        last.force = true;
        place
            .admin()
            .await
            .remove_node(last)
            .await
            .expect("removed all the same");
        let user = v1::UserName { name: "bob".into() };
        place.admin().await.remove_user(user).await.expect("removed");
        let user = v1::UserName { name: "ada".into() };
        place.admin().await.reset_user(user).await.expect("reset");
        let before = place.service().published().state.locks.clone();
        let rows = [
            ("changed-bob", "fleetgate user add bob"),
            ("changed-ada", "fleetgate login"),
            ("removed-web2", "fleetgate token add"),
            ("proxy-removed-edge", "fleetgate token add"),
        ];
        for (id, remedy) in rows {
            let mut admin = place.admin().await;
            let status = admin
                .remove_lock(v1::LockId { id: id.into() })
                .await
                .expect_err(id);
            assert_eq!(status.code(), Code::FailedPrecondition, "{id}: {status}");
            for words in [remedy, "it goes by itself at "] {
                assert!(status.message().contains(words), "{id}: {status}");
            }
        }
        assert_eq!(place.service().published().state.locks, before);
        // An administrator's own lock on the same user is taken back.
        let request = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "user".into(),
                name: "ada".into(),
            }),
            ..v1::AddLockRequest::default()
        };
        let id = place
            .admin()
            .await
            .add_lock(request)
            .await
            .expect("locked")
            .into_inner()
            .id;
        place
            .admin()
            .await
            .remove_lock(v1::LockId { id })
            .await
            .expect("taken back");
        assert_eq!(place.service().published().state.locks, before);
    });
}
