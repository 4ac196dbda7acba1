//! A webhook: newline-delimited JSON, a line for each event with its number, and a signature over the whole text.

use crate::event::Event;
use bytes::Bytes;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// How events go out, as metrics have it.
pub(crate) const KIND: &str = "webhook";
/// What kind of text it is.
pub(crate) const CONTENT_TYPE: &str = "application/x-ndjson";
/// The header of the signature.
pub(crate) const SIGNATURE: &str = "fleetgate-signature";

/// A request with these.
pub(crate) fn body(events: &[Event]) -> Bytes {
    let mut text = String::new();
    for event in events {
        text.push_str(&line(event));
        text.push('\n');
    }
    text.into()
}

/// The line with its number in front. A number that the line itself claims is called so.
fn line(event: &Event) -> String {
    let mut fields = event.fields().into_map();
    let mut line = Map::new();
    line.insert("id".to_owned(), event.id.into());
    if fields.is_empty() {
        line.insert("text".to_owned(), event.line.as_str().into());
    }
    if let Some(claimed) = fields.shift_remove("id") {
        line.insert("claimed_id".to_owned(), claimed);
    }
    line.extend(fields);
    Value::Object(line).to_string()
}

/// `sha256=` and the HMAC of the text in hexadecimal digits.
pub(crate) fn signature(key: &ring::hmac::Key, body: &[u8]) -> Option<HeaderValue> {
    let mut text = "sha256=".to_owned();
    for byte in ring::hmac::sign(key, body).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers_and_claim_none() {
        let event = |line: &str| Event {
            id: 5,
            time: 0,
            line: line.to_owned(),
        };
        for (text, out) in [
            (r#"{"event":"x","b":[1]}"#, r#"{"id":5,"event":"x","b":[1]}"#),
            (
                r#"{"a":1,"id":9,"b":2}"#,
                r#"{"id":5,"claimed_id":9,"a":1,"b":2}"#,
            ),
            ("broken", r#"{"id":5,"text":"broken"}"#),
        ] {
            assert_eq!(line(&event(text)), out);
        }
        let body = body(&[event(r#"{"a":"x\ny"}"#), event("{\"b\":1}")]);
        assert_eq!(body.iter().filter(|b| **b == b'\n').count(), 2);
    }

    /// RFC 4231, test case 2.
    #[test]
    fn a_signature_is_the_hmac_of_the_text() {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"Jefe");
        let said = signature(&key, b"what do ya want for nothing?").unwrap();
        assert_eq!(
            said,
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
