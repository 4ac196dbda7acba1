//! What proxies watch: the signed state, freshness, the inventory.

use super::path::checked;
use super::place::{Holder, Keys, Place, run};
use fleetgate_policy::cluster::{Fresh, State};
use fleetgate_proto::v1;
use fleetgate_ssh::key::{PublicKey, verify};
use tonic::{Code, Streaming};

async fn next(states: &mut Streaming<v1::WatchReply>) -> v1::WatchReply {
    states
        .message()
        .await
        .expect("the stream holds")
        .expect("a reply")
}

fn fresh(state: &State, signed: &v1::Signed) -> Fresh {
    let key = PublicKey::parse(&state.trust.state_keys[0]).unwrap();
    let message = Fresh::signed(&signed.document);
    verify(&key, "ssh-ed25519", &message, &signed.signature).expect("freshness is signed");
    assert!(
        verify(
            &key,
            "ssh-ed25519",
            &State::signed(&signed.document),
            &signed.signature
        )
        .is_err()
    );
    Fresh::parse_json(&signed.document).unwrap()
}

#[test]
fn whoever_has_the_state_is_told_that_it_holds() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let mut proxy = place.proxy(&edge).await;
        let mut states = proxy
            .watch(v1::WatchRequest { serial: 0 })
            .await
            .unwrap()
            .into_inner();
        let first = next(&mut states).await;
        let state = checked(&first.state.unwrap());
        assert_eq!(fresh(&state, &first.fresh.unwrap()).serial, state.serial);
        let request = v1::WatchRequest { serial: state.serial };
        let mut known = proxy.watch(request).await.unwrap().into_inner();
        let again = next(&mut known).await;
        assert_eq!(again.state, None, "it is known");
        let before = fresh(&state, &again.fresh.unwrap()).as_of;
        // A change comes at once, to both.
        let role = v1::ApplyRoleRequest {
            text: "[role.ops]\nnodes = [\"*\"]\nlogins = [\"root\"]\n".into(),
            dry_run: false,
        };
        place.clock.advance(7);
        place.admin().await.apply_role(role.clone()).await.unwrap();
        for stream in [&mut states, &mut known] {
            let changed = next(stream).await;
            let new = checked(&changed.state.unwrap());
            assert!(new.serial > state.serial && new.roles.len() == state.roles.len() + 1);
            assert_eq!(fresh(&new, &changed.fresh.unwrap()).as_of, before + 7);
        }
        // The same again changes nothing.
        let reply = place.admin().await.apply_role(role).await.unwrap().into_inner();
        assert_eq!(reply.changes[0].what, "unchanged");
        assert_eq!(place.service().published().state.roles.len(), 3);
        // A restart goes on with the same number.
        let serial = place.service().published().state.serial;
        let (directory, clock) = place.stop().await;
        let place = Place::on(directory, clock).await;
        assert_eq!(place.service().published().state.serial, serial);
    });
}

async fn change(nodes: &mut Streaming<v1::NodeChange>) -> v1::NodeChange {
    nodes
        .message()
        .await
        .expect("the stream holds")
        .expect("a change")
}

fn facts(env: &str) -> v1::NodeFacts {
    v1::NodeFacts {
        labels: [("env".to_string(), env.to_string())].into(),
        version: "0.2.0".into(),
        ..v1::NodeFacts::default()
    }
}

#[test]
fn the_inventory_is_told_and_then_its_changes() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let web1 = place.machine("node", "web1").await;
        let report = |env: &str| place.statement(&web1, "edge", facts(env));
        let mut proxy = place.proxy(&edge).await;
        let mut nodes = proxy
            .watch_nodes(v1::WatchRequest { serial: 0 })
            .await
            .unwrap()
            .into_inner();
        assert!(change(&mut nodes).await.begin);
        let shown = change(&mut nodes).await.node.unwrap();
        assert_eq!((shown.name.as_str(), shown.connected), ("web1", false));
        assert!(change(&mut nodes).await.complete);
        proxy.report(report("prod")).await.unwrap();
        let shown = change(&mut nodes).await.node.unwrap();
        assert!(shown.connected && shown.labels["env"] == "prod" && shown.version == "0.2.0");
        // A heartbeat is no change; other labels are one.
        proxy.report(report("prod")).await.unwrap();
        proxy.report(report("test")).await.unwrap();
        assert_eq!(change(&mut nodes).await.node.unwrap().labels["env"], "test");
        let revision = place.service().cache().revision;
        for _ in 0..100 {
            proxy.report(report("test")).await.unwrap();
        }
        assert_eq!(
            place.service().cache().revision,
            revision,
            "a heartbeat writes nothing"
        );
        // Silence is noticed, and what was heard is written.
        let heard = place.now();
        place.clock.advance(crate::nodes::SILENT);
        place.service().turn().await;
        let shown = change(&mut nodes).await.node.unwrap();
        assert_eq!((shown.connected, shown.seen), (false, heard));
        let web2 = place.machine("node", "web2").await;
        assert_eq!(change(&mut nodes).await.node.unwrap().name, "web2");
        place
            .admin()
            .await
            .remove_node(v1::NodeName {
                name: "web2".into(),
                force: false,
            })
            .await
            .unwrap();
        assert_eq!(change(&mut nodes).await.removed, "web2");
        for (bad, code) in [
            (place.statement(&web2, "edge", facts("prod")), Code::NotFound),
            (report("a\nb"), Code::InvalidArgument),
        ] {
            assert_eq!(proxy.report(bad).await.unwrap_err().code(), code);
        }
        let (directory, clock) = place.stop().await;
        let place = Place::on(directory, clock).await;
        let all = place
            .admin()
            .await
            .nodes(v1::NodesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .nodes;
        assert_eq!((all.len(), all[0].seen), (1, heard), "over a restart");
    });
}

#[test]
fn heartbeats_of_ten_thousand_nodes_are_a_few_documents() {
    use crate::documents::{Kind, Member};
    use crate::{cache, members};
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let service = place.service();
        let keys = Keys::fresh();
        let key = fleetgate_net::Pin::of(keys.tls.public().spki()).to_string();
        let holder = Holder {
            keys,
            chain: Vec::new(),
        };
        let member = || Member {
            key: Some(key.clone()),
            host_keys: Vec::new(),
            earlier_host_keys: Vec::new(),
            labels: Default::default(),
            address: None,
            version: String::new(),
            made: 0,
            token: String::new(),
        };
        let names: Vec<String> = (0..10_000).map(|i| format!("node{i:05}")).collect();
        for some in names.chunks(100) {
            let steps = some.iter().map(|name| {
                let at_key = members::member_key(Kind::Node, &name.parse().unwrap());
                cache::create(at_key, &member())
            });
            assert!(service.ledger.attempt(steps.collect(), Vec::new()).await.unwrap());
        }
        let caller = proxy_caller(&edge);
        for name in &names {
            let said = v1::NodeStatement {
                node: name.clone(),
                proxy: "edge".into(),
                facts: Some(facts("prod")),
                as_of: place.now(),
                millis: 1,
            };
            let report = v1::NodeReport {
                name: name.clone(),
                connected: true,
                statement: Some(holder.signs(&said)),
            };
            service.report(&caller, report.clone()).unwrap();
            // The same again, as it comes every half minute: no signature is looked at.
            service.report(&caller, report).unwrap();
        }
        let before = service.cache().revision.0;
        place.clock.advance(crate::nodes::WRITTEN_EVERY);
        service.turn_inventory().await.unwrap();
        assert_eq!(service.cache().revision.0, before + 1, "one transaction");
        assert_eq!(service.cache().seen.len(), 64);
        let reply = service
            .nodes(&v1::NodesRequest {
                selector: "env=prod".into(),
            })
            .unwrap();
        assert_eq!(reply.nodes.len(), 10_000);
        let reply = service
            .nodes(&v1::NodesRequest {
                selector: "node0000*".into(),
            })
            .unwrap();
        assert_eq!(reply.nodes.len(), 10);
    });
}

/// A proxy as the service sees it.
pub fn proxy_caller(holder: &super::place::Holder) -> crate::caller::Caller {
    let leaf = fleetgate_net::x509::Certificate::read(&holder.chain[0]).unwrap();
    let identity = leaf.identity().unwrap().unwrap();
    crate::caller::Caller {
        who: crate::caller::CallerProof::Certificate(identity.into(), leaf.into()),
        address: None,
    }
}
