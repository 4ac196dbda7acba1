//! An event as the audit log has it, and what the ways out ask of it. It changes no event.

use serde_json::{Map, Value};

/// An event of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number: later ones have higher numbers.
    pub id: i64,
    /// When it happened, in milliseconds since 1970.
    pub time: u64,
    /// JSON.
    pub line: String,
}

/// What is asked of a line.
#[derive(Debug, Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Event {
    /// What the line says. A line that is no object says nothing.
    pub(crate) fn fields(&self) -> Fields {
        Fields(serde_json::from_str(&self.line).unwrap_or_default())
    }
}

impl Fields {
    /// A text; None: there is none, or an empty one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    }

    /// Whether somebody should look at it: something was refused, ended by a lock, or is missing.
    pub(crate) fn is_warning(&self) -> bool {
        let event = self.text("event").unwrap_or_default();
        event.ends_with("_refused")
            || event.ends_with("denied")
            || event.ends_with("_lost")
            || [
                "locked",
                "audit_gap",
                "audit_cut",
                "not_recorded",
                "process_died",
                "unreadable",
            ]
            .contains(&event)
    }

    /// All of it.
    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}
