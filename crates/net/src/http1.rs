//! HTTP/1.1 for browsers and health checks: one request, one page, the end. What the page says is its owner's business.

use crate::h2::Wire;
use crate::h2::io::{Clock, Io};
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::time::Duration;

/// How long a request may take to come, and its answer to be read.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// All that is read of a request.
pub const REQUEST_MAX: usize = 16 * 1024;

/// Answers one request on `io`. A peer that is slow is left.
pub async fn serve<IO: Wire>(io: IO, page: impl Fn(&str) -> Response<String>) {
    serve_when_ready(io, |path| std::future::ready(page(&path))).await;
}

/// The same with a page that takes a moment to make.
pub async fn serve_when_ready<IO: Wire, F: Future<Output = Response<String>>>(
    io: IO,
    page: impl Fn(String) -> F,
) {
    let page = &page;
    let service = service_fn(move |request: Request<Incoming>| async move {
        let response = match *request.method() {
            Method::GET | Method::HEAD => page(request.uri().path().to_owned()).await,
            _ => {
                let mut response = Response::new("only GET is answered here\n".to_owned());
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                response
            }
        };
        let mut response = response.map(|text| Full::new(Bytes::from(text)));
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new()
        .timer(Clock)
        .header_read_timeout(DEADLINE)
        .max_buf_size(REQUEST_MAX)
        .keep_alive(false)
        .serve_connection(Io(io), service);
    // Whatever ends it, nobody is told: it was a browser.
    let _ = tokio::time::timeout(2 * DEADLINE, connection).await;
}
