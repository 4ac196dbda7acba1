//! What the monitor makes of a recorder's words: chains only grow, the end is signed, storms of events are counted.

use super::*;
use fleetgate_record::signature;
use std::path::PathBuf;

const SESSION: SessionId = [3; 16];

struct World {
    root: PathBuf,
    recordings: Recordings,
}

impl World {
    /// One recording that has begun.
    fn new(name: &str, on_failure: RecordingFailure) -> World {
        let root = std::env::temp_dir().join(format!("fleetgate-keeping-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let mut recordings = Recordings::default();
        let prepared = prepare(&root, SESSION, (Recording::Full, on_failure), true).expect("files");
        let whose = Whose {
            connection: 7,
            ticket: 1,
            login: "ada".to_owned(),
        };
        let front = recordings.begin(prepared, whose, b"{}").expect("it begins");
        assert!(front.is_some_and(|(_, recorded)| recorded.input));
        let [(ToRecorder::Begin { session, at }, fds)] = &recordings.take_outbox()[..] else {
            panic!("one message")
        };
        assert_eq!((*session, at.blocks, fds.len()), (SESSION, 1, 3));
        World { root, recordings }
    }

    fn at(blocks: u64, anchor: u8, chain: u8) -> wire::Position {
        wire::Position {
            blocks,
            chain: [chain; 32],
            anchor: [anchor; 32],
            length: 32 + blocks * 100,
            last: blocks,
        }
    }

    /// The recorder says that a block with frames stands there.
    fn frames(&mut self, blocks: u64, ended: bool) -> Result<Next, &'static str> {
        let n = u8::try_from(blocks).expect("few");
        self.recordings.closed(&SESSION, &World::at(blocks, n, n), ended)
    }

    /// The same of a signature.
    fn signature(&mut self, blocks: u64, anchor: u8, ended: bool) -> Result<Next, &'static str> {
        let n = u8::try_from(blocks).expect("few");
        self.recordings
            .closed(&SESSION, &World::at(blocks, anchor, n), ended)
    }

    fn sign(&mut self, next: Result<Next, &'static str>, blocks: u64) {
        let Ok(Next::Sign(statement)) = next else {
            panic!("{next:?}")
        };
        assert_eq!((statement.session, statement.blocks), (SESSION, blocks));
        let next = self.recordings.signed(&statement, Some(b"signature".to_vec()));
        assert_eq!(next, Next::Nothing);
        let [(ToRecorder::Signature { bytes, .. }, _)] = &self.recordings.take_outbox()[..] else {
            panic!("one message")
        };
        let (told, by) = signature::decode(bytes).expect("a signature block");
        assert_eq!((told, by), (statement, &b"signature"[..]));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_session_that_does_not_begin_leaves_no_files() {
    let root = std::env::temp_dir().join(format!("fleetgate-keeping-none-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let prepared = prepare(&root, SESSION, (Recording::Output, RecordingFailure::End), false).expect("files");
    let files = || {
        let days = std::fs::read_dir(&root).expect("a directory").flatten();
        days.flat_map(|day| std::fs::read_dir(day.path()).expect("a day"))
            .count()
    };
    assert_eq!(files(), 2);
    drop(prepared);
    assert_eq!(files(), 0);
    std::fs::remove_dir_all(&root).expect("removed");
}

#[test]
fn the_end_is_signed_whatever_signatures_are_under_way() {
    let mut world = World::new("end", RecordingFailure::End);
    let first = world.frames(2, false);
    world.sign(first, 2);
    // Within a second, and while a signature is on its way, none is asked for.
    assert_eq!(world.frames(3, false), Ok(Next::Nothing));
    world.recordings.end(&SESSION, b"{}".to_vec());
    assert!(matches!(
        &world.recordings.take_outbox()[..],
        [(ToRecorder::End { .. }, _)]
    ));
    assert_eq!(world.frames(4, true), Ok(Next::Nothing));
    // The first signature: it does not cover the end.
    let again = world.signature(5, 4, true);
    world.sign(again, 5);
    let Ok(Next::Done { whose, at }) = world.signature(6, 4, true) else {
        panic!("it is whole")
    };
    assert_eq!((whose.login.as_str(), at.blocks), ("ada", 6));
    assert!(!world.recordings.is_needed());
    assert!(matches!(
        &world.recordings.take_outbox()[..],
        [(ToRecorder::Done { .. }, _)]
    ));
}

#[test]
fn a_chain_only_grows_and_ends_when_its_session_has() {
    let mut world = World::new("grows", RecordingFailure::GoOn);
    let first = world.frames(2, false);
    world.sign(first, 2);
    assert!(world.frames(2, false).is_err(), "the same again");
    assert!(world.frames(1, false).is_err(), "back");
    assert!(world.frames(3, true).is_err(), "an end that nobody made");
    let (whose, on_failure) = world.recordings.give_up(&SESSION).expect("it is there");
    assert_eq!((whose.ticket, on_failure), (1, RecordingFailure::GoOn));
    assert_eq!(world.frames(1, false), Ok(Next::Nothing), "nobody asks any more");
}

#[test]
fn a_storm_of_events_is_counted() {
    let mut world = World::new("storm", RecordingFailure::End);
    for _ in 0..CREDIT + 10 {
        world.recordings.event(&SESSION, b"{\"event\":\"file\"}\n");
    }
    world.recordings.event(&SESSION, &vec![b' '; MAX_JSON + 1]);
    assert_eq!(world.recordings.take_outbox().len(), CREDIT as usize);
    world.recordings.took(CREDIT);
    world.recordings.event(&SESSION, &vec![b'x'; MAX_JSON + 1]);
    world.recordings.event_of_connection(7, b"{}");
    let told: Vec<String> = world
        .recordings
        .take_outbox()
        .into_iter()
        .map(|(message, _)| match message {
            ToRecorder::Event { json, .. } => String::from_utf8(json).expect("text"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [r#"{"event":"recording_lost","count":12}"#, "{}"]);
}
