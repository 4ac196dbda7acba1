//! Events of watched sessions. Their fields are the watcher's; each line says which of them can be believed how far:
//! `kernel`, `register` and `claimed` are the names of the fields that come from there.

use super::fields::{Field as _, Fields};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::Connection;
use fleetgate_wire::node::watch::{Field, Source, Value};
use serde_json::Value as Json;

/// WatchReport a watched session did, and whose session it is.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedEvent {
    /// The connection that it came by.
    pub connection: Connection,
    /// The session.
    pub session: SessionId,
    /// The account.
    pub login: String,
    /// WatchReport.
    pub what: WatchReport,
}

/// WatchReport is told of it.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchReport {
    /// A call.
    Call {
        /// The event's name in docs/audit.md.
        event: &'static str,
        /// Its fields; those whose names the line has already are left out.
        fields: Vec<Field>,
    },
    /// So many events were lost between the calls and here.
    Lost {
        /// So many.
        count: u64,
    },
    /// Nobody watched.
    Gap {
        /// For so long.
        lasted_ms: u64,
        /// So many calls were let through.
        calls: u64,
    },
}

impl WatchedEvent {
    pub(super) fn fill(&self, f: &mut Fields) {
        let event = match &self.what {
            WatchReport::Call { event, .. } => event,
            WatchReport::Lost { .. } => "watch_lost",
            WatchReport::Gap { .. } => "watch_gap",
        };
        event.put("event", f);
        self.connection.put("connection", f);
        self.login.put("login", f);
        self.session.put("session", f);
        match &self.what {
            WatchReport::Call { fields, .. } => fill(fields, f),
            WatchReport::Lost { count } => f.put("count", *count),
            WatchReport::Gap { lasted_ms, calls } => {
                f.put("lasted_ms", *lasted_ms);
                f.put("calls", *calls);
            }
        }
    }
}

fn fill(fields: &[Field], f: &mut Fields) {
    let (mut told, mut cut) = (Vec::new(), Vec::new());
    for field in fields {
        let name = field.name.to_string_lossy();
        // Whose session it is and when is the monitor's to say.
        if f.has(&name) {
            continue;
        }
        let is_cut = match &field.value {
            Value::Number { number } => {
                f.put(&name, *number);
                false
            }
            Value::Truth { truth } => {
                f.put(&name, *truth);
                false
            }
            Value::Text { bytes, cut } => {
                bytes.put(&name, f);
                *cut
            }
            Value::Words { words, cut } => {
                let words = words
                    .iter()
                    .map(|w| String::from_utf8_lossy(&w.bytes).into_owned());
                f.put(&name, words.collect::<Vec<_>>());
                *cut
            }
        };
        if is_cut {
            cut.push(name.into_owned());
        }
        told.push(field);
    }
    for (mark, source) in [
        ("kernel", Source::Kernel),
        ("register", Source::Register),
        ("claimed", Source::Claimed),
    ] {
        let names: Vec<Json> = told
            .iter()
            .filter(|field| field.source == source)
            .map(|field| field.name.to_string_lossy().into_owned().into())
            .collect();
        if !names.is_empty() {
            f.put(mark, names);
        }
    }
    if !cut.is_empty() {
        f.put("cut", cut);
    }
}
