//! Directories of recordings: what is found in them, with indexes and without.

use super::*;
use crate::list::{Filter, begun, last, list};
use crate::pattern::Pattern;
use crate::search::{Budget, Event, Options, Progress, search};
use crate::store::{StoreError, entries, find};
use fleetgate_record::age::Keys;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn options(uses_index: bool) -> Options {
    Options {
        uses_index,
        keys: Keys::default(),
        budget: Budget::default(),
    }
}

/// Twelve recordings of two days; each has a word of its own.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for n in 0..12_u8 {
        let day = if n < 6 { "2026-11-28" } else { "2026-11-29" };
        let begin = BEGIN.replace("2026-11-29T10:00", &format!("{day}T10:{n:02}"));
        let begin = if n % 2 == 0 {
            begin.replace("ada", "bob")
        } else {
            begin
        };
        let mut r = Recording::of([n; 16], &begin);
        for line in 0..400_u64 {
            r.output(line * 10 * MS, &format!("line {line} of {n}\r\n"));
        }
        r.output(5000 * MS, &format!("Word{n}Ö\r\n"))
            .end(6000 * MS)
            .sign("node");
        r.keep(&folder, day);
    }
    folder
}

fn found(folder: &Folder, pattern: &Pattern, uses_index: bool) -> (Vec<String>, Progress, Vec<String>) {
    let entries = entries(&folder.0).expect("a directory");
    let (mut lines, mut troubles) = (Vec::new(), Vec::new());
    let progress = search(&entries, pattern, &options(uses_index), &mut |event| {
        match event {
            Event::Match(entry, begin, m) => {
                lines.push(format!(
                    "{} {} {} {}",
                    &entry.id[..2],
                    begin.moment(m.at),
                    begin.user,
                    m.line
                ));
            }
            Event::Trouble(entry, why) => troubles.push(format!("{} {why}", &entry.id[..2])),
            Event::Done(_) => {}
        }
        true
    });
    (lines, progress, troubles)
}

fn fixed(text: &str) -> Pattern {
    Pattern::new(text, false, false).expect("a pattern")
}

#[test]
fn a_search_finds_the_same_with_indexes_and_without() {
    let folder = folder("search");
    let word = fixed("Word7");
    let want = ["07 2026-11-29T10:07:05Z ada Word7Ö"];
    let (lines, progress, troubles) = found(&folder, &word, false);
    assert_eq!(
        (lines, progress.passed_over, troubles),
        (want.map(String::from).to_vec(), 0, vec![])
    );
    let all = entries(&folder.0).expect("a directory");
    assert!(all.iter().all(|e| e.index().is_none()));
    // The first search makes them, the second one uses them.
    for round in [0, 1] {
        let (lines, progress, _) = found(&folder, &word, true);
        assert_eq!(lines, want.map(String::from).to_vec());
        // So short a text has a short index, which is wrong now and then.
        assert!(
            if round == 0 {
                progress.passed_over == 0
            } else {
                progress.passed_over >= 6
            },
            "{progress:?}"
        );
    }
    assert!(all.iter().all(|e| e.index().is_some()));
    let (lines, progress, _) = found(
        &folder,
        &Pattern::new("wORD1.?ö$", true, true).expect("one"),
        true,
    );
    assert_eq!(
        (lines.len(), progress.matches),
        (0, 0),
        "regex-lite folds ASCII alone"
    );
    let (lines, _, _) = found(&folder, &Pattern::new("wORD1", true, false).expect("one"), true);
    assert_eq!(lines.len(), 3);
    let (lines, ..) = found(
        &folder,
        &Pattern::new("of (3|11)$", false, true).expect("one"),
        true,
    );
    assert_eq!(lines.len(), 800);
    assert!(lines.windows(2).all(|two| two[0][..2] <= two[1][..2]), "in order");
    let (lines, progress, _) = found(&folder, &fixed("in none of them"), true);
    assert_eq!((lines.len(), progress.passed_over), (0, 12));
}

#[test]
fn an_index_that_does_not_fit_is_made_anew() {
    let folder = folder("stale");
    found(&folder, &fixed("x"), true);
    let mut r = Recording::of([3; 16], BEGIN);
    for line in 0..500 {
        r.output(line * MS, "something else now\r\n");
    }
    r.end(6000 * MS).sign("node").keep(&folder, "2026-11-28");
    assert_eq!(found(&folder, &fixed("something else"), true).0.len(), 500);
    let damaged = find(&folder.0, "04040404").expect("it is there");
    damaged.write_index(b"fleetgate-idx 1\nnothing more");
    assert_eq!(found(&folder, &fixed("Word4"), true).0.len(), 1);
    assert!(
        damaged.index().is_some_and(|bytes| bytes.len() > 100),
        "made anew"
    );
    // Where nothing can be written it is found all the same.
    let path = damaged.path.with_extension("index");
    std::fs::remove_file(&path).expect("a file");
    std::fs::create_dir(&path).expect("a directory in its place");
    assert_eq!(found(&folder, &fixed("Word4"), true).0.len(), 1);
    let left: Vec<_> = std::fs::read_dir(folder.0.join("2026-11-28"))
        .expect("a directory")
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_damaged_recording_delays_no_other() {
    let folder = folder("damaged");
    let path = find(&folder.0, "05050505").expect("it is there").path;
    let mut bytes = std::fs::read(&path).expect("a file");
    let at = bytes.len() - 300;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("a file");
    let other = folder.0.join("2026-11-28").join("cc".repeat(16) + ".rec");
    std::fs::write(other, "nothing of ours").expect("a file");
    let link = folder.0.join("2026-11-28").join("dd".repeat(16) + ".rec");
    symlink("/etc/passwd", link).expect("a link");
    let (lines, _, troubles) = found(&folder, &fixed("Word"), true);
    assert!(lines.len() >= 11, "{lines:?}");
    assert_eq!(troubles.len(), 3, "{troubles:?}");
    assert!(
        troubles[0].starts_with("05 searched up to its fault"),
        "{troubles:?}"
    );
    assert!(find(&folder.0, "05050505").expect("one").index().is_none());
    let all = list(&folder.0, &Filter::default()).expect("a directory");
    assert_eq!((all.recordings.len(), all.unreadable.len()), (12, 2));
}

#[test]
fn a_recording_that_takes_too_much_work_is_told_and_the_others_are_searched() {
    let folder = folder("budget");
    let entries = entries(&folder.0).expect("a directory");
    let options = Options {
        keys: Keys::default(),
        uses_index: true,
        budget: Budget {
            least: Duration::ZERO,
            each: Duration::ZERO,
        },
    };
    let mut troubles = Vec::new();
    let progress = search(&entries, &fixed("Word"), &options, &mut |event| {
        if let Event::Trouble(entry, why) = event {
            assert!(
                why.starts_with("searched up to 0:0") && why.contains(&entry.id),
                "{why}"
            );
            troubles.push(entry.id.clone());
        }
        true
    });
    assert_eq!((troubles.len(), progress.done), (12, 12));
    assert!(
        entries.iter().all(|entry| entry.index().is_none()),
        "no index of a part"
    );
}

#[test]
fn recordings_begin_in_the_order_of_time_whatever_their_ids_are() {
    let folder = Folder::new("order");
    for (id, hour) in [(1_u8, "12"), (2, "10"), (3, "11")] {
        let begin = BEGIN.replace("T10", &format!("T{hour}"));
        Recording::of([id; 16], &begin)
            .end(MS)
            .keep(&folder, "2026-11-29");
    }
    std::fs::write(
        folder.0.join("2026-11-29").join("cc".repeat(16) + ".rec"),
        "nothing of ours",
    )
    .expect("a file");
    let found: Vec<String> = begun(&folder.0, &Filter::default())
        .expect("a directory")
        .into_iter()
        .map(|found| found.map_or_else(|e| e.to_string(), |(entry, _)| entry.id[..2].to_owned()))
        .collect();
    assert_eq!(found[..3], ["02", "03", "01"]);
    assert!(
        found[3].ends_with("this is no recording of fleetgate"),
        "{found:?}"
    );
}

#[test]
fn a_days_directory_is_one_and_a_file_or_a_link_says_what_to_give() {
    let folder = folder("flat");
    let day = Folder(folder.0.join("2026-11-28"));
    assert_eq!(entries(&day.0).expect("a directory").len(), 6);
    let since = Filter {
        since: Some(1_795_860_120),
        ..Filter::default()
    };
    let all = list(&day.0, &since).expect("a directory").recordings;
    assert_eq!(all.len(), 4, "from 10:02 on");
    let one = find(&day.0, "03030303").expect("one");
    assert!(one.open().is_ok());
    let said = entries(&one.path).expect_err("a file").to_string();
    assert!(said.contains("this is a file: give the directory"), "{said}");
    let link = day.0.join("ee".repeat(16) + ".rec");
    symlink(&one.path, link).expect("a link");
    let said = find(&day.0, "eeee").expect("one").open().map(drop);
    let said = said.expect_err("a link").to_string();
    assert!(said.contains("this is a symbolic link"), "{said}");
}

#[test]
fn recordings_are_listed_by_their_beginning_and_end() {
    let folder = folder("list");
    let mut running = Recording::of([0xee; 16], &BEGIN.replace("T10", "T12"));
    running.output(MS, "x");
    let path = running.keep(&folder, "2026-11-29");
    std::fs::write(path.with_extension("tail"), running.tail()).expect("a file");
    // A node that makes it has its lock.
    let made = fleetgate_sys::Fd::from(std::os::fd::OwnedFd::from(
        std::fs::File::open(&path).expect("it is there"),
    ));
    fleetgate_sys::lock::try_hold(&made).expect("nobody has it");
    let ids = |filter: Filter| -> Vec<String> {
        let found = list(&folder.0, &filter).expect("a directory").recordings;
        found.into_iter().map(|l| l.entry.id[..2].to_owned()).collect()
    };
    assert_eq!(ids(Filter::default()).len(), 13);
    let user = "bob".to_owned();
    assert_eq!(
        ids(Filter {
            user,
            ..Filter::default()
        }),
        ["00", "02", "04", "06", "08", "0a"]
    );
    // 2026-11-29T10:08:00Z
    let moment = Some(1_795_946_880);
    let since = Filter {
        since: moment,
        ..Filter::default()
    };
    assert_eq!(ids(since), ["08", "09", "0a", "0b", "ee"]);
    let until = Filter {
        until: moment,
        ..Filter::default()
    };
    assert_eq!(ids(until).len(), 8);
    assert_eq!(
        ids(Filter {
            running: true,
            ..Filter::default()
        }),
        ["ee"]
    );
    assert_eq!(last(&folder.0).expect("one").state(), "running");
    let first = list(&folder.0, &Filter::default())
        .expect("a directory")
        .recordings
        .remove(0);
    assert_eq!(
        (first.state(), first.end.map(|(_, at)| at)),
        ("exit 3".to_owned(), Some(6000 * MS))
    );
    assert_eq!(
        (first.begin.what(), first.begin.client.as_str()),
        ("shell", "192.0.2.1:4")
    );
    drop(made);
    let left = list(&folder.0, &Filter::default())
        .expect("a directory")
        .recordings;
    assert_eq!(left.last().expect("some").state(), "unfinished");
}

#[test]
fn an_id_may_be_short_and_errors_say_what_to_do() {
    let folder = folder("find");
    assert_eq!(find(&folder.0, "0b").expect("one").id, "0b".repeat(16));
    let said = |id: &str| find(&folder.0, id).expect_err("none").to_string();
    assert!(
        said("0").contains("several recordings (00000000000000000000000000000000, "),
        "{}",
        said("0")
    );
    assert!(said("ff").ends_with("lists them"));
    let none = folder.0.join("none");
    assert!(matches!(entries(&none), Err(StoreError::NoDirectory(_))));
    assert!(matches!(last(&none), Err(StoreError::NoDirectory(_))));
    std::fs::create_dir(&none).expect("a directory");
    assert!(matches!(last(&none), Err(StoreError::Empty(_))));
}
