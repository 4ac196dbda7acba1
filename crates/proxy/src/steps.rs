//! Where a connection's time went: this proxy's steps beside the node's. The client hears of them if it asked; a collector
//! hears of them if the configuration names one. Nodes need no way to it: what they tell comes by the tunnel.

use crate::shared::Shared;
use fleetgate_net::backoff::random;
use fleetgate_net::otlp::FinishedSpan;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Dial, Frame, Span, Spans};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Steps of a node's that are taken, at most, and the bytes of their longest name.
pub const STEPS: usize = 64;
/// The same, of a name.
pub const NAME: usize = 64;

/// Of one connection.
pub(crate) struct Steps {
    shared: Arc<Shared>,
    /// The client wants to hear of them.
    asked: bool,
    trace: [u8; 16],
    /// The client's step that all of this is part of; zeros: none.
    parent: [u8; 8],
    /// The step that all others are part of.
    root: [u8; 8],
    node: String,
    begun: SystemTime,
    /// What is not told yet; None: all is.
    own: Option<Vec<Span>>,
}

impl Steps {
    /// From here on. A collector wants the node's steps even where the client does not.
    pub(crate) fn begin(shared: &Arc<Shared>, dial: &mut Dial) -> Steps {
        let asked = dial.explain;
        dial.explain |= shared.collector.get().is_some();
        // A client that traces brings its trace and its step (W3C trace context: 16 and 8 bytes).
        let (trace, parent) = match dial.trace.split_at_checked(16) {
            Some((trace, parent)) if parent.len() == 8 => (array(trace), array(parent)),
            _ => {
                let halves = [random().to_be_bytes(), random().to_be_bytes()];
                (array(halves.as_flattened()), [0; 8])
            }
        };
        Steps {
            shared: shared.clone(),
            asked,
            trace,
            parent,
            root: random().to_be_bytes(),
            node: dial.node.clone(),
            begun: SystemTime::now(),
            own: dial.explain.then(Vec::new),
        }
    }

    /// A step of this proxy's ended now; the next one begins.
    pub(crate) fn ended(&mut self, name: &str, round_trips: u32) {
        if let Some(own) = &mut self.own {
            let start = own.last().map_or(nanoseconds(self.begun), |last| last.end);
            own.push(Span {
                id: random().to_be_bytes().to_vec().into(),
                parent: self.root.to_vec().into(),
                name: name.to_owned(),
                place: "proxy".to_owned(),
                start,
                end: nanoseconds(SystemTime::now()),
                round_trips,
                leg: if round_trips > 0 { "proxy-node" } else { "" }.to_owned(),
            });
        }
    }

    /// A frame of the node's: what the client gets of it.
    pub(crate) fn pass(&mut self, mut frame: Frame) -> Option<Frame> {
        let Some(Kind::Spans(spans)) = &mut frame.kind else {
            return Some(frame);
        };
        self.tell(spans);
        self.asked.then_some(frame)
    }

    /// The node's steps came: this proxy's are put to them, and all go to the collector. Only once.
    pub(crate) fn tell(&mut self, spans: &mut Spans) {
        spans.spans.truncate(STEPS);
        let Some(own) = self.own.take() else {
            return;
        };
        let theirs = std::mem::replace(&mut spans.spans, own);
        self.export(&spans.spans);
        self.export(&theirs);
        self.export_root();
        spans.spans.extend(theirs);
    }

    fn export_root(&self) {
        self.send(
            self.root,
            self.parent,
            &Span {
                name: "connection".to_owned(),
                place: "proxy".to_owned(),
                start: nanoseconds(self.begun),
                end: nanoseconds(SystemTime::now()),
                ..Span::default()
            },
        );
    }

    fn export(&self, spans: &[Span]) {
        for span in spans {
            self.send(random().to_be_bytes(), self.root, span);
        }
    }

    fn send(&self, id: [u8; 8], parent: [u8; 8], span: &Span) {
        let Some(collector) = self.shared.collector.get() else {
            return;
        };
        // Whatever a node calls itself, it is one of these.
        let service = match span.place.as_str() {
            "proxy" => "fleetgate-proxy",
            "helper" => "fleetgate-helper",
            _ => "fleetgate-node",
        };
        collector.send(FinishedSpan {
            service,
            trace: self.trace,
            id,
            parent,
            name: span.name.chars().take(NAME).collect(),
            start: span.start,
            end: span.end,
            numbers: vec![("round_trips", span.round_trips.into())],
            words: vec![("node", self.node.clone())],
        });
    }
}

/// A connection that a node never told of was one too.
impl Drop for Steps {
    fn drop(&mut self) {
        self.tell(&mut Spans::default());
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
