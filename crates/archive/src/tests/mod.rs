//! An archive in a directory of its own, and recordings as machines make them.

mod checking;
mod keeping;
mod objects;
mod taking_in;

use crate::testing::signature_of;
use crate::{Answer, Archive, Error, Intake, Kept, Maker, Part, Query, Retention, Settings};
use bytes::Bytes;
use fleetgate_record::frame::{Frame, Kind};
use fleetgate_record::signature::{self, Statement};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_record::{block, compress::Compressor};
use fleetgate_ssh::key::{HostKey, KeyType};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The time at which tests begin.
pub const NOON: u64 = 1_796_040_000;
pub const DAY: u64 = 86_400;

impl Answer {
    /// Of one that is whole: how many bytes it has.
    pub fn whole(&self) -> Option<u64> {
        match self {
            Answer::Whole(whole) => Some(whole.bytes),
            _ => None,
        }
    }
}

/// A machine that makes recordings.
pub struct Machine {
    pub name: &'static str,
    key: HostKey,
}

/// A recording in the making.
pub struct Tape<'a> {
    machine: &'a Machine,
    pub session: [u8; 16],
    writer: Writer,
    compressor: Compressor,
    pub bytes: Vec<u8>,
    at: u64,
}

impl Machine {
    pub fn new(name: &'static str) -> Machine {
        let (key, _) = HostKey::generate(KeyType::Ed25519, name).unwrap();
        Machine { name, key }
    }

    pub fn maker(&self) -> Maker {
        Maker {
            name: self.name.to_owned(),
            keys: [self.key.public().clone()].into(),
            speaks_for: None,
        }
    }

    pub fn sign(&self, text: &str) -> Vec<u8> {
        signature_of(text, &self.key)
    }

    /// A recording that has begun.
    pub fn tape(&self, session: u8) -> Tape<'_> {
        self.tape_that_says(session, "")
    }

    /// The same, with more in its first frame.
    pub fn tape_that_says(&self, session: u8, more: &str) -> Tape<'_> {
        let session = [session; 16];
        let mut tape = Tape {
            machine: self,
            session,
            writer: Writer::at(Position::start(&session)),
            compressor: Compressor::new().unwrap(),
            bytes: block::file_head(&session).to_vec(),
            at: 0,
        };
        let json = format!(
            r#"{{"version":1,"node":"host","started":"2026-11-30T12:00:00Z","user":"ada","login":"root"{more}}}"#
        );
        tape.push(Kind::Begin, json.as_bytes());
        tape.close_plain();
        tape
    }

    /// A whole recording with so many blocks of text, each signed.
    pub fn recording(&self, session: u8, blocks: usize) -> Vec<u8> {
        let mut tape = self.tape(session);
        for _ in 0..blocks {
            tape.text(3000);
            tape.sign();
        }
        tape.end();
        tape.bytes
    }
}

impl Tape<'_> {
    fn push(&mut self, kind: Kind, bytes: &[u8]) {
        self.at += 1_000_000;
        let at = self.at;
        self.writer.push(&Frame { kind, at, bytes });
    }

    fn close_plain(&mut self) {
        self.bytes.extend(self.writer.close(None).unwrap());
    }

    /// A block of text that does not become much smaller.
    pub fn text(&mut self, lines: usize) {
        let mut number = self.at;
        for _ in 0..lines {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.push(Kind::Output, format!("{number:x}\r\n").as_bytes());
        }
        self.bytes
            .extend(self.writer.close(Some(&mut self.compressor)).unwrap());
    }

    /// A block of what does not become smaller.
    pub fn noise(&mut self) {
        let mut number = self.at | 1;
        for _ in 0..2 {
            let bytes = std::iter::repeat_with(|| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (number >> 33) as u8
            });
            let bytes: Vec<u8> = bytes.take(32 << 10).collect();
            self.push(Kind::Output, &bytes);
        }
        self.close_plain();
        self.sign();
    }

    pub fn statement(&self) -> Statement {
        let at = self.writer.position();
        Statement {
            session: self.session,
            blocks: at.blocks,
            chain: at.chain,
            signed: "2026-11-30T12:00:00Z".to_owned(),
        }
    }

    /// Where the file ends now.
    pub fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn sign(&mut self) {
        let statement = self.statement();
        self.sign_as(&statement);
    }

    pub fn sign_as(&mut self, statement: &Statement) {
        let signature = self.machine.sign(&statement.text());
        self.stand_in(&signature::encode(statement, &signature));
    }

    /// A block that says it is a signature.
    pub fn stand_in(&mut self, bytes: &[u8]) {
        self.bytes.extend(self.writer.sign(bytes));
    }

    pub fn end(&mut self) {
        self.at += 1;
        let end = self.writer.end(None, self.at, br#"{"status":0}"#);
        self.bytes.extend(end);
        self.sign();
    }
}

/// An archive.
pub struct Place {
    pub directory: PathBuf,
    pub now: Arc<AtomicU64>,
    pub archive: Archive,
}

impl Place {
    pub fn new() -> Place {
        Place::with(Retention::default())
    }

    pub fn with(retention: Retention) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("fleetgate-archive-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        Place::on(directory, retention)
    }

    pub fn on(directory: PathBuf, retention: Retention) -> Place {
        let now = Arc::new(AtomicU64::new(NOON));
        let clock = now.clone();
        let archive = Archive::open(Settings {
            directory: directory.clone(),
            retention,
            store: None,
            now: Arc::new(move || clock.load(Ordering::Relaxed)),
        });
        Place {
            directory,
            now,
            archive: archive.unwrap(),
        }
    }

    /// Closes it, and opens it anew as after a crash: the files stay.
    pub fn again(mut self) -> Place {
        Place::on(std::mem::take(&mut self.directory), Retention::default())
    }

    pub fn file(&self, session: u8) -> PathBuf {
        let name = crate::entry::name(&[session; 16]);
        self.directory.join("2026-11-30").join(name).with_extension("rec")
    }

    pub async fn all(&self) -> Vec<crate::Entry> {
        self.archive.list(&Query::default(), None).await.unwrap()
    }

    /// What is read of a recording.
    pub async fn read(&self, session: u8) -> Result<Vec<u8>, Error> {
        let entry = self.archive.find(&crate::entry::name(&[session; 16])).await?;
        self.bytes(&entry).await
    }

    pub async fn bytes(&self, entry: &crate::Entry) -> Result<Vec<u8>, Error> {
        let mut reader = self.archive.read(entry, 0).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.directory.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

pub fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work);
}

pub fn part(session: u8, offset: u64, bytes: &[u8]) -> Part {
    Part {
        session: [session; 16],
        offset,
        bytes: Bytes::copy_from_slice(bytes),
        whole: false,
    }
}

pub async fn take(intake: &Intake, maker: &Maker, part: Part) -> Answer {
    let session = part.session;
    let kept: Kept = intake.take(maker, part).await.unwrap().await.unwrap();
    assert_eq!(kept.session, session);
    kept.answer
}

/// Sends bytes from an offset on in parts of this length; the last answer.
pub async fn send(
    intake: &Intake,
    maker: &Maker,
    session: u8,
    (bytes, offset): (&[u8], usize),
    length: usize,
) -> Answer {
    let mut last = Answer::Offset(0);
    for (number, chunk) in bytes[offset..].chunks(length).enumerate() {
        let at = (offset + number * length) as u64;
        last = take(intake, maker, part(session, at, chunk)).await;
    }
    last
}
