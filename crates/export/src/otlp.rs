//! Logs by OTLP/HTTP in JSON (OpenTelemetry protocol, version 1): one record for each event, whose body is the line. It reads
//! of an answer how many records were thrown away.

use crate::event::Event;
use bytes::Bytes;
use serde_json::{Value, json};

/// SEVERITY_NUMBER_INFO and SEVERITY_NUMBER_WARN.
const INFO: (u8, &str) = (9, "INFO");
const WARN: (u8, &str) = (13, "WARN");

/// What kind of text it is.
pub(crate) const CONTENT_TYPE: &str = "application/json";

/// A request with these.
pub(crate) fn body(events: &[Event]) -> Bytes {
    let records: Vec<Value> = events.iter().map(record).collect();
    let request = json!({"resourceLogs": [{
        "resource": {"attributes": [text("service.name", "fleetgate")]},
        "scopeLogs": [{
            "scope": {"name": "fleetgate.audit", "version": env!("CARGO_PKG_VERSION")},
            "logRecords": records,
        }],
    }]});
    request.to_string().into()
}

fn record(event: &Event) -> Value {
    let fields = event.fields();
    let (number, words) = if fields.is_warning() { WARN } else { INFO };
    let mut attributes = vec![json!({"key": "fleetgate.id", "value": {"intValue": event.id.to_string()}})];
    for (name, field) in [
        ("event.name", "event"),
        ("user.name", "user"),
        ("host.name", "node"),
        ("fleetgate.proxy", "proxy"),
        ("fleetgate.session", "session"),
    ] {
        attributes.extend(fields.text(field).map(|value| text(name, value)));
    }
    // 64-bit numbers are texts in proto3's JSON.
    let nanoseconds = u128::from(event.time) * 1_000_000;
    json!({
        "timeUnixNano": nanoseconds.to_string(),
        "observedTimeUnixNano": nanoseconds.to_string(),
        "severityNumber": number,
        "severityText": words,
        "eventName": fields.text("event").unwrap_or_default(),
        "body": {"stringValue": event.line},
        "attributes": attributes,
    })
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// How many records the receiver threw away, by its answer to a request that it took. They are not to be sent again (OTLP/HTTP,
/// partial success). An answer that cannot be read says nothing.
#[must_use]
pub fn rejected(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedLogRecords"];
    count
        .as_u64()
        .or_else(|| count.as_str()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_line_and_what_it_is_searched_by() {
        let line = r#"{"event":"login_refused","user":"ada","node":"web1","n":1}"#;
        let events = [Event {
            id: 42,
            time: 1_500,
            line: line.to_owned(),
        }];
        let request: Value = serde_json::from_slice(&body(&events)).unwrap();
        let record = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        assert_eq!(record["timeUnixNano"], "1500000000");
        assert_eq!(record["severityNumber"], 13);
        assert_eq!(record["body"]["stringValue"], line);
        let attribute = |key: &str| {
            let all = record["attributes"].as_array().unwrap();
            all.iter().find(|a| a["key"] == key).map(|a| a["value"].clone())
        };
        assert_eq!(attribute("fleetgate.id"), Some(json!({"intValue": "42"})));
        assert_eq!(attribute("user.name"), Some(json!({"stringValue": "ada"})));
        assert_eq!(attribute("fleetgate.session"), None);
    }

    #[test]
    fn what_was_thrown_away_is_read_in_both_spellings() {
        for (answer, count) in [
            ("", 0),
            ("{}", 0),
            ("[1]", 0),
            (
                r#"{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"x"}}"#,
                3,
            ),
            (r#"{"partialSuccess":{"rejectedLogRecords":4}}"#, 4),
            (r#"{"partialSuccess":{"rejectedLogRecords":-4}}"#, 0),
            (r#"{"partialSuccess":[]}"#, 0),
        ] {
            assert_eq!(rejected(answer.as_bytes()), count, "{answer}");
        }
    }
}
