//! The version lines (RFC 4253 §4.2): the first thing that either side says. Everything is bounded, and nothing of a
//! peer's line goes into an error but what is printable.

use super::Inbox;
use crate::event::{End, Reason};
use crate::settings::{Limits, Role};
use fleetgate_policy::text::is_unseen;

/// Our line, without CR LF.
pub(crate) fn ours(software: &str) -> String {
    format!("SSH-2.0-{software}")
}

/// The peer's line, without CR LF, once it has come. `greeting` counts the bytes of lines before it, which only a
/// server may send.
pub(crate) fn theirs(
    inbox: &mut Inbox,
    role: Role,
    limits: &Limits,
    greeting: &mut usize,
) -> Result<Option<Vec<u8>>, End> {
    loop {
        // A line before the version line may be longer than that one, but there is an end to them all.
        let before = role == Role::Client && !inbox.unread().starts_with(b"SSH-");
        let max = if before {
            limits.greeting_max - *greeting
        } else {
            limits.version_line_max
        };
        let line = match inbox.line(max) {
            Some(Some(line)) => line,
            Some(None) => return Ok(None),
            None if before => return Err(too_much()),
            None => {
                return Err(End::protocol(format!(
                    "the peer's version line is longer than {max} bytes"
                )));
            }
        };
        let line = inbox.lent(line);
        if line.starts_with(b"SSH-") {
            let spoken = line.starts_with(b"SSH-2.0-")
                // RFC 4253 §5.1: a server that speaks the old protocol as well.
                || role == Role::Client && line.starts_with(b"SSH-1.99-");
            if !spoken {
                return Err(End::ours(
                    Reason::VersionNotSupported,
                    format!("the peer speaks another protocol version: {}", printable(line)),
                ));
            }
            if !line.iter().all(|b| (0x20..0x7f).contains(b)) {
                return Err(End::protocol("the peer's version line is not printable ASCII"));
            }
            return Ok(Some(line.to_vec()));
        }
        if role == Role::Server {
            return Err(End::protocol(format!(
                "the peer does not speak SSH: {}",
                printable(line)
            )));
        }
        *greeting += line.len() + 2;
        if *greeting >= limits.greeting_max {
            return Err(too_much());
        }
    }
}

/// So that it can stand in a log.
pub(crate) fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(256)])
        .chars()
        .map(|c| if is_unseen(c) { '?' } else { c })
        .collect()
}

fn too_much() -> End {
    End::protocol("the server says too much before its version line")
}
