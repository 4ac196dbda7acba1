//! Events of watched sessions. Their fields are the watcher's; each line says which of them can be believed how far:
//! `kernel`, `register` and `claimed` are the names of the fields that come from there.

use fleetgate_base::audit::{Description, Events, Field as _, Line};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::watch::{Field, Source, Value};

/// What a watched session did, and whose session it is.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedEvent {
    /// The connection that it came by.
    pub connection: ConnectionNumber,
    /// The session.
    pub session: SessionId,
    /// The account.
    pub login: String,
    /// What it did.
    pub what: WatchReport,
}

/// What is told of a watched session.
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

impl Events for WatchedEvent {
    /// What the node itself says of a watched session. The calls and their fields are in the table of `fleetgate-calls`.
    const DESCRIPTIONS: &'static [Description] = &[
        describe("watch_lost", &[("count", &[])]),
        describe("watch_gap", &[("lasted_ms", &[]), ("calls", &[])]),
    ];

    fn write_event(&self, line: &mut Line<'_>) {
        let event = match &self.what {
            WatchReport::Call { event, .. } => event,
            WatchReport::Lost { .. } => "watch_lost",
            WatchReport::Gap { .. } => "watch_gap",
        };
        line.put("event", event);
        line.put("connection", &self.connection);
        line.text("login", &self.login);
        self.session.write("session", line);
        match &self.what {
            WatchReport::Call { fields, .. } => write(fields, line),
            WatchReport::Lost { count } => line.put("count", count),
            WatchReport::Gap { lasted_ms, calls } => {
                line.put("lasted_ms", lasted_ms);
                line.put("calls", calls);
            }
        }
    }
}

const fn describe(
    name: &'static str,
    declared: &'static [(&'static str, &'static [&'static str])],
) -> Description {
    Description { name, declared }
}

/// Fields that only the monitor writes: whose session it is, when, and what the watcher's word is worth.
const OWN: [&str; 9] = [
    "time",
    "event",
    "connection",
    "login",
    "session",
    "kernel",
    "register",
    "claimed",
    "cut",
];

fn write(fields: &[Field], line: &mut Line<'_>) {
    let mut written: Vec<&Field> = Vec::with_capacity(fields.len());
    let mut cut = Vec::new();
    for field in fields {
        let name = field.name.to_string_lossy();
        if OWN.contains(&&*name) || written.iter().any(|other| other.name == field.name) {
            continue;
        }
        let is_cut = match &field.value {
            Value::Number { number } => {
                line.put(&name, number);
                false
            }
            Value::Truth { truth } => {
                line.put(&name, truth);
                false
            }
            Value::Text { bytes, cut } => {
                line.bytes(&name, bytes);
                *cut
            }
            Value::Words { words, cut } => {
                let words = words.iter().map(|word| String::from_utf8_lossy(&word.bytes));
                line.put(&name, &words.collect::<Vec<_>>());
                *cut
            }
        };
        if is_cut {
            cut.push(name);
        }
        written.push(field);
    }
    for (mark, source) in [
        ("kernel", Source::Kernel),
        ("register", Source::Register),
        ("claimed", Source::Claimed),
    ] {
        let names = written.iter().filter(|field| field.source == source);
        let names: Vec<_> = names.map(|field| field.name.to_string_lossy()).collect();
        if !names.is_empty() {
            line.put(mark, &names);
        }
    }
    if !cut.is_empty() {
        line.put("cut", &cut);
    }
}
