//! Audit lines of nodes on their way to auth.

use super::support::{Behaviour, Node, World, leaf};
use fleetgate_net::testing::name;
use fleetgate_net::tls;
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::{AuditBatch, AuditPosition, FromNode, from_node, to_node};
use std::sync::atomic::Ordering::SeqCst;

/// The next word on audit lines.
async fn heard(node: &mut Node) -> to_node::Kind {
    loop {
        let kind = node.told.recv().await.expect("the tunnel lives").kind;
        if let Some(kind @ (to_node::Kind::Kept(_) | to_node::Kind::Unkept(_))) = kind {
            return kind;
        }
    }
}

#[tokio::test]
async fn a_node_hears_that_auth_did_not_keep_its_audit_lines() {
    let world = World::new("unkept").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (key, chain) = leaf(
        &world.cluster,
        Subject::Node(name("web1")),
        &tls::node_name("web1"),
    );
    let mut batch = AuditBatch {
        log: "1".to_owned(),
        offset: 5,
        lines: b"{}\n".as_slice().into(),
        certificate: chain[0].clone().into(),
        ..AuditBatch::default()
    };
    batch.signature = key.sign(&fleetgate_proto::signed::audit("web1", &batch)).into();
    let kind = from_node::Kind::Audit(batch);
    let say = FromNode { kind: Some(kind) };
    let position = |offset| AuditPosition {
        log: "1".to_owned(),
        offset,
    };
    world.auth.keeps_not.store(1, SeqCst);
    node.say.send(say.clone()).await.expect("it listens");
    assert_eq!(heard(&mut node).await, to_node::Kind::Unkept(position(5)));
    node.say.send(say).await.expect("it listens");
    assert_eq!(heard(&mut node).await, to_node::Kind::Kept(position(8)));
}
