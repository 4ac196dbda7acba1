//! `fleetgate audit`: events as they are, or as lines for people.

use super::ask;
use crate::flags::{Given, Outcome};
use crate::{print, show};
use fleetgate_client::error::ClientError;
use fleetgate_client::time;
use fleetgate_proto::v1::EventsRequest;
use serde_json::Value;

/// Prints them as they come.
pub fn run(given: &Given) -> Outcome {
    let now = time::now();
    let ago = |flag| given.seconds(flag).map_or(0, |s| now.saturating_sub(s).max(1));
    let text = |flag| given.value(flag).unwrap_or_default().to_owned();
    let request = EventsRequest {
        user: text("user"),
        node: text("node"),
        event: text("event"),
        from: ago("since"),
        until: ago("until"),
        limit: given.number("limit").unwrap_or(0),
        follow: given.has("follow"),
    };
    let as_json = given.has("json");
    ask(given, async |mut admin| {
        let mut events = admin.events(request).await?.into_inner();
        while let Some(event) = events.message().await? {
            let line = match as_json {
                true => event.line,
                false => readable(&event.line),
            };
            if let Err(e) = print(&format!("{}\n", line.trim_end())) {
                return Err(ClientError::Refused(e.to_string()));
            }
        }
        Ok(0)
    })
    .map_err(Into::into)
}

/// `TIME  EVENT  key=value …`; a line that is none stays as it is.
fn readable(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return show::printable(line);
    };
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() && !text.contains(' ') => text.clone(),
        other => other.to_string(),
    };
    let head = |name: &str| fields.get(name).map(text).unwrap_or_default();
    let rest: Vec<String> = fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "time" | "event"))
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    show::printable(&format!(
        "{}  {:<16}  {}",
        head("time"),
        head("event"),
        rest.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn lines_are_made_for_people() {
        for (line, text) in [
            (
                r#"{"time":"2026-01-01T00:00:00Z","event":"login","user":"alice","words":"a b","n":3}"#,
                "2026-01-01T00:00:00Z  login             user=alice words=\"a b\" n=3",
            ),
            ("not json", "not json"),
        ] {
            assert_eq!(readable(line), text);
        }
    }
}
