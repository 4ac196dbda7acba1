//! A proxy that drains beside the one that has taken its place.

use super::support::{Behaviour, Node, Session, World, denied, dial_as, ssh};
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{FromNode, NodeStatement, NodesRequest, Statement, from_node, to_node};
use prost::Message;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

/// How often a proxy reports what has not changed (`auth::HEARTBEAT`).
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Waits until the node was told that this process leaves.
async fn hears_that_it_leaves(node: &mut Node) {
    loop {
        match node.told.recv().await {
            Some(message) if message.kind == Some(to_node::Kind::Leaving(true)) => break,
            Some(_) => {}
            None => panic!("the node was not told"),
        }
    }
}

/// A node's process that leaves takes no session, whatever of the client's words it has read: the next one is given all of
/// them, in their order, up to a bound.
#[tokio::test]
async fn a_nodes_next_process_is_given_what_the_one_before_read() {
    for (bytes, is_given) in [(3, true), (64 << 10, true), ((64 << 10) + 1, false)] {
        let world = World::new(&format!("leaves-{bytes}")).await;
        let first = world.node("web1", Behaviour::Leave).await;
        let mut alice = world.alice().await;
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
        let said: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        for lump in said.chunks(32 << 10) {
            session.say(ssh(lump.to_vec())).await;
        }
        while first.read.load(SeqCst) < bytes as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = world.node("web1", Behaviour::Echo).await;
        first.answers.notify_one();
        if !is_given {
            let refused = denied(session.next().await);
            assert_eq!(refused.reason(), Reason::Offline, "{bytes}: {refused:?}");
            continue;
        }
        assert!(matches!(session.next().await, Some(Kind::Opened(_))), "{bytes}");
        assert_eq!(session.next().await, Some(Kind::Ssh(b"one".as_slice().into())));
        let mut back = Vec::new();
        while back.len() < said.len() {
            match session.next().await {
                Some(Kind::Ssh(bytes)) => back.extend_from_slice(&bytes),
                other => panic!("{bytes}: {other:?}"),
            }
        }
        assert_eq!(back, said, "{bytes}");
        // And the connection goes on as any other.
        session.say(ssh(b"more".to_vec())).await;
        assert_eq!(session.next().await, Some(Kind::Ssh(b"more".as_slice().into())));
        drop(second);
    }
}

#[tokio::test]
async fn a_restart_ends_no_session_and_refuses_nobody() {
    let world = World::new("restart").await;
    let mut first = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    assert_eq!(session.next().await, Some(Kind::Ssh(b"one".as_slice().into())));

    let old = world.restart();
    // From then on it accepts nobody.
    hears_that_it_leaves(&mut first).await;
    // Somebody comes before the node has dialled the new process: the session waits for it.
    let mut late = world.alice().await;
    let mut waiting = Session::begin(&mut late, dial_as("web1", "root", b"two")).await;
    let mut second = world.node("web1", Behaviour::Echo).await;
    assert!(matches!(waiting.next().await, Some(Kind::Opened(_))));
    assert_eq!(waiting.next().await, Some(Kind::Ssh(b"two".as_slice().into())));
    assert!(second.dials.recv().await.is_some(), "by the new connection");

    // The old session goes on in the old process.
    session.say(ssh(vec![1; 100_000])).await;
    assert_eq!(session.next().await, Some(Kind::Ssh(vec![1; 100_000].into())));

    // With its last session it ends, and says of no node that it is gone: the new process has them all.
    drop(session);
    assert_eq!(world.event("dial_ended").await["user"], "alice");
    drop(alice);
    old.ended().await;
    world.node("web2", Behaviour::Echo).await;
    let passed = world.passed.lock().unwrap();
    let gone: Vec<_> = passed.iter().filter(|report| !report.connected).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[tokio::test]
async fn a_lock_ends_the_sessions_of_a_proxy_that_drains() {
    let world = World::new("draining").await;
    let _node = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    assert_eq!(session.next().await, Some(Kind::Ssh(b"one".as_slice().into())));
    let old = world.restart();
    world.lock(Target::User(name("alice")));
    assert_eq!(denied(session.next().await).reason(), Reason::Lock);
    old.ended().await;
}

/// A node that restarts while a proxy drains dials the next process alone. Whoever still asks the old one is sent there.
#[tokio::test]
async fn a_process_that_was_replaced_waits_for_no_node() {
    let world = World::new("replaced").await;
    let mut first = world.node("web1", Behaviour::Echo).await;
    // One has asked already and is told to leave at once; the other one has its first request still.
    let mut asked = world.alice().await;
    let mut young = world.alice().await;
    asked.nodes(NodesRequest::default()).await.unwrap();
    let _old = world.restart();
    hears_that_it_leaves(&mut first).await;
    while asked.nodes(NodesRequest::default()).await.is_ok() {}
    drop(first.vanish.take());
    first.ended.take().unwrap().await.unwrap();
    let _second = world.node("web1", Behaviour::Echo).await;
    let mut session = Session::begin(&mut young, dial_as("web1", "root", b"one")).await;
    // No answer of the cluster's, which would be a refusal: the client asks again by another connection.
    let status = session.read.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

/// A node that has just started signs by the state on its disk, which may be older than what it signed before: auth does not
/// take it. What it signs by the newest state, a moment later, says the same; auth hears of it at once.
#[tokio::test]
async fn what_a_node_signs_anew_is_told_after_auth_took_nothing() {
    let world = World::new("outdated").await;
    world.auth.refuses.store(1, SeqCst);
    let node = world.dialled("web1", Behaviour::Echo).await;
    let of_web1 = async || {
        let mut reported = world.auth.reported.lock().await;
        loop {
            let report = reported.recv().await.unwrap();
            if report.connected && report.name == "web1" {
                return report.statement.expect("signed");
            }
        }
    };
    let first = of_web1().await;
    let said = NodeStatement::decode(&first.document[..]).unwrap();
    let anew = NodeStatement { millis: 2, ..said };
    let document = anew.encode_to_vec().into();
    let statement = Statement {
        document,
        ..Statement::default()
    };
    node.say
        .send(FromNode {
            kind: Some(from_node::Kind::Statement(statement.clone())),
        })
        .await
        .unwrap();
    // Not with the next heartbeat.
    let second = timeout(HEARTBEAT / 3, of_web1())
        .await
        .expect("it is told at once");
    assert_eq!(second, statement);
}

#[tokio::test]
async fn stopping_tells_nodes_and_ends() {
    let world = World::new("stopping").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    world.stop().await;
    hears_that_it_leaves(&mut node).await;
    assert!(TcpStream::connect(world.address).await.is_err());
}
