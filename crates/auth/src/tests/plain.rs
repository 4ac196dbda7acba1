//! Nodes without fleetgate: the proxy gets a certificate for exactly one login, and only for a user whom the roles let in.

use super::place::{Keys, Place, run};
use super::visit::{Visitor, visit};
use bytes::Bytes;
use fleetgate_net::h2::Channel;
use fleetgate_policy::cluster::{Identity, SSH_EXTENSION};
use fleetgate_proto::v1;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::certificate::CertificateRefused;
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, HostKey, KeyType, PrivateKey};
use tonic::Code;
use zeroize::Zeroizing;

/// A proxy's own: its SSH key, which users are shown, and the key that is to be certified.
struct Desk {
    text: Zeroizing<String>,
    key: Bytes,
}

impl Desk {
    fn new(key: Bytes) -> Desk {
        let (_, text) = HostKey::generate(KeyType::Ed25519, "proxy").unwrap();
        Desk { text, key }
    }

    fn bare(&self) -> HostKey {
        HostKey::read(self.text.as_bytes(), 0o600).unwrap()
    }

    /// Its key in the name of this node, and the cookie for one connection.
    async fn host(&self, proxy: &mut ClusterClient<Channel>, node: &str) -> (HostKey, [u8; 16]) {
        let mut key = self.bare();
        let asked = v1::SignHostRequest {
            node: node.into(),
            key: key.public().blob().to_vec().into(),
        };
        let given = proxy.sign_host(asked).await.unwrap().into_inner();
        let certificate = Certificate::parse(&given.certificate).unwrap();
        key.certify(&certificate.line()).unwrap();
        (key, given.cookie[..].try_into().unwrap())
    }

    /// What is asked after somebody logged in there.
    async fn request(
        &self,
        proxy: &mut ClusterClient<Channel>,
        node: &str,
        user: &Visitor<'_>,
    ) -> v1::SignLoginRequest {
        let (key, cookie) = self.host(proxy, node).await;
        self.visited(node, &key, cookie, user)
    }

    fn visited(
        &self,
        node: &str,
        host: &HostKey,
        cookie: [u8; 16],
        user: &Visitor<'_>,
    ) -> v1::SignLoginRequest {
        let (exchange, request) = visit(host, cookie, user);
        v1::SignLoginRequest {
            node: node.into(),
            login: user.login.into(),
            key: self.key.clone(),
            exchange: exchange.into(),
            request: request.into(),
        }
    }
}

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
        let (holder, given) = place.log_in(&ada).await;
        let edge = place.machine("proxy", "edge").await;
        place.clock.advance(10);
        place.machine("node", "web1").await;
        let mut proxy = place.proxy(&edge).await;
        let own = Keys::fresh();
        let desk = Desk::new(own.request().ssh);
        let user = |login| Visitor {
            key: &holder.keys.ssh,
            certificate: &given.ssh_certificate,
            login,
            signs: true,
        };
        let good = desk.request(&mut proxy, "db1", &user("postgres")).await;
        let made = proxy
            .sign_login(good.clone())
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
        let other = v1::RegisterNodeRequest {
            name: "db3".into(),
            address: "db3.example:22".into(),
            labels: [("kind".to_string(), "db".to_string())].into(),
            ..v1::RegisterNodeRequest::default()
        };
        place.admin().await.register_node(other).await.unwrap();
        let at = |node: &str, request: &v1::SignLoginRequest| v1::SignLoginRequest {
            node: node.into(),
            ..request.clone()
        };
        let bare = holder.keys.ssh.public().blob();
        let forgeries = [
            forged(CertificateKind::User, &stranger),
            forged(CertificateKind::Host, &stranger),
        ];
        let mut refused = vec![(good.clone(), "it was used")];
        // One good one for each, which is not used up by what is refused before it counts.
        let fresh = desk.request(&mut proxy, "db1", &user("postgres")).await;
        refused.push((at("web1", &fresh), "runs fleetgate"));
        refused.push((at("db2", &fresh), "no node db2"));
        refused.push((at("db3", &fresh), "the host certificate"));
        let with = |change: &dyn Fn(&mut v1::SignLoginRequest)| {
            let mut request = fresh.clone();
            change(&mut request);
            request
        };
        refused.push((with(&|r| r.login = "root".into()), "for another login"));
        refused.push((with(&|r| r.exchange = good.exchange.clone()), "signature"));
        refused.push((with(&|r| r.request = good.request.clone()), "signature"));
        refused.push((
            with(&|r| r.exchange = b"none".as_slice().into()),
            "what the user signed",
        ));
        refused.push((with(&|r| r.exchange = Bytes::new()), "what the user signed"));
        refused.push((with(&|r| r.request = Bytes::new()), "what the user signed"));
        refused.push((with(&|r| r.key = b"none".as_slice().into()), "the proxy's key"));
        for (certificate, words) in [
            (&forgeries[0][..], "not trusted"),
            (&forgeries[1], "certificate"),
            (bare, "no certificate"),
        ] {
            let visitor = Visitor {
                certificate,
                ..user("postgres")
            };
            refused.push((desk.request(&mut proxy, "db1", &visitor).await, words));
        }
        let silent = Visitor {
            signs: false,
            ..user("postgres")
        };
        refused.push((
            desk.request(&mut proxy, "db1", &silent).await,
            "there is no signature",
        ));
        let someone = Visitor {
            key: &stranger,
            ..user("postgres")
        };
        refused.push((desk.request(&mut proxy, "db1", &someone).await, "signature"));
        refused.push((desk.request(&mut proxy, "db1", &user("ada")).await, "principals"));
        // A cookie that auth did not give, and one that it gave for another machine; a key that stands for none.
        refused.push((
            desk.visited(
                "db1",
                &desk.host(&mut proxy, "db1").await.0,
                [1; 16],
                &user("postgres"),
            ),
            "it was used",
        ));
        let (key, _) = desk.host(&mut proxy, "db1").await;
        let (_, elsewhere) = desk.host(&mut proxy, "db3").await;
        refused.push((
            desk.visited("db1", &key, elsewhere, &user("postgres")),
            "it was used",
        ));
        let (_, cookie) = desk.host(&mut proxy, "db1").await;
        let alone = HostKey::generate(KeyType::Ed25519, "").unwrap().0;
        refused.push((
            desk.visited("db1", &alone, cookie, &user("postgres")),
            "it was used",
        ));
        for (at, (request, words)) in refused.into_iter().enumerate() {
            let status = proxy.sign_login(request).await.unwrap_err();
            assert!(status.message().contains(words), "{at}: {words}: {status}");
        }
        proxy.sign_login(fresh).await.expect("it counts still");
        // Where the client takes no certificates, the key itself is what auth knows.
        let (_, cookie) = desk.host(&mut proxy, "db1").await;
        let plain = desk.visited("db1", &desk.bare(), cookie, &user("postgres"));
        proxy.sign_login(plain).await.expect("by the key alone");
        let late = desk.request(&mut proxy, "db1", &user("postgres")).await;
        place.clock.advance(121);
        let status = proxy.sign_login(late).await.unwrap_err();
        assert!(status.message().contains("too old"), "{status}");
        // What a role asks for is asked here too.
        let root = desk.request(&mut proxy, "db1", &user("root")).await;
        proxy.sign_login(root).await.expect("a fresh second factor");
        place.clock.advance(600);
        let root = desk.request(&mut proxy, "db1", &user("root")).await;
        let status = proxy.sign_login(root).await.unwrap_err();
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
        let locked = desk.request(&mut proxy, "db1", &user("postgres")).await;
        let status = proxy.sign_login(locked).await.unwrap_err();
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
        // For as long as a connection takes to begin, on clocks that are up to an hour ahead or a day behind.
        for at in [place.now() - 86_400, place.now(), place.now() + 3599] {
            assert_eq!(made.check_host("db1", at, 0, |_| true), Ok(()), "{at}");
        }
        let later = made.check_host("db1", place.now() + 3600, 0, |_| true);
        assert_eq!(
            later,
            Err(CertificateRefused::Expired),
            "the proxy may be removed by then"
        );
        assert!(proxy.sign_host(host("web1")).await.is_err());
    });
}

#[test]
fn whether_a_plain_sshd_is_reached_is_shown_and_decides_nothing() {
    run(async {
        let place = Place::new().await;
        let register = v1::RegisterNodeRequest {
            name: "db1".into(),
            address: "db1.example:22".into(),
            labels: [("env".to_string(), "prod".to_string())].into(),
            ..v1::RegisterNodeRequest::default()
        };
        place.admin().await.register_node(register).await.unwrap();
        let (edge, west) = (
            place.machine("proxy", "edge").await,
            place.machine("proxy", "west").await,
        );
        let (mut edge, mut west) = (place.proxy(&edge).await, place.proxy(&west).await);
        let shown = async || {
            let asked = v1::NodesRequest {
                selector: "db1".into(),
            };
            let nodes = place.admin().await.nodes(asked).await.unwrap().into_inner().nodes;
            nodes.into_iter().next().unwrap()
        };
        let word = |name: &str, reached| v1::ReachReport {
            name: name.into(),
            reached,
        };
        let before = shown().await;
        assert_eq!(before.unreached_since, 0, "nobody has tried");
        let lost = place.now();
        edge.report_reach(word("db1", false)).await.unwrap();
        place.clock.advance(20);
        edge.report_reach(word("db1", false)).await.unwrap();
        let node = shown().await;
        assert_eq!(node.unreached_since, lost);
        let same = v1::Node {
            unreached_since: 0,
            ..node
        };
        assert_eq!(same, before, "nothing else is different");
        west.report_reach(word("db1", true)).await.unwrap();
        assert_eq!(shown().await.unreached_since, 0, "one reaches it");
        // A node that runs fleetgate speaks for itself, and what nobody knows is not kept.
        place.machine("node", "web1").await;
        for name in ["web1", "nobody", ""] {
            let status = edge.report_reach(word(name, false)).await.expect_err("refused");
            assert!(status.message().contains("no registered sshd"), "{status}");
        }
    });
}
