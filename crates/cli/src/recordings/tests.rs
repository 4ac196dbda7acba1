//! The commands over a directory that a test made and signed: what they exit with.

use crate::commands::COMMANDS;
use crate::flags::{Arguments, Invocation, parse};
use fleetgate_archive::testing::sign;
use fleetgate_playback::list::{Filter, list};
use fleetgate_policy::{Recipient, bech32};
use fleetgate_record::age::Recipients;
use fleetgate_record::block::file_head;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_ssh::key::{HostKey, KeyType};
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
    file.extend(sign(&mut writer, session, key));
    file
}

/// A recording that said `hello world` as well, encrypted for the key of this file.
fn encrypted(session: [u8; 16]) -> Vec<u8> {
    let begin = format!(
        r#"{{"user":"ada","login":"root","node":"web1","started":"2026-11-29T10:00:00Z","recipients":["{PUBLIC}"]}}"#
    );
    let mut file = file_head(&session).to_vec();
    let mut writer = Writer::at(Position::start(&session));
    writer.push(&Frame {
        kind: Kind::Begin,
        at: 0,
        bytes: begin.as_bytes(),
    });
    file.extend(writer.close(None).expect("a frame"));
    let recipient: Recipient = PUBLIC.parse().expect("a key");
    let mut writer = Writer::at(*writer.position()).sealed_for(Recipients::new(&[recipient.0]));
    writer.push(&Frame {
        kind: Kind::Output,
        at: 7,
        bytes: b"hello \x1b[1mworld\r\n",
    });
    file.extend(writer.end(None, 9, br#"{"status":0}"#));
    file
}

const PUBLIC: &str = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";
const SECRET: &str = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";

#[test]
fn an_encrypted_recording_wants_its_key() {
    let folder = Folder(std::env::temp_dir().join(format!("fleetgate-cli-encrypted-{}", std::process::id())));
    let day = folder.0.join("recordings/2026-11-29");
    std::fs::create_dir_all(&day).expect("a directory");
    std::fs::write(day.join("cd".repeat(16) + ".rec"), encrypted([0xcd; 16])).expect("a file");
    let identity = |name: &str, key: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, format!("# a key\n{key}\n")).expect("a file");
        format!("--identity {}", path.display())
    };
    let own = identity("own.txt", SECRET);
    let other = identity(
        "other.txt",
        &bech32::encode("age-secret-key-", &[1; 32]).to_ascii_uppercase(),
    );
    let none = identity("none.txt", PUBLIC);
    for (words, code) in [
        ("ls".to_owned(), Ok(0)),
        (
            "play --last".to_owned(),
            Err("is encrypted for age1dc3xeggyp2p9556"),
        ),
        (
            "export --last --asciicast".to_owned(),
            Err("with --identity FILE"),
        ),
        ("export --last --json".to_owned(), Ok(0)),
        (format!("export --last --json {own}"), Ok(0)),
        (format!("export --last --json {other}"), Ok(1)),
        (
            "export --last --identity nowhere".to_owned(),
            Err("the keys in nowhere cannot be read: No such file or directory (os error 2): give a file"),
        ),
        ("grep hello".to_owned(), Ok(2)),
        (format!("play --last {own}"), Ok(0)),
        (format!("export --last --svg {other} {own}"), Ok(0)),
        (format!("grep hello {own}"), Ok(0)),
        (format!("grep nowhere {own}"), Ok(1)),
        (format!("play --last {other}"), Ok(1)),
        (format!("grep hello {other}"), Ok(2)),
        (format!("play --last {none}"), Err("this is a public key")),
    ] {
        match (run(&words, &folder.0), code) {
            (Ok(got), Ok(code)) => assert_eq!(got, code, "{words}"),
            (Err(e), Err(says)) => assert!(e.contains(says), "{words}: {e}"),
            (got, code) => panic!("{words}: {got:?}, not {code:?}"),
        }
    }
    // A key that opens nothing takes nothing away.
    let exported = |words: &str| {
        let mut out = Vec::new();
        let given = parsed(words, &folder.0);
        super::export_to(&given, &mut out).expect("exported");
        String::from_utf8(out).expect("text")
    };
    let without = exported("export --last --json");
    assert!(without.contains(r#""kind":"encrypted""#) && without.contains(r#""kind":"end""#));
    assert_eq!(exported(&format!("export --last --json {other}")), without);
    assert!(exported(&format!("export --last --json {other} {own}")).contains("hello"));
    let listed = list(&folder.0.join("recordings"), &Filter::default()).expect("listed");
    let table = super::table(&listed.recordings);
    assert!(
        table.contains("  encrypted  what\n") && table.contains("  yes        shell\n"),
        "{table}"
    );
    let document = super::document(&listed.recordings[0]);
    assert_eq!(
        (&document["encrypted"], &document["recipients"][0]),
        (&true.into(), &PUBLIC.into())
    );
    let indexes = std::fs::read_dir(&day).expect("a directory").count();
    assert_eq!(indexes, 1, "no index tells what is in it");
}

fn run(words: &str, folder: &Path) -> Result<i32, String> {
    let given = parsed(words, folder);
    (given.command.run)(&given).map_err(|e| e.to_string())
}

fn sessions(words: &str, folder: &Path) -> i32 {
    let given = parsed(words, folder);
    crate::done(&given, (given.command.run)(&given))
}

fn parsed(words: &str, folder: &Path) -> Arguments {
    let mut words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    words.insert(0, "sessions".into());
    words.extend(["--directory".into(), folder.join("recordings").into()]);
    let Ok(Invocation::Run(given)) = parse(COMMANDS, &words) else {
        panic!("{words:?}: not by the table");
    };
    given
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
        ("grep (", 1),
        ("grep -E (", 2),
        ("verify cdcdcdcd", 2),
        ("verify --all --last", 2),
        ("export cdcdcdcd", 1),
        (&verify, 0),
        (&format!("{verify} --json"), 0),
    ] {
        assert_eq!(run(words), code, "{words}");
    }
    for (words, says) in [
        (
            "play --last --from 5s",
            "`--from` is for a terminal, and standard output is none",
        ),
        ("play --last --speed 2", "sessions export --text --times"),
        ("play --last --max-idle 2s", "`--max-idle` is for a terminal"),
        ("ls --limit 0", "`--limit` is a number from 1 on, not 0"),
        (
            "verify --last --key nowhere",
            "--key nowhere: No such file or directory (os error 2): give a file with public keys",
        ),
    ] {
        let why = self::run(words, &folder.0).expect_err(words);
        assert!(why.contains(says), "{words}: {why}");
    }
    let listed = list(&folder.0.join("recordings"), &Filter::default()).expect("listed");
    assert!(
        !super::table(&listed.recordings).contains("encrypted"),
        "nothing is"
    );
    assert_eq!(super::document(&listed.recordings[0])["encrypted"], false);
    let private = folder.0.join("node");
    std::fs::write(&private, "-----BEGIN OPENSSH PRIVATE KEY-----\n").expect("a file");
    assert_eq!(run(&format!("verify abababab --key {}", private.display())), 2);
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
