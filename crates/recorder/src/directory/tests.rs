//! What a killed monitor left is finished; what is being made is left alone; what is old goes.

use super::*;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::reader::{Content, Reader};
use fleetgate_record::tail::Tail;
use std::time::{Duration, SystemTime};

fn root(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("fleetgate-recordings-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    root
}

fn signs(statement: &Statement) -> Option<Vec<u8>> {
    Some(format!("signed {}", statement.blocks).into_bytes())
}

/// Kinds of all frames, and how many blocks the last signature covers.
fn read(path: &Path) -> (Vec<Kind>, u64, u64) {
    let mut reader = Reader::new(File::open(path).expect("it is there")).expect("a recording");
    let (mut kinds, mut signed) = (Vec::new(), 0);
    while let Some(block) = reader.next_block().expect("no fault") {
        if let Content::Signature { statement, .. } = &block.content {
            signed = statement.blocks;
        }
        kinds.extend(block.frames().map(|frame| frame.expect("a frame").kind));
    }
    (kinds, signed, reader.blocks())
}

fn push(writer: &mut Writer, kind: Kind, at: u64) {
    writer.push(&Frame {
        kind,
        at,
        bytes: b"{}",
    });
}

#[test]
fn what_a_killed_monitor_left_is_finished() {
    let root = root("left");
    let session = [9; 16];
    let made = make(&root, &session).expect("made");
    assert_eq!(fs::metadata(&made.path).expect("there").mode() & 0o777, FILE_MODE);
    assert!(make(&root, &session).is_err(), "a session has one recording");
    let mut writer = Writer::at(Position::start(&session));
    push(&mut writer, Kind::Begin, 0);
    let block = writer.close(None).expect("frames");
    file::write_all(made.blocks.raw(), &block).expect("written");
    push(&mut writer, Kind::Output, 5);
    let at = *writer.position();
    let (offset, entry) = Tail::default()
        .write(&at.anchor, writer.first(), writer.open_frames())
        .expect("frames");
    file::write_all_at(&made.tail, &entry, offset).expect("written");
    file::write_all(made.blocks.raw(), b"half a block").expect("written");

    let counts = |usage: Usage| (usage.recordings, usage.running, usage.left);
    assert_eq!(counts(usage(&root)), (1, 1, 0));
    let mut finished = Vec::new();
    finish_all(&root, &signs, &mut |one| finished.push(one));
    assert!(finished.is_empty(), "it is being made: {finished:?}");
    let path = made.path.clone();
    drop(made);
    assert_eq!(counts(usage(&root)), (1, 0, 1));
    finish_all(&root, &signs, &mut |one| finished.push(one));
    let [Ok(one)] = &finished[..] else {
        panic!("{finished:?}")
    };
    assert_eq!(one.session, session);
    let (kinds, signed, blocks) = read(&path);
    assert_eq!(kinds, [Kind::Begin, Kind::Output, Kind::End]);
    assert_eq!((signed, blocks), (3, 4));
    assert!(!path.with_extension(TAIL).exists());
    finish_all(&root, &signs, &mut |one| panic!("it is finished: {one:?}"));
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn a_lost_recorder_is_gone_on_from() {
    let root = root("mend");
    let made = make(&root, &[1; 16]).expect("made");
    let known = Position::start(&[1; 16]);
    let mut writer = Writer::at(known);
    push(&mut writer, Kind::Begin, 0);
    let block = writer.close(None).expect("frames");
    file::write_all(made.blocks.raw(), &block).expect("written");
    file::write_all(made.blocks.raw(), &block[..20]).expect("written");
    let at = mend(&made, &known).expect("mended").expect("it goes on");
    assert_eq!(at, *writer.position());
    let mut writer = Writer::at(at);
    file::write_all(made.blocks.raw(), &writer.end(None, 9, b"{}")).expect("written");
    assert_eq!(read(&made.path).0, [Kind::Begin, Kind::End]);
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn old_recordings_go_and_running_ones_stay() {
    let root = root("old");
    let mut paths = Vec::new();
    for n in 0..4_u8 {
        let made = make(&root, &[n; 16]).expect("made");
        file::write_all(made.blocks.raw(), &[0; 968]).expect("written");
        if n != 0 {
            finish(&made.path);
        }
        let days = Duration::from_secs(u64::from(10 - n) * 86_400 - 3600);
        File::open(&made.path)
            .and_then(|f| f.set_modified(SystemTime::now() - days))
            .expect("set");
        paths.push(made.path);
    }
    let there = |paths: &[PathBuf]| paths.iter().map(|p| p.exists()).collect::<Vec<_>>();
    assert_eq!(keep_within(&root, 0, 0).count, 0);
    assert_eq!(
        keep_within(&root, 9, 0).count,
        0,
        "none is more than nine days old"
    );
    let removed = keep_within(&root, 8, 0);
    assert_eq!((removed.count, removed.bytes), (1, 1000));
    assert_eq!(there(&paths), [true, false, true, true]);
    let removed = keep_within(&root, 0, 2500);
    assert_eq!((removed.count, removed.left), (1, 2000));
    assert_eq!(there(&paths), [true, false, false, true]);
    // The last one is of this week.
    File::open(&paths[3])
        .and_then(|f| f.set_modified(SystemTime::now() - Duration::from_secs(6 * 86_400)))
        .expect("set");
    let removed = keep_within(&root, 0, 1000);
    assert_eq!((removed.count, removed.left), (0, 2000));
    fs::remove_dir_all(&root).expect("removed");
}
