//! Tokens, joins and renewals: what is refused, in which words, and that nothing is half done.

use super::place::{Holder, Keys, Place, run};
use bytes::Bytes;
use fleetgate_net::Ticket;
use fleetgate_net::x509::{Certificate, Key};
use fleetgate_proto::{signed, v1};
use tonic::Code;

async fn token(place: &Place, request: v1::AddTokenRequest) -> (Ticket, String) {
    let made = place
        .admin()
        .await
        .add_token(request)
        .await
        .expect("a token")
        .into_inner();
    (made.text.parse().expect("its text"), made.id)
}

fn for_a(kind: &str) -> v1::AddTokenRequest {
    v1::AddTokenRequest {
        kind: kind.to_string(),
        ..v1::AddTokenRequest::default()
    }
}

#[test]
fn tokens_are_good_once_in_their_time_for_what_they_are_for() {
    run(async {
        let place = Place::new().await;
        let refused = |joined: Result<v1::JoinReply, tonic::Status>, code: Code, words: &str| {
            place.clock.advance(10);
            let status = joined.expect_err(words);
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{words}: {status}");
        };
        let (once, _) = token(&place, for_a("node")).await;
        let joined = place
            .join(&once, "web1", &Keys::fresh())
            .await
            .expect("the first");
        assert_eq!((joined.kind.as_str(), joined.name.as_str()), ("node", "web1"));
        let again = place.join(&once, "web2", &Keys::fresh()).await;
        refused(again, Code::Unauthenticated, "used at");
        let (late, _) = token(&place, for_a("node")).await;
        place.clock.advance(3600);
        refused(
            place.join(&late, "web2", &Keys::fresh()).await,
            Code::Unauthenticated,
            "time is over",
        );
        let named = v1::AddTokenRequest {
            name: "db1".into(),
            ..for_a("node")
        };
        let (named, _) = token(&place, named).await;
        refused(
            place.join(&named, "web2", &Keys::fresh()).await,
            Code::PermissionDenied,
            "for the name db1",
        );
        // What was refused has burnt nothing.
        for (what, keys) in [
            (
                "a TLS key",
                v1::JoinRequest {
                    tls_public: Bytes::from_static(b"no key"),
                    ..Keys::fresh().join()
                },
            ),
            (
                "a host key",
                v1::JoinRequest {
                    host_keys: vec![Bytes::from_static(b"no key")],
                    ..Keys::fresh().join()
                },
            ),
            (
                "host keys",
                v1::JoinRequest {
                    host_keys: vec![Keys::fresh().request().ssh; 9],
                    ..Keys::fresh().join()
                },
            ),
            (
                "a name",
                v1::JoinRequest {
                    name: "Web 1".into(),
                    ..Keys::fresh().join()
                },
            ),
            (
                "labels",
                v1::JoinRequest {
                    labels: [("a b".to_string(), String::new())].into(),
                    ..Keys::fresh().join()
                },
            ),
        ] {
            place.clock.advance(10);
            let name = if keys.name.is_empty() { "db1" } else { &keys.name };
            let request = v1::JoinRequest {
                secret: named.secret().to_string(),
                name: name.to_string(),
                ..keys
            };
            let status = place.by_ticket(&named).await.join(request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
        }
        place
            .join(&named, "db1", &Keys::fresh())
            .await
            .expect("it is still good");
        let (removed, id) = token(&place, for_a("node")).await;
        place
            .admin()
            .await
            .remove_token(v1::TokenId { id })
            .await
            .unwrap();
        refused(
            place.join(&removed, "web2", &Keys::fresh()).await,
            Code::Unauthenticated,
            "not known",
        );
        // As often as wanted.
        let often = v1::AddTokenRequest {
            reusable: true,
            labels: [("env".to_string(), "prod".to_string())].into(),
            ..for_a("node")
        };
        let (often, id) = token(&place, often).await;
        for name in ["a", "b", "c"] {
            place.clock.advance(10);
            place.join(&often, name, &Keys::fresh()).await.expect(name);
        }
        let tokens = place
            .admin()
            .await
            .tokens(v1::Empty {})
            .await
            .unwrap()
            .into_inner()
            .tokens;
        let used = tokens.iter().find(|t| t.id == id).unwrap();
        assert_eq!(
            (used.used, used.text.as_str()),
            (3, ""),
            "and its secret is never told again"
        );
        let request = v1::NodesRequest {
            selector: "env=prod".into(),
        };
        let nodes = place
            .admin()
            .await
            .nodes(request)
            .await
            .unwrap()
            .into_inner()
            .nodes;
        assert_eq!(
            nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        // What makes no sense is not made.
        for (bad, words) in [
            (for_a("cluster"), "\"node\" or a \"proxy\""),
            (
                v1::AddTokenRequest {
                    lifetime: u32::MAX,
                    ..for_a("node")
                },
                "a year",
            ),
            (
                v1::AddTokenRequest {
                    name: "x".into(),
                    reusable: true,
                    ..for_a("node")
                },
                "more than once",
            ),
            (
                v1::AddTokenRequest {
                    name: "X".into(),
                    ..for_a("node")
                },
                "lower-case",
            ),
        ] {
            let status = place.admin().await.add_token(bad).await.unwrap_err();
            assert!(status.message().contains(words), "{words}: {status}");
        }
    });
}

#[test]
fn a_name_belongs_to_its_key() {
    run(async {
        let place = Place::new().await;
        let first = Keys::fresh();
        let token = place.token("node", "web1").await;
        place.join(&token, "web1", &first).await.expect("the first");
        let token = place.token("node", "web1").await;
        let status = place.join(&token, "web1", &Keys::fresh()).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists);
        assert!(
            status.message().contains("belongs to another node") && status.message().contains("node rm web1")
        );
        // The same machine again, by the token that the other did not burn.
        place.join(&token, "web1", &first).await.expect("the same key");
        // Nobody gets a host certificate in another's name by any other way.
        place.clock.advance(30);
        for (kind, name, words) in [
            ("proxy", "web1", "belongs to a node"),
            ("node", "web1.orchard", "leave out .orchard"),
            ("proxy", "web1.orchard", "leave out .orchard"),
            ("node", "proxy.example", "find the cluster's proxy"),
        ] {
            let token = place.token(kind, name).await;
            let status = place.join(&token, name, &Keys::fresh()).await.unwrap_err();
            assert!(status.message().contains(words), "{words}: {status}");
        }
        let plain = v1::RegisterNodeRequest {
            name: "proxy.example".into(),
            address: "db1:22".into(),
            ..v1::RegisterNodeRequest::default()
        };
        assert!(place.admin().await.register_node(plain).await.is_err());
        // When it was removed another may have it.
        place
            .admin()
            .await
            .remove_node(v1::NodeName {
                name: "web1".into(),
                force: false,
            })
            .await
            .unwrap();
        // The certificates that it had are locked, for as long as they live; a machine that joins in this very second is not.
        let name = fleetgate_policy::cluster::Name::parse("web1").unwrap();
        let node = fleetgate_policy::cluster::Target::Node(name.clone());
        let state = place.service().published().state.clone();
        let now = place.now();
        assert!(state.locks.on(&node, now, state.serial - 1).is_some());
        assert!(state.locks.on_node(&name, now).is_none());
        let token = place.token("node", "web1").await;
        let joined = place
            .join(&token, "web1", &Keys::fresh())
            .await
            .expect("another key");
        let chain = fleetgate_net::x509::Certificate::read(&joined.tls_chain[0]).unwrap();
        let serial = chain.identity().unwrap().unwrap().serial;
        assert!(state.locks.on(&node, now, serial).is_none());
        // Locked out.
        let lock = v1::AddLockRequest {
            target: Some(v1::LockTarget {
                kind: "node".into(),
                name: "web1".into(),
            }),
            reason: "stolen".into(),
            lifetime: 0,
        };
        place.admin().await.add_lock(lock).await.unwrap();
        let token = place.token("node", "web1").await;
        let status = place.join(&token, "web1", &Keys::fresh()).await.unwrap_err();
        assert!(status.message().contains("stolen"), "{status}");
    });
}

/// A request for newer certificates, signed by this holder's key.
pub fn renewal(holder: &Holder, keys: &Keys) -> v1::Renew {
    let asked = keys.request();
    let mut renew = v1::Renew {
        tls_public: asked.tls,
        host_keys: vec![asked.ssh],
        signature: Bytes::new(),
        tls_certificate: holder.chain[0].clone(),
    };
    renew.signature = holder.keys.tls.sign(&signed::renew(&renew)).into();
    renew
}

#[test]
fn certificates_are_renewed_for_who_has_the_present_key() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        place.clock.advance(30);
        let web2 = place.machine("node", "web2").await;
        let mut proxy = place.proxy(&edge).await;
        let next = Keys::fresh();
        let mut bad = renewal(&web1, &next);
        bad.host_keys.push(next.request().ssh);
        let mut stranger = renewal(&web1, &next);
        let key = Key::generate();
        stranger.signature = key.sign(&signed::renew(&stranger)).into();
        let table = [
            ("web1", None, "nothing to renew"),
            ("web1", Some(bad), "signature"),
            ("web1", Some(stranger), "signature"),
            ("web1", Some(renewal(&web2, &next)), "another machine"),
            (
                "web1",
                Some(v1::Renew {
                    tls_certificate: Bytes::from_static(b"none"),
                    ..renewal(&web1, &next)
                }),
                "certificate",
            ),
        ];
        for (name, renew, words) in table {
            let request = v1::RenewFor {
                name: name.into(),
                renew,
            };
            let said = proxy.renew(request).await.unwrap().into_inner();
            assert!(said.refused.contains(words), "{words}: {}", said.refused);
            assert!(said.tls_chain.is_empty() && said.host_certificates.is_empty());
        }
        let ask = |renew: v1::Renew| v1::RenewFor {
            name: "web1".into(),
            renew: Some(renew),
        };
        place.clock.advance(3600);
        let said = proxy
            .renew(ask(renewal(&web1, &next)))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(said.refused, "");
        let leaf = Certificate::read(&said.tls_chain[0]).unwrap();
        assert_eq!(leaf.names(), ["web1.node.fleetgate"]);
        assert_eq!(leaf.public(), next.tls.public().spki());
        assert_eq!(
            leaf.validity().end,
            place.now() + crate::validity::MEMBER_LIFETIME
        );
        let host = fleetgate_ssh::key::Certificate::parse(&said.host_certificates[0]).unwrap();
        assert_eq!(host.check_host("web1", place.now(), 0, |_| true), Ok(()));
        // The key before is the machine's no more.
        let said = proxy
            .renew(ask(renewal(&web1, &Keys::fresh())))
            .await
            .unwrap()
            .into_inner();
        assert!(said.refused.contains("another key by now"), "{}", said.refused);
        let renewed = Holder {
            keys: next,
            chain: said_chain(&leaf, &web1),
        };
        place
            .admin()
            .await
            .remove_node(v1::NodeName {
                name: "web1".into(),
                force: false,
            })
            .await
            .unwrap();
        let said = proxy
            .renew(ask(renewal(&renewed, &Keys::fresh())))
            .await
            .unwrap()
            .into_inner();
        assert!(said.refused.contains("join again"), "{}", said.refused);
        // A proxy renews its own.
        let request = v1::RenewFor {
            name: "edge".into(),
            renew: Some(renewal(&edge, &Keys::fresh())),
        };
        let said = proxy.renew(request).await.unwrap().into_inner();
        assert_eq!(said.refused, "");
        // A node may not speak to this service at all.
        let mut node = place.proxy(&web2).await;
        let request = v1::RenewFor {
            name: "web2".into(),
            renew: Some(renewal(&web2, &Keys::fresh())),
        };
        assert_eq!(
            node.renew(request).await.unwrap_err().code(),
            Code::PermissionDenied
        );
    });
}

#[test]
fn renewals_without_end_are_slowed_for_that_machine_alone() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let mut web1 = place.machine("node", "web1").await;
        let web2 = place.machine("node", "web2").await;
        let mut proxy = place.proxy(&edge).await;
        let mut ask = async |name: &str, renew: v1::Renew| {
            let request = v1::RenewFor {
                name: name.into(),
                renew: Some(renew),
            };
            proxy.renew(request).await.unwrap().into_inner()
        };
        // Whoever does not hold the key uses nothing up.
        for _ in 0..100 {
            let mut forged = renewal(&web1, &Keys::fresh());
            forged.signature = Key::generate().sign(&signed::renew(&forged)).into();
            assert!(ask("web1", forged).await.refused.contains("signature"));
        }
        let mut renewed = 0;
        let refused = loop {
            let next = Keys::fresh();
            let said = ask("web1", renewal(&web1, &next)).await;
            if !said.refused.is_empty() {
                break said.refused;
            }
            renewed += 1;
            assert!(renewed <= 32, "without end");
            web1 = Holder {
                keys: next,
                chain: said.tls_chain.clone(),
            };
        };
        assert!(refused.contains("renews its certificates too often"), "{refused}");
        assert_eq!(renewed, 32);
        assert_eq!(
            ask("web2", renewal(&web2, &Keys::fresh())).await.refused,
            "",
            "control"
        );
        place.clock.advance(60);
        assert_eq!(ask("web1", renewal(&web1, &Keys::fresh())).await.refused, "");
    });
}

fn said_chain(leaf: &Certificate, before: &Holder) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(leaf.der()), before.chain[1].clone()]
}
