//! Which service answers, by the first part of the path. A service that is not there is said to be so.

use http::{Request, Response};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Route = Box<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

/// The services of one address.
#[derive(Default)]
pub struct Routes(HashMap<&'static str, Route>);

impl Routes {
    /// None yet.
    #[must_use]
    pub fn new() -> Routes {
        Routes::default()
    }

    /// With this generated server. Bound its messages before: `max_decoding_message_size`.
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Routes
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let route: Route = Box::new(move |request| {
            let answer = service.clone().call(request);
            Box::pin(async move {
                match answer.await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        });
        self.0.insert(S::NAME, route);
        self
    }

    pub(super) fn answer(&self, request: Request<Incoming>) -> Answer {
        // A gRPC path is "/package.Service/Method".
        let service = request
            .uri()
            .path()
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'))
            .map(|(service, _)| service);
        match service.and_then(|service| self.0.get(service)) {
            Some(route) => route(request),
            None => Box::pin(async {
                tonic::Status::unimplemented(
                    "there is no such service at this address: is one side much older?",
                )
                .into_http()
            }),
        }
    }
}
