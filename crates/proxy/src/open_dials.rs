//! The dials that are open, for the audit log: each one's end is told once, when its session ends or when the proxy does. A
//! session whose client reads nothing is asked by nobody, so it does not notice that the proxy stops.

use crate::audit::Audit;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Those that are open.
pub(crate) struct OpenDials {
    numbered: Mutex<DialTable>,
    audit: Arc<Audit>,
    /// Bytes of those that have ended: to nodes, and to users.
    ended: [AtomicU64; 2],
}

/// What metrics say of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Dials that are open.
    pub(crate) open: usize,
    /// Bytes that users sent, since the proxy began.
    pub(crate) to_nodes: u64,
    /// Bytes that they got.
    pub(crate) to_users: u64,
}

#[derive(Default)]
struct DialTable {
    next: u64,
    open: BTreeMap<u64, Arc<OpenDial>>,
}

struct OpenDial {
    who: Value,
    begun: Instant,
    received: Arc<AtomicU64>,
    sent: AtomicU64,
}

/// One of them: its end is told when this is dropped.
pub(crate) struct DialRecord {
    dials: Arc<OpenDials>,
    number: u64,
    dial: Arc<OpenDial>,
    /// Why it ends.
    pub(crate) reason: Cow<'static, str>,
}

impl OpenDials {
    /// None yet.
    pub(crate) fn new(audit: Arc<Audit>) -> OpenDials {
        OpenDials {
            numbered: Mutex::default(),
            audit,
            ended: Default::default(),
        }
    }

    /// All bytes so far, of open dials too.
    pub(crate) fn traffic(&self) -> Traffic {
        let numbered = self.numbered();
        // What ends from here on waits for the table, and is not counted twice.
        let [to_nodes, to_users] = [0, 1].map(|way| self.ended[way].load(Relaxed));
        let open = numbered.open.values();
        open.fold(
            Traffic {
                open: numbered.open.len(),
                to_nodes,
                to_users,
            },
            |sum, dial| Traffic {
                to_nodes: sum.to_nodes + dial.received.load(Relaxed),
                to_users: sum.to_users + dial.sent.load(Relaxed),
                ..sum
            },
        )
    }

    /// Takes one out of the table, with its bytes.
    fn count_ended(&self, dial: &OpenDial) {
        self.ended[0].fetch_add(dial.received.load(Relaxed), Relaxed);
        self.ended[1].fetch_add(dial.sent.load(Relaxed), Relaxed);
    }

    fn numbered(&self) -> MutexGuard<'_, DialTable> {
        self.numbered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proxy ends, and they end with it.
    pub(crate) fn end(&self) {
        let open = {
            let mut numbered = self.numbered();
            let open = std::mem::take(&mut numbered.open);
            open.values().for_each(|dial| self.count_ended(dial));
            open
        };
        for dial in open.values() {
            dial.tell_end(&self.audit, "the proxy stops");
        }
    }
}

impl OpenDial {
    fn tell_end(&self, audit: &Audit, reason: &str) {
        let ended = json!({
            "received": self.received.load(Relaxed),
            "sent": self.sent.load(Relaxed),
            "lasted_ms": u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "reason": reason,
        });
        audit.tell("dial_ended", &[&self.who, &ended]);
    }
}

impl DialRecord {
    /// It begins.
    pub(crate) fn new(dials: Arc<OpenDials>, who: Value, received: Arc<AtomicU64>) -> DialRecord {
        let dial = Arc::new(OpenDial {
            who,
            begun: Instant::now(),
            received,
            sent: AtomicU64::new(0),
        });
        let mut numbered = dials.numbered();
        let number = numbered.next;
        numbered.next += 1;
        numbered.open.insert(number, dial.clone());
        drop(numbered);
        DialRecord {
            dials,
            number,
            dial,
            reason: Cow::Borrowed("the client left"),
        }
    }

    /// So many more bytes went to the client.
    pub(crate) fn sent(&self, bytes: u64) {
        self.dial.sent.fetch_add(bytes, Relaxed);
    }
}

impl Drop for DialRecord {
    fn drop(&mut self) {
        let open = {
            let mut numbered = self.dials.numbered();
            let open = numbered.open.remove(&self.number);
            open.iter().for_each(|dial| self.dials.count_ended(dial));
            open
        };
        if let Some(dial) = open {
            dial.tell_end(&self.dials.audit, &self.reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit;

    #[test]
    fn bytes_are_counted_once_whether_a_dial_is_open_or_over() {
        let (audit, _events) = audit::audit("edge");
        let dials = Arc::new(OpenDials::new(Arc::new(audit)));
        let begin = |bytes| DialRecord::new(dials.clone(), Value::Null, Arc::new(AtomicU64::new(bytes)));
        let (first, second) = (begin(5), begin(7));
        first.sent(100);
        let traffic = |open| Traffic {
            open,
            to_nodes: 12,
            to_users: 100,
        };
        assert_eq!(dials.traffic(), traffic(2));
        drop(first);
        assert_eq!(dials.traffic(), traffic(1));
        dials.end();
        drop(second);
        assert_eq!(dials.traffic(), traffic(0));
    }
}
