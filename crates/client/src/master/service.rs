//! The master's side of a connection that it lends: the same service that the proxy has, answered by asking the proxy. Frames
//! pass as they are; what is not taken on one side is not read on the other.

use crate::transport::{Proxy, why};
use fleetgate_net::h2::{AUTH_MESSAGE, TRANSPORT_MESSAGE};
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::{Frame, NodesReply, NodesRequest};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// The service.
pub(super) struct ProxyService(Proxy);

/// The service, with its bounds.
pub(super) fn service(proxy: Proxy) -> TransportServer<ProxyService> {
    TransportServer::new(ProxyService(proxy))
        .max_decoding_message_size(TRANSPORT_MESSAGE)
        .max_encoding_message_size(AUTH_MESSAGE)
}

/// What comes from a command, until it ends or breaks.
struct FrameStream(Streaming<Frame>);

impl Stream for FrameStream {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        Pin::new(&mut self.0)
            .poll_next(cx)
            .map(|frame| frame.and_then(Result::ok))
    }
}

#[tonic::async_trait]
impl Transport for ProxyService {
    type DialStream = Streaming<Frame>;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<Streaming<Frame>>, Status> {
        let mut client = self.0.client(TRANSPORT_MESSAGE);
        match client.dial(FrameStream(request.into_inner())).await {
            Ok(answer) => Ok(Response::new(answer.into_inner())),
            Err(status) => Err(why(status, self.0.closed()).await),
        }
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let mut client = self.0.client(AUTH_MESSAGE);
        match client.nodes(request.into_inner()).await {
            Ok(answer) => Ok(Response::new(answer.into_inner())),
            Err(status) => Err(why(status, self.0.closed()).await),
        }
    }
}
