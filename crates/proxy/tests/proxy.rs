//! The proxy from outside: what comes in by one address, who gets to a node, what holds when a peer is slow, gone or
//! hostile.
#![forbid(unsafe_code)]

#[path = "parts/audit.rs"]
mod audit;
#[path = "parts/certified.rs"]
mod certified;
#[path = "parts/dials.rs"]
mod dials;
#[path = "parts/late.rs"]
mod late;
#[path = "parts/locks.rs"]
mod locks;
#[path = "parts/passing.rs"]
mod passing;
#[path = "parts/reach.rs"]
mod reach;
#[path = "parts/recordings.rs"]
mod recordings;
#[path = "parts/restart.rs"]
mod restart;
#[path = "parts/silence.rs"]
mod silence;
#[path = "../src/ssh/tests/world.rs"]
#[allow(dead_code)]
mod ssh_client;
#[path = "parts/stop.rs"]
mod stop;
#[path = "parts/strangers.rs"]
mod strangers;
mod support;
#[path = "parts/traces.rs"]
mod traces;
#[path = "parts/tunnels.rs"]
mod tunnels;

use fleetgate_net::testing::{CertificateRequest, name, now};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::NodesRequest;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proxy::ssh;
use std::time::Duration;
use support::{Behaviour, Session, World, denied, dial_as, frame, ssh};
use tonic::Code;

#[tokio::test]
async fn a_session_goes_through_and_is_told() {
    let world = World::new("through").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let Some(Kind::Dial(mut first)) = dial_as("web1", "root", b"SSH-2.0-first").kind else {
        unreachable!()
    };
    first.explain = true;
    // What a client says in the proxy's place is dropped.
    first.via = Some(fleetgate_proto::v1::Via {
        user: "mallory".to_owned(),
        ..Default::default()
    });
    let mut session = Session::begin(&mut alice, frame(Kind::Dial(first))).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(opened)) if opened.node == "web1"));
    assert_eq!(
        session.next().await,
        Some(Kind::Ssh(b"SSH-2.0-first".as_slice().into())),
        "the first flight"
    );
    let dial = node.dials.recv().await.unwrap();
    let via = dial.via.unwrap();
    assert_eq!((via.user.as_str(), via.proxy.as_str()), ("alice", "p1"));
    assert!(via.source.starts_with("127.0.0.1:"), "{}", via.source);
    // Both ways, and spans pass with the proxy's own in them.
    session.say(ssh(vec![1; 100_000])).await;
    assert_eq!(session.next().await, Some(Kind::Ssh(vec![1; 100_000].into())));
    session.say(frame(Kind::Spans(Default::default()))).await;
    let Some(Kind::Spans(spans)) = session.next().await else {
        panic!("no spans")
    };
    assert_eq!(
        spans.spans.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        ["decide", "open a stream"]
    );
    // Half close: the client says no more, and still reads.
    session.say(frame(Kind::SshEnd(true))).await;
    session.send = None;
    assert_eq!(session.next().await, Some(Kind::SshEnd(true)));
    assert_eq!(session.next().await, None);
    let event = world.event("dial_ended").await;
    assert_eq!(
        ["user", "node", "login", "proxy", "reason"].map(|field| event[field].as_str().unwrap()),
        ["alice", "web1", "root", "p1", "the node ended it"]
    );
    assert_eq!(
        (event["received"].as_u64(), event["sent"].as_u64()),
        (Some(100_013), Some(100_013))
    );
}

#[tokio::test]
async fn a_nodes_end_ends_the_clients_side_towards_it() {
    let world = World::new("end").await;
    let _node = world.node("web1", Behaviour::End).await;
    let mut alice = world.alice().await;
    let mut session = Session::begin(&mut alice, dial_as("web1", "root", b"SSH-2.0-first")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    assert_eq!(session.next().await, Some(Kind::SshEnd(true)));
    assert_eq!(session.next().await, None, "the client has not ended its side");
}

#[tokio::test]
async fn a_refusal_names_the_rule_and_touches_no_node() {
    let world = World::new("refusal").await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let nobody = world.cluster.user("eve", &[]);
    let old = world.cluster.make(&CertificateRequest {
        subject: Some(Subject::User(name("alice"))),
        roles: vec![name("dev")],
        client: true,
        ..CertificateRequest::default()
    });
    world.change(|state| {
        let mut strict = state.roles[&name("dev")].clone();
        strict.name = name("strict");
        strict.logins = vec!["db".to_owned()];
        strict.require_mfa = Some(Duration::from_secs(60));
        state.roles.insert(name("strict"), strict);
    });
    let strict = world.cluster.user("bob", &["strict"]);
    let node_itself = world
        .cluster
        .server("web1.node.fleetgate", Subject::Node(name("web1")));
    for (who, target, login, reason, rule, words) in [
        (
            &nobody,
            "web1",
            "root",
            Reason::Role,
            "no role",
            "eve has no role",
        ),
        (&old, "web1", "postgres", Reason::Role, "role dev", "not postgres"),
        (&old, "web2", "root", Reason::Node, "", "there is no node web2"),
        (&old, "../etc", "root", Reason::Node, "", ""),
        (
            &strict,
            "web1",
            "db",
            Reason::Mfa,
            "role strict",
            "fleetgate login --mfa",
        ),
        (
            &node_itself,
            "web1",
            "root",
            Reason::Role,
            "the certificate",
            "only users log in",
        ),
    ] {
        let mut client = world.user(Some(who)).await;
        // The state that has the strict role may still be on its way.
        let told = loop {
            let mut session = Session::begin(&mut client, dial_as(target, login, b"SSH-")).await;
            let told = denied(session.next().await);
            assert_eq!(session.next().await, None, "it was the last frame");
            if told.reason == i32::from(reason) || reason != Reason::Mfa {
                break told;
            }
        };
        assert_eq!(
            (told.reason, told.rule.as_str()),
            (i32::from(reason), rule),
            "{}",
            told.words
        );
        assert!(told.words.contains(words), "{}", told.words);
        let event = world.event("dial_denied").await;
        assert_eq!(event["node"], target);
    }
    // Without a certificate, or with something else than a dial first.
    let error = world
        .user(None)
        .await
        .nodes(NodesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::Unauthenticated,
            "no certificate was shown: run fleetgate login"
        )
    );
    let mut client = world.alice().await;
    let mut session = Session::begin(&mut client, ssh(b"x".to_vec())).await;
    assert_eq!(denied(session.next().await).reason, i32::from(Reason::Protocol));
    assert!(node.dials.try_recv().is_err(), "the node heard of none of them");
    let mut session = Session::begin(&mut client, dial_as("web1", "root", b"")).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))), "control");
}

#[tokio::test]
async fn the_nodes_that_somebody_may_reach_are_listed() {
    let world = World::new("nodes").await;
    let known = |name: &str, env: &str| fleetgate_proto::v1::NodeChange {
        node: Some(fleetgate_proto::v1::Node {
            name: name.to_owned(),
            labels: [("env".to_owned(), env.to_owned())].into(),
            seen: now() - 100,
            ..Default::default()
        }),
        ..Default::default()
    };
    let _node = world.node("web1", Behaviour::Echo).await;
    world.auth.nodes.send(known("db1", "prod")).unwrap();
    // Auth's word on a node's labels counts, not its own.
    world.auth.nodes.send(known("web1", "stage")).unwrap();
    let listed = async |selector: &str| {
        let request = NodesRequest {
            selector: selector.to_owned(),
        };
        let nodes = world
            .alice()
            .await
            .nodes(request)
            .await
            .unwrap()
            .into_inner()
            .nodes;
        nodes
            .iter()
            .map(|n| format!("{} {}", n.name, n.connected))
            .collect::<Vec<_>>()
    };
    while listed("env=stage").await.is_empty() {}
    assert_eq!(listed("").await, ["db1 false", "web1 true"]);
    assert_eq!(listed("env=test").await, [""; 0]);
    assert_eq!(listed("env=prod").await, ["db1 false"]);
    let mut offline = Session::begin(&mut world.alice().await, dial_as("db1", "root", b"")).await;
    assert_eq!(denied(offline.next().await).reason, i32::from(Reason::Offline));
    let gone = fleetgate_proto::v1::NodeChange {
        removed: "db1".to_owned(),
        ..Default::default()
    };
    world.auth.nodes.send(gone).unwrap();
    while listed("").await.len() == 2 {}
    // A fleet's list is longer than any frame.
    for n in 0..5000 {
        world.auth.nodes.send(known(&format!("many{n}"), "many")).unwrap();
    }
    while listed("env=many").await.len() < 5000 {}
    let eve = world.cluster.user("eve", &[]);
    let nodes = world
        .user(Some(&eve))
        .await
        .nodes(NodesRequest::default())
        .await
        .unwrap();
    assert!(nodes.into_inner().nodes.is_empty());
}

/// Set for the process that [`a_confined_proxy_has_its_own_files_and_no_others`] starts: its state directory.
const CONFINED: &str = "FLEETGATE_TEST_CONFINED";

#[test]
fn a_confined_proxy_has_its_own_files_and_no_others() {
    if let Some(directory) = std::env::var_os(CONFINED) {
        // Landlock binds a thread: this one, which is all that the process of a proxy has.
        let mut server = fleetgate_proxy::Server::new(fleetgate_proxy::Config {
            state_directory: directory.into(),
            ..Default::default()
        })
        .unwrap();
        let root = fleetgate_sys::process::effective_uid() == 0;
        server.confine().unwrap();
        let own = std::path::Path::new(".");
        assert!(
            fleetgate_proxy::identity::Identity::load(own).is_ok(),
            "it reads its own"
        );
        let (_, state) = fleetgate_proxy::identity::Identity::load(own).unwrap();
        fleetgate_proxy::identity::save_state(own, &state).expect("it writes its own");
        assert!(!root || fleetgate_sys::process::effective_uid() != 0);
        if fleetgate_sys::landlock::version() > 0 {
            assert!(std::fs::read("/proc/self/environ").is_err());
            let outside = std::env::temp_dir().join(format!("fleetgate-outside-{}", std::process::id()));
            assert!(std::fs::write(outside, "").is_err());
        }
        // Names are still looked up.
        assert!(std::fs::read("/etc/hosts").is_ok());
        println!("confined");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::new("confined"));
    runtime.block_on(world.stop());
    let name = "a_confined_proxy_has_its_own_files_and_no_others";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CONFINED, &world.directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success() && said.contains("confined"),
        "{said}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}
