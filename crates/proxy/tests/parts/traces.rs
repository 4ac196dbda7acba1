//! The steps of a connection: what a collector gets of them, and what the client.

use super::support::{Behaviour, Session, World, dial_as, frame, ssh};
use fleetgate_net::testing::Collector;
use fleetgate_proto::otlp::OtlpSpan;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Span, Spans};
use fleetgate_proxy::steps::{NAME, STEPS};

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
