//! Nodes without fleetgate: the proxy gets a certificate for exactly one login, and only for a user whom the roles let in.

use super::place::{Keys, Place, run};
use fleetgate_policy::cluster::{Identity, SSH_EXTENSION};
use fleetgate_proto::v1;
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, KeyType, PrivateKey};
use tonic::Code;

#[test]
fn one_login_on_a_plain_sshd() {
    run(async {
        let place = Place::new().await;
        let roles = "[role.dba]\nnodes = [\"kind=db\"]\nlogins = [\"postgres\"]\n\
                     [role.strict]\nnodes = [\"kind=db\"]\nlogins = [\"root\"]\nrequire_mfa = \"5m\"\n";
        let apply = v1::ApplyRoleRequest {
            text: roles.into(),
            dry_run: false,
        };
        place.admin().await.apply_role(apply).await.unwrap();
        let register = v1::RegisterNodeRequest {
            name: "db1".into(),
            address: "db1.example:22".into(),
            labels: [("kind".to_string(), "db".to_string())].into(),
            ..v1::RegisterNodeRequest::default()
        };
        let node = place
            .admin()
            .await
            .register_node(register)
            .await
            .unwrap()
            .into_inner();
        assert_eq!((node.address.as_str(), node.connected), ("db1.example:22", true));
        let ada = place.user("ada", &["dba", "strict"]).await;
        let (_, given) = place.log_in(&ada).await;
        let edge = place.machine("proxy", "edge").await;
        place.clock.advance(10);
        place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let own = Keys::fresh();
        let request = |node: &str, login: &str| v1::SignLoginRequest {
            node: node.into(),
            login: login.into(),
            key: own.request().ssh,
            certificate: given.ssh_certificate.clone(),
        };
        let made = proxy
            .sign_login(request("db1", "postgres"))
            .await
            .expect("a certificate")
            .into_inner();
        let made = Certificate::parse(&made.certificate).unwrap();
        assert_eq!(made.principals(), ["postgres"]);
        assert_eq!(made.key(), own.ssh.public());
        assert_eq!(made.valid_before(), place.now() + crate::issue::ONE_LOGIN);
        assert_eq!(made.signature_holds(), Ok(()));
        let identity = Reader::new(made.extension(SSH_EXTENSION).unwrap())
            .string("")
            .map(Identity::parse);
        assert_eq!(identity.unwrap().unwrap().user().unwrap().as_str(), "ada");
        // By another authority, or for a host.
        let forged = |kind, ca: &PrivateKey| {
            let user = Certificate::parse(&given.ssh_certificate).unwrap();
            let draft = Draft {
                kind,
                serial: 1,
                key_id: "ada (orchard)",
                principals: &["postgres"],
                valid_after: 0,
                valid_before: u64::MAX,
                critical: &[],
                extensions: &[],
            };
            draft.sign(user.key(), ca).unwrap().blob().to_vec()
        };
        let stranger = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        let with = |certificate: Vec<u8>| v1::SignLoginRequest {
            certificate: certificate.into(),
            ..request("db1", "postgres")
        };
        let table = [
            (request("db1", "ada"), "principals"),
            (request("web1", "postgres"), "runs fleetgate"),
            (request("db2", "postgres"), "no node db2"),
            (with(forged(CertificateKind::User, &stranger)), "not trusted"),
            (with(forged(CertificateKind::Host, &stranger)), "not trusted"),
            (with(b"none".to_vec()), "certificate"),
            (
                v1::SignLoginRequest {
                    key: b"none".as_slice().into(),
                    ..request("db1", "postgres")
                },
                "the proxy's key",
            ),
        ];
        for (request, words) in table {
            let status = proxy.sign_login(request).await.unwrap_err();
            assert!(status.message().contains(words), "{words}: {status}");
        }
        // What a role asks for is asked here too.
        proxy
            .sign_login(request("db1", "root"))
            .await
            .expect("a fresh second factor");
        place.clock.advance(600);
        let status = proxy.sign_login(request("db1", "root")).await.unwrap_err();
        assert!(status.message().contains("role strict"), "{status}");
        assert_eq!(place.events("login_denied").await[0]["rule"], "role strict");
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "login".into(),
                name: "postgres".into(),
            }),
            ..v1::AddLockRequest::default()
        };
        place.admin().await.add_lock(lock).await.unwrap();
        let status = proxy.sign_login(request("db1", "postgres")).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        // To its user the proxy is that node.
        let host = |node: &str| v1::SignHostRequest {
            node: node.into(),
            key: own.request().ssh,
        };
        let made = proxy
            .sign_host(host("db1"))
            .await
            .unwrap()
            .into_inner()
            .certificate;
        let made = Certificate::parse(&made).unwrap();
        assert_eq!(made.check_host("db1", place.now(), 0, |_| true), Ok(()));
        assert!(proxy.sign_host(host("web1")).await.is_err());
    });
}
