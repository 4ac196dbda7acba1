//! A proxy whose disk is full.

use super::support::{Behaviour, Session, World, dial_as};
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::denied::Reason;

#[tokio::test]
async fn a_lock_holds_though_the_state_cannot_be_kept() {
    let world = World::new("unsaved").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let saved = || std::fs::read(world.directory.join("state")).unwrap();
    let before = saved();
    // Where the new file is to be there is something else.
    let way = world.directory.join("state.new");
    std::fs::create_dir(&way).unwrap();
    world.lock(Target::User(name("alice")));
    node.hears_of_the_lock().await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
    let denied = super::denied(session.next().await);
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
