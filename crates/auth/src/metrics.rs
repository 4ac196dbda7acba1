//! What auth counts, and its page: metrics for Prometheus, `/healthz` and `/readyz`, on loopback. Counting is an atomic
//! addition. No label has a user's name or an address.

use crate::audit::event;
use crate::ledger::MAX_OUTBOX;
use crate::service::Service;
use fleetgate_base::scrape::{self, Page};
use fleetgate_export::{Progress, Sink};
use fleetgate_net::scrape::serve as serve_page;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the store may take to answer before auth counts as not ready.
const ANSWER: Duration = Duration::from_secs(2);

/// Logins and tries, by the event that tells of each.
const LOGINS: [(&str, &str); 3] = [
    (event::LOGIN.name, "accepted"),
    (event::LOGIN_REFRESHED.name, "refreshed"),
    (event::LOGIN_REFUSED.name, "refused"),
];

/// The times that certificates were issued, by the event that tells of each, and for whom.
const ISSUED: [(&str, &str); 6] = [
    (event::LOGIN.name, "user"),
    (event::LOGIN_REFRESHED.name, "user"),
    (event::JOINED.name, "machine"),
    (event::RENEWED.name, "machine"),
    (event::LOGIN_SIGNED.name, "sshd_login"),
    (event::HOST_SIGNED.name, "sshd_host"),
];
const RECEIVERS: [&str; 4] = ["user", "machine", "sshd_login", "sshd_host"];

/// What happened, counted since this process began.
#[derive(Default)]
pub struct Counts {
    logins: [AtomicU64; LOGINS.len()],
    issued: [AtomicU64; RECEIVERS.len()],
}

impl Counts {
    /// An event of auth's own.
    pub(crate) fn event(&self, name: &str) {
        if let Some(at) = LOGINS.iter().position(|(event, _)| *event == name) {
            self.logins[at].fetch_add(1, Relaxed);
        }
        let whom = ISSUED.iter().find(|(event, _)| *event == name);
        if let Some(at) = whom.and_then(|(_, whom)| RECEIVERS.iter().position(|r| r == whom)) {
            self.issued[at].fetch_add(1, Relaxed);
        }
    }
}

/// Serves the page for as long as this runs. It keeps no service alive.
pub(crate) fn serve(
    address: SocketAddr,
    service: &Arc<Service>,
    sinks: &[Sink],
) -> impl Future<Output = &'static str> + use<> {
    let service = Arc::downgrade(service);
    let sinks: Arc<[Arc<Progress>]> = sinks.iter().map(Sink::progress).collect();
    async move {
        let page = Arc::new(move |path: String| -> fleetgate_net::scrape::Making {
            let (service, sinks) = (service.clone(), sinks.clone());
            Box::pin(answer(path, service, sinks))
        });
        serve_page(address, page).await;
        "serves metrics"
    }
}

async fn answer(path: String, service: Weak<Service>, sinks: Arc<[Arc<Progress>]>) -> Response<String> {
    let ready = match path.as_str() {
        "/readyz" => ready(&service).await,
        _ => Ok(()),
    };
    let metrics = || {
        let service = service.upgrade();
        service.map_or_else(String::new, |service| page(&service, &sinks))
    };
    let text = scrape::at(&path, metrics, || ready);
    let status = http::StatusCode::from_u16(text.code()).unwrap_or_default();
    let mut response = Response::new(text.body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(text.content_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Whether the store answers, and changes are made.
async fn ready(service: &Weak<Service>) -> Result<(), String> {
    let service = service.upgrade().ok_or("the service stops")?;
    match tokio::time::timeout(ANSWER, service.ledger.probe()).await {
        Ok(Ok(())) => {}
        Ok(Err(refused)) => return Err(refused.to_string()),
        Err(_) => {
            return Err(format!(
                "the store has not answered within {} s",
                ANSWER.as_secs()
            ));
        }
    }
    match service.cache().outbox.len() < MAX_OUTBOX {
        true => Ok(()),
        false => Err(format!("{MAX_OUTBOX} events wait for the audit log")),
    }
}

/// The page of metrics.
pub(crate) fn page(service: &Service, sinks: &[Arc<Progress>]) -> String {
    let mut page = Page::with_capacity(4096);
    let ledger = &service.ledger;
    let last = *ledger.audit().last().borrow();
    let waiting = service.cache().outbox.len();
    page.family("build_info", "gauge", "The build that runs.");
    page.value("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family(
        "auth_audit_events_total",
        "counter",
        "Audit events taken in since the log began: auth's own, and those of nodes and proxies.",
    );
    page.value("auth_audit_events_total", &[], last);
    page.family(
        "auth_audit_waiting",
        "gauge",
        "Events of auth's own that wait for the audit log's disk.",
    );
    page.value("auth_audit_waiting", &[], waiting);
    page.family(
        "auth_store_revision",
        "gauge",
        "The store's revision that auth has seen.",
    );
    page.value("auth_store_revision", &[], *ledger.seen().borrow());
    page.family(
        "auth_state_serial",
        "gauge",
        "The serial of the state that is published.",
    );
    page.value("auth_state_serial", &[], service.published().state.serial);
    let counts = ledger.counts();
    page.family(
        "auth_logins_total",
        "counter",
        "Logins and tries, by what came of them.",
    );
    for ((_, result), count) in LOGINS.iter().zip(&counts.logins) {
        page.value("auth_logins_total", &[("result", result)], count.load(Relaxed));
    }
    page.family(
        "auth_certificates_total",
        "counter",
        "Times that certificates were issued, by whom for: users, machines, logins on a plain sshd, host certificates in a plain \
         sshd's name.",
    );
    for (whom, count) in RECEIVERS.iter().zip(&counts.issued) {
        page.value("auth_certificates_total", &[("for", whom)], count.load(Relaxed));
    }
    if let Some(archive) = &service.archive {
        recordings(&mut page, archive.counts());
    }
    exports(&mut page, service, sinks, last);
    page.text()
}

fn recordings(page: &mut Page, counts: &fleetgate_archive::Counts) {
    let families = [
        (
            "recordings",
            "gauge",
            "Recordings that are kept.",
            counts.recordings(),
        ),
        ("recordings_bytes", "gauge", "Their bytes.", counts.bytes()),
        (
            "recordings_unfinished",
            "gauge",
            "Of them, those of which not all has come.",
            counts.unfinished(),
        ),
        (
            "recordings_open",
            "gauge",
            "Recordings that come in now.",
            counts.open(),
        ),
        (
            "recordings_in_flight_bytes",
            "gauge",
            "Bytes of recordings in memory, on their way to the disk.",
            counts.in_flight(),
        ),
        (
            "recordings_unproven_bytes",
            "gauge",
            "Bytes of recordings that came in and that no signature covers yet.",
            counts.unproven(),
        ),
        (
            "recordings_received_bytes_total",
            "counter",
            "Bytes of recordings that came in and were written.",
            counts.taken_in(),
        ),
        (
            "recordings_refused_total",
            "counter",
            "Parts of recordings that were refused: damaged, not signed by their maker, or another's.",
            counts.refused(),
        ),
        (
            "recordings_postponed_total",
            "counter",
            "Parts of recordings that have to be sent again later, for want of room or because of the disk.",
            counts.postponed(),
        ),
        (
            "recordings_full",
            "gauge",
            "1 while no recordings are taken in for want of room.",
            counts.full(),
        ),
        (
            "recordings_spooled",
            "gauge",
            "Whole recordings that are still to go to the object store.",
            counts.spooled(),
        ),
        (
            "recordings_spooled_bytes",
            "gauge",
            "Their bytes.",
            counts.spooled_bytes(),
        ),
        (
            "recordings_spooled_since_seconds",
            "gauge",
            "When the oldest of them came, Unix seconds; 0: all are there.",
            counts.spooled_since(),
        ),
        (
            "recordings_store_failures_total",
            "counter",
            "Times that the object store did not take a recording.",
            counts.store_failures(),
        ),
    ];
    for (name, kind, help, value) in families {
        let name = format!("auth_{name}");
        page.family(&name, kind, help);
        page.value(&name, &[], value);
    }
}

fn exports(page: &mut Page, service: &Service, sinks: &[Arc<Progress>], last: i64) {
    let lost = service.ledger.audit().export_lost().borrow().clone();
    let now = service.ledger.millis();
    type Value<'a> = &'a dyn Fn(&Progress) -> String;
    let families: [(&str, &str, &str, Value<'_>); 6] = [
        (
            "auth_export_lag_events",
            "gauge",
            "Events that the sink's receiver has not acknowledged, at most.",
            &|sink| last.saturating_sub(sink.acknowledged()).max(0).to_string(),
        ),
        (
            "auth_export_lag_seconds",
            "gauge",
            "Since when, by its own time, the oldest event waits that the sink's receiver has not acknowledged; 0: it has all.",
            &|sink| {
                let millis = sink.oldest().map_or(0, |oldest| now.saturating_sub(oldest));
                format!("{}.{:03}", millis / 1000, millis % 1000)
            },
        ),
        (
            "auth_export_events_total",
            "counter",
            "Events that the sink's receiver has acknowledged; those that went out twice count twice.",
            &|sink| sink.events().to_string(),
        ),
        (
            "auth_export_failures_total",
            "counter",
            "Batches that did not reach the sink's receiver, or that it did not take.",
            &|sink| sink.failures().to_string(),
        ),
        (
            "auth_export_rejected_total",
            "counter",
            "Events that the sink's receiver took and threw away, by its own word.",
            &|sink| sink.rejected().to_string(),
        ),
        (
            "auth_export_lost_total",
            "counter",
            "Events that were cut off from the audit log before the sink's receiver had them.",
            &|sink| lost.get(sink.name()).copied().unwrap_or(0).to_string(),
        ),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for sink in sinks {
            page.value(name, &[("sink", sink.name()), ("type", sink.kind())], value(sink));
        }
    }
}
