//! The side that answers. Who asks is in each request's [`Caller`].

use super::io::{Clock, Io, Spawn};
use super::wire::{SharedWire, Wire};
use super::{CONNECTION_WINDOW, FRAME, HEADER_TABLE, HEADERS, Routes, SEND_BUFFER, STREAM_WINDOW, Tuning};
use crate::tls::Peer;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;

/// Who asks: an extension of every request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// As TLS has it; None where the connection is a unix socket.
    pub peer: Option<Arc<Peer>>,
    /// Where the connection comes from, as far as it is known.
    pub address: Option<SocketAddr>,
}

impl Caller {
    /// Of a request that came by [`serve`].
    pub fn of<T>(request: &tonic::Request<T>) -> Result<&Caller, tonic::Status> {
        request
            .extensions()
            .get::<Caller>()
            .ok_or_else(|| tonic::Status::internal("the request came by no connection that is known"))
    }
}

/// Answers what is asked on `io` until it ends. From `leave` on nothing new is begun, and it ends when what was begun has.
/// What a young connection asks first is still begun ([`Tuning::first_request`]).
pub async fn serve<IO>(
    io: IO,
    caller: Caller,
    routes: Arc<Routes>,
    tuning: Tuning,
    leave: impl Future<Output = ()>,
) -> Result<(), hyper::Error>
where
    IO: Wire + 'static,
{
    let mut builder = http2::Builder::new(Spawn);
    builder
        .timer(Clock)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS)
        .header_table_size(HEADER_TABLE)
        .max_concurrent_streams(tuning.streams)
        .max_pending_accept_reset_streams(tuning.resets)
        .max_local_error_reset_streams(tuning.error_resets)
        .keep_alive_interval(tuning.ping)
        .keep_alive_timeout(tuning.answer)
        .auto_date_header(false);
    let wire = SharedWire::new(io);
    let begun = Instant::now();
    let asked = Arc::new(Notify::new());
    let answering = RequestService {
        routes,
        caller,
        asked: asked.clone(),
    };
    let connection = builder.serve_connection(Io(wire.same()), answering);
    let mut driven = wire.drive(connection);
    let mut leave = pin!(async {
        leave.await;
        tokio::select! {
            () = asked.notified() => {}
            () = sleep_until(begun + tuning.first_request) => {}
        }
    });
    tokio::select! {
        ended = &mut driven => return ended,
        () = leave.as_mut() => Pin::new(driven.connection()).graceful_shutdown(),
    }
    // Whoever hears that this side leaves may close first: that is no error any more.
    let _ = driven.await;
    Ok(())
}

struct RequestService {
    routes: Arc<Routes>,
    caller: Caller,
    /// Told of each request; it keeps that there was one.
    asked: Arc<Notify>,
}

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        self.asked.notify_one();
        let answer = self.routes.answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}
