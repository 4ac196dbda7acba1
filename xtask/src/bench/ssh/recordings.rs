//! Recordings of the nodes that are measured: where a node keeps them, and whether auth has them. They lie in memory, so that
//! no disk is measured.

use crate::shell::Result;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long auth may take to have what a node has recorded.
const DELIVERED_WITHIN: Duration = Duration::from_secs(30);

/// The lines of a node that records so much, below the table's name.
pub fn settings(directory: &Path, sessions: &str) -> String {
    format!(
        "sessions = \"{sessions}\"\ndirectory = \"{}\"\n",
        directory.display()
    )
}

/// All that there are.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let days = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = days.flat_map(|day| std::fs::read_dir(day.path()).into_iter().flatten().flatten());
    files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rec"))
        .collect()
}

/// Waits until every session's recording has its end and is with auth. What a recording costs is measured up to then, and
/// none of it falls on the next subject.
pub fn delivered(directory: &Path) -> Result {
    let until = Instant::now() + DELIVERED_WITHIN;
    while !are_delivered(&files(directory)) {
        if Instant::now() > until {
            return Err(format!(
                "auth does not have the recordings in {}",
                directory.display()
            ));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn are_delivered(recordings: &[PathBuf]) -> bool {
    // A session that began at midnight is in the day before, so each day has a list of its own.
    let is_delivered = |path: &PathBuf| {
        let list = std::fs::read_to_string(path.with_file_name("delivered")).unwrap_or_default();
        let session = path.file_stem().and_then(|name| name.to_str());
        session.is_some_and(|session| list.lines().any(|line| line == session))
    };
    let is_ended = |path: &PathBuf| !path.with_extension("tail").exists();
    recordings.iter().all(|path| is_ended(path) && is_delivered(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_delivered_when_it_has_ended_and_is_listed() {
        let at = std::env::temp_dir().join(format!("fleetgate-xtask-recordings-{}", std::process::id()));
        let day = at.join("2026-01-01");
        std::fs::create_dir_all(&day).expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(day.join(name), text).expect("a file");
        assert!(are_delivered(&files(&at)), "there is none");
        write("aa.rec", "");
        write("aa.tail", "");
        assert!(!are_delivered(&files(&at)), "it runs");
        write("delivered", "bb\n");
        std::fs::remove_file(day.join("aa.tail")).expect("it is there");
        assert!(!are_delivered(&files(&at)), "another one is listed");
        write("delivered", "bb\naa\n");
        assert!(are_delivered(&files(&at)));
        std::fs::remove_dir_all(&at).expect("ours");
    }
}
