//! A proxy that lies about nodes: what no node signed counts for nothing.

use super::place::{Holder, Place, run};
use crate::nodes::STATED;
use fleetgate_net::h2::Channel;
use fleetgate_proto::v1;
use fleetgate_proto::v1::cluster_client::ClusterClient;
use tonic::Code;

fn facts(env: &str, serial: u64) -> v1::NodeFacts {
    v1::NodeFacts {
        labels: [("env".to_string(), env.to_string())].into(),
        version: "0.2.0".into(),
        address: String::new(),
        serial,
    }
}

/// Labels, connected, and the serial that auth believes all nodes to have.
async fn shown(place: &Place, name: &str) -> (String, bool) {
    let request = v1::NodesRequest {
        selector: name.into(),
    };
    let nodes = place
        .admin()
        .await
        .nodes(request)
        .await
        .expect("nodes")
        .into_inner()
        .nodes;
    let env = nodes[0].labels.get("env").cloned().unwrap_or_default();
    (env, nodes[0].connected)
}

async fn refused(proxy: &mut ClusterClient<Channel>, report: v1::NodeReport, words: &str) {
    let status = proxy.report(report).await.expect_err(words);
    assert!(status.message().contains(words), "{words}: {status}");
    assert!(
        matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied),
        "{status}"
    );
}

/// What a node could sign, changed before it does.
fn signed(node: &Holder, place: &Place, change: impl FnOnce(&mut v1::NodeStatement)) -> v1::NodeReport {
    let mut said = v1::NodeStatement {
        node: node.name(),
        proxy: "edge".into(),
        facts: Some(facts("prod", 0)),
        as_of: place.now(),
        millis: 1 << 40,
    };
    change(&mut said);
    v1::NodeReport {
        name: node.name(),
        connected: true,
        statement: Some(node.signs(&said)),
    }
}

#[test]
fn a_proxy_decides_nothing_about_nodes() {
    run(async {
        let place = Place::new().await;
        let edge = place.machine("proxy", "edge").await;
        let other = place.machine("proxy", "edge2").await;
        let web1 = place.machine("node", "web1").await;
        place.clock.advance(30);
        let web2 = place.machine("node", "web2").await;
        let plain = v1::RegisterNodeRequest {
            name: "db1".into(),
            address: "db1.example:22".into(),
            labels: [("env".to_string(), "prod".to_string())].into(),
            ..v1::RegisterNodeRequest::default()
        };
        place
            .admin()
            .await
            .register_node(plain)
            .await
            .expect("registered");
        let mut edge = place.proxy(&edge).await;
        let serial = place.service().published().state.serial;
        // The labels of a plain sshd, signed by nobody and by a node of the proxy's own.
        let mut lie = v1::NodeReport {
            name: "db1".into(),
            connected: true,
            statement: None,
        };
        refused(&mut edge, lie.clone(), "plain sshd").await;
        lie.statement = signed(&web2, &place, |said| {
            said.node = "db1".into();
            said.facts = Some(facts("dev", serial));
        })
        .statement;
        refused(&mut edge, lie, "plain sshd").await;
        assert_eq!(shown(&place, "db1").await.0, "prod");
        // A node that never signed, and one whose word another made.
        let silent = v1::NodeReport {
            name: "web1".into(),
            connected: true,
            statement: None,
        };
        refused(&mut edge, silent, "signed nothing").await;
        let mut foreign = signed(&web2, &place, |said| said.node = "web1".into());
        foreign.name = "web1".into();
        refused(&mut edge, foreign, "another key").await;
        let mut changed = signed(&web1, &place, |_| {});
        let statement = changed.statement.as_mut().expect("signed");
        let dev = signed(&web1, &place, |said| said.facts = Some(facts("dev", serial)));
        statement.document = dev.statement.expect("signed").document;
        refused(&mut edge, changed, "signature").await;
        // A node's honest word about itself, in another node's place, and to another proxy.
        let mut replaced = signed(&web2, &place, |_| {});
        replaced.name = "web1".into();
        refused(&mut edge, replaced, "another key").await;
        refused(
            &mut edge,
            signed(&web1, &place, |said| said.node = "web2".into()),
            "another node",
        )
        .await;
        refused(
            &mut edge,
            signed(&web1, &place, |said| said.proxy = "edge2".into()),
            "another proxy",
        )
        .await;
        // States that there are not yet, and times that are not now.
        let ahead = signed(&web1, &place, |said| said.facts = Some(facts("prod", serial + 1)));
        refused(&mut edge, ahead, "state that there is not").await;
        let soon = signed(&web1, &place, |said| said.as_of += 3600);
        refused(&mut edge, soon, "from the future").await;
        let late = signed(&web1, &place, |said| said.as_of -= STATED + 1);
        refused(&mut edge, late, "too old").await;
        assert_eq!(shown(&place, "web1").await, (String::new(), false));
        // The control: the node's own word counts, and with it the rotation that waits for it.
        let early = signed(&web1, &place, |said| said.millis = 1);
        edge.report(early.clone()).await.expect("believed");
        assert_eq!(shown(&place, "web1").await, ("prod".into(), true));
        edge.report(early.clone()).await.expect("the heartbeat");
        let later = signed(&web1, &place, |said| said.facts = Some(facts("test", serial)));
        edge.report(later.clone()).await.expect("believed");
        assert_eq!(shown(&place, "web1").await, ("test".into(), true));
        // What it said before, again: also when the node is said to be gone meanwhile.
        refused(&mut edge, early.clone(), "a later one is known").await;
        let gone = v1::NodeReport {
            name: "web1".into(),
            connected: false,
            statement: None,
        };
        edge.report(gone)
            .await
            .expect("its own connection is the proxy's to end");
        assert_eq!(shown(&place, "web1").await, ("test".into(), false));
        refused(&mut edge, early, "a later one is known").await;
        edge.report(later.clone()).await.expect("it is back");
        // An older word to another proxy is a connection to that, and changes nothing else.
        let mut second = place.proxy(&other).await;
        let older = signed(&web1, &place, |said| {
            said.proxy = "edge2".into();
            said.millis = 2;
        });
        second.report(older).await.expect("connected to both");
        assert_eq!(shown(&place, "web1").await, ("test".into(), true));
        // And a word that grows old is nobody's presence any more.
        place.clock.advance(STATED + 1);
        refused(&mut edge, later, "too old").await;
        place.service().turn().await;
        assert_eq!(shown(&place, "web1").await, ("test".into(), false));
    });
}
