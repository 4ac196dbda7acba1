//! Syslog: RFC 5424 messages in the framing of RFC 5425 (the same as RFC 6587's octet counting where there is no TLS).
//!
//! Syslog has no acknowledgement. What is written may lie in a buffer when the receiver dies. So a connection is closed from
//! time to time: this side says that it sends no more, and the receiver answers by closing too, which it can do only when it
//! has read everything. Until then nothing counts as taken.

use crate::event::Event;
use crate::settings::CONNECTING;
use fleetgate_net::{dial, tls, x509};
use std::fmt::Write as _;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Facility 10, security and authorisation; severity 6, informational.
const INFORMATIONAL: u8 = 86;
/// The same with severity 4, warning.
const WARNING: u8 = 84;
/// The longest host name, and the longest kind of message (RFC 5424 §6).
const HOST_MAX: usize = 255;
const KIND_MAX: usize = 32;
/// Numbers of messages begin anew after this one (RFC 5424 §7.3.1).
const SEQUENCE_MAX: i64 = 2_147_483_647;

/// Where it goes.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: String,
    /// The name in its certificate. None: no TLS.
    tls: Option<(tls::Client, String)>,
}

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A connection, while there is one.
pub(crate) struct Syslog {
    receiver: Receiver,
    open: Option<Box<dyn Wire>>,
}

impl Receiver {
    pub(crate) fn new(address: &str, tls: Option<(tls::Client, String)>) -> Receiver {
        Receiver {
            address: address.to_owned(),
            tls,
        }
    }

    async fn connect(&self) -> Result<Box<dyn Wire>, String> {
        let stream = dial::connect(&self.address, CONNECTING)
            .await
            .map_err(|e| e.to_string())?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some((client, name)) => {
                let connected = client.connect(name, stream).await;
                let (stream, _) = connected.map_err(|e| format!("{}: {e}", self.address))?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl Syslog {
    pub(crate) fn new(receiver: Receiver) -> Syslog {
        Syslog { receiver, open: None }
    }

    /// Writes these [`frames`]. Whether the receiver has them, [`Syslog::close`] tells.
    pub(crate) async fn send(&mut self, frames: &str) -> Result<(), String> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.receiver.connect().await?,
        };
        let sent = async {
            open.write_all(frames.as_bytes()).await?;
            open.flush().await
        };
        sent.await.map_err(|e| self.failed(&e))?;
        self.open = Some(open);
        Ok(())
    }

    /// Closes the connection: where that is well, the receiver has read everything that was written on it.
    pub(crate) async fn close(&mut self) -> Result<(), String> {
        let Some(mut open) = self.open.take() else {
            return Err(format!("{}: the connection was lost", self.receiver.address));
        };
        let closed = async {
            open.shutdown().await?;
            let mut rest = [0; 1024];
            // A receiver says nothing; some send a few bytes of TLS.
            while open.read(&mut rest).await? > 0 {}
            Ok(())
        };
        match closed.await {
            Ok(()) => Ok(()),
            // Many receivers close TLS without a word (rsyslog with gtls does); that they close says that they have read.
            Err(e) if io::Error::kind(&e) == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(self.failed(&e)),
        }
    }

    /// Forgets the connection, with what may be on it.
    pub(crate) fn reset(&mut self) {
        self.open = None;
    }

    fn failed(&self, e: &io::Error) -> String {
        match tls::Error::told(e) {
            Some(told) => format!("{}: {told}", self.receiver.address),
            None => format!("{}: the connection broke: {e}", self.receiver.address),
        }
    }
}

/// The messages, each behind its length.
pub(crate) fn frames(events: &[Event]) -> String {
    let mut frames = String::new();
    for event in events {
        let message = message(event);
        let _ = write!(frames, "{} {message}", message.len());
    }
    frames
}

/// The message. It is ASCII throughout, since a text in UTF-8 would have to begin with a byte order mark (RFC 5424 §6.4), which
/// those who read JSON do not expect.
fn message(event: &Event) -> String {
    let fields = event.fields();
    let host = fields.text("node").or(fields.text("proxy"));
    let mut message = String::with_capacity(event.line.len() + 160);
    let _ = write!(
        message,
        "<{}>1 {} {} fleetgate - {} [meta sequenceId=\"{}\"] ",
        if fields.is_warning() {
            WARNING
        } else {
            INFORMATIONAL
        },
        time(event.time),
        printable(host, HOST_MAX),
        printable(fields.text("event"), KIND_MAX),
        (event.id - 1).rem_euclid(SEQUENCE_MAX) + 1,
    );
    let mut units = [0; 2];
    for c in event.line.chars() {
        match c.is_ascii() {
            true => message.push(c),
            // JSON has such characters in texts alone, where an escape is the same.
            false => {
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(message, "\\u{unit:04x}");
                }
            }
        }
    }
    message
}

/// As RFC 5424 §6.2.3 has it.
fn time(millis: u64) -> String {
    let mut text = x509::instant(millis / 1000);
    text.truncate(text.len().saturating_sub(1));
    format!("{text}.{:03}Z", millis % 1000)
}

/// A text of printable ASCII without spaces (RFC 5424 §6), or `-` for none.
fn printable(text: Option<&str>, most: usize) -> String {
    let printable: String = text
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_graphic() { c } else { '?' })
        .take(most)
        .collect();
    match printable.is_empty() {
        true => "-".to_owned(),
        false => printable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: i64, line: &str) -> Event {
        Event {
            id,
            time: 1_000,
            line: line.to_owned(),
        }
    }

    #[test]
    fn a_message_is_one_of_rfc_5424() {
        let line = r#"{"event":"login_refused","node":"web 1","user":"ädä 𝄞"}"#;
        let said = message(&event(7, line));
        assert_eq!(
            said,
            "<84>1 1970-01-01T00:00:01.000Z web?1 fleetgate - login_refused [meta sequenceId=\"7\"] \
             {\"event\":\"login_refused\",\"node\":\"web 1\",\"user\":\"\\u00e4d\\u00e4 \\ud834\\udd1e\"}"
        );
        let (_, json) = said.split_once("] ").unwrap();
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(json), read(line), "the same event");
        let said = message(&event(SEQUENCE_MAX + 1, "no JSON"));
        assert_eq!(
            said,
            "<86>1 1970-01-01T00:00:01.000Z - fleetgate - - [meta sequenceId=\"1\"] no JSON"
        );
        let long = "x".repeat(400);
        let said = message(&event(1, &format!(r#"{{"event":"{long}","proxy":"{long}"}}"#)));
        let words: Vec<usize> = said.split(' ').take(6).map(str::len).collect();
        assert_eq!((words[2], words[5]), (HOST_MAX, KIND_MAX));
    }

    #[test]
    fn a_frame_begins_with_its_length() {
        let text = frames(&[event(1, "a"), event(2, "b")]);
        let (length, rest) = text.split_once(' ').unwrap();
        let length: usize = length.parse().unwrap();
        assert!(
            rest[..length].ends_with(" a") && rest[length..].contains(" <86>1 "),
            "{text}"
        );
    }
}
