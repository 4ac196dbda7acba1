//! Spans to an OpenTelemetry collector, by OTLP over gRPC without TLS. It holds nobody up: what the queue has no room for,
//! or the collector does not take, is dropped and counted.

use crate::dial;
use crate::h2::{self, Channel, Tuning};
use fleetgate_policy::Invalid;
use fleetgate_proto::otlp::any_value::Value;
use fleetgate_proto::otlp::trace_service_client::TraceServiceClient;
use fleetgate_proto::otlp::{
    AnyValue, ExportTraceServiceRequest, KeyValue, OtlpSpan, Resource, ResourceSpans, Scope, ScopeSpans,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Spans that wait, at most.
pub const QUEUE: usize = 2048;
/// Spans in one request, at most.
pub const BATCH: usize = 512;
/// How long a collector may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// After a failure nothing is tried for so long.
const PAUSE: Duration = Duration::from_secs(1);
/// SPAN_KIND_INTERNAL.
const INTERNAL: i32 = 1;

/// Takes spans and sends them behind everybody's back.
pub struct Exporter {
    queue: mpsc::Sender<(&'static str, OtlpSpan)>,
    dropped: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// A step that is over.
#[derive(Clone, Debug, Default)]
pub struct FinishedSpan {
    /// Who made it, as collectors name services.
    pub service: &'static str,
    /// The trace.
    pub trace: [u8; 16],
    /// Its own number in it.
    pub id: [u8; 8],
    /// The step that it is part of; all zeros: of none.
    pub parent: [u8; 8],
    /// What it was.
    pub name: String,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// What else is known: names and numbers.
    pub numbers: Vec<(&'static str, i64)>,
    /// And words.
    pub words: Vec<(&'static str, String)>,
}

impl Exporter {
    /// To `http://host:port`. Within a runtime.
    pub fn start(endpoint: &str) -> Result<Exporter, Invalid> {
        let target = target(endpoint)?.to_owned();
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(export(target, waiting, dropped.clone()));
        Ok(Exporter { queue, dropped, task })
    }

    /// Takes a span, or drops it where too many wait.
    pub fn send(&self, span: FinishedSpan) {
        let parent = if span.parent == [0; 8] {
            Vec::new()
        } else {
            span.parent.to_vec()
        };
        let numbers = span.numbers.iter().map(|(key, n)| pair(key, Value::IntValue(*n)));
        let words = span.words.into_iter();
        let words = words.map(|(key, word)| pair(key, Value::StringValue(word)));
        let spelled = OtlpSpan {
            trace_id: span.trace.to_vec().into(),
            span_id: span.id.to_vec().into(),
            parent_span_id: parent.into(),
            attributes: numbers.chain(words).collect(),
            name: span.name,
            kind: INTERNAL,
            start_time_unix_nano: span.start,
            end_time_unix_nano: span.end,
        };
        if self.queue.try_send((span.service, spelled)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many spans nobody got.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sends what waits, for so long at most. How many spans nobody got.
    pub async fn finish(self, time: Duration) -> u64 {
        drop(self.queue);
        let stop = self.task.abort_handle();
        if timeout(time, self.task).await.is_err() {
            stop.abort();
        }
        self.dropped.load(Ordering::Relaxed)
    }
}

async fn export(
    target: String,
    mut waiting: mpsc::Receiver<(&'static str, OtlpSpan)>,
    dropped: Arc<AtomicU64>,
) {
    let mut open: Option<TraceServiceClient<Channel>> = None;
    let mut spans = Vec::new();
    while waiting.recv_many(&mut spans, BATCH).await > 0 {
        let count = spans.len() as u64;
        let request = batch(std::mem::take(&mut spans));
        let sent = timeout(ANSWER, async {
            let client = match &mut open {
                Some(client) => client,
                None => {
                    let stream = dial::connect(&target, ANSWER).await.ok()?;
                    let channel = h2::connect(stream, Tuning::AUTH).await.ok()?;
                    open.insert(TraceServiceClient::new(channel))
                }
            };
            client.export(request).await.ok()
        });
        if !matches!(sent.await, Ok(Some(_))) {
            dropped.fetch_add(count, Ordering::Relaxed);
            tracing::debug!(%target, spans = count, "the collector took no spans");
            open = None;
            sleep(PAUSE).await;
        }
    }
}

/// Grouped by who made them.
fn batch(spans: Vec<(&'static str, OtlpSpan)>) -> ExportTraceServiceRequest {
    let mut services: BTreeMap<&str, Vec<OtlpSpan>> = BTreeMap::new();
    for (service, span) in spans {
        services.entry(service).or_default().push(span);
    }
    let resource_spans = services.into_iter().map(|(service, spans)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![pair("service.name", Value::StringValue(service.to_owned()))],
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(Scope {
                name: "fleetgate".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            }),
            spans,
        }],
    });
    ExportTraceServiceRequest {
        resource_spans: resource_spans.collect(),
    }
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

/// The `host:port` in `http://host:port`.
pub fn target(endpoint: &str) -> Result<&str, Invalid> {
    let target = endpoint.strip_prefix("http://").map(|t| t.trim_end_matches('/'));
    let target = target.filter(|t| !t.is_empty() && !t.contains('/') && t.contains(':'));
    target.ok_or_else(|| format!("{endpoint:?} is no collector: http://HOST:PORT").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Collector;

    #[tokio::test]
    async fn a_collector_gets_every_span_and_a_missing_one_holds_up_nobody() {
        let mut collector = Collector::start().await;
        let exporter = Exporter::start(&format!("{}/", collector.endpoint())).unwrap();
        for n in 0..3 {
            exporter.send(FinishedSpan {
                service: ["client", "proxy"][usize::from(n > 1)],
                trace: [7; 16],
                id: [n; 8],
                parent: [n / 2; 8],
                name: format!("step {n}"),
                numbers: vec![("round_trips", i64::from(n))],
                words: vec![("node", "web1".to_owned())],
                ..FinishedSpan::default()
            });
        }
        assert_eq!(exporter.finish(ANSWER).await, 0);
        for (n, by) in [(0, "client"), (1, "client"), (2, "proxy")] {
            let (service, span) = collector.next().await;
            assert_eq!((service.as_str(), span.name), (by, format!("step {n}")));
            assert_eq!(span.trace_id[..], [7; 16], "one trace");
            assert_eq!(span.attributes[0], pair("round_trips", Value::IntValue(n)));
            assert_eq!(
                span.attributes[1],
                pair("node", Value::StringValue("web1".to_owned()))
            );
        }

        // Nobody listens there any more than at a name that does not exist: all of it is dropped and counted.
        let nobody = Exporter::start("http://127.0.0.1:1").unwrap();
        for _ in 0..=QUEUE {
            nobody.send(FinishedSpan::default());
        }
        assert_eq!(nobody.dropped(), 1, "the queue is bounded");
        for wrong in [
            "",
            "collector:4317",
            "https://collector:4317",
            "http://",
            "http://a:1/v1",
            "http://a",
        ] {
            assert!(Exporter::start(wrong).is_err(), "{wrong}");
        }
    }
}
