//! An OpenTelemetry collector on loopback that hands over what it is sent.

use crate::h2::{Caller, Routes, Tuning, serve};
use fleetgate_proto::otlp::any_value::Value;
use fleetgate_proto::otlp::trace_service_server::{TraceService, TraceServiceServer};
use fleetgate_proto::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse, OtlpSpan};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tonic::{Request, Response, Status};

/// It serves as long as the runtime runs.
pub struct Collector {
    /// Where.
    pub address: SocketAddr,
    /// What came: the service's name, and the span.
    pub spans: UnboundedReceiver<(String, OtlpSpan)>,
}

impl Collector {
    /// On a free port.
    pub async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (to, spans) = mpsc::unbounded_channel();
        let service = TraceServiceServer::new(CollectorService(to));
        let routes = Arc::new(Routes::new().with(service));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let nobody = Caller {
                    peer: None,
                    address: None,
                };
                tokio::spawn(serve(stream, nobody, routes.clone(), Tuning::AUTH, pending()));
            }
        });
        Collector { address, spans }
    }

    /// As configurations name it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next span.
    pub async fn next(&mut self) -> (String, OtlpSpan) {
        self.spans.recv().await.expect("it serves")
    }
}

struct CollectorService(UnboundedSender<(String, OtlpSpan)>);

#[tonic::async_trait]
impl TraceService for CollectorService {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.map(|r| r.attributes).unwrap_or_default();
            let named = attributes.into_iter().find(|pair| pair.key == "service.name");
            let name = named.and_then(|pair| pair.value).and_then(|value| value.value);
            let Some(Value::StringValue(service)) = name else {
                return Err(Status::invalid_argument("no service is named"));
            };
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let _ = self.0.send((service.clone(), span));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse {}))
    }
}
