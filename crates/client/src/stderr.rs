//! Words to the person at the terminal, on standard error. What others say is in them, so nothing in them acts on the
//! terminal: the one place where the client prints an error, a warning or a note.

use fleetgate_policy::text;
use std::fmt::Display;
use std::io::Write;

/// One line.
pub fn line(words: impl Display) {
    write(format_args!("{}\n", one_line(&words)));
}

/// One line on a terminal that may be in raw mode.
pub fn raw_line(words: impl Display) {
    write(format_args!("{}\r\n", one_line(&words)));
}

/// Text as it stands. A terminal or reader that is gone, or a full disk, ends no session (`eprint!` would): nobody is told.
pub fn write(text: impl Display) {
    let _ = std::io::stderr().write_all(text.to_string().as_bytes());
}

fn one_line(words: &dyn Display) -> String {
    format!("fleetgate: {}", text::printable(&words.to_string()))
}

/// What a server says, in its lines.
#[must_use]
pub fn printable(said: &[u8]) -> String {
    // A server may end its lines as terminals do (RFC 4252 §5.4).
    text::printable_lines(&String::from_utf8_lossy(said).replace("\r\n", "\n"))
}
