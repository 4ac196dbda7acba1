//! The proxy's page on loopback: metrics for Prometheus, `/healthz` and `/readyz`. No label has a user's
//! name or an address. The page of the proxy's own address is `web`'s, and says nothing of this.

use crate::shared::Shared;
use crate::state::now;
use fleetgate_base::scrape::{self, Page};
use fleetgate_net::scrape::{Making, serve as serve_page};
use fleetgate_policy::cluster::STALE;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// Serves the page for as long as this runs. It holds no shared state: who does is at work.
pub(crate) async fn serve(address: SocketAddr, shared: Weak<Shared>) {
    let page = Arc::new(move |path: String| -> Making {
        let answer = answer(&path, &shared);
        Box::pin(std::future::ready(answer))
    });
    serve_page(address, page).await;
}

fn answer(path: &str, shared: &Weak<Shared>) -> Response<String> {
    let shared = shared.upgrade();
    let ready = || match &shared {
        Some(shared) => ready(shared),
        None => Err("the proxy stops".to_owned()),
    };
    let text = scrape::at(path, || shared.as_deref().map_or_else(String::new, page), ready);
    let status = StatusCode::from_u16(text.code()).unwrap_or_default();
    let mut response = Response::new(text.body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(text.content_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Whether it accepts, and knows the cluster's state as it is now. While the page is served there is a listener.
fn ready(shared: &Shared) -> Result<(), String> {
    if shared.is_leaving() {
        return Err("the proxy drains".to_owned());
    }
    match shared.view.borrow().state.age(now()) {
        age if age <= STALE => Ok(()),
        age => Err(format!(
            "the cluster's state was last signed {age} s ago, and {STALE} s is the most: is auth there?"
        )),
    }
}

fn page(shared: &Shared) -> String {
    let mut page = Page::with_capacity(4096);
    let traffic = shared.dials.traffic();
    let (serial, signed) = {
        let view = shared.view.borrow();
        (view.state.serial, view.state.as_of)
    };
    page.family("build_info", "gauge", "The build that runs.");
    page.value("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let (recorded, recordings, recorded_bytes) = shared.recorder.spool().counts();
    for (name, kind, help, value) in [
        (
            "proxy_recorded_sessions",
            "gauge",
            "Sessions on plain sshds that are recorded.",
            recorded,
        ),
        (
            "proxy_recordings",
            "gauge",
            "Recordings that auth does not have whole.",
            recordings,
        ),
        (
            "proxy_recordings_bytes",
            "gauge",
            "Bytes of recordings in the state directory; recordings_size is the most.",
            recorded_bytes,
        ),
        (
            "proxy_tunnels",
            "gauge",
            "Nodes that are connected to this proxy.",
            shared.tunnels.count() as u64,
        ),
        (
            "proxy_user_connections",
            "gauge",
            "Connections of users that are open.",
            *shared.user_connections.borrow() as u64,
        ),
        (
            "proxy_sessions_open",
            "gauge",
            "SSH connections of users to nodes that are open; not those of ssh -J.",
            traffic.open as u64,
        ),
        (
            "proxy_dials_total",
            "counter",
            "Connections of users to nodes that were made.",
            shared.audit.dials(),
        ),
        (
            "proxy_auth_connected",
            "gauge",
            "1: the proxy has a connection to auth.",
            u64::from(shared.auth.borrow().is_some()),
        ),
        (
            "proxy_state_serial",
            "gauge",
            "The serial of the cluster's state.",
            serial,
        ),
        (
            "proxy_state_signed_seconds",
            "gauge",
            "When the cluster's state was last signed, in seconds since 1970.",
            signed,
        ),
    ] {
        page.family(name, kind, help);
        page.value(name, &[], value);
    }
    let bytes = "proxy_bytes_total";
    page.family(
        bytes,
        "counter",
        "Bytes of SSH between users and nodes; not those of ssh -J.",
    );
    page.value(bytes, &[("to", "nodes")], traffic.to_nodes);
    page.value(bytes, &[("to", "users")], traffic.to_users);
    let refusals = "proxy_refusals_total";
    page.family(
        refusals,
        "counter",
        "What was refused: a place among strangers, a TLS handshake, a login by SSH, a connection to a node, a user's connection.",
    );
    for (of, count) in shared.strangers.refusals().each() {
        page.value(refusals, &[("of", of)], count);
    }
    page.text()
}
