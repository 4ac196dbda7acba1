//! What `/proc/PID/status` says. A program's name stands there too, and need not be UTF-8.

use std::io::Read;

/// The most of a file in `/proc` that is read.
const MAX_TEXT: u64 = 1 << 20;

/// A file in `/proc`. None: it cannot be read.
pub(super) fn text(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The status of a task.
pub(super) fn status(tid: i32) -> Option<String> {
    text(&format!("/proc/{tid}/status"))
}

/// A field of a status, whose name has its colon.
pub(super) fn field<T: std::str::FromStr>(status: &str, name: &str) -> Option<T> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}
