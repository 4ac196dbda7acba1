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
        }
    }

    fn numbered(&self) -> MutexGuard<'_, DialTable> {
        self.numbered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proxy ends, and they end with it.
    pub(crate) fn end(&self) {
        let open = std::mem::take(&mut self.numbered().open);
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
        let open = self.dials.numbered().open.remove(&self.number);
        if let Some(dial) = open {
            dial.tell_end(&self.dials.audit, &self.reason);
        }
    }
}
