//! Why the object store did not take a recording the last time: a file in the directory, so that `fleetgate doctor` can say it. It
//! is a note and no record: where it cannot be written, the log still has the reason.

use crate::directory;
use crate::error::Error;
use fleetgate_sys::file::flags::{O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY};
use fleetgate_sys::file::{CWD, openat, read_up_to, write_all_at};
use std::path::Path;

const FILE: &str = "store-trouble";
const FILE_MODE: u32 = 0o600;
/// The longest reason.
const MAX: usize = 2048;

/// Writes down why.
pub fn note(directory: &Path, why: &Error) {
    let path = directory.join(FILE);
    let why: String = why.to_string().chars().take(MAX / 4).collect();
    let written = directory::c_path(&path).map(|path| {
        let file = openat(CWD, &path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, FILE_MODE)?;
        write_all_at(&file, why.as_bytes(), 0)
    });
    if !matches!(written, Ok(Ok(()))) {
        tracing::debug!("{}: it cannot be written", path.display());
    }
}

/// The store has taken one.
pub fn clear(directory: &Path) {
    // Mostly there is none.
    let _ = std::fs::remove_file(directory.join(FILE));
}

/// Why the object store does not take recordings; none: it took the last one.
pub fn store_trouble(directory: &Path) -> Option<String> {
    let file = directory::open_to_read(&directory.join(FILE)).ok()?;
    let why = String::from_utf8_lossy(&read_up_to(&file, MAX).ok()?).into_owned();
    (!why.is_empty()).then_some(why)
}
