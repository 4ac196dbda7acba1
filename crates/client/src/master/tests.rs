//! What is said at the holder's socket, and for which login a connection is.

use super::protocol::{MAX_WHY, MAX_WORD, MasterReply, MasterRequest, StepReport, answer, ask, hear, key};
use crate::files;
use crate::profile::Home;
use crate::timings::{Step, Timings};
use crate::transport::LEG;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

#[test]
fn questions_are_read_as_they_were_written_and_nothing_else_is() {
    for asked in [MasterRequest::Use("0123".into()), MasterRequest::End] {
        let word = asked.word();
        let text = std::str::from_utf8(&word[2..]).expect("text");
        assert_eq!(usize::from(word[1]), text.len());
        assert_eq!(MasterRequest::parse(text), Some(asked));
    }
    for wrong in ["", "use", "end now", "End", "give 0123", " use 0123"] {
        assert_eq!(MasterRequest::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_connection_belongs_to_a_login_and_a_proxy() {
    let path = std::env::temp_dir().join(format!("fleetgate-held-{}", std::process::id()));
    let home = Home::find(path.to_str()).expect("a path");
    home.make().expect("made");
    assert!(key(&home, "a:1").is_err(), "no login");
    let write = |name: &str, text: &[u8]| files::write(&home.file(name), 0o600, text).expect("written");
    write("tls.crt", b"one");
    write("state.json", b"{}");
    let one = key(&home, "a:1").expect("a login");
    assert_eq!(one.len(), 64);
    assert_eq!(key(&home, "a:1").expect("the same"), one);
    assert_ne!(key(&home, "a:2").expect("another proxy"), one);
    write("tls.crt", b"two");
    assert_ne!(key(&home, "a:1").expect("another login"), one);
    std::fs::remove_dir_all(home.path()).expect("removed");
}

#[test]
fn steps_of_a_connection_are_told_and_others_are_not() {
    let mut timings = Timings::default();
    for name in ["tcp", "tls", "key exchange"] {
        timings.begin(name, LEG);
        timings.round_trip();
    }
    timings.end();
    let told: Vec<StepReport> = timings.steps().iter().filter_map(StepReport::of).collect();
    let reply = MasterReply::Lent { steps: told };
    let text = serde_json::to_string(&reply).expect("text");
    assert!(text.len() < MAX_WORD);
    let MasterReply::Lent { steps } = serde_json::from_str(&text).expect("the same") else {
        panic!("{text}");
    };
    let steps: Vec<Step> = steps.iter().map(StepReport::step).collect();
    let names: Vec<_> = steps.iter().map(|s| (s.name, s.round_trips)).collect();
    assert_eq!(names, [("tcp", 1), ("tls", 1)]);
    assert_eq!(steps[1].start, timings.steps()[1].start);
}

#[tokio::test]
async fn words_are_bounded_and_nothing_behind_them_is_taken() {
    let replies = [
        MasterReply::Lent { steps: vec![] },
        MasterReply::Failed { why: "no".into() },
        MasterReply::Other,
    ];
    for reply in replies {
        let (ours, mut its) = UnixStream::pair().expect("a pair");
        let lends = async {
            assert_eq!(hear(&mut its).await.expect("a word"), "use 0123");
            answer(&mut its, &reply).await.expect("heard");
            its.write_all(b"behind it").await.expect("heard");
            drop(its);
        };
        let (answered, ()) = tokio::join!(ask(ours, "0123"), lends);
        let (mut stream, answered) = answered.expect("an answer");
        assert_eq!(answered, reply);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.expect("readable");
        assert_eq!(rest, "behind it");
    }
    for wrong in [
        &b""[..],
        b"\0",
        b"\0\x08\"other\"",
        b"\0\x09something",
        b"\0\x01\xff",
        b"\xff\xff{",
    ] {
        let (ours, mut its) = UnixStream::pair().expect("a pair");
        its.write_all(wrong).await.expect("room");
        drop(its);
        assert!(ask(ours, "0123").await.is_err(), "{wrong:?}");
    }
    // A reason that is too long is cut, whatever it takes to write it.
    for long in ["x", "\u{1}", "ä"] {
        let (mut ours, mut its) = UnixStream::pair().expect("a pair");
        let why = long.repeat(2 * MAX_WORD);
        answer(&mut its, &MasterReply::failed(&why)).await.expect("room");
        let heard = hear(&mut ours).await.expect("a word");
        let cut = why[..MAX_WHY].to_owned();
        assert_eq!(
            serde_json::from_str::<MasterReply>(&heard).expect("whole"),
            MasterReply::Failed { why: cut }
        );
    }
}
