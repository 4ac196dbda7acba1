//! Spans to an OpenTelemetry collector, by OTLP over gRPC without TLS. It holds nobody up: what the queue has no room for,
//! or the collector does not take, is dropped and counted.

use crate::dial;
use crate::h2::{self, Channel, Tuning};
use fleetgate_proto::otlp::any_value::Value;
use fleetgate_proto::otlp::trace_service_client::TraceServiceClient;
use fleetgate_proto::otlp::{
    AnyValue, ExportTraceServiceRequest, KeyValue, OtlpSpan, Resource, ResourceSpans, Scope, ScopeSpans,
};
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
    queue: mpsc::Sender<OtlpSpan>,
    dropped: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// A step that is over.
#[derive(Clone, Debug, Default)]
pub struct Finished {
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
}

impl Exporter {
    /// To `http://host:port`, as this service. Within a runtime.
    pub fn start(endpoint: &str, service: &str) -> Result<Exporter, String> {
        let target = endpoint.strip_prefix("http://").map(|t| t.trim_end_matches('/'));
        let target = target.filter(|t| !t.is_empty() && !t.contains('/') && t.contains(':'));
        let target = target.ok_or_else(|| format!("{endpoint:?} is no collector: http://HOST:PORT"))?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(export(
            target.to_owned(),
            service.to_owned(),
            waiting,
            dropped.clone(),
        ));
        Ok(Exporter { queue, dropped, task })
    }

    /// Takes a span, or drops it where too many wait.
    pub fn send(&self, span: Finished) {
        let parent = if span.parent == [0; 8] {
            Vec::new()
        } else {
            span.parent.to_vec()
        };
        let number = |(key, n): &(&str, i64)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue {
                value: Some(Value::IntValue(*n)),
            }),
        };
        let span = OtlpSpan {
            trace_id: span.trace.to_vec().into(),
            span_id: span.id.to_vec().into(),
            parent_span_id: parent.into(),
            attributes: span.numbers.iter().map(number).collect(),
            name: span.name,
            kind: INTERNAL,
            start_time_unix_nano: span.start,
            end_time_unix_nano: span.end,
        };
        if self.queue.try_send(span).is_err() {
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
    service: String,
    mut waiting: mpsc::Receiver<OtlpSpan>,
    dropped: Arc<AtomicU64>,
) {
    let mut open: Option<TraceServiceClient<Channel>> = None;
    let mut spans = Vec::new();
    while waiting.recv_many(&mut spans, BATCH).await > 0 {
        let count = spans.len() as u64;
        let request = batch(&service, std::mem::take(&mut spans));
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

fn batch(service: &str, spans: Vec<OtlpSpan>) -> ExportTraceServiceRequest {
    let name = KeyValue {
        key: "service.name".to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(service.to_owned())),
        }),
    };
    let scope = Scope {
        name: "fleetgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![name],
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans,
            }],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::{Caller, Routes, serve};
    use fleetgate_proto::otlp::ExportTraceServiceResponse;
    use fleetgate_proto::otlp::trace_service_server::{TraceService, TraceServiceServer};
    use std::future::pending;
    use tonic::{Request, Response, Status};

    struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

    #[tonic::async_trait]
    impl TraceService for Collector {
        async fn export(
            &self,
            request: Request<ExportTraceServiceRequest>,
        ) -> Result<Response<ExportTraceServiceResponse>, Status> {
            let _ = self.0.send(request.into_inner());
            Ok(Response::new(ExportTraceServiceResponse {}))
        }
    }

    #[tokio::test]
    async fn a_collector_gets_every_span_and_a_missing_one_holds_up_nobody() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to, mut got) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let nobody = Caller {
                peer: None,
                address: None,
            };
            let routes = Arc::new(Routes::new().with(TraceServiceServer::new(Collector(to))));
            let _ = serve(stream, nobody, routes, Tuning::AUTH, pending()).await;
        });
        let exporter = Exporter::start(&format!("http://{address}/"), "client").unwrap();
        for n in 0..3 {
            exporter.send(Finished {
                trace: [7; 16],
                id: [n; 8],
                parent: [n / 2; 8],
                name: format!("step {n}"),
                numbers: vec![("round_trips", i64::from(n))],
                ..Finished::default()
            });
        }
        assert_eq!(exporter.finish(ANSWER).await, 0);
        let mut spans = Vec::new();
        while let Ok(request) = got.try_recv() {
            spans.extend(
                request
                    .resource_spans
                    .into_iter()
                    .flat_map(|r| r.scope_spans)
                    .flat_map(|s| s.spans),
            );
        }
        let names: Vec<&str> = spans.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["step 0", "step 1", "step 2"]);
        assert!(spans.iter().all(|s| s.trace_id[..] == [7; 16]), "one trace");

        // Nobody listens there any more than at a name that does not exist: all of it is dropped and counted.
        let nobody = Exporter::start("http://127.0.0.1:1", "client").unwrap();
        for _ in 0..=QUEUE {
            nobody.send(Finished::default());
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
            assert!(Exporter::start(wrong, "client").is_err(), "{wrong}");
        }
    }
}
