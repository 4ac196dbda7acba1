//! Recordings on their way to an auth service that is played here.

use super::*;
use crate::recorder::tests::{begin, bounded, files, fresh_state};
use fleetgate_ssh::event::Stream as Channel;
use std::fs;

/// What auth is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    /// It forgets once what it has not acknowledged.
    Forgets,
    Refuses,
    Waits,
}

/// Takes parts as docs/recording.md says; what it has in the end.
async fn auth(
    mut parts: Receiver<RecordingFrom>,
    kept: Sender<RecordingKept>,
    mut has: Vec<u8>,
    mut mood: Mood,
) -> (Vec<u8>, Vec<u64>) {
    let (mut is_whole, mut offsets) = (false, Vec::new());
    while let Some(from) = parts.recv().await {
        assert_eq!(from.source, "");
        let part = from.part.expect("a part");
        if !part.bytes.is_empty() {
            offsets.push(part.offset);
        }
        let mut answer = RecordingKept {
            session: part.session,
            ..RecordingKept::default()
        };
        match mood {
            Mood::Refuses => answer.refused = "it is another's".to_owned(),
            Mood::Waits => (answer.wait, answer.why) = (5, "the disk is full".to_owned()),
            Mood::Forgets if part.offset > 0 => {
                mood = Mood::Takes;
                has.clear();
            }
            _ if part.offset == has.len() as u64 => {
                has.extend_from_slice(&part.bytes);
                is_whole |= part.whole;
            }
            _ => {}
        }
        (answer.offset, answer.whole) = (has.len() as u64, is_whole);
        if kept.send(answer).await.is_err() {
            break;
        }
    }
    (has, offsets)
}

/// A whole recording of some parts.
async fn recorded(state: &std::path::Path) -> (Recorder, PathBuf) {
    let (recorder, _events) = bounded(state, 0);
    let mut tap = begin(&recorder, 7).await.expect("begun");
    tap.output(Channel::Main, b"some");
    drop(tap);
    recorder.settle().await;
    while files(state, "tail").len() == 1 {
        tokio::task::yield_now().await;
    }
    let path = files(state, "rec").remove(0);
    (recorder, path)
}

#[tokio::test(start_paused = true)]
async fn auth_gets_what_it_has_not_and_says_what_becomes_of_it() {
    let state = fresh_state();
    let (_recorder, path) = recorded(&state).await;
    // What comes behind is nothing that a delivery looks at.
    let mut bytes = fs::read(&path).expect("there");
    bytes.resize(3 * PART + 5, 1);
    fs::write(&path, &bytes).expect("written");
    let length = bytes.len() as u64;
    let signed = |covered: u64, until: usize| {
        let until = until as u64;
        Some(Signed { covered, until })
    };
    let parts = |n: u64| (0..n).map(|n| n * PART as u64).collect::<Vec<_>>();
    for (mood, has, signed, outcome, sent) in [
        (Mood::Takes, 0, None, Outcome::Whole(length), parts(4)),
        (
            Mood::Takes,
            0,
            signed(9, PART),
            Outcome::Kept(PART as u64),
            parts(1),
        ),
        (Mood::Takes, 10, signed(10, PART), Outcome::Kept(10), vec![]),
        (
            Mood::Takes,
            10,
            signed(11, PART),
            Outcome::Kept(PART as u64),
            vec![10],
        ),
        (
            Mood::Refuses,
            0,
            signed(9, PART),
            Outcome::Refused("it is another's".to_owned()),
            vec![],
        ),
        (
            Mood::Takes,
            3 * PART,
            None,
            Outcome::Whole(length),
            vec![3 * PART as u64],
        ),
        (
            Mood::Forgets,
            0,
            None,
            Outcome::Whole(length),
            [parts(4), parts(4)].concat(),
        ),
        (
            Mood::Refuses,
            0,
            None,
            Outcome::Refused("it is another's".to_owned()),
            vec![],
        ),
        (
            Mood::Waits,
            0,
            None,
            Outcome::Later(Duration::from_secs(5), "the disk is full".to_owned()),
            vec![],
        ),
    ] {
        let item = Item {
            session: [7; 16],
            path: path.clone(),
            signed,
        };
        let (send, received) = mpsc::channel(PARTS);
        let (to_task, kept) = mpsc::channel(ANSWERS);
        let auth = tokio::spawn(auth(received, to_task, bytes[..has].to_vec(), mood));
        let got = Delivery::new(&item, send, kept).run(&item).await;
        assert_eq!(got, outcome, "{mood:?}");
        let (has, offsets) = auth.await.expect("no panic");
        assert_eq!(offsets, sent, "{mood:?}");
        assert!(bytes.starts_with(&has), "{mood:?}");
    }
    fs::remove_dir_all(&state).expect("removed");
}

#[tokio::test]
async fn what_auth_has_goes_and_what_it_refuses_holds_up_nothing() {
    let state = fresh_state();
    let (recorder, path) = recorded(&state).await;
    let spool = recorder.spool().clone();
    let mut progress = Progress::default();
    let next = |progress: &mut Progress| progress.next(&spool, |_| false);
    let item = next(&mut progress).expect("it is whole");
    assert_eq!((&item.path, item.signed), (&path, None));
    assert!(
        progress.next(&spool, |session| *session == [7; 16]).is_none(),
        "under way"
    );
    // Another process has it.
    let other = OpenOptions::new().read(true).open(&path).expect("there");
    let other = Fd::from(OwnedFd::from(other));
    flock::try_hold(&other).expect("free");
    assert!(open(&item).is_err());
    drop(other);
    open(&item).expect("free again");
    progress.note(&recorder, item.clone(), Outcome::Later(LATER, String::new()));
    assert!(next(&mut progress).is_none());
    progress.later.clear();
    assert!(next(&mut progress).is_some());
    // One that is being made, as far as the disk has what is signed.
    let mut tap = begin(&recorder, 8).await.expect("begun");
    tap.output(Channel::Main, b"some");
    let running = Running {
        path: path.clone(),
        signed: Signed {
            covered: 9,
            until: 12,
        },
    };
    lock(&spool.running).insert([8; 16], running);
    progress.note(&recorder, item, Outcome::Whole(spool.counts().2));
    assert!(!path.exists());
    let item = next(&mut progress).expect("more is signed than auth has");
    assert_eq!(
        (item.session, item.signed),
        (
            [8; 16],
            Some(Signed {
                covered: 9,
                until: 12
            })
        )
    );
    progress.note(&recorder, item, Outcome::Kept(9));
    assert!(next(&mut progress).is_none());
    // Refused: it stays under another name.
    drop(tap);
    recorder.settle().await;
    while lock(&spool.ended).is_empty() {
        tokio::task::yield_now().await;
    }
    let item = next(&mut progress).expect("whole by now");
    progress.note(&recorder, item, Outcome::Refused("why".to_owned()));
    assert_eq!(
        (files(&state, "rec").len(), files(&state, "refused").len()),
        (0, 1)
    );
    recorder.look();
    assert!(next(&mut progress).is_none());
    fs::remove_dir_all(&state).expect("removed");
}
