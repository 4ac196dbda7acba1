//! Recordings on their way from a node to auth, of which the proxy keeps nothing.

use super::support::auth::TakenRecordings;
use super::support::node::GivenRecordings;
use super::support::{Behaviour, Node, World};
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::{RecordingFrom, RecordingKept, RecordingPart};
use std::time::Duration;
use tokio::time::timeout;

fn part(session: u8, offset: u64, bytes: Vec<u8>) -> RecordingPart {
    RecordingPart {
        session: vec![session; 16].into(),
        offset,
        bytes: bytes.into(),
        whole: false,
    }
}

fn kept(session: u8, offset: u64) -> RecordingKept {
    RecordingKept {
        session: vec![session; 16].into(),
        offset,
        ..RecordingKept::default()
    }
}

/// The node's next stream, and auth's, which begins with this part.
async fn streams(world: &World, node: &mut Node, first: RecordingPart) -> (GivenRecordings, TakenRecordings) {
    let given = node
        .recordings
        .recv()
        .await
        .expect("the proxy asks for recordings");
    given.give.send(first.clone()).await.expect("it listens");
    let mut taken = world.auth.taken.lock().await.recv().await.expect("a stream");
    let said = taken.parts.message().await.expect("a part");
    let (source, part) = ("web1".to_owned(), Some(first));
    assert_eq!(said, Some(RecordingFrom { source, part }));
    (given, taken)
}

#[tokio::test]
async fn parts_go_to_auth_and_its_answers_come_back() {
    let world = World::new("recordings").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (mut given, mut taken) = streams(&world, &mut node, part(1, 0, Vec::new())).await;
    taken.say.send(kept(1, 5)).expect("it listens");
    assert_eq!(given.kept.message().await.expect("an answer"), Some(kept(1, 5)));
    for offset in 0..20 {
        let sent = part(1, offset, vec![7; 256 << 10]);
        given.give.send(sent.clone()).await.expect("it listens");
        let said = taken.parts.message().await.expect("a part").expect("a part");
        assert_eq!((said.source.as_str(), said.part), ("", Some(sent)));
    }
    // Auth ends its stream: the node's ends too, and another one is opened.
    drop(taken);
    assert!(!matches!(given.kept.message().await, Ok(Some(_))));
    let (mut given, taken) = streams(&world, &mut node, part(2, 0, Vec::new())).await;
    // The node ends its own.
    drop(given.give);
    assert!(!matches!(given.kept.message().await, Ok(Some(_))));
    drop(taken);
    streams(&world, &mut node, part(3, 0, Vec::new())).await;
}

#[tokio::test]
async fn what_auth_does_not_read_is_not_taken_from_the_node() {
    let world = World::new("recordings-full").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (given, mut taken) = streams(&world, &mut node, part(1, 0, Vec::new())).await;
    let mut sent = 0_u64;
    let room = Duration::from_secs(2);
    while let Ok(said) = timeout(room, given.give.send(part(1, sent, vec![7; 256 << 10]))).await {
        said.expect("it listens");
        sent += 1;
        assert!(sent < 400, "100 MB are on their way, and nobody reads them");
    }
    for offset in 0..sent {
        let said = taken.parts.message().await.expect("a part").expect("a part");
        assert_eq!(said.part.expect("a part").offset, offset);
    }
}

#[tokio::test]
async fn a_locked_node_and_a_process_that_leaves_carry_no_more() {
    let world = World::new("recordings-lock").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (mut given, mut taken) = streams(&world, &mut node, part(1, 0, Vec::new())).await;
    world.lock(Target::Node(name("web1")));
    assert!(!matches!(given.kept.message().await, Ok(Some(_))));
    assert!(!matches!(taken.parts.message().await, Ok(Some(_))));

    let world = World::new("recordings-drain").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (mut given, mut taken) = streams(&world, &mut node, part(1, 0, Vec::new())).await;
    let _drains = world.restart();
    assert!(!matches!(given.kept.message().await, Ok(Some(_))));
    assert!(!matches!(taken.parts.message().await, Ok(Some(_))));
    // The tunnel itself goes on for its sessions, until the node has dialled anew.
    assert!(node.recordings.try_recv().is_err());

    let world = World::new("recordings-newer").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (mut given, _taken) = streams(&world, &mut node, part(1, 0, Vec::new())).await;
    let mut newer = world.node("web1", Behaviour::Echo).await;
    assert!(!matches!(given.kept.message().await, Ok(Some(_))));
    streams(&world, &mut newer, part(1, 0, Vec::new())).await;
}
