//! The side that asks. Its face is what the generated clients take.

use super::call::{Answer, Call};
use super::driver::{Asking, ConnectionDriver};
use super::error::CallError;
use super::wire::{SharedWire, Wire};
use super::{
    CONNECTION_WINDOW, FORGOTTEN, FORGOTTEN_AFTER, FRAME, HEADER_TABLE, HEADERS, SEND_BUFFER, STREAM_WINDOW,
    Tuning,
};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tower_service::Service;

/// One connection, for any number of requests at once. Cheap to clone; the connection ends when the last clone is gone
/// and nothing is under way.
#[derive(Clone)]
pub struct Channel {
    send: SendRequest<Bytes>,
    asking: Asking,
    ended: watch::Receiver<Option<String>>,
    driver: AbortHandle,
}

/// Ends a connection, with every request that is under way, without keeping it open.
pub struct Closer(AbortHandle);

/// Tells of a connection's end without keeping it open.
#[derive(Clone)]
pub struct Closed(watch::Receiver<Option<String>>);

/// Begins HTTP/2 on `io`. Nothing is waited for: a request may be sent at once.
///
/// It is h2 itself and not hyper's client, whose queue of requests and tasks around it are 11 KB more for each tunnel of a
/// node, most of which do nothing most of the time.
pub async fn connect<IO>(io: IO, tuning: Tuning) -> Result<Channel, CallError>
where
    IO: Wire + Send + 'static,
{
    let wire = SharedWire::new(io);
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(HEADERS)
        .header_table_size(HEADER_TABLE)
        .initial_max_send_streams(tuning.streams as usize)
        // Pushed streams are none of gRPC's.
        .enable_push(false)
        .max_concurrent_streams(0)
        .max_concurrent_reset_streams(FORGOTTEN)
        .reset_stream_duration(FORGOTTEN_AFTER)
        .max_local_error_reset_streams(Some(tuning.error_resets));
    let (send, connection) = builder.handshake(wire.same()).await?;
    let (tell, ended) = watch::channel(None);
    let asking = Asking::default();
    let driver = tokio::spawn(ConnectionDriver::new(
        connection,
        wire,
        tuning,
        tell,
        asking.clone(),
    ));
    Ok(Channel {
        send,
        asking,
        ended,
        driver: driver.abort_handle(),
    })
}

impl Channel {
    /// Tells of the end.
    #[must_use]
    pub fn closed(&self) -> Closed {
        Closed(self.ended.clone())
    }

    /// Ends the connection, whoever uses it.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(self.driver.clone())
    }

    /// Whether a request can be made: the connection has not ended, and the peer has not said that it leaves.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        !self.is_closed() && !matches!(self.send.clone().poll_ready(&mut context), Poll::Ready(Err(_)))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

impl Closer {
    /// Ends it at once: the peer and whoever waits for an answer find it broken.
    pub fn close(&self) {
        self.0.abort();
    }
}

impl Closed {
    /// Waits for the end, and says why it came.
    pub async fn wait(&mut self) -> String {
        match self.0.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the runtime that carried the connection ended".to_owned(),
        }
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Answer>;
    type Error = CallError;
    type Future = Call;

    /// Requests beyond what the peer takes at once wait, each by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Call {
        // HTTP/2 wants a scheme and an authority (RFC 9113 §8.3.1). Who the server is was TLS's to find out.
        let path = request.uri().path_and_query().cloned();
        let mut whole = http::uri::Parts::default();
        whole.scheme = Some(Scheme::HTTPS);
        whole.authority = Some(Authority::from_static("fleetgate"));
        whole.path_and_query = path;
        if let Ok(uri) = Uri::from_parts(whole) {
            *request.uri_mut() = uri;
        }
        *request.version_mut() = http::Version::HTTP_2;
        self.asking.store(true, Relaxed);
        Call::new(self.send.clone(), request)
    }
}
