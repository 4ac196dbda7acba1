//! What a proxy leaves: the last events of one that stops, and the state of one whose disk is full.

use super::support::{Behaviour, Session, World, denied, dial_as};
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;

#[tokio::test]
async fn the_end_of_a_session_that_reads_nothing_is_told_when_the_proxy_stops() {
    let world = World::new("last").await;
    let _node = world.node("web1", Behaviour::Pour).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    // Nobody reads on: the proxy waits for the client, and ends all the same.
    world.stop().await;
    let mut kept = Vec::new();
    for file in std::fs::read_dir(world.directory.join("audit"))
        .unwrap()
        .flatten()
    {
        if file.path().extension().is_some_and(|end| end == "jsonl") {
            kept.extend(std::fs::read(file.path()).unwrap());
        }
    }
    let told = String::from_utf8(kept).unwrap();
    assert!(told.contains("\"event\":\"dial\""), "control: {told}");
    let ends: Vec<_> = told
        .lines()
        .filter(|line| line.contains("\"dial_ended\""))
        .collect();
    assert_eq!(ends.len(), 1, "{told}");
    assert!(
        ends[0].contains("the proxy stops") && ends[0].contains("alice"),
        "{}",
        ends[0]
    );
}

#[tokio::test]
async fn a_lock_holds_though_the_state_cannot_be_kept() {
    let world = World::new("unsaved").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let saved = || std::fs::read(world.directory.join("state")).unwrap();
    // Where the new file is to be there is something else; the proxy may just be writing its first state there.
    let way = world.directory.join("state.new");
    while std::fs::create_dir(&way).is_err() {
        tokio::task::yield_now().await;
    }
    let before = saved();
    world.lock(Target::User(name("alice")));
    node.hears_of_the_lock().await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
    let denied = denied(session.next().await);
    assert_eq!(denied.reason(), Reason::Lock, "{}", denied.words);
    assert_eq!(saved(), before, "control");
    // With the next word of auth it is tried again.
    std::fs::remove_dir(&way).unwrap();
    world.fresh();
    while saved() == before {
        tokio::task::yield_now().await;
    }
    assert!(String::from_utf8_lossy(&saved()).contains("stolen laptop"));
}
