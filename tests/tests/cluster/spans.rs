//! One trace of a connection: the client's steps, the proxy's, the node's and the helper's, at a collector that the test
//! plays. Plain ssh has no steps of its own to tell; the rest of its connection is a trace all the same.

use fleetgate_net::testing::Collector;
use fleetgate_proto::otlp::OtlpSpan;
use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::needs_root;
use fleetgate_tests::peer::World;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// In a thread of its own, in the network of the calling one.
fn collector() -> (String, Receiver<(String, OtlpSpan)>) {
    let (said, endpoint) = channel();
    let (to, spans) = channel();
    std::thread::spawn(move || {
        fleetgate_tests::joined::run(async {
            let mut collector = Collector::start().await;
            said.send(collector.endpoint()).expect("the test waits");
            while to.send(collector.next().await).is_ok() {}
        });
    });
    (endpoint.recv().expect("it starts"), spans)
}

/// Waits for a trace that all of these took part in and no other service, and whose first step has come, which ends last:
/// its spans, by their service.
fn trace_of(spans: &Receiver<(String, OtlpSpan)>, services: &[&str]) -> BTreeMap<String, Vec<OtlpSpan>> {
    let mut traces: BTreeMap<Vec<u8>, BTreeMap<String, Vec<OtlpSpan>>> = BTreeMap::new();
    loop {
        let seen = || format!("no trace of {services:?} in {traces:?}");
        let (service, span) = spans
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("{}", seen()));
        let trace = traces.entry(span.trace_id.to_vec()).or_default();
        trace.entry(service).or_default().push(span);
        if trace.keys().map(String::as_str).eq(services.iter().copied()) && !roots(trace).is_empty() {
            return std::mem::take(trace);
        }
    }
}

/// The names of the steps that are part of no other.
fn roots(trace: &BTreeMap<String, Vec<OtlpSpan>>) -> Vec<&str> {
    let spans = trace.values().flatten();
    let roots = spans.filter(|span| span.parent_span_id.is_empty());
    roots.map(|span| span.name.as_str()).collect()
}

#[test]
fn a_connection_is_one_trace_from_the_client_to_the_helper() {
    needs_root!("a network and accounts of its own");
    let world = World::new();
    let (endpoint, spans) = collector();
    let mut cluster = Cluster::configured(&world, &format!("collector = \"{endpoint}\""));
    cluster.add_node();

    // By fleetgate ssh: everything hangs below the client's one step.
    cluster.script(&format!(
        r#"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint} "$F" ssh --home home ada@gate true"#
    ));
    let all = [
        "fleetgate-client",
        "fleetgate-helper",
        "fleetgate-node",
        "fleetgate-proxy",
    ];
    let trace = trace_of(&spans, &all);
    assert_eq!(roots(&trace), ["fleetgate ssh"]);
    for span in trace.values().flatten() {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    }

    // By plain ssh through the proxy: the proxy begins the trace.
    cluster.script("ssh -F home.config -J ada@127.0.0.1:3080 ada@gate true");
    let trace = trace_of(&spans, &all[1..]);
    assert_eq!(roots(&trace), ["connection"]);
}
