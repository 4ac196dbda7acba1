//! Where a connection's time went, for those whose client wants to know: steps are collected as they end, and handed over
//! once, when its first session runs. Of a connection that nobody asked about nothing is kept.

use super::Monitor;
use super::timers::micros;
use super::workers::WorkerId;
use fleetgate_sys::clock;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::tunnel::{MAX_SPANS, Span, Ticket};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// Of all connections.
#[derive(Debug, Default)]
pub struct Spans(HashMap<ConnectionNumber, Recipient>);

/// Whom they are told.
#[derive(Debug)]
struct Recipient {
    worker: WorkerId,
    ticket: Ticket,
    spans: Vec<Span>,
}

impl Spans {
    /// The session `ticket` of this tunnel asks for this connection's.
    pub fn watch(&mut self, connection: ConnectionNumber, worker: WorkerId, ticket: Ticket) {
        let spans = Vec::new();
        self.0.insert(
            connection,
            Recipient {
                worker,
                ticket,
                spans,
            },
        );
    }

    /// A step ended now, and took so long.
    pub fn add(&mut self, connection: ConnectionNumber, place: &CStr, name: &str, took: Duration) {
        self.add_earlier(connection, place, name, took, Duration::ZERO);
    }

    /// A step ended so long ago.
    pub fn add_earlier(
        &mut self,
        connection: ConnectionNumber,
        place: &CStr,
        name: &str,
        took: Duration,
        ago: Duration,
    ) {
        if let Some(recipient) = self.0.get_mut(&connection)
            && recipient.spans.len() < MAX_SPANS
        {
            let now = clock::wall();
            let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            let now = now.sec.cast_unsigned() * 1_000_000_000 + u64::from(now.nsec);
            let end = now.saturating_sub(nanos(ago));
            recipient.spans.push(Span {
                name: CString::new(name).unwrap_or_default(),
                place: place.into(),
                start: end.saturating_sub(nanos(took)),
                end,
            });
        }
    }

    /// What there is, for whom; no more is collected.
    pub fn take(&mut self, connection: ConnectionNumber) -> Option<(WorkerId, Ticket, Vec<Span>)> {
        let recipient = self.0.remove(&connection)?;
        Some((recipient.worker, recipient.ticket, recipient.spans))
    }
}

impl Monitor {
    /// One step of a login's way, for benchmarks and for those who ask.
    pub(crate) fn timing(&mut self, connection: ConnectionNumber, step: &str, took: Duration) {
        tracing::debug!(connection, step, micros = micros(took), "timing");
        self.tools.spans.add(connection, c"node", step, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_for_those_who_ask_within_their_bound_and_told_once() {
        let mut all = Spans::default();
        all.add(1, c"node", "login", Duration::from_millis(1));
        assert_eq!(all.take(1), None);
        all.watch(2, 7, 9);
        for _ in 0..2 * MAX_SPANS {
            all.add(2, c"node", "login", Duration::from_millis(1));
        }
        let (worker, ticket, spans) = all.take(2).expect("recipient for");
        assert_eq!((worker, ticket, spans.len()), (7, 9, MAX_SPANS));
        assert!(spans.iter().all(|s| s.end - s.start == 1_000_000));
        assert_eq!(all.take(2), None);
    }
}
