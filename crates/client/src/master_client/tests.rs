//! What is said between a command and the master.

use super::socket::MessageSocket;
use super::{heard_step, told_step};
use crate::timings::Timings;
use crate::transport::LEG;
use fleetgate_sys::socket;
use fleetgate_wire::master::{FromMaster, MAX_FRAME, MAX_WORDS, Size, ToMaster};
use std::io::ErrorKind;

#[test]
fn steps_of_a_connection_are_told_and_others_are_not() {
    let mut timings = Timings::default();
    for name in ["tcp", "tls", "key exchange"] {
        timings.begin(name, LEG);
        timings.round_trip();
    }
    timings.end();
    let told: Vec<_> = timings.steps().iter().filter_map(told_step).collect();
    let heard: Vec<_> = told.iter().map(heard_step).collect();
    let names: Vec<_> = heard.iter().map(|s| (s.name, s.round_trips)).collect();
    assert_eq!(names, [("tcp", 1), ("tls", 1)]);
    assert_eq!(heard[1].start, timings.steps()[1].start);
}

#[tokio::test]
async fn frames_come_whole_or_are_refused() {
    let (ours, its) = MessageSocket::pair().expect("a pair");
    let size = Size {
        columns: 80,
        rows: 24,
    };
    let word = ToMaster::Window { size };
    for frame in [
        fleetgate_wire::encode(&word),
        b"fg".to_vec(),
        vec![0; MAX_FRAME + 1],
    ] {
        socket::send_now(&its, &frame, &[]).expect("room");
    }
    assert_eq!(ours.receive::<ToMaster>().await.expect("a word").0, word);
    // Of another version, or cut: nothing is guessed, and the next one is read as it is.
    for _ in 0..2 {
        let wrong = ours.receive::<ToMaster>().await.expect_err("no word");
        assert_eq!(wrong.kind(), ErrorKind::InvalidData);
    }
    drop(its);
    let end = ours.receive::<ToMaster>().await.expect_err("the end");
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    // One that is too long is not sent.
    let why = std::ffi::CString::new(vec![b'x'; MAX_FRAME]).expect("no zero byte");
    let (ours, _its) = MessageSocket::pair().expect("a pair");
    let long = ours.send(&FromMaster::Failed { why }, &[]).expect_err("too long");
    assert_eq!(long.kind(), ErrorKind::InvalidInput);
}

#[test]
fn words_are_cut_to_their_bound() {
    for (given, length) in [
        ("x", MAX_WORDS),
        ("\0", MAX_WORDS),
        ("\u{e4}", MAX_WORDS),
        ("\u{20ac}", MAX_WORDS - 2),
    ] {
        assert_eq!(super::words(&given.repeat(MAX_WORDS)).as_bytes().len(), length);
    }
}
