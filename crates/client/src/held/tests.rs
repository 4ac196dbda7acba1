//! What is said at the holder's socket, and for which login a connection is.

use super::desk::{Ask, MAX_WHY, MAX_WORD, Reply, Told, answer, ask, hear, key};
use crate::files;
use crate::ledger::{Ledger, Step};
use crate::profile::Home;
use crate::transport::LEG;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

#[test]
fn questions_are_read_as_they_were_written_and_nothing_else_is() {
    for asked in [Ask::Use("0123".into()), Ask::End] {
        let word = asked.word();
        let text = std::str::from_utf8(&word[2..]).expect("text");
        assert_eq!(usize::from(word[1]), text.len());
        assert_eq!(Ask::parse(text), Some(asked));
    }
    for wrong in ["", "use", "end now", "End", "give 0123", " use 0123"] {
        assert_eq!(Ask::parse(wrong), None, "{wrong}");
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
    let mut ledger = Ledger::default();
    for name in ["tcp", "tls", "key exchange"] {
        ledger.begin(name, LEG);
        ledger.waits();
    }
    ledger.end();
    let told: Vec<Told> = ledger.steps().iter().filter_map(Told::of).collect();
    let reply = Reply::Lent { steps: told };
    let text = serde_json::to_string(&reply).expect("text");
    assert!(text.len() < MAX_WORD);
    let Reply::Lent { steps } = serde_json::from_str(&text).expect("the same") else {
        panic!("{text}");
    };
    let steps: Vec<Step> = steps.iter().map(Told::step).collect();
    let names: Vec<_> = steps.iter().map(|s| (s.name, s.round_trips)).collect();
    assert_eq!(names, [("tcp", 1), ("tls", 1)]);
    assert_eq!(steps[1].start, ledger.steps()[1].start);
}

#[tokio::test]
async fn words_are_bounded_and_nothing_behind_them_is_taken() {
    let replies = [
        Reply::Lent { steps: vec![] },
        Reply::Failed { why: "no".into() },
        Reply::Other,
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
        answer(&mut its, &Reply::failed(&why)).await.expect("room");
        let heard = hear(&mut ours).await.expect("a word");
        let cut = why[..MAX_WHY].to_owned();
        assert_eq!(
            serde_json::from_str::<Reply>(&heard).expect("whole"),
            Reply::Failed { why: cut }
        );
    }
}
