//! Which lines are told, and when.

use super::*;
use crate::text::{MAX_LINE, each};
use fleetgate_record::Fault;
use fleetgate_record::age::{Identity, Keys, Recipients};

/// `milliseconds text`.
fn lines(recording: &Recording) -> Vec<String> {
    let mut lines = Vec::new();
    each(&mut recording.source(), &mut |line| {
        lines.push(format!("{} {}", line.at / MS, line.text));
    })
    .expect("it is in memory");
    lines
}

#[test]
fn a_line_is_told_once_when_it_scrolls_away_when_it_stands_and_at_the_end() {
    let mut r = Recording::new();
    // Typed slowly: told as it stood at each pause, and not again while it stays.
    r.output(1000 * MS, "$ l").output(1050 * MS, "s");
    r.output(2000 * MS, "\r\none\r\ntwo\r\n$ ");
    r.output(9000 * MS, "\x1b[?25h").output(9500 * MS, "");
    // More than the screen has room for.
    let many: String = (0..8).map(|n| format!("n{n}\r\n")).collect();
    r.output(10_000 * MS, &many).end(10_001 * MS);
    assert_eq!(
        lines(&r),
        [
            "1050 $ ls",
            "2000 one",
            "2000 two",
            "2000 $",
            "10000 $ n0",
            "10000 n1",
            "10000 n2",
            "10000 n3",
            "10000 n4",
            "10000 n5",
            "10000 n6",
            "10000 n7"
        ]
    );
}

#[test]
fn the_same_line_again_is_another_line() {
    let mut r = Recording::new();
    r.output(1000 * MS, "ok\r\nok\r\n").output(2000 * MS, "ok\r\n");
    for n in 0..6 {
        r.output((3000 + n) * MS, "ok\r\n");
    }
    assert_eq!(lines(&r).len(), 9);
}

#[test]
fn what_is_cleared_or_covered_was_there() {
    let mut r = Recording::new();
    r.output(
        1000 * MS,
        "first\x1b[H\x1b[2Jsecond\x1b[H\x1b[Jthird\x1b[1;1H\x1b[?1049hfourth",
    )
    .output(1010 * MS, "\x1b[2J\x1b[Hfifth\x1b[?1049l")
    .output(1020 * MS, "\x1bcsixth")
    .resized(1030 * MS, 4, 3)
    .output(1040 * MS, "\x1b[H\x1b[2J")
    .end(1050 * MS);
    let found = lines(&r);
    assert_eq!(
        found,
        [
            "1000 first",
            "1000 second",
            "1000 third",
            "1000 fourth",
            "1010 fifth",
            "1020 sixth"
        ],
        "{found:?}"
    );
}

#[test]
fn what_scrolls_away_in_a_part_of_the_screen_is_told() {
    let mut r = Recording::new();
    r.output(1000 * MS, "\x1b[?1049h\x1b[1;1Hhead\x1b[2;4r\x1b[2;1H");
    let many: String = (0..6).map(|n| format!("row {n}\r\n")).collect();
    r.output(1001 * MS, &many);
    r.output(1002 * MS, "\x1b[2;1H\x1b[2Mlast\x1b[?1049l")
        .end(1003 * MS);
    let found = lines(&r);
    let mut text: Vec<&str> = found
        .iter()
        .filter_map(|l| l.split_once(' '))
        .map(|(_, l)| l)
        .collect();
    text.sort_unstable();
    assert_eq!(
        text,
        [
            "head", "last", "row 0", "row 1", "row 2", "row 3", "row 4", "row 5"
        ]
    );
}

#[test]
fn a_long_line_is_one_and_an_endless_one_is_many() {
    let mut r = Recording::new();
    let long = "0123456789".repeat(7);
    r.output(1000 * MS, &format!("{long}\r\n$ "))
        .output(5000 * MS, "x");
    assert_eq!(
        lines(&r),
        [format!("1000 {long}"), "1000 $".into(), "5000 $ x".into()]
    );
    let mut r = Recording::new();
    r.output(1000 * MS, &"y".repeat(100_000));
    let found = lines(&r);
    assert!(found.len() > 3 && found.iter().all(|l| l.len() < MAX_LINE + 100));
    assert_eq!(found.concat().matches('y').count(), 100_000);
}

#[test]
fn programs_without_a_terminal_have_their_lines() {
    let mut r = Recording::of(SESSION, PIPES);
    r.push(Kind::Stdout, 50 * MS, b"cc a\xe2\x82")
        .push(Kind::Stderr, 60 * MS, b"warn\x1b[1ming\n");
    r.push(Kind::Stdout, 70 * MS, b"\xac\nlast")
        .push(Kind::Stdin, 80 * MS, b"never\n")
        .end(90 * MS);
    assert_eq!(lines(&r), ["60 warning", "70 cc a\u{20ac}", "70 last"]);
}

#[test]
fn a_recording_that_runs_is_read_with_its_tail() {
    let mut r = Recording::new();
    r.output(MS, "in a block\r\n")
        .sign("node")
        .output(2 * MS, "in the tail");
    let mut lines = Vec::new();
    let mut source = Source::new(r.file.as_slice(), Some(r.tail())).expect("a recording");
    each(&mut source, &mut |line| lines.push(line.text.to_owned())).expect("memory");
    assert_eq!(lines, ["in a block", "in the tail"]);
    assert!(source.fault().is_none() && !source.has_ended());
    // A block that is being written is no fault of one that runs, and is one of another.
    let mut cut = r.file.clone();
    cut.truncate(cut.len() - 1);
    for (tail, is_fault) in [(Some(Vec::new()), false), (None, true)] {
        let mut source = Source::new(cut.as_slice(), tail).expect("a recording");
        while source.next_frame().expect("memory").is_some() {}
        assert_eq!(source.fault().is_some(), is_fault);
    }
}

#[test]
fn an_encrypted_recording_is_read_with_its_key_and_its_tail() {
    let identity = || Identity::new([3; 32]);
    let begin = BEGIN.replace("}}", "},\"recipients\":[\"age1x\"]}");
    let mut r = Recording::of(SESSION, &begin);
    r.close();
    r.writer = r
        .writer
        .clone()
        .sealed_for(Recipients::new(&[identity().recipient()]));
    r.output(1000 * MS, "closed\r\n").close();
    r.output(2000 * MS, "open\r\n");
    let with = |keys| {
        let mut source = r.source().with_keys(keys);
        let mut found = Vec::new();
        each(&mut source, &mut |line| {
            found.push(format!("{} {}", line.at / MS, line.text))
        })
        .expect("memory");
        (found, source.passed_over(), source.fault().map(|e| e.fault))
    };
    let own = with(Keys::new(vec![identity()]));
    assert_eq!(
        own,
        (vec!["1000 closed".to_owned(), "2000 open".to_owned()], 0, None)
    );
    assert_eq!(with(Keys::default()), (Vec::new(), 2, None));
    let other = Keys::new(vec![Identity::new([4; 32])]);
    assert_eq!(with(other), (Vec::new(), 0, Some(Fault::OtherKey)));
    let mut out = Vec::new();
    crate::export::json(&mut r.source(), &mut out).expect("memory");
    let lines = String::from_utf8(out).expect("text");
    let kinds: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|line| {
            (
                line["kind"].as_str().unwrap_or_default().to_owned(),
                line["bytes"].as_u64(),
            )
        })
        .collect();
    let encrypted = |bytes| ("encrypted".to_owned(), Some(bytes));
    assert_eq!(kinds, [("begin".to_owned(), None), encrypted(11), encrypted(9)]);
}
