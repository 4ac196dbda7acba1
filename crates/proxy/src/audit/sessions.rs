//! Which sessions on plain sshds are open, as the lines of the audit log say. They stand in a file of the log's directory:
//! the process that takes the directory of one that was killed writes their ends.

use crate::files::replace;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most that are known at once: of more, no end is written for the process that was killed.
const OPEN_MAX: usize = 1 << 17;
/// A file as long as this, and twice as long as it need be, is written anew.
const FILE_MAX: usize = 1 << 20;

const STARTED: &str = "session_started";
const ENDED: &str = "session_ended";

/// Those that are open.
pub(super) struct OpenSessions {
    path: PathBuf,
    file: File,
    length: usize,
    /// How much of the file is about those that are open.
    live: usize,
    /// The line of its start by a session's id, without what was run.
    open: BTreeMap<String, String>,
}

impl OpenSessions {
    /// As they were left in this directory.
    pub(super) fn load(directory: &Path) -> io::Result<OpenSessions> {
        let path = directory.join("sessions");
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut sessions = OpenSessions {
            file: open(&path)?,
            path,
            // A line that a kill cut off is written over.
            length: text
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1),
            live: 0,
            open: BTreeMap::new(),
        };
        for line in String::from_utf8_lossy(&text).lines() {
            // What was cut off is no line.
            if let Ok(line) = serde_json::from_str(line) {
                sessions.take(line);
            }
        }
        Ok(sessions)
    }

    /// Notes those that begin by these lines. It goes before the lines are written: an end without a start is no harm.
    pub(super) fn begin(&mut self, lines: &[String]) -> io::Result<()> {
        self.note(lines, STARTED)
    }

    /// Notes those that end by these lines, which are written.
    pub(super) fn end(&mut self, lines: &[String]) -> io::Result<()> {
        self.note(lines, ENDED)
    }

    /// The lines of the ends of all that are open.
    pub(super) fn ends(&self, time: &str) -> String {
        let mut lines = String::new();
        for start in self.open.values() {
            let Ok(Value::Object(mut line)) = serde_json::from_str(start) else {
                continue;
            };
            line.insert("time".to_owned(), time.into());
            line.insert("event".to_owned(), ENDED.into());
            line.insert("inherited".to_owned(), true.into());
            lines += &Value::Object(line).to_string();
            lines.push('\n');
        }
        lines
    }

    /// The ends of all are written.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.open.clear();
        (self.length, self.live) = (0, 0);
        Ok(())
    }

    fn note(&mut self, lines: &[String], event: &str) -> io::Result<()> {
        // In a JSON string the quotation marks would be escaped.
        let mark = format!("\"event\":\"{event}\"");
        let mut text = String::new();
        for line in lines.iter().filter(|line| line.contains(&mark)) {
            if let Ok(line) = serde_json::from_str(line) {
                text += &self.take(line);
            }
        }
        match text.len() {
            0 => Ok(()),
            _ if self.open.is_empty() => self.clear(),
            more if self.length + more > FILE_MAX.max(self.live * 2) => self.rewrite(),
            more => {
                self.file.write_all_at(text.as_bytes(), self.length as u64)?;
                self.length += more;
                Ok(())
            }
        }
    }

    /// What a line makes of them, and the line for the file; empty: nothing.
    fn take(&mut self, mut line: Map<String, Value>) -> String {
        let Some(session) = line.get("session").and_then(Value::as_str).map(str::to_owned) else {
            return String::new();
        };
        let is_start = line.get("event").is_some_and(|event| event == STARTED);
        if let Some(start) = self.open.remove(&session) {
            self.live -= start.len();
        } else if !is_start {
            return String::new();
        }
        match is_start {
            true if self.open.len() >= OPEN_MAX => return String::new(),
            true => {
                line.retain(|field, _| !matches!(field.as_str(), "kind" | "command"));
            }
            false => line.retain(|field, _| matches!(field.as_str(), "event" | "session")),
        }
        let text = format!("{}\n", Value::Object(line));
        if is_start {
            self.live += text.len();
            self.open.insert(session, text.clone());
        }
        text
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let text: String = self.open.values().map(String::as_str).collect();
        replace(&self.path, text.as_bytes()).map_err(io::Error::other)?;
        self.file = open(&self.path)?;
        self.length = text.len();
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    //! What is left of them after a kill, and how long the file grows.

    use super::*;

    fn line(event: &str, session: &str) -> String {
        format!(
            "{{\"time\":\"1\",\"event\":\"{event}\",\"proxy\":\"edge\",\"node\":\"db1\",\"session\":\"{session}\",\"kind\":\"exec\",\
             \"command\":\"\\\"event\\\":\\\"session_ended\\\"\"}}\n"
        )
    }

    #[test]
    fn the_file_has_those_that_are_open_and_is_bounded() {
        let directory = std::env::temp_dir().join(format!("fleetgate-open-sessions-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("made");
        let load = || OpenSessions::load(&directory).expect("read");
        let length = || {
            std::fs::metadata(directory.join("sessions"))
                .expect("there")
                .len()
        };
        let mut sessions = load();
        sessions
            .begin(&[line(STARTED, "a"), line(STARTED, "b"), line("dial", "c")])
            .expect("noted");
        sessions
            .end(&[line(STARTED, "b"), line(ENDED, "a"), line(ENDED, "unknown")])
            .expect("noted");
        let left = load().ends("2");
        assert_eq!(
            left,
            "{\"time\":\"2\",\"event\":\"session_ended\",\"proxy\":\"edge\",\"node\":\"db1\",\"session\":\"b\",\"inherited\":true}\n"
        );
        // A kill cut a line off.
        let file = open(&directory.join("sessions")).expect("opened");
        file.write_all_at(&line(ENDED, "b").as_bytes()[..20], length())
            .expect("written");
        assert_eq!(load().ends("2"), left);
        // One stays, and very many come and go.
        let mut sessions = load();
        for i in 0..20_000 {
            let id = format!("{i:032x}");
            sessions.begin(&[line(STARTED, &id)]).expect("noted");
            sessions.end(&[line(ENDED, &id)]).expect("noted");
        }
        assert!(length() <= FILE_MAX as u64 && length() > 100, "{}", length());
        assert_eq!(load().ends("2"), left);
        sessions.end(&[line(ENDED, "b")]).expect("noted");
        assert_eq!((length(), load().ends("2")), (0, String::new()));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
