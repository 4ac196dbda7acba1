//! Locks: what they end, what they refuse, and what goes on when one is lifted.

use super::certified::until_closed;
use super::support::{Behaviour, Session, World, denied, dial_as, ssh};
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::{Locks, Target};
use fleetgate_proto::v1::NodesRequest;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use std::sync::atomic::Ordering::Relaxed;

/// People keep a connection for their next command: one that a lock was over for is as good as any.
#[tokio::test]
async fn a_lock_that_was_lifted_ends_nothing_that_was_begun_since() {
    let world = World::new("lifted").await;
    let _node = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
    world.lock(Target::User(name("alice")));
    assert_eq!(denied(session.next().await).reason, i32::from(Reason::Lock));
    world.change(|state| state.locks = Locks::new([]));
    // A new session on the same connection, as soon as the proxy has heard of it, and for longer than a lock leaves the
    // connection for its words.
    let mut session = loop {
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
        match session.next().await {
            Some(Kind::Opened(_)) => break session,
            other => assert_eq!(denied(other).reason, i32::from(Reason::Lock)),
        }
    };
    assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(alice.nodes(NodesRequest::default()).await.is_ok());
    // The next lock ends it all the same.
    world.lock(Target::User(name("alice")));
    until_closed(&mut alice).await;
}

#[tokio::test]
async fn a_lock_ends_what_is_open_and_lets_nothing_in() {
    for (label, target) in [
        ("user", Target::User(name("alice"))),
        ("node", Target::Node(name("web1"))),
        ("login", Target::Login("root".to_owned())),
        ("role", Target::Role(name("dev"))),
    ] {
        let world = World::new(&format!("lock-{label}")).await;
        let mut node = world.node("web1", Behaviour::Echo).await;
        let mut alice = world.alice().await;
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
        world.lock(target);
        let told = denied(session.next().await);
        let told = (Reason::try_from(told.reason).unwrap(), told.words);
        match label {
            // Its tunnel goes at the same moment: whichever is first.
            "node" => assert!(matches!(told.0, Reason::Lock | Reason::Offline), "{told:?}"),
            _ => assert!(
                told.0 == Reason::Lock && told.1.contains("stolen laptop"),
                "{told:?}"
            ),
        }
        if matches!(label, "login" | "role") {
            // Nothing that the client still sends reaches the node, which has a moment to end the session itself.
            let read = node.read.load(Relaxed);
            session.tries_to_say(ssh(b"late".to_vec())).await;
            node.left.recv().await.expect("then the proxy ends it");
            assert_eq!(node.read.load(Relaxed), read, "{label}");
        }
        if label == "node" {
            node.ended.take().unwrap().await.unwrap();
            // It heard why first: its own port has to refuse everybody too.
            node.hears_of_the_lock().await;
        }
        if label == "user" {
            // The connection goes too, stalled or not: nothing more can be asked on it.
            until_closed(&mut alice).await;
            let mut again = world.alice().await;
            let mut session = Session::begin(&mut again, dial_as("web1", "root", b"")).await;
            assert_eq!(denied(session.next().await).reason, i32::from(Reason::Lock));
        }
    }
}
