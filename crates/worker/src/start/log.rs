//! Log lines on standard error. A worker's go to the monitor, which reads their level and writes each as a line of its own
//! log; the starter's are in the form that the monitor's own have. There are few: what happens to connections is told to
//! the monitor, which logs it. Secrets and what peers send never stand in one.

use fleetgate_policy::text::is_unseen;
use fleetgate_sys::{clock, file};
use std::fmt::{Display, Write};
use std::time::Instant;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object each.
    Json,
    /// For the monitor, which adds time and process: the level and the message.
    Monitor,
}

/// Writes lines.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// How.
    pub format: Format,
    /// The worker's.
    pub name: &'static str,
    /// Whether it tells how long it waits for the monitor: where the monitor logs on level debug.
    pub timings: bool,
}

impl Log {
    /// Something works less well than it could.
    pub fn warn(&self, what: &dyn Display) {
        self.line("WARN", what);
    }

    /// The end of this process.
    pub fn error(&self, what: &dyn Display) {
        self.line("ERROR", what);
    }

    /// Now, if it tells how long things take.
    pub fn start(&self) -> Option<Instant> {
        self.timings.then(Instant::now)
    }

    /// How long a step took that began at `start`; `cargo xtask bench ssh` reads these lines.
    pub fn timing(&self, step: &str, start: Option<Instant>) {
        if let Some(start) = start {
            self.line(
                "DEBUG",
                &format_args!("timing of {step}: {} us", start.elapsed().as_micros()),
            );
        }
    }

    fn line(&self, level: &str, what: &dyn Display) {
        let now = clock::wall();
        // Nobody may be reading: that is no reason to end.
        let _ = file::write_all(
            2,
            self.format(level, now.sec, now.nsec, &what.to_string())
                .as_bytes(),
        );
    }

    fn format(&self, level: &str, sec: i64, nsec: u32, what: &str) -> String {
        let name = self.name;
        let mut line = match self.format {
            Format::Text => format!("{} {level:>5} {name}: ", utc(sec, nsec)),
            Format::Json => format!(
                r#"{{"timestamp":"{}","level":"{level}","process":"{name}","message":""#,
                utc(sec, nsec)
            ),
            Format::Monitor => format!("{level} "),
        };
        for c in what.chars() {
            match c {
                '"' | '\\' if self.format == Format::Json => line.extend(['\\', c]),
                c if is_unseen(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String does not fail.
                        let _ = write!(line, "\\u{unit:04x}");
                    }
                }
                c => line.push(c),
            }
        }
        line.push_str(match self.format {
            Format::Text | Format::Monitor => "\n",
            Format::Json => "\"}\n",
        });
        line
    }
}

/// RFC 3339, in UTC, to the microsecond.
fn utc(sec: i64, nsec: u32) -> String {
    clock::rfc3339(clock::Time { sec, nsec }, 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_one_line_in_either_form() {
        for (format, expected) in [
            (
                Format::Text,
                "2026-02-28T23:59:59.000001Z  WARN lobby: a \"b\" \\u000a\\u001b[c\\u202e\\udb40\\udc41\n",
            ),
            (
                Format::Json,
                "{\"timestamp\":\"2026-02-28T23:59:59.000001Z\",\"level\":\"WARN\",\"process\":\"lobby\",\
                 \"message\":\"a \\\"b\\\" \\u000a\\u001b[c\\u202e\\udb40\\udc41\"}\n",
            ),
            (
                Format::Monitor,
                "WARN a \"b\" \\u000a\\u001b[c\\u202e\\udb40\\udc41\n",
            ),
        ] {
            let log = Log {
                format,
                name: "lobby",
                timings: false,
            };
            assert_eq!(
                log.format("WARN", 1_772_323_199, 1_999, "a \"b\" \n\x1b[c\u{202e}\u{e0041}"),
                expected
            );
        }
    }

    #[test]
    fn the_calendar_is_right() {
        for (sec, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(utc(sec, 0), expected);
        }
    }
}
