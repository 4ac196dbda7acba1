//! Playing in a time that the test says.

use super::*;
use crate::play::{Key, Next, Options, Player, keys, status};
use fleetgate_record::block::FILE_HEAD;
use fleetgate_record::compress::Compressor;
use fleetgate_record::tail::Tail;
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

const SECOND: u64 = 1_000_000;

fn recording() -> Recording {
    let mut r = Recording::new();
    for n in 1..=10_u64 {
        r.output(n * SECOND, &format!("{n} "));
    }
    r.output(100 * SECOND, "late").end(101 * SECOND);
    r
}

fn player<'a>(
    recording: &'a Recording,
    options: Options,
) -> Player<&'a [u8], impl FnMut() -> io::Result<Source<&'a [u8]>>> {
    Player::new(|| Ok(recording.source()), options).expect("memory")
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn frames_come_at_their_time() {
    let r = recording();
    let mut p = player(&r, Options::default());
    assert_eq!(p.screen().size(), (20, 5));
    assert_eq!(p.begin().login, "root");
    assert_eq!(p.advance(seconds(0.0)).unwrap(), Next::Wait(seconds(1.0)));
    assert_eq!(p.advance(seconds(0.4)).unwrap(), Next::Wait(seconds(0.6)));
    assert_eq!(p.advance(seconds(2.5)).unwrap(), Next::Wait(seconds(0.5)));
    assert_eq!(p.screen().row_text(0), "1 2");
    p.key(Key::Pause, seconds(2.5)).unwrap();
    assert_eq!(p.advance(seconds(50.0)).unwrap(), Next::Key);
    p.key(Key::Pause, seconds(60.0)).unwrap();
    assert_eq!(p.advance(seconds(60.0)).unwrap(), Next::Wait(seconds(0.5)));
    for _ in 0..2 {
        p.key(Key::Faster, seconds(60.0)).unwrap();
    }
    assert_eq!(p.speed(), 200);
    assert_eq!(p.advance(seconds(60.0)).unwrap(), Next::Wait(seconds(0.25)));
    assert!(status(&p, 80).starts_with(" 0:02  2.00x"), "{}", status(&p, 80));
    p.key(Key::On, seconds(60.0)).unwrap();
    assert_eq!(p.advance(seconds(60.0)).unwrap(), Next::Wait(seconds(43.75)));
    assert_eq!(p.screen().row_text(0), "1 2 3 4 5 6 7 8 9 10");
    p.key(Key::Back, seconds(60.0)).unwrap();
    p.advance(seconds(60.0)).unwrap();
    assert_eq!(p.screen().row_text(0), "1 2");
    p.key(Key::Quit, seconds(60.0)).unwrap();
    assert_eq!(p.advance(seconds(60.0)).unwrap(), Next::Quit);
}

#[test]
fn idle_time_is_cut_and_the_end_is_told() {
    let r = recording();
    let options = Options {
        from: 9_500_000,
        max_idle: Some(2 * SECOND),
        ..Options::default()
    };
    let mut p = player(&r, options);
    assert_eq!(p.advance(seconds(0.0)).unwrap(), Next::Wait(seconds(0.5)));
    assert_eq!(p.screen().row_text(0), "1 2 3 4 5 6 7 8 9");
    assert_eq!(p.advance(seconds(0.5)).unwrap(), Next::Wait(seconds(2.0)));
    assert_eq!(p.advance(seconds(2.6)).unwrap(), Next::Wait(seconds(0.9)));
    assert_eq!(p.advance(seconds(9.0)).unwrap(), Next::Key);
    assert!(p.is_over() && p.position() == 101 * SECOND);
    assert!(status(&p, 80).contains("exit 3"));
    p.key(Key::Start, seconds(9.0)).unwrap();
    assert_eq!(p.advance(seconds(9.0)).unwrap(), Next::Wait(seconds(1.0)));
    assert!(!p.is_over() && p.screen().row_text(0).is_empty());
}

#[test]
fn the_foot_says_how_long_it_is_and_that_it_stands_still() {
    let mut r = Recording::new();
    r.output(SECOND, "x");
    let options = Options {
        length: Some(3723 * SECOND),
        follow: true,
        ..Options::default()
    };
    let mut p = player(&r, options);
    p.advance(seconds(2.0)).unwrap();
    p.advance(seconds(2.0)).unwrap();
    assert!(
        status(&p, 80).starts_with(" 0:01 of 1:02:03  1.00x  live"),
        "{}",
        status(&p, 80)
    );
    p.key(Key::Pause, seconds(3.0)).unwrap();
    assert_eq!(p.advance(seconds(3.0)).unwrap(), Next::Key);
    assert!(status(&p, 80).contains("  paused"), "{}", status(&p, 80));
    p.key(Key::Pause, seconds(4.0)).unwrap();
    p.advance(seconds(4.0)).unwrap();
    assert!(status(&p, 80).contains("  live"), "{}", status(&p, 80));
}

#[test]
fn a_damaged_recording_plays_to_its_fault() {
    let mut r = Recording::new();
    r.output(SECOND, "good")
        .close()
        .output(2 * SECOND, "bad")
        .end(3 * SECOND);
    let at = r.starts[1] + 74;
    r.file[at] ^= 1;
    let mut p = player(&r, Options::default());
    assert_eq!(p.advance(seconds(99.0)).unwrap(), Next::Key);
    assert_eq!(p.screen().row_text(0), "good");
    assert!(p.fault().unwrap().contains("(block 1, at byte"));
    assert!(status(&p, 200).contains("fault: "));
}

#[test]
fn times_of_a_hostile_file_wait_no_centuries() {
    let mut r = Recording::new();
    r.output(u64::MAX, "x").end(u64::MAX);
    let mut p = player(&r, Options::default());
    let Next::Wait(wait) = p.advance(seconds(0.0)).unwrap() else {
        panic!("it is not due");
    };
    assert!(wait <= Duration::from_secs(86_400));
    p.key(Key::On, seconds(1.0)).unwrap();
    p.advance(seconds(1.0)).unwrap();
    assert!(!status(&p, 80).is_empty());
}

#[test]
fn keys_are_read_from_a_terminals_bytes() {
    assert_eq!(
        keys(b" \x1b[C\x1bOD+-\x1b[A\x1b[Bgqz\x1b[5~\x03"),
        [
            Key::Pause,
            Key::On,
            Key::Back,
            Key::Faster,
            Key::Slower,
            Key::Faster,
            Key::Slower,
            Key::Start,
            Key::Quit,
            Key::Quit
        ]
    );
    assert_eq!(keys(b"\x1b\xff"), []);
}

/// A file that somebody else writes to.
#[derive(Clone)]
struct Growing {
    bytes: Rc<RefCell<Vec<u8>>>,
    /// How much of it was read in all.
    read: Rc<Cell<usize>>,
    at: usize,
}

impl Read for Growing {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let n = (&self.bytes.borrow()[self.at..]).read(room)?;
        self.at += n;
        self.read.set(self.read.get() + n);
        Ok(n)
    }
}

#[test]
fn what_comes_while_it_runs_is_shown_as_it_comes() {
    let mut file = file_head(&SESSION).to_vec();
    let mut writer = Writer::at(Position::start(&SESSION));
    let put = |writer: &mut Writer, kind, at, bytes: &[u8]| {
        writer.push(&Frame { kind, at, bytes });
    };
    put(
        &mut writer,
        Kind::Begin,
        0,
        br#"{"terminal":{"columns":20,"rows":3}}"#,
    );
    put(&mut writer, Kind::Output, 10, b"first\r\n");
    file.extend(writer.close(None).unwrap_or_default());
    let file = Growing {
        bytes: Rc::new(RefCell::new(file)),
        read: Rc::default(),
        at: 0,
    };
    let tail = RefCell::new(Vec::new());
    let options = Options {
        from: u64::MAX,
        follow: true,
        ..Options::default()
    };
    let open = || {
        let from_start = Growing {
            at: 0,
            ..file.clone()
        };
        Source::new(from_start, Some(tail.borrow().clone())).map_err(std::io::Error::other)
    };
    let mut player = Player::new(open, options).expect("it opens");
    let mut now = Duration::ZERO;
    let mut shows = |player: &mut Player<_, _>, text: &str| {
        for _ in 0..4 {
            now += Duration::from_millis(500);
            player.advance(now).expect("it goes on");
        }
        assert_eq!(player.screen().text().trim_end(), text);
    };
    shows(&mut player, "first");
    assert!(player.is_live());
    // Hours later, and at once.
    put(&mut writer, Kind::Output, 9_000_000_000, b"second");
    // First it is in the tail, twice; then in a block, which is read once, and shown no second time.
    let mut tails = Tail::default();
    let mut compressor = Compressor::new().expect("memory");
    let mut save = |writer: &mut Writer| {
        let entry = tails.write(writer, &mut compressor);
        tail.borrow_mut().extend(entry.expect("something new").1);
    };
    save(&mut writer);
    shows(&mut player, "first\nsecond");
    put(&mut writer, Kind::Output, 9_000_000_000, b" third");
    save(&mut writer);
    shows(&mut player, "first\nsecond third");
    let block = writer.close(None).unwrap_or_default();
    put(&mut writer, Kind::Output, 9_000_000_000, b" last");
    let more = writer.close(None).unwrap_or_default();
    file.bytes.borrow_mut().extend([block, more].concat());
    tail.borrow_mut().clear();
    shows(&mut player, "first\nsecond third last");
    file.bytes
        .borrow_mut()
        .extend(writer.end(None, 9_000_000_001, b"{}"));
    shows(&mut player, "first\nsecond third last");
    // Each look reads the file's beginning, and what is new.
    let len = file.bytes.borrow().len();
    assert!(file.read.get() < len + 30 * FILE_HEAD, "{}", file.read.get());
    assert!(!player.is_live() && player.is_over());
}
