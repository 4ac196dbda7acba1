//! Audit lines of nodes on their way to auth.

use super::support::{Behaviour, Node, World, leaf};
use fleetgate_net::testing::name;
use fleetgate_net::tls;
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::{AuditBatch, AuditPosition, FromNode, from_node, to_node};
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

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

/// The warnings of this process's log, as one text each.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Warnings;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        WARNINGS.lock().expect("no panic").push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_node_whose_lines_are_refused_without_end_does_not_fill_the_proxys_log() {
    tracing::subscriber::set_global_default(Warnings).expect("nobody else has one");
    let world = World::new("refused").await;
    let mut node = world.node("floods", Behaviour::Echo).await;
    let (_, chain) = leaf(
        &world.cluster,
        Subject::Node(name("floods")),
        &tls::node_name("floods"),
    );
    for _ in 0..200 {
        let batch = AuditBatch {
            log: "x".repeat(10_000),
            lines: b"{}\n".as_slice().into(),
            certificate: chain[0].clone().into(),
            signature: b"none".as_slice().into(),
            ..AuditBatch::default()
        };
        let kind = Some(from_node::Kind::Audit(batch));
        node.say.send(FromNode { kind }).await.expect("it listens");
        assert!(matches!(heard(&mut node).await, to_node::Kind::Unkept(_)));
    }
    let warnings = WARNINGS.lock().expect("no panic");
    let about: Vec<&String> = warnings.iter().filter(|text| text.contains("floods")).collect();
    assert!(about.len() >= 10, "control: the operator hears of it");
    assert!(about.len() < 100, "{} lines", about.len());
    assert!(about.iter().all(|text| text.len() < 1000), "{}", about[0]);
}
