//! The log file: its owner and mode, a file that was moved away, and what becomes of events that cannot be written.

use crate::*;
use fleetgate_base::audit::MAX_TEXT;
use fleetgate_sys::clock::Time;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// A directory of this test's own, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("fleetgate-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }
    fn log(&self) -> PathBuf {
        self.0.join("log/audit.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn denied(what: &str) -> Event {
    Event::Denied {
        connection: 1,
        login: "x".into(),
        what: what.into(),
    }
}

fn whats(path: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the log");
    let one = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        match value["event"].as_str() {
            Some("audit_lost") => format!("lost {}", value["count"]),
            _ => value["what"].as_str().expect("what").to_owned(),
        }
    };
    text.lines().map(one).collect()
}

#[test]
fn the_file_is_appended_to_and_its_owners_alone_may_read_it() {
    let place = Place::new("append");
    for part in ["a", "b"] {
        let (audit, writing) = Audit::start(&place.log()).expect("a log");
        audit.tell(denied(part));
        drop(audit);
        writing.finish();
    }
    assert_eq!(whats(&place.log()), ["a", "b"]);
    let mode = std::fs::metadata(place.log())
        .expect("the log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let place = Place::new("rotate");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    let old = place.0.join("log/audit.jsonl.1");
    audit.tell(denied("before"));
    // The line stands there before the file is moved: the moved one is then the old one for sure.
    while std::fs::metadata(place.log()).expect("the log").size() == 0 {
        std::thread::yield_now();
    }
    std::fs::rename(place.log(), &old).expect("moved");
    audit.reopen();
    audit.tell(denied("after"));
    drop(audit);
    writing.finish();
    assert_eq!(whats(&old), ["before"]);
    assert_eq!(whats(&place.log()), ["after"]);
}

#[test]
fn what_the_disk_has_no_room_for_is_counted() {
    // /dev/full takes nothing, ever; it stands where the log does, as a link.
    let place = Place::new("full");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", place.log()).expect("a link");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    audit.tell(denied("never written"));
    while audit.lost() == 0 {
        std::thread::yield_now();
    }
    std::fs::remove_file(place.log()).expect("room again");
    audit.tell(denied("written"));
    let lost = audit.lost();
    drop(audit);
    writing.finish();
    assert_eq!(
        (lost, whats(&place.log())),
        (1, vec!["lost 1".to_owned(), "written".to_owned()])
    );
}

#[test]
fn what_is_missing_is_told_with_its_times() {
    let place = Place::new("gap");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", place.log()).expect("a link");
    let (audit, writing) = Audit::start(&place.log()).expect("a log");
    let at = |sec| Time { sec, nsec: 0 };
    for (sec, lost) in [(60, 1), (3600, 2)] {
        audit.tell_at(at(sec), denied("never written"));
        while audit.lost() < lost {
            std::thread::yield_now();
        }
    }
    std::fs::remove_file(place.log()).expect("room again");
    audit.tell(denied("written"));
    drop(audit);
    writing.finish();
    let text = std::fs::read_to_string(place.log()).expect("the log");
    let gap: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(gap["count"], 2, "{text}");
    assert_eq!(
        (gap["first"].as_str(), gap["last"].as_str()),
        (Some("1970-01-01T00:01:00.000Z"), Some("1970-01-01T01:00:00.000Z"))
    );
}

#[test]
fn a_line_that_an_earlier_process_left_cut_is_ended_and_told() {
    let place = Place::new("cut");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    for (before, behind) in [
        ("{\"event\":\"denied\",\"what\":\"whole\"}\n", 1),
        ("{\"event\":\"denied\",\"wh", 2),
    ] {
        std::fs::write(place.log(), before).expect("a log");
        let (audit, writing) = Audit::start(&place.log()).expect("a log");
        audit.tell(denied("next"));
        drop(audit);
        writing.finish();
        let text = std::fs::read_to_string(place.log()).expect("the log");
        let new: Vec<serde_json::Value> = text
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        assert_eq!(new.len(), behind, "{text}");
        assert_eq!(new[behind - 1]["what"], "next", "{text}");
        if behind == 2 {
            assert_eq!(new[0]["event"], "audit_lost", "{text}");
            assert_eq!(
                (&new[0]["count"], &new[0]["cut"]),
                (&1.into(), &true.into()),
                "{text}"
            );
            assert!(
                new[0]["first"].is_string() && new[0]["last"].is_string(),
                "{text}"
            );
        }
    }
}

#[test]
fn a_full_queue_loses_and_says_so() {
    // A pipe that nobody reads holds the thread up, as a hung disk does.
    let place = Place::new("queue");
    std::fs::create_dir(place.0.join("log")).expect("a directory");
    let fifo = place.log();
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    let reader = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .expect("both ends");
    let (audit, writing) = Audit::with_queue(&fifo, 4).expect("a log");
    let long = "x".repeat(MAX_TEXT);
    let mut told = 0u64;
    while audit.lost() == 0 {
        audit.tell(denied(&long));
        told += 1;
    }
    let lost = audit.lost();
    drop(audit);
    let read = std::thread::spawn(move || {
        use std::io::BufRead;
        let mut lines = Vec::new();
        let mut count = 0;
        for line in std::io::BufReader::new(reader).lines() {
            let value: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            match value["event"].as_str() {
                Some("audit_lost") => count += value["count"].as_u64().expect("a count"),
                _ => lines.push(value),
            }
            if lines.len() as u64 + count == told {
                break;
            }
        }
        count
    });
    assert_eq!(read.join().expect("the reader"), lost);
    writing.finish();
}
