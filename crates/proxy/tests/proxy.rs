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
#[path = "parts/passing.rs"]
mod passing;
#[path = "parts/reach.rs"]
mod reach;
#[path = "parts/restart.rs"]
mod restart;
#[path = "parts/silence.rs"]
mod silence;
#[path = "../src/ssh/tests/world.rs"]
#[allow(dead_code)]
mod ssh_client;
#[path = "parts/stop.rs"]
mod stop;
mod support;

use certified::until_closed;
use fleetgate_net::Credentials;
use fleetgate_net::h2::{STREAM_WINDOW, Tuning};
use fleetgate_net::testing::{CertificateRequest, Collector, name, now};
use fleetgate_net::tls::{AUTH, Believe, Client, H2, HTTP1, Kind as TlsKind};
use fleetgate_policy::cluster::{Locks, Subject, Target};
use fleetgate_proto::otlp::OtlpSpan;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::{
    Denied, FromNode, HelloRequest, NodesRequest, Renew, Span, Spans, from_node, to_node,
};
use fleetgate_proxy::ssh;
use fleetgate_proxy::steps::{NAME, STEPS};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::{Behaviour, Session, World, dial_as, frame, ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

fn denied(kind: Option<Kind>) -> Denied {
    match kind {
        Some(Kind::Denied(denied)) => denied,
        other => panic!("not denied: {other:?}"),
    }
}

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
async fn a_collector_gets_the_steps_of_a_connection_and_the_client_only_what_it_asked_for() {
    let mut collector = Collector::start().await;
    let world = World::with("collector", |config| {
        config.collector = Some(collector.endpoint())
    })
    .await;
    let mut node = world.node("web1", Behaviour::Echo).await;
    let mut alice = world.alice().await;
    let Some(Kind::Dial(mut first)) = dial_as("web1", "root", b"SSH-2.0-first").kind else {
        unreachable!()
    };
    let (trace, step) = ([7; 16], [9; 8]);
    first.trace = [&trace[..], &step].concat().into();
    let mut session = Session::begin(&mut alice, frame(Kind::Dial(first))).await;
    assert!(matches!(session.next().await, Some(Kind::Opened(_))));
    assert!(matches!(session.next().await, Some(Kind::Ssh(_))));
    assert!(node.dials.recv().await.unwrap().explain, "the node is asked");
    // The node tells (it sends back what it gets): too much, twice, and by a name that is none of its own.
    let told = |name: &str, place: &str| Span {
        name: name.repeat(50),
        place: place.to_owned(),
        ..Span::default()
    };
    let mut spans = vec![
        told("login", "node"),
        told("launch", "helper"),
        told("other", "auth"),
    ];
    spans.extend((0..200).map(|_| told("more", "node")));
    for _ in 0..2 {
        let spans = spans.clone();
        session.say(frame(Kind::Spans(Spans { spans }))).await;
    }
    session.say(ssh(vec![1; 100])).await;
    assert_eq!(
        session.next().await,
        Some(Kind::Ssh(vec![1; 100].into())),
        "spans were not asked for"
    );
    let mut seen = Vec::new();
    while seen.len() < 3 + STEPS {
        seen.push(collector.next().await);
    }
    assert!(
        seen.iter().all(|(_, span)| span.trace_id[..] == trace),
        "one trace"
    );
    assert!(seen.iter().all(|(_, span)| span.name.len() <= NAME));
    let of = |service: &str| -> Vec<&OtlpSpan> {
        let mine = seen.iter().filter(|(by, _)| by == service);
        mine.map(|(_, span)| span).collect()
    };
    let names: Vec<&str> = of("fleetgate-proxy")
        .iter()
        .map(|span| span.name.as_str())
        .collect();
    assert_eq!(names, ["decide", "open a stream", "connection"]);
    let root = of("fleetgate-proxy")[2];
    assert_eq!(root.parent_span_id[..], step, "below the client's step");
    for (_, span) in seen.iter().filter(|(_, span)| span.span_id != root.span_id) {
        assert_eq!(span.parent_span_id, root.span_id);
    }
    assert_eq!(
        (of("fleetgate-helper").len(), of("fleetgate-node").len()),
        (1, STEPS - 1)
    );

    // A connection that is refused is one, too, and begins a trace of its own.
    let mut refused = Session::begin(&mut alice, dial_as("web1", "eve", b"")).await;
    assert!(matches!(refused.next().await, Some(Kind::Denied(_))));
    assert_eq!(collector.next().await.1.name, "decide");
    let (_, span) = collector.next().await;
    assert_eq!((span.name.as_str(), span.parent_span_id.len()), ("connection", 0));
    assert_ne!(span.trace_id[..], trace);
    world.stop().await;
    assert_eq!(collector.spans.try_recv().ok(), None, "each is told once");
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

#[tokio::test]
async fn one_address_serves_tls_for_auth_the_web_and_nothing_else() {
    let world = World::new("mux").await;
    // For auth: end to end, by a certificate that the proxy has not.
    let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[H2]).unwrap();
    let (stream, peer) = client
        .connect(AUTH, TcpStream::connect(world.address).await.unwrap())
        .await
        .unwrap();
    assert_eq!(peer.identity.unwrap().subject, Subject::Auth);
    let channel = fleetgate_net::h2::connect(stream, Tuning::AUTH).await.unwrap();
    let error = IdentityClient::new(channel)
        .hello(HelloRequest {})
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented, "auth itself answered");
    // The web.
    for (path, status, text) in [
        ("/healthz", "200 OK", "ok\n"),
        ("/nothing", "404 Not Found", "there is no such page\n"),
    ] {
        let (mut stream, _) = world.tls(None, HTTP1).await;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.ends_with(text),
            "{answer}"
        );
    }
    // Anything else is closed at its first byte; nothing is waited for. It is an offence: each source commits one.
    for (host, first) in [(2, b"G"), (3, b"\0"), (4, b"\x17")] {
        let mut stream = from(&world, host).await.unwrap();
        stream.write_all(first).await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
    }
    // A hello in single bytes still comes in.
    let (mut through, there) = tokio::io::duplex(1);
    let mut tcp = TcpStream::connect(world.address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let copying = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut through, &mut tcp).await });
    assert!(client.connect("proxy.fleetgate", there).await.is_ok());
    copying.abort();
    // A node's certificate is wanted for a tunnel; a user's is none.
    let alice = world.cluster.user("alice", &["dev"]);
    let (mut stream, _) = world.tls(Some(&alice), b"fleetgate-tunnel").await;
    assert_eq!(stream.read(&mut [0; 64]).await.unwrap_or(0), 0);
    let other = fleetgate_net::testing::Cluster::new();
    let tcp = TcpStream::connect(world.address).await.unwrap();
    let client = Client::new(&Believe::Trust(other.trust()), None, &[H2]).unwrap();
    assert_eq!(
        client.connect("proxy.fleetgate", tcp).await.err().unwrap().kind(),
        TlsKind::Authority
    );
}

#[tokio::test]
async fn strangers_have_few_places_and_others_none_the_less() {
    let world = World::new("strangers").await;
    let mut waiting = Vec::new();
    // One source's, all silent.
    for _ in 0..300 {
        waiting.push(TcpStream::connect(world.address).await.unwrap());
    }
    // Beyond the bound they are closed at once; one of the last ones shows it.
    let mut last = waiting.pop().unwrap();
    assert_eq!(last.read(&mut [0; 1]).await.unwrap_or(0), 0);
    drop(waiting);
    // And the places come back.
    loop {
        let client = Client::new(&Believe::Trust(world.cluster.trust()), None, &[H2]).unwrap();
        let tcp = TcpStream::connect(world.address).await.unwrap();
        if client.connect("proxy.fleetgate", tcp).await.is_ok() {
            break;
        }
    }
}

async fn from(world: &World, host: u8) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, host], 0).into())?;
    socket.connect(world.address).await
}

async fn is_served(world: &World, host: u8, own: Option<&Credentials>) -> bool {
    let client = Client::new(&Believe::Trust(world.cluster.trust()), own, &[H2]).unwrap();
    let tcp = from(world, host).await.unwrap();
    client.connect("proxy.fleetgate", tcp).await.is_ok()
}

#[tokio::test]
async fn many_sources_that_hold_all_places_shut_out_no_other() {
    let world = World::with("crowd", |config| {
        config.unauthenticated = 64;
        config.unauthenticated_per_source = 16;
    })
    .await;
    let mut held = Vec::new();
    for n in 0..64 {
        held.push(from(&world, 10 + n / 16).await.unwrap());
    }
    // The control: they have all that they may.
    let mut more = from(&world, 10).await.unwrap();
    assert_eq!(more.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(is_served(&world, 9, None).await, "somebody else");
}

#[tokio::test]
async fn a_source_that_sends_garbage_is_shut_out_and_a_known_one_is_not() {
    let world = World::new("garbage").await;
    let alice = world.cluster.user("alice", &["dev"]);
    assert!(is_served(&world, 8, Some(&alice)).await);
    for host in [7, 8] {
        for _ in 0..4 {
            let mut stream = from(&world, host).await.unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
        }
    }
    assert!(!is_served(&world, 7, None).await, "it pays");
    assert!(
        is_served(&world, 8, None).await,
        "somebody showed a certificate there"
    );
    assert!(is_served(&world, 9, None).await, "it did nothing");
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
