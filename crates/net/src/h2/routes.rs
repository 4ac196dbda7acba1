//! Which service answers, by the first part of the path. A service that is not there is said to be so.

use http::{Method, Request, Response};
use http_body_util::Full;
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
pub struct Routes {
    services: HashMap<&'static str, Route>,
    page: Option<Page>,
}

/// What a browser gets: by the path of its GET.
pub type Page = fn(&str) -> Response<String>;

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
        self.services.insert(S::NAME, route);
        self
    }

    /// With pages for browsers, which offer HTTP/2 too.
    #[must_use]
    pub fn page(mut self, page: Page) -> Routes {
        self.page = Some(page);
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
        match (service.and_then(|service| self.services.get(service)), self.page) {
            (Some(route), _) => route(request),
            (None, Some(page)) if request.method() == Method::GET => {
                let response = page(request.uri().path()).map(|text| Body::new(Full::from(text)));
                Box::pin(std::future::ready(response))
            }
            (None, _) => Box::pin(async {
                tonic::Status::unimplemented(
                    "there is no such service at this address: is one side much older?",
                )
                .into_http()
            }),
        }
    }
}
