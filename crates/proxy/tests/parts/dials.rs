//! How many sessions a user may have, how many dials he may begin, and how those that he leaves end.

use super::ssh_client::{Client, certificate, identity, key};
use super::support::{Behaviour, Session, World, denied, dial_as};
use fleetgate_net::h2::Channel;
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proxy::dial::{UNANSWERED, UNANSWERED_OF_ONE};
use fleetgate_ssh::event::{ChannelKind, Event};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// With one dial a second ten begin at once, and ten more wait: more than one of two connections has, and fewer than both.
const DIALS: usize = 15;

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
async fn sessions_of_one_user_are_bounded() {
    let world = World::with("bounded", |config| config.sessions_per_user = 2).await;
    let _node = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        open.push(session);
    }
    let mut third = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    let told = denied(third.next().await);
    assert_eq!(
        (told.reason, told.words.as_str()),
        (
            i32::from(Reason::Busy),
            "alice has 2 connections to nodes open: close some"
        )
    );
    // One that has ended makes room.
    drop(open.pop());
    loop {
        let mut again = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
        if matches!(again.next().await, Some(Kind::Opened(_))) {
            break;
        }
    }
}

#[tokio::test]
async fn dials_of_one_user_wait_and_are_refused_in_the_end_by_whatever_connection() {
    let world = World::with("dials", |config| config.dials_per_second = 1).await;
    let (mut of_alice, mut of_bob) = (JoinSet::new(), JoinSet::new());
    for _ in 0..2 {
        dial(&mut of_alice, &world.alice().await, "web1", DIALS);
    }
    let bob = world.user(Some(&world.cluster.user("bob", &["dev"]))).await;
    dial(&mut of_bob, &bob, "web1", DIALS);
    let words = refused(&mut of_alice).await.expect("one is refused");
    assert!(
        words.contains("alice begins more than 1 connections to nodes a second (dials_per_second)"),
        "{words}"
    );
    assert_eq!(refused(&mut of_bob).await, None, "control");
    loop {
        let event = world.event("dial_denied").await;
        if event["reason"].as_str().unwrap().contains("dials_per_second") {
            assert_eq!(event["user"], "alice");
            break;
        }
    }
}

#[tokio::test]
async fn dials_by_jump_are_counted_with_the_others_of_their_user() {
    let world = World::with("dials-jump", |config| config.dials_per_second = 1).await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (ca, own) = (key(), key());
    world.change(|state| state.trust.user_ca = vec![ca.public().blob().to_vec()]);
    world.lock(Target::User(name("bob")));
    node.hears_of_the_lock().await;
    let tcp = TcpStream::connect(world.address).await.unwrap();
    let mut client = Client::new(tcp);
    let shown = certificate(&ca, &own, &identity("alice"));
    assert_eq!(client.log_in("alice", &own, shown.blob()).await, Ok(true));
    let kind = ChannelKind::DirectTcpip {
        host: b"web2".to_vec(),
        port: 22,
        origin: b"127.0.0.1".to_vec(),
        origin_port: 1,
    };
    let mut others = JoinSet::new();
    dial(&mut others, &world.alice().await, "web2", DIALS);
    for _ in 0..DIALS {
        client.end.core.open(&kind).unwrap();
    }
    let of_jump = async {
        let mut answered = 0;
        while answered < DIALS {
            let failed = client.until(|_, event| match event {
                Event::OpenFailed { text, .. } => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
            answered += 1;
            let words = failed.await.unwrap();
            if words.contains("dials_per_second") {
                return true;
            }
            // Control: the others are decided.
            assert!(words.contains("there is no node web2"), "{words}");
        }
        false
    };
    // Either way's may be those that come too late.
    let (of_jump, of_others) = tokio::join!(of_jump, refused(&mut others));
    assert!(of_jump || of_others.is_some());
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
