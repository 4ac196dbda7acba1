//! A full audit log: whoever fills it pays with lines of his own.

use super::place::run;
use crate::audit::{Batch, Log, Mark, Query, Settings, Teller, lines};
use crate::clock::SetClock;
use std::sync::Arc;

#[test]
fn a_machine_that_fills_the_log_pushes_out_its_own_lines_and_nobody_elses() {
    run(async {
        let directory = std::env::temp_dir().join(format!("fleetgate-audit-share-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let settings = Settings {
            size: 1 << 20,
            clock: Arc::new(SetClock::at(1_000)),
        };
        let log = Log::open(&directory.join("audit.db"), settings).unwrap();
        let is_sshd = |_: &str| false;
        let told = |event: &str, i: usize| {
            let filler = "x".repeat(300);
            format!("{{\"event\":\"{event}\",\"node\":\"web1\",\"i\":{i},\"text\":\"{filler}\"}}\n")
                .into_bytes()
        };
        let mut offset = 0;
        let mut write = async |teller: Teller<'_>, source: &str, event: &str, lines_of: usize| {
            let bytes: Vec<u8> = (0..lines_of).flat_map(|i| told(event, i)).collect();
            let batch = Batch {
                source: source.into(),
                log: source.into(),
                offset,
                lines: lines(&bytes, offset, teller, 1_000),
            };
            offset += bytes.len() as u64;
            log.write(batch).await.unwrap();
        };
        let count = async |event: &str| {
            let query = Query {
                events: vec![event.into()],
                ..Query::default()
            };
            let (mut all, mut mark) = (0, Mark::Arrival(0));
            loop {
                let found = log.page(&query, mark).await.unwrap();
                let Some(last) = found.last() else { return all };
                (all, mark) = (all + found.len(), mark.behind(last));
            }
        };
        write(Teller::Node("web1"), "node web1", "session_started", 100).await;
        // One that was taken over; and a proxy, which says that all of it is about the honest node.
        for _ in 0..100 {
            write(Teller::Node("evil"), "node evil", "flood", 100).await;
        }
        assert_eq!(count("session_started").await, 100, "a node's flood");
        let left = count("flood").await;
        assert!(
            (1..5_000).contains(&left),
            "control: its own lines are cut, {left}"
        );
        for _ in 0..100 {
            write(Teller::Proxy("edge", &is_sshd), "proxy edge", "dial", 100).await;
        }
        assert_eq!(count("session_started").await, 100, "a proxy's flood");
        assert!(count("dial").await < 5_000, "control");
        let size = std::fs::metadata(directory.join("audit.db")).unwrap().len();
        assert!(size < 2 << 20, "{size}");
        std::fs::remove_dir_all(&directory).unwrap();
    });
}
