//! Recordings are made in memory or in a directory, and read as users read them.

mod export;
mod hostile;
mod player;
mod search;
mod text;
mod tmux;
mod verify;

use crate::source::Source;
use fleetgate_record::block::file_head;
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind, resize};
use fleetgate_record::signature::{Statement, encode};
use fleetgate_record::tail::Tail;
use fleetgate_record::writer::{Position, Writer};
use std::path::PathBuf;

const SESSION: [u8; 16] = [0xab; 16];
const MS: u64 = 1000;
const BEGIN: &str = r#"{"version":1,"session":"abababababababababababababababab","node":"web1","started":"2026-11-29T10:00:00.000Z","user":"ada","login":"root","client":"192.0.2.1:4","kind":"shell","terminal":{"term":"xterm","columns":20,"rows":5},"recording":"output","roles":["ops"]}"#;
const PIPES: &str = r#"{"node":"web1","started":"2026-11-29T10:00:00.000Z","login":"root","kind":"exec","command":"make all"}"#;
const END: &[u8] = br#"{"ended":"2026-11-29T10:01:00.000Z","status":3}"#;

/// Makes a recording.
struct Recording {
    writer: Writer,
    compressor: Compressor,
    file: Vec<u8>,
    session: [u8; 16],
    /// Where each block begins.
    starts: Vec<usize>,
}

impl Recording {
    fn of(session: [u8; 16], begin: &str) -> Recording {
        let mut recording = Recording {
            writer: Writer::at(Position::start(&session)),
            compressor: Compressor::new().expect("memory"),
            file: file_head(&session).to_vec(),
            session,
            starts: Vec::new(),
        };
        recording.push(Kind::Begin, 0, begin.as_bytes());
        recording
    }

    fn new() -> Recording {
        Recording::of(SESSION, BEGIN)
    }

    fn push(&mut self, kind: Kind, at: u64, bytes: &[u8]) -> &mut Recording {
        for bytes in bytes.chunks(30_000) {
            if self.writer.push(&Frame { kind, at, bytes }) {
                self.close();
            }
        }
        self
    }

    fn output(&mut self, at: u64, text: &str) -> &mut Recording {
        self.push(Kind::Output, at, text.as_bytes())
    }

    fn resized(&mut self, at: u64, columns: u16, rows: u16) -> &mut Recording {
        self.push(Kind::Resize, at, &resize(columns, rows))
    }

    fn close(&mut self) -> &mut Recording {
        if let Some(block) = self.writer.close(Some(&mut self.compressor)) {
            self.starts.push(self.file.len());
            self.file.extend(block);
        }
        self
    }

    /// Signs with a key that is a word.
    fn sign(&mut self, key: &str) -> &mut Recording {
        self.close();
        let at = self.writer.position();
        let statement = Statement {
            session: self.session,
            blocks: at.blocks,
            chain: at.chain,
            signed: "2026-11-29T10:02:00Z".to_owned(),
        };
        let signature = format!("{key}:{}", statement.text());
        self.starts.push(self.file.len());
        let block = self.writer.sign(&encode(&statement, signature.as_bytes()));
        self.file.extend(block);
        self
    }

    fn end(&mut self, at: u64) -> &mut Recording {
        self.close();
        self.starts.push(self.file.len());
        let block = self.writer.end(None, at, END);
        self.file.extend(block);
        self
    }

    /// What is in no block yet.
    fn tail(&self) -> Vec<u8> {
        let mut compressor = Compressor::new().expect("memory");
        let entry = Tail::default().write(&mut self.writer.clone(), &mut compressor);
        entry.map(|(_, bytes)| bytes).unwrap_or_default()
    }

    /// With what is in no block yet, as one that still runs.
    fn source(&self) -> Source<&[u8]> {
        let tail = Some(self.tail()).filter(|tail| !tail.is_empty());
        Source::new(self.file.as_slice(), tail).expect("a recording")
    }

    /// Puts it into a directory.
    fn keep(&self, folder: &Folder, day: &str) -> PathBuf {
        let name = fleetgate_policy::text::hex(&self.session);
        let path = folder.0.join(day).join(format!("{name}.rec"));
        std::fs::create_dir_all(folder.0.join(day)).expect("a directory");
        std::fs::write(&path, &self.file).expect("a file");
        path
    }
}

/// A directory of a test; gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fleetgate-playback-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
