//! The side that asks. Its face is what the generated clients take.

use super::io::Clock;
use super::wire::{Shared, SpawnDriven, Wire};
use super::{
    CONNECTION_WINDOW, ERROR_RESETS, FRAME, HEADER_TABLE, HEADERS, SEND_BUFFER, STREAM_WINDOW, Tuning,
};
use crate::tls;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch;
use tonic::body::Body;
use tower_service::Service;

/// One connection, for any number of requests at once. Cheap to clone; the connection ends when the last clone is gone
/// and nothing is under way.
#[derive(Clone)]
pub struct Channel {
    send: http2::SendRequest<Body>,
    ended: watch::Receiver<Option<String>>,
}

/// Tells of a connection's end without keeping it open.
#[derive(Clone)]
pub struct Closed(watch::Receiver<Option<String>>);

/// Begins HTTP/2 on `io`. Nothing is waited for: a request may be sent at once.
pub async fn connect<IO>(io: IO, tuning: Tuning) -> Result<Channel, hyper::Error>
where
    IO: Wire + Send + 'static,
{
    let wire = Shared::new(io);
    let mut builder = http2::Builder::new(SpawnDriven::new(wire.same()));
    builder
        .timer(Clock)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS)
        .header_table_size(HEADER_TABLE)
        .initial_max_send_streams(tuning.streams as usize)
        // Pushed streams are none of gRPC's.
        .max_concurrent_streams(0)
        .max_local_error_reset_streams(ERROR_RESETS)
        .keep_alive_interval(tuning.ping)
        .keep_alive_timeout(tuning.answer)
        .keep_alive_while_idle(tuning.ping.is_some());
    let (send, connection) = builder.handshake(wire).await?;
    let (tell, ended) = watch::channel(None);
    tokio::spawn(Carrying { connection, tell });
    Ok(Channel { send, ended })
}

/// Drives a connection to its end. By hand: an async block would hold the connection twice, 5 KB more for each tunnel.
struct Carrying<C> {
    connection: C,
    tell: watch::Sender<Option<String>>,
}

impl<C: Future<Output = hyper::Result<()>> + Unpin> Future for Carrying<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(cx).map(|end| {
            let why = match end {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => reason(&error),
            };
            self.tell.send_replace(Some(why));
        })
    }
}

impl Channel {
    /// Tells of the end.
    #[must_use]
    pub fn closed(&self) -> Closed {
        Closed(self.ended.clone())
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.send.is_closed() || self.ended.borrow().is_some()
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

/// What an answer that is an error says, with what TLS said beneath it: a server's refusal of our certificate is told
/// only when the first answer is read.
#[must_use]
pub fn words(status: &tonic::Status) -> String {
    match tls_below(status) {
        Some(error) => error.to_string(),
        None if status.message().is_empty() => format!("{}", status.code()),
        None => status.message().to_owned(),
    }
}

/// Why a connection ended, with what lies beneath.
#[must_use]
pub fn reason(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = tls_below(error) {
        return error.to_string();
    }
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        below = error.source();
    }
    words
}

fn tls_below(error: &(dyn Error + 'static)) -> Option<tls::Error> {
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(told) = error.downcast_ref::<std::io::Error>().and_then(tls::Error::told) {
            return Some(told);
        }
        below = error.source();
    }
    None
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.send.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // HTTP/2 wants a scheme and an authority (RFC 9113 §8.3.1). Who the server is was TLS's to find out.
        let path = request.uri().path_and_query().cloned();
        let mut whole = http::uri::Parts::default();
        whole.scheme = Some(Scheme::HTTPS);
        whole.authority = Some(Authority::from_static("fleetgate"));
        whole.path_and_query = path;
        if let Ok(uri) = Uri::from_parts(whole) {
            *request.uri_mut() = uri;
        }
        Box::pin(self.send.send_request(request))
    }
}
