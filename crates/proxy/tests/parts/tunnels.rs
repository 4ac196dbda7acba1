//! Tunnels of nodes: what goes through them beside sessions, and what holds when a node stalls, is replaced or is gone.

use super::support::{self, Behaviour, Session, World, denied, dial_as, ssh};
use fleetgate_net::h2::STREAM_WINDOW;
use fleetgate_net::testing::name;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{FromNode, NodesRequest, Renew, from_node, to_node};
use std::sync::atomic::Ordering::Relaxed;

#[tokio::test]
async fn a_reader_that_is_slow_makes_nobody_keep_much() {
    let world = World::new("slow").await;
    let node = world.node("web1", Behaviour::Pour).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    // Nothing is read; other requests on the same connection go on meanwhile, each a chance for the first to grow.
    let mut poured = 0;
    let mut same = 0;
    while same < 200 {
        alice.nodes(NodesRequest::default()).await.unwrap();
        let now = node.read.load(Relaxed);
        same = if now == poured && now > 0 { same + 1 } else { 0 };
        poured = now;
    }
    // Both legs have a window and buffers at either end of it.
    let most = 2 * u64::from(STREAM_WINDOW) + 16 * 128 * 1024;
    assert!(
        (u64::from(STREAM_WINDOW)..most).contains(&poured),
        "{poured} of {most}"
    );
    // It goes on when it is read again.
    let mut read = 0;
    while read < 4 * most {
        match session.next().await {
            Some(Kind::Ssh(bytes)) => read += bytes.len() as u64,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_that_stalls_is_not_written_to_without_end() {
    let world = World::new("stall").await;
    let _node = world.node("web1", Behaviour::Stall).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    let mut sent = 0u64;
    let mut idle = 0;
    while idle < 200 {
        let send = session.send.as_ref().unwrap();
        match send.try_send(ssh(vec![1; 32 * 1024])) {
            Ok(()) => (sent, idle) = (sent + 32 * 1024, 0),
            Err(_) => idle += 1,
        }
        alice.nodes(NodesRequest::default()).await.unwrap();
    }
    let most = 2 * u64::from(STREAM_WINDOW) + 16 * 128 * 1024;
    assert!(
        (u64::from(STREAM_WINDOW)..most).contains(&sent),
        "{sent} of {most}"
    );
}

#[tokio::test]
async fn a_node_that_vanishes_ends_its_sessions_and_no_others() {
    let world = World::new("vanish").await;
    let mut one = world.node("web1", Behaviour::Echo).await;
    let _other = world.node("web2", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut first = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    let mut second = Session::begin(&mut alice, dial_as("web2", "root", b"")).await;
    for session in [&mut first, &mut second] {
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
    }
    one.vanish.take().unwrap().send(()).unwrap();
    let told = denied(first.next().await);
    assert_eq!(told.reason, i32::from(Reason::Offline), "{}", told.words);
    second.say(ssh(b"still here".to_vec())).await;
    assert_eq!(
        second.next().await,
        Some(Kind::Ssh(b"still here".as_slice().into()))
    );
    // Auth hears of it, and who dials it now is told.
    loop {
        let report = world.auth.reported.lock().await.recv().await.unwrap();
        if report.name == "web1" && !report.connected {
            break;
        }
    }
    let mut again = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert_eq!(
        denied(again.next().await).reason,
        i32::from(Reason::Node),
        "auth does not know it either"
    );
}

#[tokio::test]
async fn of_one_nodes_tunnels_the_newest_counts_and_the_old_one_drains() {
    let world = World::new("newest").await;
    let mut old = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let mut before = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert!(matches!(before.next().await, Some(Kind::Opened(_))));
    assert!(matches!(before.next().await, Some(Kind::Ssh(_))));
    let mut new = world.node("web1", Behaviour::Echo).await;
    loop {
        if let Some(to_node::Kind::Leaving(true)) = old.told.recv().await.unwrap().kind {
            break;
        }
    }
    let mut after = Session::begin(&mut alice, dial_as("web1", "root", b"")).await;
    assert!(matches!(after.next().await, Some(Kind::Opened(_))));
    new.dials.recv().await.unwrap();
    assert!(
        old.dials.try_recv().is_ok() && old.dials.try_recv().is_err(),
        "the first one alone"
    );
    before.say(ssh(b"on".to_vec())).await;
    assert_eq!(before.next().await, Some(Kind::Ssh(b"on".as_slice().into())));
}

#[tokio::test]
async fn a_node_hears_the_state_and_its_requests_are_passed_on() {
    let world = World::new("control").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let serial = async |node: &mut support::Node| loop {
        match node.told.recv().await.unwrap().kind.unwrap() {
            to_node::Kind::State(state) => {
                let state = fleetgate_policy::cluster::State::parse_json(&state.document).unwrap();
                return (state.serial, false);
            }
            to_node::Kind::Fresh(fresh) => {
                let fresh = fleetgate_policy::cluster::Fresh::parse_json(&fresh.document).unwrap();
                return (fresh.serial, true);
            }
            _ => {}
        }
    };
    assert_eq!(serial(&mut node).await, (1, false));
    while serial(&mut node).await.0 != 1 {}
    world.change(|_| {});
    while serial(&mut node).await != (2, false) {}
    world.fresh();
    assert_eq!(serial(&mut node).await, (2, true));
    let say = |kind| FromNode { kind: Some(kind) };
    node.say
        .send(say(from_node::Kind::Renew(Renew::default())))
        .await
        .unwrap();
    loop {
        if let Some(to_node::Kind::Renewed(renewed)) = node.told.recv().await.unwrap().kind {
            assert_eq!(renewed.refused, "not today, web1");
            break;
        }
    }
    // A state that is not signed by the cluster is not taken.
    let (stranger, _) =
        fleetgate_ssh::key::PrivateKey::generate(fleetgate_ssh::key::KeyType::Ed25519, "").unwrap();
    let forged = world.auth.replies.borrow().clone();
    let document = forged.fresh.unwrap().document.to_vec();
    let message = fleetgate_policy::cluster::Fresh::signed(&document);
    world.auth.replies.send_replace(fleetgate_proto::v1::WatchReply {
        state: None,
        fresh: Some(support::sign(&stranger, &message, document)),
    });
    world.change(|_| {});
    assert_eq!(
        serial(&mut node).await,
        (3, false),
        "the forged one in between was not passed on"
    );
    // The proxy starts again with it, and without auth.
    world.stop().await;
    let (own, state) = fleetgate_proxy::identity::Identity::load(&world.directory).unwrap();
    assert_eq!(own.name, name("p1"));
    let state = fleetgate_policy::cluster::State::parse_json(&state.document).unwrap();
    assert_eq!(state.serial, 3);
}
