//! Who may ask what: by the unix socket, by each kind of certificate, by none.

use super::place::{Holder, Keys, Place, run};
use fleetgate_net::h2::Channel;
use fleetgate_proto::v1;
use fleetgate_proto::v1::admin_client::AdminClient;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_proto::v1::identity_client::IdentityClient;
use tonic::Code;

#[test]
fn administrators_have_a_role_and_a_fresh_second_factor() {
    run(async {
        let place = Place::new().await;
        let admin = place.user("root", &["admin", "access"]).await;
        let user = place.user("ada", &["access"]).await;
        let (admin, _) = place.log_in(&admin).await;
        let (user, _) = place.log_in(&user).await;
        let edge = place.machine("proxy", "edge").await;
        let node = place.machine("node", "web1").await;
        let ask = async |channel: Channel| {
            let list = v1::Empty {};
            let reply = AdminClient::new(channel).users(list).await;
            reply.map(|r| r.into_inner().users.len())
        };
        let expect = async |what: &str, holder: Option<&Holder>, code: Code, words: &str| {
            let channel = match holder {
                Some(holder) => place.channel_of(holder).await,
                None => place.nobody().await,
            };
            let status = ask(channel).await.expect_err(what);
            assert_eq!(status.code(), code, "{what}: {status}");
            assert!(status.message().contains(words), "{what}: {status}");
        };
        assert_eq!(
            ask(place.channel_of(&admin).await).await.unwrap(),
            2,
            "the control"
        );
        expect("nobody", None, Code::Unauthenticated, "needs a certificate").await;
        expect(
            "a user",
            Some(&user),
            Code::PermissionDenied,
            "no role that may administer",
        )
        .await;
        expect(
            "a proxy",
            Some(&edge),
            Code::PermissionDenied,
            "this is for users",
        )
        .await;
        expect("a node", Some(&node), Code::PermissionDenied, "this is for users").await;
        // Who did it, from where.
        let request = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "login".into(),
                name: "postgres".into(),
            }),
            ..v1::AddLockRequest::default()
        };
        AdminClient::new(place.channel_of(&admin).await)
            .add_lock(request)
            .await
            .unwrap();
        let event = place.events("lock_added").await.pop().unwrap();
        assert_eq!(
            (&event["by"], &event["source"]),
            (&"user root".into(), &"127.0.0.1".into()),
            "{event}"
        );
        let event = place.events("user_added").await.pop().unwrap();
        assert!(
            event["by"].as_str().unwrap().ends_with("(unix socket)"),
            "{event}"
        );
        // The role that the certificate says is not enough.
        place.clock.advance(3601);
        expect(
            "an old second factor",
            Some(&admin),
            Code::PermissionDenied,
            "login --mfa",
        )
        .await;
        let change = v1::ChangeUserRequest {
            name: "root".into(),
            roles: vec!["access".into()],
        };
        place.admin().await.change_user(change).await.unwrap();
        expect(
            "a role that was taken",
            Some(&admin),
            Code::PermissionDenied,
            "the roles were changed",
        )
        .await;
    });
}

#[test]
fn each_service_is_for_whom_it_is_for() {
    run(async {
        let place = Place::new().await;
        let user = place.user("ada", &["access"]).await;
        let (user, _) = place.log_in(&user).await;
        let node = place.machine("node", "web1").await;
        let edge = place.machine("proxy", "edge").await;
        for (what, holder, code) in [
            ("a user", Some(&user), Code::PermissionDenied),
            ("a node", Some(&node), Code::PermissionDenied),
            ("nobody", None, Code::Unauthenticated),
        ] {
            let channel = match holder {
                Some(holder) => place.channel_of(holder).await,
                None => place.nobody().await,
            };
            let mut cluster = ClusterClient::new(channel);
            let watch = v1::WatchRequest { serial: 0 };
            let report = v1::NodeReport {
                name: "web1".into(),
                ..v1::NodeReport::default()
            };
            let codes = [
                cluster.watch(watch).await.map(drop).unwrap_err().code(),
                cluster.watch_nodes(watch).await.map(drop).unwrap_err().code(),
                cluster.report(report).await.unwrap_err().code(),
                cluster
                    .report_reach(v1::ReachReport::default())
                    .await
                    .unwrap_err()
                    .code(),
                cluster.audit(v1::AuditFrom::default()).await.unwrap_err().code(),
                cluster
                    .sign_login(v1::SignLoginRequest::default())
                    .await
                    .unwrap_err()
                    .code(),
                cluster
                    .sign_host(v1::SignHostRequest::default())
                    .await
                    .unwrap_err()
                    .code(),
                cluster.renew(v1::RenewFor::default()).await.unwrap_err().code(),
            ];
            assert_eq!(codes, [code; 8], "{what}");
        }
        // The state is for those who belong to the cluster.
        for (holder, state) in [
            (Some(&user), true),
            (Some(&edge), true),
            (Some(&node), true),
            (None, false),
        ] {
            let channel = match holder {
                Some(holder) => place.channel_of(holder).await,
                None => place.nobody().await,
            };
            let hello = IdentityClient::new(channel)
                .hello(v1::HelloRequest {})
                .await
                .unwrap()
                .into_inner();
            assert_eq!((hello.cluster.as_str(), hello.now), ("orchard", place.now()));
            assert_eq!(hello.state.is_some(), state);
        }
        // Requests are bounded.
        let mut stranger = place.stranger().await;
        let request = v1::LoginRequest {
            user: "x".repeat(crate::grpc::IDENTITY_MESSAGE),
            keys: Some(Keys::fresh().request()),
            ..v1::LoginRequest::default()
        };
        assert_eq!(
            stranger.login(request).await.unwrap_err().code(),
            Code::OutOfRange
        );
        assert!(
            stranger.hello(v1::HelloRequest {}).await.is_ok(),
            "the connection lives on"
        );
    });
}

#[test]
fn files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let place = Place::new().await;
        for (name, mode) in [
            ("", 0o700),
            ("state.db", 0o600),
            ("audit.db", 0o600),
            ("auth.sock", 0o600),
        ] {
            let found = std::fs::metadata(place.directory.join(name)).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
        }
    });
}
