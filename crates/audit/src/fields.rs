//! One line's fields: how each kind of value is written.

use super::MAX_TEXT;
use fleetgate_sys::clock::{self, Time};
use fleetgate_wire::common::SessionId;
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::time::Duration;

/// The fields of one line, in the order in which they were put.
#[derive(Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A text, cut to its bound.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.put(name, cut(text));
    }

    /// The whole line.
    pub(super) fn line(self) -> String {
        let mut line = Value::Object(self.0).to_string();
        line.push('\n');
        line
    }
}

/// A value that is written under a name.
pub(super) trait Field {
    fn put(&self, name: &str, f: &mut Fields);
}

impl Field for str {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, self);
    }
}

impl Field for String {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, self);
    }
}

/// Bytes of the user's, which need not be text.
impl Field for Vec<u8> {
    fn put(&self, name: &str, f: &mut Fields) {
        // Cut first: a long command costs no more than a short one.
        f.text(
            name,
            &String::from_utf8_lossy(&self[..self.len().min(MAX_TEXT + 1)]),
        );
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, name: &str, f: &mut Fields) {
        if let Some(value) = self {
            value.put(name, f);
        }
    }
}

impl<T: Field + ?Sized> Field for &T {
    fn put(&self, name: &str, f: &mut Fields) {
        (**self).put(name, f);
    }
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(impl Field for $type {
            fn put(&self, name: &str, f: &mut Fields) {
                f.put(name, *self);
            }
        })*
    };
}

plain!(i32, u32, u64);

/// Written only where it is so.
impl Field for bool {
    fn put(&self, name: &str, f: &mut Fields) {
        if *self {
            f.put(name, true);
        }
    }
}

impl Field for Vec<String> {
    fn put(&self, name: &str, f: &mut Fields) {
        f.put(name, self.as_slice());
    }
}

impl Field for SessionId {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, &digits(self));
    }
}

impl Field for SocketAddr {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, &self.to_string());
    }
}

impl Field for Time {
    fn put(&self, name: &str, f: &mut Fields) {
        f.text(name, &utc(*self));
    }
}

/// In milliseconds, which its name says.
impl Field for Duration {
    fn put(&self, name: &str, f: &mut Fields) {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        f.put(&format!("{name}_ms"), millis);
    }
}

/// A session's id as events have it.
pub fn digits(id: &SessionId) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// No more of a text than its bound, cut between characters.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}

/// `2026-01-31T23:59:59.123Z`.
pub(super) fn utc(at: Time) -> String {
    clock::rfc3339(at, 3)
}
