//! The file of the audit log: how large it grows, and which files are not taken for it.

use super::place::run;
use crate::audit::{Batch, Line, Log, Mark, Query, Settings};
use crate::clock::SetClock;
use std::path::PathBuf;
use std::sync::Arc;

/// An empty directory for a log.
fn directory(label: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fleetgate-audit-{label}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A log of a megabyte.
fn settings() -> Settings {
    Settings {
        size: 1 << 20,
        clock: Arc::new(SetClock::at(1_000)),
    }
}

#[test]
fn a_log_that_is_too_large_is_cut_at_its_oldest_end_and_says_so() {
    run(async {
        let directory = directory("large");
        let log = Log::open(&directory.join("audit.db"), settings()).unwrap();
        for i in 0..100u32 {
            let line = |j: u32| Line {
                end: 0,
                origin: Some(format!("{i} {j}")),
                time: 1,
                event: "filler".into(),
                of: None,
                user: None,
                node: None,
                text: format!(
                    "{{\"event\":\"filler\",\"i\":{},\"text\":\"{}\"}}",
                    i * 100 + j,
                    "x".repeat(300)
                ),
            };
            let batch = Batch {
                source: "auth".into(),
                log: String::new(),
                offset: 0,
                lines: (0..100).map(line).collect(),
            };
            log.write(batch).await.unwrap();
        }
        let size = std::fs::metadata(directory.join("audit.db")).unwrap().len();
        assert!(size < 2 << 20, "{size}");
        let cut = log
            .page(
                &Query {
                    events: vec!["audit_cut".into()],
                    ..Query::default()
                },
                Mark::Arrival(0),
            )
            .await
            .unwrap();
        assert!(!cut.is_empty(), "it says so");
        let last = log
            .begin(&Query {
                limit: 1,
                events: vec!["filler".into()],
                ..Query::default()
            })
            .await
            .unwrap();
        let last = log
            .page(
                &Query {
                    events: vec!["filler".into()],
                    ..Query::default()
                },
                last,
            )
            .await
            .unwrap();
        assert!(last[0].line.contains("\"i\":9999"), "the newest are there");
        drop(log);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

#[test]
fn another_programs_file_is_not_taken_for_the_log() {
    let directory = directory("bad");
    let path = directory.join("audit.db");
    std::fs::write(
        &path,
        "no database at all, and long enough to look like one".repeat(100),
    )
    .unwrap();
    assert!(Log::open(&path, settings()).is_err());
    std::fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(other);
    let said = Log::open(&path, settings()).map(drop).unwrap_err().to_string();
    assert!(said.contains("another program's"), "{said}");
    std::os::unix::fs::symlink("/dev/null", directory.join("link.db")).unwrap();
    assert!(
        Log::open(&directory.join("link.db"), settings()).is_err(),
        "no link is followed"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}
