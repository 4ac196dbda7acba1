//! What the monitor makes of a recorder's words: chains only grow, the end is signed, storms of events are counted.

use super::*;
use fleetgate_record::signature::{self, LastKey};
use std::path::PathBuf;

const SESSION: SessionId = [3; 16];
const RECIPIENT: Recipient = Recipient([9; 32]);

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
        let begun = Begun::of(&root.join("state"));
        let prepared = prepare(
            (&root.join("recordings"), begun),
            SESSION,
            (Recording::Full, on_failure),
            &[RECIPIENT],
            true,
        )
        .expect("files");
        let whose = Whose {
            connection: 7,
            ticket: 1,
            login: "ada".to_owned(),
            user: "ada@home".to_owned(),
        };
        let front = recordings.begin(prepared, whose, b"{}").expect("it begins");
        assert!(front.is_some_and(|(_, recorded)| recorded.input));
        let [
            (
                ToRecorder::Begin {
                    session,
                    at,
                    recipients,
                },
                fds,
            ),
        ] = &recordings.take_outbox()[..]
        else {
            panic!("one message")
        };
        assert_eq!(recipients[..], [RECIPIENT.0]);
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
        let messages = self.recordings.take_outbox();
        let Some((ToRecorder::Signature { bytes, .. }, _)) = messages.last() else {
            panic!("a signature")
        };
        let chain = statement.chain;
        let (told, by) = signature::decode(bytes, &SESSION, |_| Some(chain), &mut LastKey::default())
            .expect("a signature block");
        assert_eq!((told, by), (statement, b"signature".to_vec()));
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
    let begun = Begun::of(&root.join("state"));
    let prepared = prepare(
        (&root.join("recordings"), begun.clone()),
        SESSION,
        (Recording::Output, RecordingFailure::End),
        &[],
        false,
    )
    .expect("files");
    let files = || {
        let days = std::fs::read_dir(root.join("recordings"))
            .expect("a directory")
            .flatten();
        days.flat_map(|day| std::fs::read_dir(day.path()).expect("a day"))
            .count()
    };
    assert_eq!((files(), begun.has(&SESSION)), (2, true));
    drop(prepared);
    assert_eq!((files(), begun.has(&SESSION)), (0, false));
    // A key that everybody could open it with, and too many keys.
    for recipients in [&[Recipient([0; 32])][..], &[RECIPIENT; 33]] {
        let place = (&*root.join("recordings"), begun.clone());
        let recording = (Recording::Output, RecordingFailure::End);
        let refused = prepare(place, SESSION, recording, recipients, false);
        assert!(refused.is_err_and(|why| why.starts_with("it cannot be encrypted for its")));
    }
    assert_eq!((files(), begun.has(&SESSION)), (0, false));
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
    assert!(!Begun::of(&world.root.join("state")).has(&SESSION));
    assert!(matches!(
        &world.recordings.take_outbox()[..],
        [(ToRecorder::Done { .. }, _)]
    ));
}

#[test]
fn others_hear_how_far_a_recording_is_signed_and_when_it_is_whole() {
    let mut world = World::new("growth", RecordingFailure::End);
    let (grew, heard) = std::sync::mpsc::channel();
    world
        .recordings
        .tell_growth(Box::new(move |session, path, extent| {
            assert_eq!((session, path.exists()), (SESSION, true));
            let is_made = directory::for_sending(&path).expect("it is there").is_none();
            grew.send((extent, is_made)).expect("it listens");
        }));
    let first = world.frames(2, false);
    world.sign(first, 2);
    assert_eq!(world.frames(3, false), Ok(Next::Nothing));
    assert_eq!(heard.try_iter().count(), 0, "no signature stands");
    assert_eq!(world.signature(4, 3, false), Ok(Next::Nothing));
    let (signed, length) = (232, 432);
    let running = (Extent::Signed { signed, length }, true);
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [running]);
    world.recordings.end(&SESSION, b"{}".to_vec());
    let end = world.frames(5, true);
    world.sign(end, 5);
    assert!(matches!(world.signature(6, 5, true), Ok(Next::Done { .. })));
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(Extent::Whole, false)]);
}

#[test]
fn where_little_is_left_a_user_who_has_a_part_of_it_gets_no_more() {
    let mut world = World::new("share", RecordingFailure::End);
    world.frames(5, false).expect("it grows");
    let has_enough = |world: &World, max_size| {
        let other = world.recordings.has_enough("eve", max_size);
        assert!(!other, "who has nothing yet gets some");
        let own = world.recordings.has_enough("ada@home", max_size);
        assert_eq!(own, world.recordings.has_enough_of(&SESSION, max_size));
        own
    };
    assert!(!has_enough(&world, 100), "there is room");
    world.recordings.scarcity().store(true, Ordering::Relaxed);
    assert!(has_enough(&world, 100));
    assert!(!has_enough(&world, 1_000_000));
    assert!(!has_enough(&world, 0), "any number");
}

#[test]
fn a_signature_that_came_too_late_is_made_again_behind_the_end_and_not_without_end() {
    let mut world = World::new("late", RecordingFailure::End);
    let first = world.frames(2, false);
    world.sign(first, 2);
    // Within a second the next block asks for one, and it is no use to say so again.
    for _ in 0..100 {
        assert_eq!(world.recordings.too_late(&SESSION), Ok(Next::Nothing));
    }
    world.recordings.end(&SESSION, b"{}".to_vec());
    world.recordings.take_outbox();
    let last = world.frames(70, true);
    world.sign(last, 70);
    // Behind the end there is no next block.
    let again = world.recordings.too_late(&SESSION);
    world.sign(again, 70);
    for _ in 0..2 {
        let again = world.recordings.too_late(&SESSION);
        world.sign(again, 70);
    }
    assert!(
        world.recordings.too_late(&SESSION).is_err(),
        "no honest recorder needs so many"
    );
    assert!(world.frames(71, false).is_err(), "its end was in it");
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
    // It takes a part of the room, and something is left for others.
    let sent = world.recordings.take_outbox().len();
    assert_eq!(sent, (CREDIT as usize).div_ceil(1 + SHARE));
    world.recordings.took(u32::try_from(sent).expect("few"));
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
    let lost = CREDIT as usize + 12 - sent;
    assert_eq!(
        told,
        [
            format!(r#"{{"event":"recording_lost","count":{lost}}}"#),
            "{}".to_owned()
        ]
    );
}
