//! What a browser or a health check gets at the proxy's address. It says nothing about the cluster.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

const HOME: &str = "fleetgate: a gate to machines.\n\nCome in with `fleetgate login --proxy` and this address, then `fleetgate ssh NODE`.\n";

/// The page at a path.
pub(crate) fn page(path: &str) -> Response<String> {
    let (status, text) = match path {
        "/" => (StatusCode::OK, HOME),
        "/healthz" => (StatusCode::OK, "ok\n"),
        _ => (StatusCode::NOT_FOUND, "there is no such page\n"),
    };
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
