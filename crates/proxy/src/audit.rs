//! The proxy's own audit events: written into a file at once, and delivered to auth in signed batches whenever it is
//! there. What auth has on its disk is taken out of the file. Nothing waits for the disk or for auth.
//!
//! ```text
//! STATE_DIRECTORY/audit/NUMBER.jsonl     one log: its number is its name to auth
//!                       position         the log, and up to where auth has it
//!                       sessions         those on plain sshds that are open; see [`sessions`]
//!                       lock             locked by the process that writes here
//! STATE_DIRECTORY/audit-1/NUMBER.jsonl   the same for a process that began while another one drained; its logs are
//!                                        NUMBER-1 to auth
//! ```

pub mod events;
mod sessions;
pub(crate) mod spool;

use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Events that wait for the disk; more are counted and told.
pub const WAITING: usize = 8_192;

/// Takes events.
pub(crate) struct Audit {
    to_disk: Sender<String>,
    lost: Arc<AtomicU64>,
    dials: AtomicU64,
    proxy: String,
}

/// What takes them out again; see `audit_delivery`.
pub(crate) struct Events {
    pub(crate) from_all: Receiver<String>,
    pub(crate) lost: Arc<AtomicU64>,
}

/// Both ends.
pub(crate) fn audit(proxy: &str) -> (Audit, Events) {
    let (to_disk, from_all) = mpsc::channel(WAITING);
    let lost = Arc::new(AtomicU64::new(0));
    let audit = Audit {
        to_disk,
        lost: lost.clone(),
        dials: AtomicU64::new(0),
        proxy: proxy.to_owned(),
    };
    (audit, Events { from_all, lost })
}

impl Audit {
    /// Writes one down, with the fields of these objects.
    pub(crate) fn tell(&self, event: &str, fields: &[&Value]) {
        if event == "dial" {
            self.dials.fetch_add(1, Relaxed);
        }
        self.write(self.line(event, fields));
    }

    /// Writes down a line that was made.
    pub(crate) fn write(&self, line: String) {
        if self.to_disk.try_send(line).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Dials that were told of.
    pub(crate) fn dials(&self) -> u64 {
        self.dials.load(Relaxed)
    }

    /// The line that is written of an event.
    pub(crate) fn line(&self, event: &str, fields: &[&Value]) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), time(SystemTime::now()).into());
        line.insert("event".to_owned(), event.into());
        line.insert("proxy".to_owned(), self.proxy.as_str().into());
        let all = fields.iter().filter_map(|fields| fields.as_object()).flatten();
        let known = all
            .filter(|(_, value)| !value.is_null() && *value != "")
            .inspect(|(key, _)| debug_assert!(events::has(event, key), "{event} has no {key}"));
        line.extend(known.map(|(key, value)| (key.clone(), value.clone())));
        let mut line = Value::Object(line).to_string();
        line.push('\n');
        line
    }
}

impl Events {
    /// How many nobody has written.
    pub(crate) fn waiting(&self) -> u64 {
        self.from_all.len() as u64 + self.lost.load(Relaxed)
    }
}

/// The time since the epoch.
fn since_1970(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// As in every audit line: UTC, milliseconds.
pub(crate) fn time(at: SystemTime) -> String {
    let now = since_1970(at);
    let mut text = fleetgate_net::x509::instant(now.as_secs());
    text.truncate(text.len().saturating_sub(1));
    format!("{text}.{:03}Z", now.subsec_millis())
}
