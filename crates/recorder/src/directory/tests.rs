//! What a killed monitor left is finished; what is being made is left alone; what is old goes.

use super::*;
use fleetgate_record::age::{Identity, Keys, Recipients};
use fleetgate_record::compress::Compressor;
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
    let mut compressor = Compressor::new().expect("memory");
    let (offset, entry) = Tail::default()
        .write(&mut writer, &mut compressor)
        .expect("frames");
    file::write_all_at(&made.tail, &entry, offset).expect("written");
    file::write_all(made.blocks.raw(), b"half a block").expect("written");

    let counts = |usage: Usage| (usage.recordings, usage.running, usage.left);
    assert_eq!(counts(usage(&root)), (1, 1, 0));
    let mut finished = Vec::new();
    finish_all(&root, &|_| true, &signs, &mut |one| finished.push(one));
    assert!(finished.is_empty(), "it is being made: {finished:?}");
    let path = made.path.clone();
    drop(made);
    assert_eq!(counts(usage(&root)), (1, 0, 1));
    // One that this machine did not begin gets no signature.
    finish_all(&root, &|_| false, &|_| panic!("it is not ours"), &mut |one| {
        finished.push(one)
    });
    assert!(
        matches!(&finished[..], [Err(why)] if why.contains("not begun here")),
        "{finished:?}"
    );
    finished.clear();
    let before = fs::read(&path).expect("there");
    fs::copy(&path, root.join("another")).expect("copied");
    let (own, another) = (path.with_extension("own"), path.with_file_name("aa".repeat(16)));
    // Nor one under another session's name, or with another name beside.
    let another = another.with_extension(RECORDING);
    fs::rename(&path, &another).expect("moved");
    fs::rename(path.with_extension(TAIL), another.with_extension(TAIL)).expect("moved");
    finish_all(&root, &|_| true, &|_| panic!("it is not its"), &mut |one| {
        finished.push(one)
    });
    assert!(
        matches!(&finished[..], [Err(why)] if why.contains("another session")),
        "{finished:?}"
    );
    finished.clear();
    fs::rename(&another, &path).expect("moved");
    fs::rename(another.with_extension(TAIL), path.with_extension(TAIL)).expect("moved");
    fs::hard_link(&path, &own).expect("linked");
    finish_all(&root, &|_| true, &|_| panic!("it is somebody's"), &mut |one| {
        finished.push(one)
    });
    assert!(matches!(&finished[..], [Err(_)]), "{finished:?}");
    finished.clear();
    fs::remove_file(own).expect("there");
    assert_eq!(fs::read(&path).expect("there"), before);
    let says_so = |statement: &Statement| {
        assert!(statement.signed.ends_with("Z recovered"), "{}", statement.signed);
        signs(statement)
    };
    finish_all(&root, &|_| true, &says_so, &mut |one| finished.push(one));
    let [Ok(one)] = &finished[..] else {
        panic!("{finished:?}")
    };
    assert_eq!(one.session, session);
    let (kinds, signed, blocks) = read(&path);
    assert_eq!(kinds, [Kind::Begin, Kind::Output, Kind::End]);
    assert_eq!((signed, blocks), (3, 4));
    assert!(!path.with_extension(TAIL).exists());
    finish_all(&root, &|_| true, &signs, &mut |one| {
        panic!("it is finished: {one:?}")
    });
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
    let within = |keep_days, max_size, max_count| {
        let bounds = Bounds {
            keep_days,
            max_size,
            max_count,
            is_sending: false,
        };
        keep_within(&root, &bounds, 9, &|_| false)
    };
    assert_eq!(within(0, 0, 9).removed, 0);
    assert_eq!(within(9, 0, 9).removed, 0, "none is more than nine days old");
    let kept = within(8, 0, 9);
    assert_eq!((kept.removed, kept.removed_bytes, kept.undelivered), (1, 1000, 0));
    assert_eq!(there(&paths), [true, false, true, true]);
    let kept = within(0, 2500, 9);
    assert_eq!((kept.removed, kept.bytes, kept.is_full), (1, 2000, false));
    assert_eq!(there(&paths), [true, false, false, true]);
    // The last one is of this week.
    File::open(&paths[3])
        .and_then(|f| f.set_modified(SystemTime::now() - Duration::from_secs(6 * 86_400)))
        .expect("set");
    let kept = within(0, 1000, 9);
    assert_eq!((kept.removed, kept.bytes, kept.is_full), (0, 2000, true));
    assert!(within(0, 0, 1).is_full, "there are two");
    assert_eq!(
        (kept.waiting.count, kept.next),
        (0, Vec::new()),
        "no cluster is to get them"
    );
    fs::remove_dir_all(&root).expect("removed");
}

/// Recordings that ended so many days ago, each of a thousand bytes.
fn ended(root: &Path, ages: &[u64]) -> Vec<(SessionId, PathBuf)> {
    let make_one = |(n, days): (usize, &u64)| {
        let session = [u8::try_from(n).expect("few"); 16];
        let made = make(root, &session).expect("made");
        file::write_all(made.blocks.raw(), &[0; 968]).expect("written");
        finish(&made.path);
        let ago = Duration::from_secs(days * 86_400 + 3600);
        File::open(&made.path)
            .and_then(|f| f.set_modified(SystemTime::now() - ago))
            .expect("set");
        (session, made.path)
    };
    ages.iter().enumerate().map(make_one).collect()
}

#[test]
fn what_the_cluster_has_goes_first_and_what_it_has_not_goes_last() {
    let root = root("delivered");
    let all = ended(&root, &[20, 19, 3, 2, 1]);
    for (n, refused) in [(1, None), (3, None), (4, Some("no\n reason"))] {
        delivered::note(&all[n].1, &all[n].0, refused).expect("noted");
    }
    let list = all[0].1.with_file_name(delivered::DELIVERED);
    let list_size = fs::metadata(&list).expect("there").len();
    let within = |keep_days, recordings: u64| {
        let bounds = Bounds {
            keep_days,
            max_size: recordings * 1000 + list_size,
            max_count: 9,
            is_sending: true,
        };
        keep_within(&root, &bounds, 9, &|session| session == &all[2].0)
    };
    let there = || all.iter().map(|(_, path)| path.exists()).collect::<Vec<_>>();
    let kept = within(0, 5);
    assert_eq!(
        (kept.removed, kept.waiting.count, kept.waiting.bytes),
        (0, 2, 2000)
    );
    assert_eq!(kept.next, [all[0].clone()], "the other one is known");
    let now = usage(&root);
    assert_eq!((now.waiting, now.refused), (kept.waiting, 1));
    let kept = within(0, 3);
    assert_eq!(
        (kept.removed, kept.undelivered),
        (2, 0),
        "also what is of this week"
    );
    assert_eq!(there(), [true, false, true, false, true]);
    // The rest waits, and what is of the last days stays.
    let kept = within(0, 1);
    assert_eq!((kept.removed, kept.undelivered, kept.is_full), (1, 1, true));
    assert_eq!(there(), [false, false, true, false, true]);
    let kept = within(1, 9);
    assert_eq!(
        (kept.removed, kept.undelivered),
        (2, 2),
        "the administrator wants none that is old"
    );
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn a_list_of_what_was_delivered_survives_what_a_crash_leaves() {
    let root = root("list");
    let all = ended(&root, &[0, 0, 0]);
    delivered::note(&all[0].1, &all[0].0, None).expect("noted");
    delivered::note(&all[1].1, &all[1].0, Some("of another node")).expect("noted");
    let day = all[0].1.parent().expect("a day").to_owned();
    let list = day.join(delivered::DELIVERED);
    let mut text = fs::read_to_string(&list).expect("there");
    assert_eq!(
        text,
        format!(
            "{}\n{} refused: of another node\n",
            name(&all[0].0),
            name(&all[1].0)
        )
    );
    text += &format!("{}\nxyz\n{}", name(&[0xe; 16]).to_uppercase(), name(&all[2].0));
    fs::write(&list, text).expect("written");
    let known = delivered::of(&day);
    use delivered::Delivery::{Kept, Refused};
    assert_eq!(
        known.into_iter().collect::<Vec<_>>(),
        [(all[0].0, Kept), (all[1].0, Refused)]
    );
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn what_somebody_makes_is_not_sent_as_a_whole() {
    let root = root("sending");
    let made = make(&root, &[5; 16]).expect("made");
    let path = made.path.clone();
    assert!(for_sending(&path).expect("it is there").is_none());
    assert_eq!(for_sending_made(&path).expect("it is there").1, FILE_HEAD as u64);
    drop(made);
    let (file, length) = for_sending(&path).expect("it is there").expect("nobody makes it");
    assert_eq!(length, FILE_HEAD as u64);
    let mut bytes = [0; 64];
    assert_eq!(file::read_at(file.raw(), &mut bytes, 0).ok(), Some(FILE_HEAD));
    assert!(lock::try_hold(&file).is_ok(), "whoever reads it does not make it");
    fs::remove_dir_all(&root).expect("removed");
    assert!(for_sending(&path).is_err());
}

#[test]
fn what_was_begun_is_known_until_it_is_finished() {
    let root = root("begun");
    let begun = begun::Begun::of(&root);
    assert!(!begun.has(&[1; 16]));
    begun.note(&[1; 16]).expect("noted");
    begun.note(&[2; 16]).expect("noted");
    begun.forget(&[2; 16]);
    assert_eq!((begun.has(&[1; 16]), begun.has(&[2; 16])), (true, false));
    // Long ago: one that is not finished stays, and one that is goes.
    let recordings = root.join("recordings");
    let made = make(&recordings, &[3; 16]).expect("made");
    begun.note(&[3; 16]).expect("noted");
    let all = [&[1; 16], &[3; 16]].map(|session| begun.has(session));
    begun.tidy(&recordings);
    assert_eq!(
        [&[1; 16], &[3; 16]].map(|session| begun.has(session)),
        all,
        "they may be about to begin"
    );
    for file in children(&root.join("recordings-begun")) {
        let hours = Duration::from_secs(4 * 3600);
        File::open(file)
            .and_then(|f| f.set_modified(SystemTime::now() - hours))
            .expect("set");
    }
    begun.tidy(&recordings);
    assert_eq!(
        [&[1; 16], &[3; 16]].map(|session| begun.has(session)),
        [false, true]
    );
    drop(made);
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn an_encrypted_tail_becomes_blocks_without_a_key() {
    let root = root("encrypted");
    let session = [8; 16];
    let made = make(&root, &session).expect("made");
    let recipients = Recipients::new(&[Identity::new([5; 32]).recipient()]);
    let mut writer = Writer::at(Position::start(&session)).sealed_for(recipients);
    let (mut tail, mut compressor) = (Tail::default(), Compressor::new().expect("memory"));
    for at in 0..3 {
        push(&mut writer, Kind::Event, at * 1_000_000);
        let (offset, entry) = tail.write(&mut writer, &mut compressor).expect("frames");
        file::write_all_at(&made.tail, &entry, offset).expect("written");
    }
    let path = made.path.clone();
    drop(made);
    let mut all = Vec::new();
    finish_all(&root, &|_| true, &signs, &mut |finished| {
        all.push(finished.expect("it can"))
    });
    assert_eq!((all.len(), all[0].position.blocks), (1, 5));
    let keys = Keys::new(vec![Identity::new([5; 32])]);
    let mut reader = Reader::new(File::open(&path).expect("there"))
        .expect("a recording")
        .with_keys(keys);
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block().expect("no fault") {
        frames.extend(
            block
                .frames()
                .map(|f| f.expect("a frame"))
                .map(|f| (f.kind, f.at)),
        );
    }
    let event = |at: u64| (Kind::Event, at * 1_000_000);
    assert_eq!(frames, [event(0), event(1), event(2), (Kind::End, 2_000_000)]);
    fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn a_whole_recording_ends_at_one_of_few_places_and_no_other_does() {
    let root = root("ends");
    let session = [7; 16];
    let Made { blocks, path, .. } = make(&root, &session).expect("made");
    let mut writer = Writer::at(Position::start(&session));
    let write = |block: &[u8]| file::write_all(blocks.raw(), block).expect("written");
    push(&mut writer, Kind::Begin, 0);
    write(&writer.close(None).expect("frames"));
    let sign = |writer: &mut Writer| {
        let statement = statement(&session, writer.position());
        writer.sign(&signature::encode(&statement, b"a signature"))
    };
    write(&sign(&mut writer));
    assert_eq!(ends(&path).expect("read"), [], "it goes on");
    write(&writer.end(None, 9, b"{}"));
    let mut all = vec![*writer.position()];
    for _ in 0..2 {
        write(&sign(&mut writer));
        all.push(*writer.position());
    }
    let all: Vec<_> = all.iter().map(|at| (at.length, at.chain)).collect();
    assert_eq!(ends(&path).expect("read"), all);
    // Half a head more changes nothing, signatures without end are not followed, and what is no block is an error.
    write(b"FGRB");
    assert_eq!(ends(&path).expect("read"), all);
    file::truncate(&blocks, all[2].0).expect("cut");
    for _ in 0..20 {
        write(&sign(&mut writer));
    }
    assert_eq!(ends(&path).expect("read").len(), 8);
    file::truncate(&blocks, all[0].0).expect("cut");
    write(&[7; 100]);
    assert!(ends(&path).is_err());
    assert!(ends(&root.join("none")).is_err());
    fs::remove_dir_all(&root).expect("removed");
}
