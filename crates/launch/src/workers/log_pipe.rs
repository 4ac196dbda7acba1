//! A process's standard error, as lines of our log: each has its own level and time. They are the process's text: bounded,
//! escaped, and marked with its name.

use fleetgate_sys::{Errno, Fd, file};
use tracing::Level;

/// The longest line; the rest of a longer one is cut.
const MAX_LINE: usize = 1024;
/// The most bytes taken in one turn: who writes more waits.
const PER_TURN: usize = 8192;

/// A process's pipe.
pub struct LogPipe {
    pipe: Fd,
    line: Vec<u8>,
}

impl LogPipe {
    /// From the reading end, which does not wait.
    pub fn new(pipe: Fd) -> LogPipe {
        LogPipe {
            pipe,
            line: Vec::new(),
        }
    }

    /// Reads what is there and gives each whole line to `tell`. False: nothing will come any more.
    pub fn read(&mut self, mut tell: impl FnMut(&str)) -> bool {
        let mut buffer = [0; PER_TURN];
        let got = match file::read(self.pipe.raw(), &mut buffer) {
            Err(Errno::EAGAIN) => return true,
            Ok(0) | Err(_) => {
                self.finish(&mut tell);
                return false;
            }
            Ok(n) => n,
        };
        for &byte in &buffer[..got] {
            match byte {
                b'\n' => self.finish(&mut tell),
                _ if self.line.len() < MAX_LINE => self.line.push(byte),
                _ => {}
            }
        }
        true
    }

    fn finish(&mut self, tell: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            tell(&String::from_utf8_lossy(&self.line).escape_debug().to_string());
            self.line.clear();
        }
    }
}

/// Writes a line of this process to the log. The time is the log's: a process is not believed about the clock.
pub fn log_line(name: &str, pid: i32, line: &str) {
    let (level, line) = level(line);
    match level {
        Level::ERROR => tracing::error!(from = name, pid, "{line}"),
        Level::WARN => tracing::warn!(from = name, pid, "{line}"),
        Level::INFO => tracing::info!(from = name, pid, "{line}"),
        _ => tracing::debug!(from = name, pid, "{line}"),
    }
}

/// A line's level and message, as workers write them (`start::Format::Monitor` there). A line without a level is told as
/// it is: the resolver's, and those of the runtime of a worker that dies.
fn level(line: &str) -> (Level, &str) {
    let (word, message) = line.split_once(' ').unwrap_or_default();
    match word {
        "ERROR" => (Level::ERROR, message),
        "WARN" => (Level::WARN, message),
        "DEBUG" => (Level::DEBUG, message),
        _ => (Level::INFO, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_level_that_the_process_gave_it() {
        for (line, expected) in [
            (
                "DEBUG timing of a signature: 1 us",
                (Level::DEBUG, "timing of a signature: 1 us"),
            ),
            ("WARN runs without seccomp", (Level::WARN, "runs without seccomp")),
            ("ERROR why", (Level::ERROR, "why")),
            ("a panic of its runtime", (Level::INFO, "a panic of its runtime")),
            ("DEBUG", (Level::INFO, "DEBUG")),
            ("", (Level::INFO, "")),
        ] {
            assert_eq!(level(line), expected);
        }
    }

    #[test]
    fn lines_are_bounded_and_escaped() {
        let (read, write) = file::pipe().expect("pipe");
        read.set_nonblocking(true).expect("flag");
        let mut lines = LogPipe::new(read);
        let mut told = Vec::new();
        let long = "x".repeat(2 * MAX_LINE);
        let text = format!("one\n\ntw\x1b[31mo\n{long}\nthree");
        file::write_all(write.raw(), text.as_bytes()).expect("write");
        assert!(lines.read(|l| told.push(l.to_owned())));
        drop(write);
        // A child that another test forks holds the writing end until it executes its program.
        while lines.read(|l| told.push(l.to_owned())) {
            std::thread::yield_now();
        }
        assert_eq!(told, ["one", "tw\\u{1b}[31mo", &long[..MAX_LINE], "three"]);
    }
}
