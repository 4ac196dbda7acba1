//! The client's own steps for a collector of traces, where the environment names one.

use crate::stderr;
use crate::timings::Timings;
use bytes::Bytes;
use fleetgate_net::otlp::{Exporter, FinishedSpan};
use ring::rand::{SecureRandom, SystemRandom};
use std::time::Duration;

/// The variable that names a collector (OpenTelemetry's own).
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// How long a collector may hold up the end.
const EXPORT_TIME: Duration = Duration::from_secs(1);

/// Whether nobody collects the client's steps.
pub(super) fn is_untraced() -> bool {
    std::env::var_os(COLLECTOR).is_none_or(|endpoint| endpoint.is_empty())
}

/// The client's own steps, to the collector that the environment names (OpenTelemetry's own variable), if it names one.
pub(super) async fn export(timings: &Timings, trace: &Bytes) {
    let Some(endpoint) = std::env::var(COLLECTOR).ok().filter(|e| !e.is_empty()) else {
        return;
    };
    let exporter = match Exporter::start(&endpoint) {
        Ok(exporter) => exporter,
        Err(wrong) => return stderr::line(format_args!("{COLLECTOR}: {wrong}")),
    };
    let (mut number, mut root) = ([0; 16], [0; 8]);
    number.copy_from_slice(&trace[..16]);
    root.copy_from_slice(&trace[16..]);
    let span = |id, parent, name: &str, start, end, round_trips| FinishedSpan {
        service: "fleetgate-client",
        trace: number,
        id,
        parent,
        name: name.to_owned(),
        start,
        end,
        numbers: vec![("round_trips", i64::from(round_trips))],
        words: Vec::new(),
    };
    let (Some(first), Some(last)) = (timings.steps().first(), timings.steps().last()) else {
        return;
    };
    exporter.send(span(
        root,
        [0; 8],
        "fleetgate ssh",
        first.start,
        last.end,
        timings.round_trips(),
    ));
    for (n, step) in (1u64..).zip(timings.steps()) {
        let id = (u64::from_be_bytes(root) ^ n).to_be_bytes();
        exporter.send(span(id, root, step.name, step.start, step.end, step.round_trips));
    }
    exporter.finish(EXPORT_TIME).await;
}

/// A trace of its own, and the span that everything else hangs on (W3C trace context: 16 and 8 bytes).
pub(super) fn trace() -> Bytes {
    let mut bytes = vec![0; 24];
    // Without it there is no trace, and everything else goes on.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes.into()
}
