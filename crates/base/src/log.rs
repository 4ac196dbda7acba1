//! Where log lines go: standard error, as a person reads them or one JSON object each. Set up once, by `main`.

use fleetgate_policy::text;
use std::io::{self, Write};
use tracing::Level;

/// Starts logging.
pub fn start(format: Option<&str>, level: Option<&str>) {
    let level = match level {
        Some("error") => Level::ERROR,
        Some("info") => Level::INFO,
        Some("debug") => Level::DEBUG,
        Some("trace") => Level::TRACE,
        _ => Level::WARN,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| PrintableWriter(std::io::stderr()))
        // A line that cannot be written is lost. The default tells of it on standard error, which is what has failed,
        // and panics: a log reader that went away would end the server.
        .log_internal_errors(false)
        .with_target(false);
    match format {
        Some("json") => log.json().flatten_event(true).init(),
        _ => log.init(),
    }
}

/// Writes whole lines so that each can be shown: text from outside is in them.
struct PrintableWriter<W>(W);

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0
            .write_all(printable(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A line whose text has several lines goes on behind spaces: what comes from outside cannot begin one of its own.
fn printable(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(whole) => text::printable_lines(whole).replace('\n', "\n    ") + "\n",
        None => text::printable_lines(line).replace('\n', "\n    "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_shown_without_what_cannot_be_seen() {
        let mut out = Vec::new();
        let log = tracing_subscriber::fmt().without_time().with_target(false);
        let (send, lines) = std::sync::mpsc::channel::<Vec<u8>>();
        struct LineSender(std::sync::mpsc::Sender<Vec<u8>>);
        impl Write for LineSender {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.send(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = log
            .with_writer(move || PrintableWriter(LineSender(send.clone())))
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!(user = %"a\u{202e}b", "told\n INFO forged\u{200b}");
        });
        lines.iter().for_each(|bytes| out.extend(bytes));
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, " INFO told\n     INFO forged\u{fffd} user=a\u{fffd}b\n");
    }
}
