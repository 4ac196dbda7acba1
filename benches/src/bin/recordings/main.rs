//! Recordings for `cargo xtask bench record-grep`: `make DIR HOURS SEED` makes so many hours of shell sessions, always the same
//! for a seed, and `count DIR` says what there is. Each prints numbers: bytes of recordings, of what terminals got, of text, of
//! indexes.
//!
//! They are made as a node makes them: a frame for each read of the terminal, blocks of 64 KB, compressed. A session is an hour
//! long, and ten are of a day. One word is in one session alone, and one in every tenth.
#![forbid(unsafe_code)]

mod shell;

use fleetgate_playback::index::Index;
use fleetgate_playback::store::entries;
use fleetgate_record::block::file_head;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_sys::clock;
use shell::Shell;
use std::path::Path;

/// Sessions of a day.
const A_DAY: u64 = 10;
/// The first day: 2026-01-01.
const FIRST_DAY: i64 = 1_767_225_600;
const HOUR: u64 = 3_600_000_000;

type Result<T> = std::result::Result<T, String>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["make", directory, hours, seed] => match (hours.parse(), seed.parse()) {
            (Ok(hours), Ok(seed)) => make(Path::new(directory), hours, seed),
            _ => Err("HOURS and SEED are numbers".to_owned()),
        },
        ["count", directory] => count(Path::new(directory)),
        _ => Err("usage: bench-recordings make DIR HOURS SEED | count DIR".to_owned()),
    };
    if let Err(why) = done {
        eprintln!("bench-recordings: {why}");
        std::process::exit(1);
    }
}

/// Makes them; prints the bytes of the recordings and of their output.
fn make(directory: &Path, hours: u64, seed: u64) -> Result<()> {
    let mut compressor = Compressor::new().ok_or("no memory")?;
    let (mut stored, mut shown) = (0, 0);
    for hour in 0..hours {
        let day = FIRST_DAY + 86_400 * i64::try_from(hour / A_DAY).unwrap_or_default();
        let started = clock::Time {
            sec: day + 3600 * i64::try_from(hour % A_DAY).unwrap_or_default(),
            nsec: 0,
        };
        let started = clock::rfc3339(started, 6);
        let (session, bytes, output) = one(&started, hour, hours, seed, &mut compressor);
        let path = directory.join(&started[..10]);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let name: String = session.iter().map(|b| format!("{b:02x}")).collect();
        let path = path.join(name + ".rec");
        std::fs::write(&path, &bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        stored += bytes.len() as u64;
        shown += output;
    }
    println!("{stored} {shown}");
    Ok(())
}

/// One recording: its session, its file, and how many bytes its terminal got.
fn one(
    started: &str,
    hour: u64,
    hours: u64,
    seed: u64,
    compressor: &mut Compressor,
) -> ([u8; 16], Vec<u8>, u64) {
    let mut shell = Shell::new(seed ^ (hour + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut session = [0; 16];
    session[..8].copy_from_slice(&shell.random().to_be_bytes());
    session[8..].copy_from_slice(&shell.random().to_be_bytes());
    let (user, node) = (shell.user(), shell.node());
    let begin = format!(
        r#"{{"version":1,"node":"{node}","started":"{started}","user":"{user}","login":"root","client":"192.0.2.7:51514","kind":"shell","terminal":{{"term":"xterm-256color","columns":120,"rows":40}},"recording":"output","roles":["ops"]}}"#
    );
    let mut file = file_head(&session).to_vec();
    let mut writer = Writer::at(Position::start(&session));
    let (mut at, mut output) = (0, 0);
    let mut push = |kind, at, bytes: &[u8], compressor: Option<&mut Compressor>| {
        let is_full = writer.push(&Frame { kind, at, bytes });
        if is_full || kind == Kind::Begin {
            file.extend(writer.close(compressor).unwrap_or_default());
        }
    };
    push(Kind::Begin, 0, begin.as_bytes(), None);
    if hour == hours / 2 {
        shell.says("the one and only zyzzyva of this disk\r\n");
    }
    if hour % 10 == 5 {
        shell.says("qwxjk: every tenth session has it\r\n");
    }
    while at < HOUR {
        let (pause, bytes) = shell.next();
        at += pause;
        output += bytes.len() as u64;
        push(Kind::Output, at, &bytes, Some(compressor));
    }
    let end = format!(r#"{{"ended":"{started}","status":0}}"#);
    file.extend(writer.end(Some(compressor), at, end.as_bytes()));
    (session, file, output)
}

/// Prints the bytes of the text that was indexed, of the indexes, and how many recordings have one.
fn count(directory: &Path) -> Result<()> {
    let (mut text, mut indexes, mut recordings) = (0, 0, 0_u64);
    for entry in entries(directory).map_err(|e| e.to_string())? {
        let Some(bytes) = entry.index() else { continue };
        let Some(index) = Index::decode(&bytes, &entry.session(), entry.length()) else {
            continue;
        };
        text += index.text();
        indexes += bytes.len() as u64;
        recordings += 1;
    }
    println!("{text} {indexes} {recordings}");
    Ok(())
}
