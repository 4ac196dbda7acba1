//! One event of auth's own: who, from where, what, before and after. It is a line of JSON once it is built.

use crate::clock::rfc3339;
use serde_json::{Map, Value};

/// The longest text in an event; the rest is cut.
const MAX_TEXT: usize = 4096;

/// An event that is being put together.
#[derive(Clone, Debug)]
pub struct Event {
    time: u64,
    name: &'static str,
    user: Option<String>,
    node: Option<String>,
    fields: Map<String, Value>,
}

impl Event {
    /// Something that happened at `time` (milliseconds since 1970).
    pub fn new(name: &'static str, time: u64) -> Event {
        Event {
            time,
            name,
            user: None,
            node: None,
            fields: Map::new(),
        }
    }

    /// What happened.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whom it is about.
    pub fn user(mut self, user: &str) -> Event {
        self.user = Some(cut(user));
        self
    }

    /// Which node it is about.
    pub fn node(mut self, node: &str) -> Event {
        self.node = Some(cut(node));
        self
    }

    /// A further field; an empty text is left out.
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Event {
        match value.into() {
            Value::String(text) if text.is_empty() => {}
            Value::Null => {}
            Value::String(text) => {
                self.fields.insert(field.to_string(), Value::String(cut(&text)));
            }
            other => {
                self.fields.insert(field.to_string(), other);
            }
        }
        self
    }

    /// What happened, to whom, where: what the log is searched by.
    pub fn about(&self) -> (String, Option<String>, Option<String>) {
        (self.name.to_string(), self.user.clone(), self.node.clone())
    }

    /// The line.
    pub fn line(self) -> String {
        let mut line = Map::new();
        line.insert("time".to_string(), rfc3339(self.time).into());
        line.insert("event".to_string(), self.name.into());
        for (name, value) in [("user", self.user), ("node", self.node)] {
            if let Some(value) = value {
                line.insert(name.to_string(), value.into());
            }
        }
        line.extend(self.fields);
        Value::Object(line).to_string()
    }
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_string();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = Event::new("user_added", 1_000)
            .user("ada")
            .with("by", "uid 0 (unix socket)")
            .with("source", "")
            .with("after", serde_json::json!({"roles": ["access"]}));
        assert_eq!(
            event.line(),
            r#"{"time":"1970-01-01T00:00:01.000Z","event":"user_added","user":"ada","by":"uid 0 (unix socket)","after":{"roles":["access"]}}"#
        );
        let long = Event::new("x", 0).with("text", "ü".repeat(4096)).line();
        assert!(long.len() < MAX_TEXT + 100 && long.contains('…'));
        assert!(!Event::new("x", 0).with("text", "a\nb").line().contains('\n'));
    }
}
