//! How the sessions that a user leaves end, and how many of them a node has.

use super::support::{Behaviour, Session, World, dial_as};
use fleetgate_net::h2::Channel;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proxy::dial::{UNANSWERED, UNANSWERED_OF_ONE};
use tokio::task::JoinSet;

/// Begins so many dials at once.
fn dial(
    answers: &mut JoinSet<Option<Kind>>,
    client: &TransportClient<Channel>,
    node: &'static str,
    count: usize,
) {
    for _ in 0..count {
        let mut client = client.clone();
        answers.spawn(async move {
            let mut session = Session::begin(&mut client, dial_as(node, "root", b"")).await;
            session.next().await
        });
    }
}

/// The words of the first of them that is refused because of a limit.
async fn refused(answers: &mut JoinSet<Option<Kind>>) -> Option<String> {
    while let Some(answer) = answers.join_next().await {
        if let Some(Kind::Denied(denied)) = answer.unwrap()
            && denied.reason() == Reason::Busy
        {
            return Some(denied.words);
        }
    }
    None
}

#[tokio::test]
async fn a_session_that_its_user_leaves_is_ended_by_both_sides() {
    let world = World::new("left").await;
    let mut echo = world.node("web1", Behaviour::Echo).await;
    let mut pour = world.node("web2", Behaviour::Pour).await;
    let mut alice = world.alice().await;
    for _ in 0..100 {
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"one")).await;
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        drop(session);
        assert_eq!(echo.left.recv().await, Some(true), "the node reads the end");
    }
    // Control: a node that does not end its side has no longer than the bound.
    let mut session = Session::begin(&mut alice, dial_as("web2", "root", b"one")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    drop(session);
    assert_eq!(pour.left.recv().await, Some(false), "the stream is reset");
}

#[tokio::test]
async fn dials_that_a_node_leaves_unanswered_are_refused_in_the_end_and_harm_no_other_user() {
    let world = World::with("unanswered", |config| config.sessions_per_user = 2_000).await;
    let mut node = world.node("web1", Behaviour::Late).await;
    let (mut of_alice, mut of_bob) = (JoinSet::new(), JoinSet::new());
    dial(&mut of_alice, &world.alice().await, "web1", UNANSWERED);
    for _ in 0..UNANSWERED_OF_ONE {
        node.dials.recv().await.unwrap();
    }
    let bob = world.user(Some(&world.cluster.user("bob", &["dev"]))).await;
    dial(&mut of_bob, &bob, "web1", 1);
    let via = node.dials.recv().await.unwrap().via.unwrap();
    assert_eq!(via.user, "bob", "alice has no more");
    let words = refused(&mut of_alice).await.expect("one is refused");
    assert!(
        words.contains("web1 has no room for another connection of alice"),
        "{words}"
    );
}
