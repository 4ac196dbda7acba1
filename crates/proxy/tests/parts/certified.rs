//! What somebody with a certificate may take of a proxy, and for how long it counts.

use super::support::{Behaviour, Session, World, denied, dial_as, from, is_served, ssh};
use fleetgate_net::Credentials;
use fleetgate_net::h2::Channel;
use fleetgate_net::testing::name;
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::NodesRequest;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proxy::CONNECTIONS_BESIDE;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tonic::Code;

/// A certificate, be it a locked user's or a removed node's, is good for as many connections as its owner may need.
#[tokio::test]
async fn connections_of_one_certificate_are_bounded() {
    let world = World::with("certified", |config| config.sessions_per_user = 1).await;
    let (alice, bob) = (
        world.cluster.user("alice", &["dev"]),
        world.cluster.user("bob", &["dev"]),
    );
    let is_answered = async |own: &Credentials| {
        let mut client = world.user(Some(own)).await;
        let answer = client.nodes(NodesRequest::default()).await;
        answer.is_ok().then_some(client)
    };
    let mut held = Vec::new();
    for n in 0..CONNECTIONS_BESIDE + 1 {
        held.push(
            is_answered(&alice)
                .await
                .unwrap_or_else(|| panic!("connection {n} is refused")),
        );
    }
    assert!(is_answered(&alice).await.is_none(), "one more");
    assert!(is_answered(&bob).await.is_some(), "somebody else");
    held.pop();
    while is_answered(&alice).await.is_none() {}
}

/// Whoever comes in nowhere is not shown what is there either.
#[tokio::test]
async fn the_list_of_nodes_is_decided_as_a_dial_is() {
    let alice = || Target::User(name("alice"));
    for (label, target, serial_before, words) in [
        (
            "user",
            alice(),
            None,
            "user alice is locked (stolen laptop): ask an administrator",
        ),
        (
            "role",
            Target::Role(name("dev")),
            None,
            "role dev is locked (stolen laptop): ask an administrator",
        ),
        // As when a user is removed or reset: what was issued until then.
        (
            "removed",
            alice(),
            Some(1),
            "the login of user alice is over (stolen laptop): log in again",
        ),
    ] {
        let world = World::new(&format!("list-{label}")).await;
        let mut node = world.node("web1", Behaviour::Echo).await;
        let list = async || world.alice().await.nodes(NodesRequest::default()).await;
        assert_eq!(list().await.unwrap().into_inner().nodes.len(), 1, "control");
        world.lock_serial_before(target, serial_before);
        node.hears_of_the_lock().await;
        let status = list().await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::PermissionDenied, words),
            "{label}"
        );
    }
}

/// Asks until the connection is gone; a refusal is an answer on it.
pub async fn until_closed(client: &mut TransportClient<Channel>) {
    while client
        .nodes(NodesRequest::default())
        .await
        .map_or_else(|status| status.code() == Code::PermissionDenied, |_| true)
    {
        tokio::task::yield_now().await;
    }
}

/// Locks are looked at when the node has opened its Control stream: one that never does holds no descriptor for ever.
#[tokio::test]
async fn a_node_that_does_not_answer_is_given_up() {
    let world = World::new("mute").await;
    let mut node = world.dialled("web1", Behaviour::Mute).await;
    let end = tokio::time::timeout(Duration::from_secs(60), node.ended.take().unwrap());
    assert!(end.await.is_ok(), "it is still there");
}

/// What was decided before a node is reached, which may take a while, is decided again when it answers.
#[tokio::test]
async fn a_lock_that_comes_while_a_node_is_reached_counts() {
    let world = World::new("meanwhile").await;
    let mut node = world.node("web1", Behaviour::Late).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    node.dials.recv().await.unwrap();
    world.lock(Target::Role(name("dev")));
    node.hears_of_the_lock().await;
    node.answers.notify_one();
    assert_eq!(denied(session.next().await).reason(), Reason::Lock);
}

/// A certificate that a lock holds against makes no source known: whoever stole it pays like any stranger.
#[tokio::test]
async fn a_locked_certificate_makes_no_source_known() {
    let world = World::new("unknown").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let (alice, bob) = (
        world.cluster.user("alice", &["dev"]),
        world.cluster.user("bob", &["ops"]),
    );
    world.lock(Target::Role(name("dev")));
    node.hears_of_the_lock().await;
    for (host, own) in [(7, &alice), (8, &bob)] {
        assert!(is_served(&world, host, Some(own)).await, "it has not paid yet");
        for _ in 0..4 {
            let mut stream = from(&world, host).await.unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
        }
    }
    assert!(!is_served(&world, 7, None).await, "the locked user's source pays");
    assert!(is_served(&world, 8, None).await, "the other's is known");
}

/// A removed node hears why, and then its connection ends with every session on it, also where a newer connection has taken
/// its place or the node has ended its Control stream: a node that does not obey keeps nobody.
#[tokio::test]
async fn a_removed_nodes_sessions_end() {
    for which in ["newest", "replaced", "uncontrolled"] {
        let world = World::new(&format!("removed-{which}")).await;
        let mut node = world.node("web1", Behaviour::Echo).await;
        let mut other = world.node("web2", Behaviour::Echo).await;
        let mut alice = world.alice().await;
        let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
        let mut control = Session::begin(&mut alice, dial_as("web2", "root", b"")).await;
        for session in [&mut session, &mut control] {
            assert!(matches!(session.next().await, Some(Kind::Opened(_))));
            assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
        }
        let newer = match which {
            "replaced" => Some(world.node("web1", Behaviour::Echo).await),
            _ => None,
        };
        if which == "uncontrolled" {
            node.say = mpsc::channel(1).0;
            while world.auth.reported.lock().await.recv().await.unwrap().connected {}
        }
        world.lock_serial_before(Target::Node(name("web1")), Some(1));
        if which == "newest" {
            node.hears_of_the_lock().await;
        }
        let end = tokio::time::timeout(Duration::from_secs(60), node.ended.take().unwrap());
        assert!(end.await.is_ok(), "{which}: the node's connection is still there");
        assert_eq!(
            denied(session.next().await).reason,
            i32::from(Reason::Offline),
            "{which}"
        );
        if let Some(mut newer) = newer {
            newer.ended.take().unwrap().await.unwrap();
        }
        control.say(ssh(b"still there".to_vec())).await;
        assert!(
            matches!(control.next().await, Some(Kind::Ssh(_))),
            "control: {which}"
        );
        assert!(
            other.ended.as_mut().unwrap().try_recv().is_err(),
            "control: {which}"
        );
    }
}
