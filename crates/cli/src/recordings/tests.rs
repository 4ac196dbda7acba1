//! The commands over a directory that a test made and signed: what they exit with.

use crate::commands::COMMANDS;
use crate::flags::{Invocation, parse};
use fleetgate_record::block::file_head;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{NAMESPACE, Statement, encode};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::key::{HostKey, KeyType};
use fleetgate_ssh::sshsig;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A recording of a session that said `hello world`, signed by this key as a node signs.
fn recording(session: [u8; 16], key: &HostKey) -> Vec<u8> {
    let mut file = file_head(&session).to_vec();
    let mut writer = Writer::at(Position::start(&session));
    for (kind, bytes) in [
        (
            Kind::Begin,
            &br#"{"user":"ada","login":"root","node":"web1","started":"2026-11-29T10:00:00Z"}"#[..],
        ),
        (Kind::Output, b"hello \x1b[1mworld\r\n"),
    ] {
        writer.push(&Frame { kind, at: 7, bytes });
    }
    file.extend(writer.end(None, 9, br#"{"status":0}"#));
    let at = writer.position();
    let statement = Statement {
        session,
        blocks: at.blocks,
        chain: at.chain,
        signed: "2026-11-29T10:00:01Z".to_owned(),
    };
    let message = sshsig::message(NAMESPACE, statement.text().as_bytes());
    let signature = key.sign("ssh-ed25519", &message).expect("a signature");
    let blob = sshsig::encode(key.public().blob(), NAMESPACE, &signature);
    file.extend(writer.sign(&encode(&statement, &blob)));
    file
}

fn sessions(words: &str, folder: &Path) -> i32 {
    let mut words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    words.insert(0, "sessions".into());
    words.extend(["--directory".into(), folder.join("recordings").into()]);
    let Ok(Invocation::Run(given)) = parse(COMMANDS, &words) else {
        panic!("{words:?}: not by the table");
    };
    crate::done(&given, (given.command.run)(&given))
}

#[test]
fn recordings_are_listed_searched_exported_and_verified() {
    let folder =
        Folder(std::env::temp_dir().join(format!("fleetgate-cli-recordings-{}", std::process::id())));
    let day = folder.0.join("recordings/2026-11-29");
    std::fs::create_dir_all(&day).expect("a directory");
    let (key, _) = HostKey::generate(KeyType::Ed25519, "").expect("a key");
    let (other, _) = HostKey::generate(KeyType::Ed25519, "").expect("a key");
    let file = recording([0xab; 16], &key);
    let path = day.join("ab".repeat(16) + ".rec");
    std::fs::write(&path, &file).expect("a file");
    let node = folder.0.join("node.pub");
    std::fs::write(
        &node,
        format!("# the node's\n{} root@web1\n", key.public().line()),
    )
    .expect("a file");
    let verify = format!("verify abababab --key {}", node.display());
    let run = |words: &str| sessions(words, &folder.0);
    for (words, code) in [
        ("ls", 0),
        ("ls --json --user ada --since 2026-11-29", 0),
        ("ls --running", 0),
        ("export abababab", 0),
        ("export --last --asciicast", 0),
        ("export --last --json", 0),
        ("export --last --svg --at 1m", 0),
        ("play --last", 0),
        ("grep world", 0),
        ("grep -i WORLD --json", 0),
        ("grep -E ^hel+o --no-index", 0),
        ("grep nowhere", 1),
        ("grep world --user bob", 1),
        ("export cdcdcdcd", 1),
        (&verify, 0),
        (&format!("{verify} --json"), 0),
    ] {
        assert_eq!(run(words), code, "{words}");
    }
    std::fs::write(&path, recording([0xab; 16], &other)).expect("a file");
    assert_eq!(run(&verify), 1, "another key");
    let mut changed = file.clone();
    let at = changed.len() - 10;
    changed[at] ^= 1;
    std::fs::write(&path, &changed).expect("a file");
    assert_eq!(run(&verify), 1, "a changed byte");
    assert_eq!(run("grep hello"), 2, "it could not be read to its end");
    assert_eq!(run("export --last --text"), 1, "neither could it here");
    std::fs::write(&path, &file[..file.len() - 10]).expect("a file");
    assert_eq!(run(&format!("{verify} --json")), 1, "it was cut");
    std::fs::write(&path, "nothing of ours").expect("a file");
    assert_eq!(
        run("ls"),
        0,
        "what cannot be read is told, and the others are listed"
    );
    assert_eq!(run("play --last"), 1);
}
